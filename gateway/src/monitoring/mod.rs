//! Channels: the lines that values come in on. Clients call them events.

mod channels;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

/// The routes of monitoring.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(channels::list, channels::create)).routes(routes!(
        channels::get,
        channels::update,
        channels::delete
    ))
}
