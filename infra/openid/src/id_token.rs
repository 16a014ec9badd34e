//! Validation of ID tokens: OpenID Connect Core 1.0, section 3.1.3.7.

use chrono::{DateTime, Utc};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::{Error, ErrorKind},
};
use serde::Deserialize;
use serde_json::Value;

use crate::keys::Keys;

/// Signatures that only the provider can make: none by a shared secret, and never none.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// Seconds by which the provider's clock may be off.
const SKEW: f64 = 60.0;
/// Greatest age of a token, in seconds; tokens are used as soon as they are issued.
const MAX_AGE: f64 = 600.0;

/// Why an ID token is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not a signed JWT, or a claim is missing or of a wrong type.
    #[error("it cannot be read: {0}")]
    Malformed(String),
    /// It is signed in a way that is not accepted.
    #[error("its algorithm is not accepted")]
    Algorithm,
    /// It is signed by a key that the provider does not publish.
    #[error("its key is not known")]
    UnknownKey,
    /// The signature is not the key's.
    #[error("its signature is not valid")]
    Signature,
    /// A claim is not as it has to be.
    #[error("its {0} is not as it has to be")]
    Claim(&'static str),
}

/// Expected values of a token's claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) now: DateTime<Utc>,
}

/// The claims of a token that is believed.
#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    iss: String,
    pub(crate) sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
    #[serde(flatten)]
    pub(crate) profile: Profile,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// A provider's claims about a person.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Profile {
    pub(crate) email: Option<String>,
    email_verified: Option<Value>,
    preferred_username: Option<String>,
    name: Option<String>,
}

impl Profile {
    /// Whether the provider has verified the address. Only `true` says so, not a text of that word.
    pub(crate) fn is_email_verified(&self) -> bool {
        self.email_verified == Some(Value::Bool(true))
    }

    /// The person's display name.
    pub(crate) fn name(self) -> Option<String> {
        self.preferred_username.or(self.name)
    }
}

/// The claims of `token`, if it is signed by one of `keys` and is as expected.
pub(crate) fn verify(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Claims, TokenError> {
    let header = decode_header(token).map_err(|error| TokenError::Malformed(error.to_string()))?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(TokenError::Algorithm);
    }
    let key = keys.find(header.kid.as_deref(), header.alg).ok_or(TokenError::UnknownKey)?;
    let key = DecodingKey::from_jwk(key).map_err(|_| TokenError::UnknownKey)?;
    let decoded = decode::<Value>(token, &key, &signature_only(header.alg));
    let claims = decoded.map_err(|error| explain(&error))?.claims;
    let claims = Claims::deserialize(claims).map_err(|error| TokenError::Malformed(error.to_string()))?;
    check(&claims, expected)?;
    Ok(claims)
}

fn explain(error: &Error) -> TokenError {
    match error.kind() {
        ErrorKind::InvalidSignature => TokenError::Signature,
        ErrorKind::InvalidAlgorithm => TokenError::Algorithm,
        _ => TokenError::Malformed(error.to_string()),
    }
}

/// The claims are judged by [`check`], all in one place and by the injected clock.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    validation
}

