use chrono::{DateTime, Utc};
use signalbox_config::Secret;
use signalbox_domain::kernel::WebhookId;
use signalbox_projections::automation::due::DueBatch;
use signalbox_sealing::{SealError, Sealer};
use signalbox_standard_webhooks::{KeyError, Message, PrivateKey};

/// The secrets and keys of a receiver, opened.
#[derive(Debug, Default)]
pub(super) struct Signing {
    present: Keys,
    /// Those that were replaced, and until when they sign too.
    previous: Option<(Keys, DateTime<Utc>)>,
}

/// A secret signs `X-Webhook-Signature`; the key, or else the secret, signs `webhook-signature`.
#[derive(Debug, Default)]
struct Keys {
    secret: Option<Secret>,
    key: Option<PrivateKey>,
}

/// Values of the two headers; absent where nothing signs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Signatures {
    /// `X-Webhook-Signature`.
    pub(super) hex: Option<String>,
    /// `webhook-signature`.
    pub(super) standard: Option<String>,
}

/// A secret or key does not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum SigningError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Signing {
    /// Opens what signs the requests of `batch` at `now`.
    pub(super) async fn open(
        sealer: &Sealer,
        batch: &DueBatch,
        now: DateTime<Utc>,
    ) -> Result<Self, SigningError> {
        let open = async |secret: Option<&String>, key: Option<&String>| {
            Keys::open(sealer, batch.webhook_id, secret, key).await
        };
        let present = open(batch.sealed_secret.as_ref(), batch.sealed_key.as_ref()).await?;
        let previous = match &batch.previous {
            Some(previous) if now < previous.until => {
                let sealed_key = previous.key.as_ref().map(|key| &key.sealed);
                Some((open(previous.sealed_secret.as_ref(), sealed_key).await?, previous.until))
            }
            _ => None,
        };
        Ok(Self { present, previous })
    }

    /// The signatures of `message` at `now`, the new one first. `X-Webhook-Signature` has one value: by the old secret as long as
    /// that signs, because receivers of that header compare the whole of it.
    pub(super) fn sign(&self, message: &Message<'_>, now: DateTime<Utc>) -> Result<Signatures, KeyError> {
        let previous = self.previous.as_ref().filter(|(_, until)| now < *until).map(|(keys, _)| keys);
        let hex = previous.and_then(Keys::secret).or(self.present.secret());
        let is_asymmetric = self.present.key.is_some();
        let signed: Vec<_> = [Some(&self.present), previous]
            .into_iter()
            .flatten()
            .filter_map(|keys| keys.sign(message, is_asymmetric))
            .collect::<Result<_, _>>()?;
        Ok(Signatures {
            hex: hex.map(|secret| message.sign_in_hex(secret)),
            standard: (!signed.is_empty()).then(|| signed.join(" ")),
        })
    }
}

impl Keys {
    async fn open(
        sealer: &Sealer,
        webhook: WebhookId,
        secret: Option<&String>,
        key: Option<&String>,
    ) -> Result<Self, SigningError> {
        let mut opened = Self::default();
        if let Some(sealed) = secret {
            opened.secret = Some(sealer.unseal(webhook.0, sealed).await?);
        }
        if let Some(sealed) = key {
            opened.key = Some(PrivateKey::parse(sealer.unseal(webhook.0, sealed).await?.expose())?);
        }
        Ok(opened)
    }

    /// An empty secret signs nothing.
    fn secret(&self) -> Option<&str> {
        self.secret.as_ref().map(Secret::expose).filter(|secret| !secret.is_empty())
    }

    fn sign(&self, message: &Message<'_>, is_asymmetric: bool) -> Option<Result<String, KeyError>> {
        if is_asymmetric {
            self.key.as_ref().map(|key| message.sign_asymmetrically(key))
        } else {
            self.secret().map(|secret| Ok(message.sign(secret)))
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    const MESSAGE: Message<'_> = Message { id: "msg_1", timestamp: 1_760_000_000, body: "{}" };
    const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn keys(secret: Option<&str>, seed: Option<u8>) -> Keys {
        Keys {
            secret: secret.map(|secret| Secret::new(secret.to_owned())),
            key: seed.map(|seed| PrivateKey::of(&[seed; 32]).unwrap()),
        }
    }

    fn by_key(seed: u8) -> String {
        MESSAGE.sign_asymmetrically(&PrivateKey::of(&[seed; 32]).unwrap()).unwrap()
    }

    #[test]
    fn a_secret_signs_both_headers() {
        let signing = Signing { present: keys(Some("new"), None), previous: None };
        let expected =
            Signatures { hex: Some(MESSAGE.sign_in_hex("new")), standard: Some(MESSAGE.sign("new")) };
        assert_eq!(signing.sign(&MESSAGE, NOW).unwrap(), expected);
    }

    #[test]
    fn nothing_is_signed_without_a_secret_and_a_key() {
        for present in [keys(None, None), keys(Some(""), None)] {
            let signing = Signing { present, previous: None };
            assert_eq!(signing.sign(&MESSAGE, NOW).unwrap(), Signatures::default());
        }
    }

    #[test]
    fn a_replaced_secret_signs_too_until_its_time() {
        let until = NOW + TimeDelta::seconds(60);
        let previous = Some((keys(Some("old"), None), until));
        let signing = Signing { present: keys(Some("new"), None), previous };
        let both = format!("{} {}", MESSAGE.sign("new"), MESSAGE.sign("old"));
        let before = signing.sign(&MESSAGE, until - TimeDelta::microseconds(1)).unwrap();
        assert_eq!(before, Signatures { hex: Some(MESSAGE.sign_in_hex("old")), standard: Some(both) });
        let after = signing.sign(&MESSAGE, until).unwrap();
        let (hex, standard) = (Some(MESSAGE.sign_in_hex("new")), Some(MESSAGE.sign("new")));
        assert_eq!(after, Signatures { hex, standard });
    }

    #[test]
    fn a_key_signs_in_place_of_the_secret_in_the_standard_header_alone() {
        let signing = Signing { present: keys(Some("whsec_a"), Some(1)), previous: None };
        let (hex, standard) = (Some(MESSAGE.sign_in_hex("whsec_a")), Some(by_key(1)));
        assert_eq!(signing.sign(&MESSAGE, NOW).unwrap(), Signatures { hex, standard });
        let signing = Signing { present: keys(None, Some(1)), previous: None };
        assert_eq!(signing.sign(&MESSAGE, NOW).unwrap(), Signatures { hex: None, standard: Some(by_key(1)) });
    }

    #[test]
    fn a_replaced_key_signs_too() {
        let previous = Some((keys(Some("old"), Some(2)), NOW + TimeDelta::seconds(1)));
        let signing = Signing { present: keys(Some("new"), Some(1)), previous };
        let standard = Some(format!("{} {}", by_key(1), by_key(2)));
        let expected = Signatures { hex: Some(MESSAGE.sign_in_hex("old")), standard };
        assert_eq!(signing.sign(&MESSAGE, NOW).unwrap(), expected);
    }
}
