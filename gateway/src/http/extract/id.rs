//! Ids as clients write them. A text that is not a valid id is answered like an id that matches nothing.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use uuid::Uuid;

use super::number::digits;
use crate::http::problem::Problem;

/// The key that `text` is.
pub(crate) fn id(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text).ok()
}

/// The key that `text` is; `what` names its kind to people.
pub(crate) fn key(what: &str, text: &str) -> Result<Uuid, Problem> {
    id(text).ok_or_else(|| Problem::not_found(what))
}

/// The key that a filter names; one that matches nothing if `text` cannot be an id.
pub(crate) fn wanted<I: From<Uuid>>(text: Option<String>) -> Option<I> {
    text.map(|text| id(&text).unwrap_or_default().into())
}

/// The integer in `{id}` of service 1.
pub(crate) struct Number(pub(crate) i64);

impl<S: Send + Sync> FromRequestParts<S> for Number {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Text(text) = Text::from_request_parts(parts, state).await?;
        digits(&text).map(Self).ok_or_else(missing)
    }
}

/// The text in `{id}` of services 2 and 3.
pub(crate) struct Text(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Text {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|_| missing())
    }
}

/// The two texts of a path that names a part of a resource, such as `{id}` and `{wid}`.
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
