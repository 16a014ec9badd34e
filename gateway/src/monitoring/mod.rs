//! Channels, which clients call events, and the datapoints that come in on them, by request and by socket.

pub(crate) mod catalog;
mod channels;
mod datapoint_reads;
mod datapoints;
mod ingest;
pub(crate) mod live;
pub(crate) mod open_sockets;
mod sockets;

use axum::routing::get;
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
        .route("/ws/datapoints/stream", get(sockets::stream))
        .route("/ws/controller/telemetry", get(sockets::telemetry))
}
