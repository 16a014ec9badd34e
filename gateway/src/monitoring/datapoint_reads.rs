use std::{collections::HashSet, sync::Arc};

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::IdKey;
use signalbox_domain::kernel::parse_time;
use signalbox_projections::monitoring::{
    queries::deleted_channel_numbers,
    series::{self, Datapoint, ListFilter, Listed, SeriesError},
};
use utoipa::IntoParams;

use super::datapoints::{DatapointOut, show};
use crate::{
    answer::Page,
    auth::Reader,
    extract::{EnvelopeParams, Params, Sort, id},
    problem::{Problem, ProblemOut},
    services::{
        catalog::{Catalog, Catalogs},
        replica::Database,
    },
};

/// Events of one request for latest datapoints.
const LATEST: usize = 1000;

/// Which datapoints are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DatapointFilter {
    /// Of this event.
    event_public_id: Option<String>,
    /// Of the time of this experiment.
    experiment_public_id: Option<String>,
    /// Measured at or after, ISO 8601.
    from: Option<String>,
    /// Measured before, ISO 8601.
    to: Option<String>,
}

impl From<SeriesError> for Problem {
    fn from(error: SeriesError) -> Self {
        match error {
            SeriesError::Database(error) => error.into(),
            SeriesError::Behind(_) => {
                tracing::error!(%error, "datapoints cannot be shown yet");
                Self::unavailable("The service is catching up with its datapoints: try again in a moment.")
            }
            other => Self::internal(&other),
        }
    }
}

/// List datapoints, newest first unless sorted.
#[utoipa::path(get, path = "/api/v1/datapoints", tag = "datapoints", security(("jwt" = [])), params(EnvelopeParams, Sort<Datapoint>, DatapointFilter), operation_id = "list_datapoints",
    responses((status = 200, body = Page<DatapointOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(catalogs): State<Arc<Catalogs>>,
    State(datapoint_ids): State<IdKey>,
    _: Reader,
    Params(params): Params<EnvelopeParams>,
    sort: Sort<Datapoint>,
    Params(filter): Params<DatapointFilter>,
) -> Result<Json<Page<DatapointOut>>, Problem> {
    let page = params.page()?;
    let catalog = catalogs.fresh().await?;
    let Some(filter) = read_filter(&catalog, &filter, server_clock.now())? else {
        return Ok(Json(params.envelope(0, Vec::new())));
    };
    let Listed { points, total, is_estimated } =
        database.read(|pool| series::list(pool, filter.clone(), sort.order(), page)).await?;
    // Points may be of an event that is younger than the catalog.
    let catalog = catalogs.fresh().await?;
    let data = points.iter().map(|point| show(&server_clock, &datapoint_ids, &catalog, point)).collect();
    Ok(Json(Page { total_estimated: is_estimated, ..params.envelope(total, data) }))
}

/// The requested filter, or `None` if nothing can match it.
fn read_filter(
    catalog: &Catalog,
    filter: &DatapointFilter,
    now: DateTime<Utc>,
) -> Result<Option<ListFilter>, Problem> {
    let mut wanted = ListFilter {
        channels: None,
        from: time("from", filter.from.as_deref())?,
        to: time("to", filter.to.as_deref())?,
    };
    if let Some(text) = &filter.event_public_id {
        let Some(channel) = id(text).and_then(|id| catalog.channel(id)) else {
            return Ok(None);
        };
        wanted.channels = Some(vec![channel.number]);
    }
    if let Some(text) = &filter.experiment_public_id {
        let Some(span) = id(text).and_then(|id| catalog.experiment(id)) else {
            return Ok(None);
        };
        wanted.from = wanted.from.max(Some(span.started_at));
        let end = Catalog::end_of(span, now);
        wanted.to = Some(wanted.to.map_or(end, |to| to.min(end)));
    }
    Ok(Some(wanted))
}

/// The time in the parameter `field`, if there is one.
pub(super) fn time(field: &str, text: Option<&str>) -> Result<Option<DateTime<Utc>>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let time = parse_time(text).ok_or_else(|| {
        Problem::field(field, "must be an ISO 8601 date and time, such as 2026-03-01T09:30:00Z")
    });
    time.map(Some)
}

/// Of which events the latest datapoints are.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LatestParams {
    /// Ids of events with commas between them, at most 1000; of all events if absent. Those that do not exist are left out.
    event_public_id: Option<String>,
}

/// The latest datapoint of each event that has any. A value counts from when it was measured or from when it arrived,
/// whichever was first, so that a device whose clock is ahead hides nothing.
#[utoipa::path(get, path = "/api/v1/datapoints/latest", tag = "datapoints", security(("jwt" = [])), params(LatestParams), operation_id = "latest_datapoints",
    responses((status = 200, body = [DatapointOut]), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn latest(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(catalogs): State<Arc<Catalogs>>,
    State(datapoint_ids): State<IdKey>,
    _: Reader,
    Params(LatestParams { event_public_id }): Params<LatestParams>,
) -> Result<Json<Vec<DatapointOut>>, Problem> {
    let asked: Option<Vec<&str>> = event_public_id.as_deref().map(|text| text.split(',').collect());
    if asked.as_ref().is_some_and(|texts| texts.len() > LATEST) {
        return Err(Problem::field("event_public_id", format!("must name at most {LATEST} events")));
    }
    let mut points = database.read(series::latest).await?;
    let deleted = database.read(deleted_channel_numbers).await?;
    points.retain(|point| !deleted.contains(&point.channel));
    let catalog = catalogs.fresh().await?;
    if let Some(texts) = asked {
        let channels = texts.iter().filter_map(|text| catalog.channel(id(text.trim())?));
        let numbers: HashSet<i32> = channels.map(|channel| channel.number).collect();
        points.retain(|point| numbers.contains(&point.channel));
    }
    Ok(Json(points.iter().map(|point| show(&server_clock, &datapoint_ids, &catalog, point)).collect()))
}
