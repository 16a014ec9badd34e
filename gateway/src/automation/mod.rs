//! Rules that watch the values of channels.

mod rules;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

/// The routes of automation.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(rules::list, rules::create)).routes(routes!(
        rules::get,
        rules::update,
        rules::delete
    ))
}