fn check(claims: &Claims, expected: Expected<'_>) -> Result<(), TokenError> {
    let is_for = |client: &str| match &claims.aud {
        Audience::One(one) => one == client,
        Audience::Many(many) => many.iter().any(|one| one == client),
    };
    let has_others = matches!(&claims.aud, Audience::Many(many) if many.len() > 1);
    let authorized = claims.azp.as_deref();
    let now = expected.now.timestamp() as f64;
    let faults = [
        ("iss", claims.iss != expected.issuer),
        ("aud", !is_for(expected.client_id)),
        ("azp", authorized.map_or(has_others, |party| party != expected.client_id)),
        ("exp", claims.exp <= now - SKEW),
        ("iat", claims.iat > now + SKEW || claims.iat < now - MAX_AGE - SKEW),
        ("nbf", claims.nbf.is_some_and(|nbf| nbf > now + SKEW)),
        ("nonce", claims.nonce.as_deref() != Some(expected.nonce)),
        ("sub", claims.sub.is_empty() || claims.sub.len() > 255),
    ];
    match faults.iter().find(|(_, is_wrong)| *is_wrong) {
        Some((claim, _)) => Err(TokenError::Claim(claim)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use aws_lc_rs::{
        encoding::{AsDer, Pkcs8V1Der},
        signature::Ed25519KeyPair,
    };
    use jsonwebtoken::{EncodingKey, Header, encode, jwk::Jwk};
    use serde_json::json;

    use super::*;
    use crate::keys::KeySet;

    const NOW: i64 = 1_760_000_000;

    static PRIVATE: LazyLock<EncodingKey> = LazyLock::new(|| {
        let pair = Ed25519KeyPair::generate().unwrap();
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        EncodingKey::from_ed_der(der.as_ref())
    });

    fn good() -> Value {
        json!({"iss": "https://id", "sub": "ada", "aud": "signalbox", "exp": NOW + 300, "iat": NOW, "nonce": "n"})
    }

    fn sign(claims: &Value, kid: &str) -> String {
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, claims, &PRIVATE).unwrap()
    }

    fn judge(token: &str) -> Result<Claims, TokenError> {
        let mut public = Jwk::from_encoding_key(&PRIVATE, Algorithm::EdDSA).unwrap();
        public.common.key_id = Some("k".to_owned());
        let keys = json!({"keys": [public, {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}]});
        let keys = serde_json::from_value::<KeySet>(keys).unwrap().into();
        let now = DateTime::from_timestamp(NOW, 0).unwrap();
        let expected = Expected { issuer: "https://id", client_id: "signalbox", nonce: "n", now };
        verify(token, &keys, expected)
    }

    fn judge_with(claim: &str, value: Value) -> Result<Claims, TokenError> {
        let mut claims = good();
        claims[claim] = value;
        judge(&sign(&claims, "k"))
    }

    #[test]
    fn a_token_is_believed_that_is_as_it_has_to_be() {
        assert_eq!(judge(&sign(&good(), "k")).unwrap().sub, "ada");
        assert!(judge_with("aud", json!(["signalbox"])).is_ok());
        assert!(judge_with("azp", json!("signalbox")).is_ok());
        assert!(judge_with("exp", json!(NOW as f64 - 59.5)).is_ok());
        let mut shared = good();
        (shared["aud"], shared["azp"]) = (json!(["signalbox", "other"]), json!("signalbox"));
        assert!(judge(&sign(&shared, "k")).is_ok());
    }

    #[test]
    fn a_claim_that_is_wrong_is_named() {
        for (claim, value) in [
            ("iss", json!("https://other")),
            ("aud", json!("other")),
            ("aud", json!(["other"])),
            ("azp", json!("other")),
            ("exp", json!(NOW - 60)),
            ("iat", json!(NOW + 61)),
            ("iat", json!(NOW - 661)),
            ("nbf", json!(NOW + 61)),
            ("nonce", json!("other")),
            ("nonce", json!(null)),
            ("sub", json!("")),
            ("sub", json!("x".repeat(256))),
        ] {
            let refused = judge_with(claim, value.clone()).unwrap_err();
            assert_eq!(refused, TokenError::Claim(claim), "{value}");
        }
        let for_two = judge_with("aud", json!(["signalbox", "other"])).unwrap_err();
        assert_eq!(for_two, TokenError::Claim("azp"));
    }

    #[test]
    fn a_claim_that_is_missing_or_of_a_wrong_type_is_refused() {
        for claim in ["iss", "sub", "aud", "exp", "iat"] {
            for value in [json!(null), json!({}), json!(true)] {
                let refused = judge_with(claim, value).unwrap_err();
                assert!(matches!(refused, TokenError::Malformed(_)), "{claim}: {refused}");
            }
        }
    }

    #[test]
    fn only_a_published_key_signs_and_only_by_its_algorithm() {
        let token = sign(&good(), "k");
        assert_eq!(judge(&sign(&good(), "other")).unwrap_err(), TokenError::UnknownKey);
        let (rest, signature) = token.rsplit_once('.').unwrap();
        let forged = if signature.starts_with('A') { "B" } else { "A" };
        let forged = format!("{rest}.{forged}{}", &signature[1..]);
        assert_eq!(judge(&forged).unwrap_err(), TokenError::Signature);
        let shared = Header { kid: Some("shared".to_owned()), ..Header::new(Algorithm::HS256) };
        let shared = encode(&shared, &good(), &EncodingKey::from_secret(b"secret")).unwrap();
        assert_eq!(judge(&shared).unwrap_err(), TokenError::Algorithm);
        // {"alg":"none"}
        let (_, claims) = rest.split_once('.').unwrap();
        for unsigned in [format!("eyJhbGciOiJub25lIn0.{claims}."), String::new(), "a.b.c".to_owned()] {
            assert!(matches!(judge(&unsigned), Err(TokenError::Malformed(_))), "{unsigned}");
        }
    }

    #[test]
    fn an_address_is_verified_by_true_alone() {
        for (value, expected) in [
            (json!(true), true),
            (json!(false), false),
            (json!("true"), false),
            (json!("false"), false),
            (json!(1), false),
            (json!(null), false),
        ] {
            let claims = judge_with("email_verified", value.clone()).unwrap();
            assert_eq!(claims.profile.is_email_verified(), expected, "{value}");
        }
    }
}
