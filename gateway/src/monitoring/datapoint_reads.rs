use std::{collections::BTreeMap, ops::RangeInclusive};

use axum::{Json, extract::State};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use signalbox_domain::kernel::parse_time;
use signalbox_projections::monitoring::{
    queries::deleted_channel_numbers,
    series::{self, Aggregate, Datapoint, ListFilter, Listed, SeriesError, Window},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    catalog::Catalog,
    datapoints::{DatapointOut, show},
};
use crate::{
    answer::Page,
    auth::Reader,
    extract::{EnvelopeParams, JsonBody, Numeric, Params, Sort, id, within},
    problem::{Problem, ProblemOut},
    state::AppState,
};

/// Events of one request for series.
pub(crate) const SERIES_EVENTS: RangeInclusive<usize> = 1..=20;
/// Minutes that a series may cover.
pub(crate) const SERIES_MINUTES: RangeInclusive<i64> = 1..=14_400;
/// Points of one series.
pub(crate) const SERIES_POINTS: RangeInclusive<i64> = 10..=2000;

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

/// Which datapoints of the last minutes are wanted.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SeriesIn {
    /// 1 to 20 events.
    event_public_ids: Vec<String>,
    /// 1 to 14400; 60 if absent.
    #[schema(value_type = Option<i64>)]
    minutes: Option<Numeric<i64>>,
    /// Points of each event at most, 10 to 2000; 500 if absent.
    #[schema(value_type = Option<i64>)]
    max_points: Option<Numeric<i64>>,
    /// `none` (default): every so many-th is shown. `avg`, `min`, `max`, `minmax`: what stands for those in between. The newest
    /// point is always the last one.
    #[schema(value_type = Option<crate::openapi::Aggregate>)]
    aggregate: Option<AggregateIn>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AggregateIn {
    None,
    Avg,
    Min,
    Max,
    Minmax,
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
    State(state): State<AppState>,
    _: Reader,
    Params(params): Params<EnvelopeParams>,
    sort: Sort<Datapoint>,
    Params(filter): Params<DatapointFilter>,
) -> Result<Json<Page<DatapointOut>>, Problem> {
    let page = params.page()?;
    let catalog = state.catalogs.fresh(&state).await?;
    let Some(filter) = read_filter(&catalog, &filter, state.server_clock.now())? else {
        return Ok(Json(params.envelope(0, Vec::new())));
    };
    let Listed { points, total, is_estimated } =
        state.read(|pool| series::list(pool, filter.clone(), sort.order(), page)).await?;
    // Points may be of an event that is younger than the catalog.
    let catalog = state.catalogs.fresh(&state).await?;
    let data = points.iter().map(|point| show(&state, &catalog, point)).collect();
    Ok(Json(Page { total_estimated: is_estimated, ..params.envelope(total, data) }))
}

/// What is asked for, or `None` when nothing can fit it.
fn read_filter(
    catalog: &Catalog,
    filter: &DatapointFilter,
    now: DateTime<Utc>,
) -> Result<Option<ListFilter>, Problem> {
    let mut wanted =
        ListFilter { channels: None, from: time("from", &filter.from)?, to: time("to", &filter.to)? };
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

fn time(field: &str, text: &Option<String>) -> Result<Option<DateTime<Utc>>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let time = parse_time(text).ok_or_else(|| Problem::field(field, "must be an ISO 8601 time"));
    time.map(Some)
}

/// The latest datapoint of each event that has any. A value counts from when it was measured or from when it arrived,
/// whichever was first, so that a device whose clock is ahead hides nothing.
#[utoipa::path(get, path = "/api/v1/datapoints/latest", tag = "datapoints", security(("jwt" = [])), operation_id = "latest_datapoints",
    responses((status = 200, body = [DatapointOut]), (status = 401, body = ProblemOut)))]
pub(crate) async fn latest(
    State(state): State<AppState>,
    _: Reader,
) -> Result<Json<Vec<DatapointOut>>, Problem> {
    let mut points = state.read(series::latest).await?;
    let deleted = state.read(deleted_channel_numbers).await?;
    points.retain(|point| !deleted.contains(&point.channel));
    let catalog = state.catalogs.fresh(&state).await?;
    Ok(Json(points.iter().map(|point| show(&state, &catalog, point)).collect()))
}

/// The datapoints of some events in the last minutes, oldest first, thinned out.
#[utoipa::path(post, path = "/api/v1/datapoints/series", tag = "datapoints", security(("jwt" = [])), request_body = SeriesIn, operation_id = "datapoint_series",
    responses((status = 200, body = BTreeMap<String, Vec<DatapointOut>>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn series(
    State(state): State<AppState>,
    _: Reader,
    JsonBody(wanted): JsonBody<SeriesIn>,
) -> Result<Json<BTreeMap<String, Vec<DatapointOut>>>, Problem> {
    let (minutes, max_points) = validate(&wanted)?;
    let catalog = state.catalogs.fresh(&state).await?;
    let number = |text: &String| id(text).and_then(|id| catalog.channel(id)).map(|known| known.number);
    let numbers: BTreeMap<String, Option<i32>> =
        wanted.event_public_ids.iter().map(|id| (id.clone(), number(id))).collect();
    let window = Window {
        channels: numbers.values().flatten().copied().collect(),
        from: state.server_clock.now() - TimeDelta::minutes(minutes),
        max_points,
        aggregate: match wanted.aggregate {
            None | Some(AggregateIn::None) => Aggregate::None,
            Some(AggregateIn::Avg) => Aggregate::Avg,
            Some(AggregateIn::Min) => Aggregate::Min,
            Some(AggregateIn::Max) => Aggregate::Max,
            Some(AggregateIn::Minmax) => Aggregate::MinMax,
        },
    };
    let found = state.read(|pool| series::series(pool, &window)).await?;
    let shown = numbers.into_iter().map(|(id, number)| {
        let points = number.and_then(|number| found.get(&number)).map(Vec::as_slice).unwrap_or_default();
        (id, points.iter().map(|point| show(&state, &catalog, point)).collect())
    });
    Ok(Json(shown.collect()))
}

fn validate(wanted: &SeriesIn) -> Result<(i64, usize), Problem> {
    if !SERIES_EVENTS.contains(&wanted.event_public_ids.len()) {
        return Err(Problem::field("event_public_ids", "must hold 1 to 20 items"));
    }
    if wanted.event_public_ids.iter().any(|id| id.len() > 255 || id.contains('\0')) {
        return Err(Problem::field("event_public_ids", "must hold ids of events"));
    }
    let minutes = within("minutes", wanted.minutes.map(Numeric::get), 60, &SERIES_MINUTES)?;
    let max_points = within("max_points", wanted.max_points.map(Numeric::get), 500, &SERIES_POINTS)?;
    Ok((minutes, max_points as usize))
}
