//! Requests as handlers get them: bodies, parameters, ids, numbers, pages and orders. All that clients write is parsed here,
//! and times in the domain's kernel, so that what cannot be parsed or stored is refused alike by every route.

mod encoding;
mod fields;
mod id;
mod number;
mod numeric;
mod page;
mod sort;
mod version;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

pub(crate) use self::{
    encoding::{content, is_zipped, unzipped},
    fields::from_json,
    id::{Number, Text, Texts, id, key, wanted},
    number::{as_number, content_length, digits, number_or_text},
    numeric::Numeric,
    page::{EnvelopeParams, LimitParams, PAGE_SIZES, PageParams, within},
    sort::Sort,
    version::{IfMatch, Versions},
};
use crate::http::{policy::Policy, problem::Problem};

/// A JSON body; unknown fields are ignored, the content type is not asked for, and it may be compressed by gzip.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = read_json(request).await?;
        parse_json(&bytes).map(Self)
    }
}

/// The JSON body of a request that needs none: without one, every field has its default.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = read_json(request).await?;
        if bytes.is_empty() { Ok(Self(T::default())) } else { parse_json(&bytes).map(Self) }
    }
}

/// The whole body, if it is as small as the policy of its route demands.
pub(crate) async fn read_body(request: Request) -> Result<Bytes, Problem> {
    let most = Policy::of(request.extensions()).max_body;
    let too_large = || Problem::too_large(format!("the body is larger than {most} bytes"));
    // Else a client that announces more than it sends would learn it only when its connection is given up.
    if content_length(request.headers()).is_some_and(|length| length > most as u64) {
        return Err(too_large());
    }
    let limited = Limited::new(request.into_body(), most).collect().await;
    limited.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            too_large()
        } else {
            Problem::malformed("the body could not be read")
        }
    })
}

/// The bytes of a JSON body, compressed or not: as many as the policy of its route allows.
pub(crate) async fn read_json(request: Request) -> Result<Bytes, Problem> {
    let most = Policy::of(request.extensions()).max_body;
    let headers = request.headers().clone();
    content(&headers, read_body(request).await?, most).await
}

/// `bytes` as a `T`. The message never repeats the input.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| unreadable(bytes, &error))?;
    if !value.is_object() {
        return Err(Problem::invalid("the body must be a JSON object"));
    }
    fields::from_json(value)
}

/// The problem of a body that is not JSON. Numbers beyond the range of floats are reported as invalid values rather
/// than as broken JSON: some languages write them by default.
fn unreadable(bytes: &[u8], error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let rest = bytes.split(|byte| *byte == b'\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let word = rest.get(column.saturating_sub(1)..).unwrap_or_default();
    let is_no_number = [&b"NaN"[..], b"Infinity"].iter().any(|name| word.starts_with(name));
    if is_no_number || error.to_string().starts_with("number out of range") {
        return Problem::invalid(format!("numbers must be finite (line {line}, column {column})"));
    }
    Problem::malformed(format!("the body is not valid JSON (line {line}, column {column})"))
}

/// The query string; unknown parameters are ignored.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        if query.contains("%00") {
            return Err(Problem::invalid("query parameters must not contain NUL characters"));
        }
        fields::from_query(query).map(Self)
    }
}

/// For fields where absent means "leave", null means "clear": the outer option is presence.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// For fields where absent means "leave" and null is refused.
pub(crate) fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::http::problem::ProblemKind;

    #[derive(Debug, Deserialize)]
    struct In {
        #[expect(dead_code, reason = "only its type matters")]
        size: u32,
    }

    #[test]
    fn the_message_never_repeats_the_input() {
        let error = parse_json::<In>(br#"{"size": "geheim"}"#).unwrap_err();
        assert!(!error.detail().contains("geheim"), "{}", error.detail());
        assert_eq!(error.detail(), "size must be a whole number from 0 to 4294967295");
    }

    #[test]
    fn numbers_that_no_float_holds_are_invalid() {
        use ProblemKind::{Invalid, Malformed};
        for (text, kind) in [
            (r#"{"size": NaN}"#, Invalid),
            ("{\n\"size\": Infinity}", Invalid),
            (r#"{"size": -Infinity}"#, Invalid),
            (r#"{"size": 1e400}"#, Invalid),
            (r#"{"size": -1e999}"#, Invalid),
            (r#"{"size": nan}"#, Malformed),
            (r#"{"size": 1e}"#, Malformed),
        ] {
            assert_eq!(parse_json::<In>(text.as_bytes()).unwrap_err().kind(), kind, "{text}");
        }
    }

    #[test]
    fn broken_json_is_malformed_and_a_missing_field_is_invalid() {
        assert_eq!(parse_json::<In>(b"{").unwrap_err().kind(), ProblemKind::Malformed);
        assert_eq!(parse_json::<In>(b"{}").unwrap_err().kind(), ProblemKind::Invalid);
        assert_eq!(parse_json::<In>(b"[1]").unwrap_err().kind(), ProblemKind::Invalid);
    }
}
