//! The HTTP request of a delivery: headers, signatures, and the meaning of its answer.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::Sha256;
use signalbox_config::Secret;
use signalbox_egress::{EgressError, InvalidTarget};
use uuid::Uuid;

const USER_AGENT: &str = concat!("Signalbox/", env!("CARGO_PKG_VERSION"));
/// Prefix of secrets by the Standard Webhooks specification; the rest is the key in base64.
const STANDARD_PREFIX: &str = "whsec_";

/// The content of a request.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) event_id: Uuid,
    pub(super) event_type: &'a str,
    pub(super) attempt: i32,
    /// Unix time, in seconds; receivers refuse requests older than five minutes.
    pub(super) timestamp: i64,
    pub(super) body: &'a str,
}

/// The headers of the request; with `secret` it is signed, both by `X-Webhook-Signature` (hex over
/// `<timestamp>.<body>`) and by the Standard Webhooks specification (base64 over `<id>.<timestamp>.<body>`).
pub(super) fn headers(outgoing: &Outgoing<'_>, secret: Option<&Secret>) -> HeaderMap {
    let Outgoing { event_id, event_type, attempt, timestamp, body } = outgoing;
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: String| {
        // Ids, numbers, words of ours and encodings are all visible ASCII.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("x-webhook-timestamp", timestamp.to_string());
    set("x-webhook-id", event_id.to_string());
    set("x-webhook-event", (*event_type).to_owned());
    set("x-webhook-attempt", attempt.to_string());
    set("webhook-id", event_id.to_string());
    set("webhook-timestamp", timestamp.to_string());
    if let Some(secret) = secret.map(Secret::expose).filter(|secret| !secret.is_empty()) {
        let signature = sign(secret.as_bytes(), &format!("{timestamp}.{body}"));
        set("x-webhook-signature", hex::encode(signature));
        let signature = sign(&standard_key(secret), &format!("{event_id}.{timestamp}.{body}"));
        set("webhook-signature", format!("v1,{}", STANDARD.encode(signature)));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers
}

fn standard_key(secret: &str) -> Vec<u8> {
    let encoded = secret.strip_prefix(STANDARD_PREFIX).and_then(|text| STANDARD.decode(text).ok());
    encoded.unwrap_or_else(|| secret.as_bytes().to_vec())
}

fn sign(key: &[u8], message: &str) -> Vec<u8> {
    // HMAC takes keys of any length; the error is for other constructions.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Reasons why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The subscription's address is invalid.
    #[error("The url {0}")]
    Target(#[from] InvalidTarget),
    /// No answer.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The secret does not open.
    #[error("The secret cannot be read: set it again")]
    Secret,
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"type":"experiment.started"}"#;

    fn outgoing() -> Outgoing<'static> {
        let event_id = Uuid::from_u128(7);
        Outgoing {
            event_id,
            event_type: "experiment.started",
            attempt: 2,
            timestamp: 1_760_000_000,
            body: BODY,
        }
    }

    fn header(headers: &HeaderMap, name: &str) -> String {
        headers[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn the_signature_is_what_openssl_computes() {
        let headers = headers(&outgoing(), Some(&Secret::new("s3cret".to_owned())));
        // printf '%s' '1760000000.{"type":"experiment.started"}' | openssl dgst -sha256 -hmac s3cret
        let expected = "be0386fb16dd17b4c07eda0aa681c96e41ecf94575aa6e5f3a9db02ba04fd443";
        assert_eq!(header(&headers, "x-webhook-signature"), expected);
        assert_eq!(header(&headers, "x-webhook-timestamp"), "1760000000");
        assert_eq!(header(&headers, "x-webhook-attempt"), "2");
        assert_eq!(header(&headers, "content-type"), "application/json");
    }

    #[test]
    fn the_signature_of_standard_webhooks_is_what_openssl_computes() {
        let headers = headers(&outgoing(), Some(&Secret::new("whsec_c2VjcmV0IGtleQ==".to_owned())));
        // The key is "secret key", the message starts with the id.
        assert_eq!(header(&headers, "webhook-signature"), "v1,dNrrPxcsVn8WUo9b+RaJZlvI3vGo4eK1yF3t/imR0BQ=");
        assert_eq!(header(&headers, "webhook-id"), "00000000-0000-0000-0000-000000000007");
        assert_eq!(header(&headers, "webhook-timestamp"), "1760000000");
    }

    #[test]
    fn without_a_secret_nothing_is_signed() {
        for secret in [None, Some(Secret::new(String::new()))] {
            let headers = headers(&outgoing(), secret.as_ref());
            assert!(
                !headers.contains_key("x-webhook-signature") && !headers.contains_key("webhook-signature")
            );
        }
    }
}
