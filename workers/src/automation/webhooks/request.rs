//! The signed request of a delivery: its headers, and the wait that an answer asks for.

use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use signalbox_standard_webhooks::Message;

use super::signing::Signatures;

pub(super) const USER_AGENT: &str = concat!("Signalbox/", env!("CARGO_PKG_VERSION"));

/// The content of a request.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) event_id: &'a str,
    pub(super) event_type: &'a str,
    pub(super) attempt: i32,
    /// Unix time, in seconds; receivers refuse requests older than five minutes.
    pub(super) timestamp: i64,
    pub(super) body: &'a str,
}

impl<'a> Outgoing<'a> {
    /// The signed parts.
    pub(super) fn message(&self) -> Message<'a> {
        Message { id: self.event_id, timestamp: self.timestamp, body: self.body }
    }
}

/// The headers of the request, signed by `signatures`.
pub(super) fn headers(outgoing: &Outgoing<'_>, signatures: Signatures) -> HeaderMap {
    let Outgoing { event_id, event_type, attempt, timestamp, .. } = outgoing;
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: String| {
        // Ids, numbers, words of ours and encodings are all visible ASCII.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("x-webhook-timestamp", timestamp.to_string());
    set("x-webhook-id", (*event_id).to_owned());
    set("x-webhook-event", (*event_type).to_owned());
    set("x-webhook-attempt", attempt.to_string());
    set("webhook-id", (*event_id).to_owned());
    set("webhook-timestamp", timestamp.to_string());
    if let Some(signature) = signatures.hex {
        set("x-webhook-signature", signature);
    }
    if let Some(signature) = signatures.standard {
        set("webhook-signature", signature);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers
}

/// The wait that `Retry-After` asks for at `now`: a number of seconds, or a date in one of the three forms
/// of RFC 9110 or in that of mail. A date in the past means zero.
pub(super) fn retry_after(value: &str, now: DateTime<Utc>) -> Option<u32> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse().unwrap_or(u32::MAX));
    }
    let time = httpdate::parse_http_date(value).map(DateTime::from);
    let time = time.or_else(|_| DateTime::parse_from_rfc2822(value).map(|time| time.to_utc())).ok()?;
    let seconds = (time - now).num_milliseconds().max(0).unsigned_abs().div_ceil(1000);
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"type":"experiment.started"}"#;
    const ID: &str = "00000000-0000-0000-0000-000000000007";

    fn outgoing() -> Outgoing<'static> {
        Outgoing {
            event_id: ID,
            event_type: "experiment.started",
            attempt: 2,
            timestamp: 1_760_000_000,
            body: BODY,
        }
    }

    fn signed(secret: &str) -> HeaderMap {
        let message = outgoing().message();
        let (hex, standard) = (Some(message.sign_in_hex(secret)), Some(message.sign(secret)));
        headers(&outgoing(), Signatures { hex, standard })
    }

    fn header(headers: &HeaderMap, name: &str) -> String {
        headers[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn the_signature_is_what_openssl_computes() {
        let headers = signed("s3cret");
        // printf '%s' '1760000000.{"type":"experiment.started"}' | openssl dgst -sha256 -hmac s3cret
        let expected = "be0386fb16dd17b4c07eda0aa681c96e41ecf94575aa6e5f3a9db02ba04fd443";
        assert_eq!(header(&headers, "x-webhook-signature"), expected);
        assert_eq!(header(&headers, "x-webhook-timestamp"), "1760000000");
        assert_eq!(header(&headers, "x-webhook-attempt"), "2");
        assert_eq!(header(&headers, "content-type"), "application/json");
    }

    #[test]
    fn the_signature_of_standard_webhooks_is_what_openssl_computes() {
        let headers = signed("whsec_c2VjcmV0IGtleQ==");
        // The key is "secret key", the message starts with the id.
        assert_eq!(header(&headers, "webhook-signature"), "v1,dNrrPxcsVn8WUo9b+RaJZlvI3vGo4eK1yF3t/imR0BQ=");
        assert_eq!(header(&headers, "webhook-id"), ID);
        assert_eq!(header(&headers, "webhook-timestamp"), "1760000000");
    }

    #[test]
    fn a_request_without_signatures_lacks_their_headers() {
        let headers = headers(&outgoing(), Signatures::default());
        assert!(!headers.contains_key("x-webhook-signature") && !headers.contains_key("webhook-signature"));
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let now = DateTime::parse_from_rfc3339("2026-11-23T12:00:00.5Z").unwrap().with_timezone(&Utc);
        for (value, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999", Some(u32::MAX)),
            ("Mon, 23 Nov 2026 12:01:00 GMT", Some(60)),
            ("Mon, 23 Nov 2026 11:00:00 GMT", Some(0)),
            ("Monday, 23-Nov-26 12:01:00 GMT", Some(60)),
            ("Mon Nov 23 12:01:00 2026", Some(60)),
            ("Mon, 23 Nov 2026 13:01:00 +0100", Some(60)),
            ("soon", None),
            ("-5", None),
            ("1.5", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, now), expected, "{value}");
        }
    }
}
