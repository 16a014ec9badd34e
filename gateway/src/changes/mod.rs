//! Which resources change, for clients that show them: `GET /api/v1/live`.

mod audience;
mod feed;
mod stream;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::{
    audience::TYPES,
    feed::{ChangeFeed, follow},
};
use crate::state::AppState;

/// The route of the live stream.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(stream::live))
}
