//! Secrets, keys and signatures after the [Standard Webhooks](https://www.standardwebhooks.com) specification, 1.0.0, and
//! the older `X-Webhook-Signature`.
//!
//! It signs and does not verify, holds no state, and draws no random numbers: callers bring 32 random bytes.
//!
//! ```
//! use signalbox_standard_webhooks::{Message, secret_of};
//! let secret = secret_of(&[7; 32]);
//! let signature = Message { id: "msg_1", timestamp: 1_614_265_330, body: "{}" }.sign(&secret);
//! assert!(secret.starts_with("whsec_") && signature.starts_with("v1,"));
//! ```

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Prefix of symmetric secrets; the key follows in base64.
const SECRET_PREFIX: &str = "whsec_";
/// Prefix of private keys.
const PRIVATE_PREFIX: &str = "whsk_";
/// Prefix of public keys.
const PUBLIC_PREFIX: &str = "whpk_";

/// The secret with the key `random`.
pub fn secret_of(random: &[u8; 32]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(random))
}

/// Whether `secret` has the form of the specification. Reference libraries accept no other one.
pub fn is_standard_secret(secret: &str) -> bool {
    decoded(secret).is_some()
}

fn decoded(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    (!key.is_empty()).then_some(key)
}

/// The signed parts of a request.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Equal in all attempts.
    pub id: &'a str,
    /// Unix time of the attempt, in seconds.
    pub timestamp: i64,
    /// Byte for byte as it is sent.
    pub body: &'a str,
}

impl Message<'_> {
    /// The `v1` signature by `secret`, with its identifier. A secret of another form signs by its raw bytes.
    pub fn sign(&self, secret: &str) -> String {
        let key = decoded(secret).unwrap_or_else(|| secret.as_bytes().to_vec());
        format!("v1,{}", STANDARD.encode(authenticate(&key, &self.content())))
    }

    /// The `v1a` signature by `key`, with its identifier.
    ///
    /// # Errors
    /// [`KeyError`] when the cryptographic library refuses.
    pub fn sign_asymmetrically(&self, key: &PrivateKey) -> Result<String, KeyError> {
        let signature = key.0.try_sign(self.content().as_bytes()).map_err(|_| KeyError)?;
        Ok(format!("v1a,{}", STANDARD.encode(signature)))
    }

    /// The value of `X-Webhook-Signature`: lower-case hex over `<timestamp>.<body>`, by the bytes of `secret` as given.
    pub fn sign_in_hex(&self, secret: &str) -> String {
        let Self { timestamp, body, .. } = self;
        hex::encode(authenticate(secret.as_bytes(), &format!("{timestamp}.{body}")))
    }

    fn content(&self) -> String {
        let Self { id, timestamp, body } = self;
        format!("{id}.{timestamp}.{body}")
    }
}

fn authenticate(key: &[u8], message: &str) -> Vec<u8> {
    // HMAC takes keys of any length; the error is for other constructions.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// A text is not a private key, or the cryptographic library refuses it.
#[derive(Debug, thiserror::Error)]
#[error("the signing key cannot be used: make another one by rotating it")]
pub struct KeyError;

/// An ed25519 key that signs.
#[derive(Debug)]
pub struct PrivateKey(Ed25519KeyPair);

impl PrivateKey {
    /// The key whose seed is `random`.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn of(random: &[u8; 32]) -> Result<Self, KeyError> {
        Ed25519KeyPair::from_seed_unchecked(random).map(Self).map_err(|_| KeyError)
    }

    /// The text form of the key whose seed is `random`. It is a secret.
    pub fn text_of(random: &[u8; 32]) -> String {
        format!("{PRIVATE_PREFIX}{}", STANDARD.encode(random))
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let seed = text.strip_prefix(PRIVATE_PREFIX).and_then(|seed| STANDARD.decode(seed).ok());
        let seed: [u8; 32] = seed.and_then(|seed| seed.try_into().ok()).ok_or(KeyError)?;
        Self::of(&seed)
    }

    /// The key that receivers verify with.
    pub fn public(&self) -> String {
        format!("{PUBLIC_PREFIX}{}", STANDARD.encode(self.0.public_key()))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    /// The message of the test vectors that the specification's libraries share.
    const PUBLISHED: Message<'_> = Message {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp: 1_614_265_330,
        body: r#"{"test": 2432232314}"#,
    };

    #[test]
    fn the_symmetric_signature_is_the_published_one() {
        let signature = PUBLISHED.sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn the_asymmetric_signature_is_the_published_one() {
        let key = PrivateKey::parse("whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=").unwrap();
        let published =
            "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==";
        assert_eq!(PUBLISHED.sign_asymmetrically(&key).unwrap(), published);
    }

    #[test]
    fn the_public_key_verifies_and_no_other_one() {
        let content = PUBLISHED.content();
        let [one, other] = [1, 2].map(|byte| PrivateKey::of(&[byte; 32]).unwrap());
        let signature = PUBLISHED.sign_asymmetrically(&one).unwrap();
        let signature = STANDARD.decode(signature.strip_prefix("v1a,").unwrap()).unwrap();
        let verifies = |key: &PrivateKey| {
            let public = STANDARD.decode(key.public().strip_prefix("whpk_").unwrap()).unwrap();
            UnparsedPublicKey::new(&ED25519, public).verify(content.as_bytes(), &signature).is_ok()
        };
        assert!(verifies(&one) && !verifies(&other));
    }

    #[test]
    fn the_text_of_a_private_key_is_read_back() {
        let key = PrivateKey::parse(&PrivateKey::text_of(&[9; 32])).unwrap();
        assert_eq!(key.public(), PrivateKey::of(&[9; 32]).unwrap().public());
        for wrong in ["", "whsk_", "whsk_AAAA", "CQkJ", "whpk_CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk="] {
            assert!(PrivateKey::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_made_secret_has_the_standard_form() {
        let secret = secret_of(&[255; 32]);
        assert_eq!(secret, format!("whsec_{}8=", "/".repeat(42)));
        assert!(is_standard_secret(&secret) && is_standard_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
        for other in ["", "a shared secret", "whsec_", "whsec_not base64", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert!(!is_standard_secret(other), "{other}");
        }
    }

    #[test]
    fn a_secret_of_another_form_signs_by_its_raw_bytes() {
        // printf '%s' 'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}' |
        //   openssl dgst -sha256 -hmac 's3cret' -binary | base64
        assert_eq!(PUBLISHED.sign("s3cret"), "v1,+ovFnGFuIqjGihpeGWWpQI81Q0lhpDv9t/URyHZUADQ=");
    }

    #[test]
    fn the_hex_signature_uses_the_secret_as_given() {
        // printf '%s' '1614265330.{"test": 2432232314}' | openssl dgst -sha256 -hmac 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
        let signature = PUBLISHED.sign_in_hex("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(signature, "2e37df5d4a028c51a7f3133d64ae1e300d2c2c900f1b1d49d4369ad2530f8964");
    }
}
