//! Channels, which clients call events, and the datapoints that come in on them, by request and by socket; experiments and
//! their export; dashboards; the log that people read.

pub(crate) mod channels;
mod dashboard_past;
mod dashboard_views;
mod dashboards;
mod datapoint_reads;
mod datapoints;
mod experiments;
pub(crate) mod export;
mod ingestion;
mod labels;
mod line_protocol;
mod logs;
mod pace;
mod prometheus;
mod series;
mod sockets;
mod widgets;

pub(crate) use labels::LabelFilter;

use axum::routing::get;
use utoipa_axum::routes;

use self::line_protocol::query;
use crate::{
    policy::{Policy, RateClass},
    routes::Routes,
};

/// Limits that the description of the interface shows.
pub(crate) mod limits {
    pub(crate) use super::{
        datapoints::MAX_ITEMS,
        ingestion::MAX_ID as MAX_EVENT_ID,
        series::{SERIES_EVENTS, SERIES_MINUTES, SERIES_POINTS, SERIES_STEPS},
    };
}

/// Largest batch of datapoints: 10,000 of them, generously written.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// The routes of monitoring.
pub(crate) fn routes() -> Routes {
    const INGEST: Policy = Policy::PROBLEMS.rate(RateClass::Ingest);
    const LINES: Policy =
        Policy::INFLUX.rate(RateClass::Ingest).max_body(line_protocol::MAX_WRITE_BYTES).repeated_by_body();
    const SAMPLES: Policy = INGEST.max_body(prometheus::MAX_WRITE_BYTES);
    Routes::new(Policy::PROBLEMS)
        .routes(routes!(channels::list, channels::create))
        .routes(routes!(channels::get, channels::update, channels::delete))
        .routes(routes!(experiments::list, experiments::create))
        .routes(routes!(experiments::get, experiments::update, experiments::delete))
        .routes(routes!(experiments::stop))
        .routes(routes!(export::export))
        .routes(routes!(export::export_datapoints))
        .routes(routes!(dashboards::list, dashboards::create))
        .routes(routes!(dashboards::get, dashboards::update, dashboards::delete))
        .routes(routes!(dashboard_past::history))
        .routes(routes!(dashboard_past::restore))
        .routes(routes!(widgets::create))
        .routes(routes!(widgets::update, widgets::delete))
        .routes(routes!(logs::list, logs::create))
        .routes(routes!(logs::get, logs::update))
        .routes(routes!(datapoint_reads::list))
        .with(INGEST, routes!(datapoints::create))
        .with(INGEST.max_body(MAX_BATCH_BYTES), routes!(datapoints::create_batch))
        .with(Policy::PROBLEMS.read(), routes!(series::series))
        .with(LINES, routes!(line_protocol::write))
        .with(LINES, routes!(line_protocol::write_v1))
        .with(Policy::INFLUX.open(), routes!(line_protocol::ping))
        .with(Policy::INFLUX, routes!(query::query, query::query_by_form))
        .with(SAMPLES, routes!(prometheus::write))
        .with(Policy::PROBLEMS.read().repeated_by_handler(), routes!(prometheus::read))
        .routes(routes!(datapoint_reads::latest))
        .routes(routes!(datapoints::get, datapoints::delete))
        .socket("/ws/datapoints/stream", get(sockets::stream))
        .socket("/ws/controller/telemetry", get(sockets::telemetry))
}
