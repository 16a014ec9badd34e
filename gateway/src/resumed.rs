use axum::{
    extract::FromRequestParts,
    http::{HeaderName, request::Parts},
};

use crate::{
    auth::presented,
    connections::{Connection, Exchange},
    extract::digits,
    problem::Problem,
    state::Services,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The credential and the request that opened the stream, and the last event that the client has seen.
pub(crate) struct Resumed {
    pub(crate) token: String,
    pub(crate) exchange: Option<Exchange>,
    pub(crate) last_event_id: Option<i64>,
}

impl FromRequestParts<Services> for Resumed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Services) -> Result<Self, Problem> {
        let token = presented(parts).map(|token| token.into_owned()).unwrap_or_default();
        let last_event_id = match parts.headers.get(LAST_EVENT_ID) {
            None => None,
            Some(value) => {
                let position = value.to_str().ok().and_then(|text| digits(text.trim()));
                Some(
                    position
                        .ok_or_else(|| Problem::invalid("Last-Event-ID must be a position of the log"))?,
                )
            }
        };
        let exchange = parts.extensions.get::<Connection>().map(Connection::exchange);
        Ok(Self { token, exchange, last_event_id })
    }
}
