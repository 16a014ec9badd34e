//! Extractors that answer with [`Problem`]s.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use signalbox_projections::Page;

use crate::{answer, problem::Problem};

/// Largest JSON body.
pub(crate) const MAX_JSON_BYTES: usize = 1 << 20;
/// Largest batch of datapoints: 10,000 of them, generously written.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// A JSON body; unknown fields are ignored, the content type is not asked for.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = read_body(request).await?;
        parse_json(&bytes).map(Self)
    }
}

/// The whole body, up to [`MAX_JSON_BYTES`]; batches may be larger.
pub(crate) async fn read_body(request: Request) -> Result<Bytes, Problem> {
    let is_batch = request.uri().path() == "/api/v1/datapoints/batch";
    let most = if is_batch { MAX_BATCH_BYTES } else { MAX_JSON_BYTES };
    let limited = Limited::new(request.into_body(), most).collect().await;
    limited.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            Problem::too_large(format!("the body is larger than {most} bytes"))
        } else {
            Problem::malformed("the body could not be read")
        }
    })
}

/// `bytes` as a `T`. The message never repeats the input.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| unreadable(bytes, &error))?;
    if !value.is_object() {
        return Err(Problem::invalid("the body must be a JSON object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, message) = (error.path().to_string(), without_input(&error.inner().to_string()));
        Problem::invalid(if path == "." { message } else { format!("{path}: {message}") })
    })
}

/// What to say of a body that is no JSON. Numbers that no float holds are a value that is not allowed, rather than no JSON:
/// some languages write them by themselves.
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

/// Serde quotes the offending value between `invalid type:` or `invalid value:` and `, expected`.
fn without_input(message: &str) -> String {
    match (message.find("invalid "), message.find(", expected ")) {
        (Some(start), Some(end)) if start < end => {
            let what = message[start..].split(':').next().unwrap_or("invalid value");
            format!("{what}{}", &message[end..])
        }
        _ if message.starts_with("unknown variant") => message
            .find(", expected ")
            .map_or_else(|| "unknown value".to_owned(), |at| format!("unknown value{}", &message[at..])),
        _ => message.to_owned(),
    }
}

/// The integer in `{id}` of service 1; anything else names nothing.
pub(crate) struct Number(pub(crate) i64);

impl<S: Send + Sync> FromRequestParts<S> for Number {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| missing())?;
        // A sign is read as part of a number, but no link of ours has one.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).map(Self).ok_or_else(missing)
    }
}

/// The text in `{id}` of services 2 and 3; what is no text names nothing.
pub(crate) struct Text(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Text {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|_| missing())
    }
}

/// The two texts of a path that names a part of a resource, such as `{id}` and `{wid}`; what is no text names nothing.
pub(crate) struct Texts(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Texts {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        path.map(|Path((whole, part))| Self(whole, part)).map_err(|_| missing())
    }
}

fn missing() -> Problem {
    Problem::not_found("Resource")
}

/// The query string; unknown parameters are ignored.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Problem::invalid("query parameters must not contain NUL characters"));
        }
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|error| {
            Problem::invalid(without_input(&format!("query parameters are not valid: {}", error.body_text())))
        })
    }
}

/// `limit` and `offset` of a list of service 1.
#[derive(Debug, Default, Clone, Copy, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// Rows at most, 1 to 500; 100 if absent.
    limit: Option<i64>,
    /// Rows to leave out first.
    offset: Option<i64>,
}

impl PageParams {
    pub(crate) fn page(self) -> Result<Page, Problem> {
        let (limit, offset) = (self.limit.unwrap_or(100), self.offset.unwrap_or(0));
        if !(1..=500).contains(&limit) {
            return Err(Problem::invalid("limit must be between 1 and 500"));
        }
        if !(0..=1_000_000_000).contains(&offset) {
            return Err(Problem::invalid("offset must be between 0 and 1000000000"));
        }
        Ok(Page { limit, offset })
    }
}

/// `page` and `page_size` of a list of services 2 and 3.
#[derive(Debug, Default, Clone, Copy, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EnvelopeParams {
    /// From 1.
    page: Option<i64>,
    /// 1 to 100; 25 if absent.
    page_size: Option<i64>,
}

impl EnvelopeParams {
    fn numbers(self) -> (i64, i64) {
        (self.page.unwrap_or(1), self.page_size.unwrap_or(25))
    }

    pub(crate) fn page(self) -> Result<Page, Problem> {
        let (page, page_size) = self.numbers();
        if !(1..=1_000_000).contains(&page) {
            return Err(Problem::invalid("page must be between 1 and 1000000"));
        }
        if !(1..=100).contains(&page_size) {
            return Err(Problem::invalid("page_size must be between 1 and 100"));
        }
        Ok(Page { limit: page_size, offset: (page - 1) * page_size })
    }

    /// The envelope around `data`, which is this page of `total` rows.
    pub(crate) fn envelope<T>(self, total: i64, data: Vec<T>) -> answer::Page<T> {
        let (page, page_size) = self.numbers();
        answer::Page { page, page_size, total, data }
    }
}

/// The version that `If-Match` insists on.
pub(crate) struct IfMatch(pub(crate) Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if_match(&parts.headers).map(Self)
    }
}

fn if_match(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text.trim_start_matches("W/").trim_matches('"').parse();
    // A tag that we never gave out matches nothing.
    Ok(Some(version.unwrap_or(-1)))
}

/// For fields where absent means "leave", null means "clear": the outer option is presence.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct In {
        #[expect(dead_code, reason = "only its type matters")]
        size: u32,
    }

    #[test]
    fn the_message_never_repeats_the_input() {
        let error = parse_json::<In>(br#"{"size": "geheim"}"#).unwrap_err();
        assert!(!error.detail().contains("geheim"), "{}", error.detail());
        assert_eq!(error.detail(), "size: invalid type, expected u32");
    }

    #[test]
    fn numbers_that_no_float_holds_are_invalid() {
        use crate::problem::ProblemKind::{Invalid, Malformed};
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
        assert_eq!(parse_json::<In>(b"{").unwrap_err().kind(), crate::problem::ProblemKind::Malformed);
        assert_eq!(parse_json::<In>(b"{}").unwrap_err().kind(), crate::problem::ProblemKind::Invalid);
        assert_eq!(parse_json::<In>(b"[1]").unwrap_err().kind(), crate::problem::ProblemKind::Invalid);
    }
}
