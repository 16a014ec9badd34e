//! Channels, which clients call events, and the datapoints that come in on them.

pub(crate) mod catalog;
mod channels;
mod datapoint_reads;
mod datapoints;
mod ingest;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::AppState;

/// The routes of monitoring.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(channels::list, channels::create))
        .routes(routes!(channels::get, channels::update, channels::delete))
        .routes(routes!(datapoint_reads::list, datapoints::create))
        .routes(routes!(datapoints::create_batch))
        .routes(routes!(datapoint_reads::series))
        .routes(routes!(datapoint_reads::latest))
        .routes(routes!(datapoints::get, datapoints::delete))
}
