use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{FromRequest, Request, State},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize, Serializer};
use signalbox_database::SharedServerClock;
use signalbox_datapoint_log::{
    ChunkPoint, IdKey, LogRow, Place, Tombstone, moment, read_row, recorded_times,
};
use signalbox_messaging::Bus;
use signalbox_projections::{
    monitoring::series::{Datapoint, note_skipped},
    register::Past,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::ingestion::{DatapointIn, Item, Refusal, Repetition, Source, Taken, take};
use crate::{
    answer::{self, StatusOut},
    auth::{Reader, Writer},
    context::RequestContext,
    extract::{IfMatch, JsonBody, Text, key, parse_json, read_json},
    idempotency::IdempotencyKey,
    monitoring::ingestion::IngestionServices,
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    services::{
        catalog::{Catalog, Catalogs},
        commands::Commands,
        replica::Database,
    },
    state::Written,
};

/// Items of a batch at most.
pub(crate) const MAX_ITEMS: usize = 10_000;
/// A datapoint never changes.
const VERSION: i64 = 1;

/// A value at a time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DatapointOut {
    #[schema(value_type = String)]
    pub(super) public_id: Uuid,
    pub(super) value: f64,
    /// When it was measured.
    #[serde(serialize_with = "in_one_piece")]
    pub(super) timestamp: DateTime<Utc>,
    #[schema(value_type = String)]
    pub(super) event_public_id: Uuid,
    /// The experiment that ran then.
    #[schema(value_type = Option<String>)]
    pub(super) experiment_public_id: Option<Uuid>,
}

/// Writes `time` as chrono does, which would hand it to the serializer in fourteen pieces; a chart has ten thousand of them.
pub(super) fn in_one_piece<S: Serializer>(time: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// A created datapoint.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DatapointCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    #[serde(flatten)]
    datapoint: DatapointOut,
}

/// Several new datapoints.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct BatchIn {
    /// 1 to 10,000.
    datapoints: Vec<DatapointIn>,
}

/// The result of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    /// Begins with the number of accepted datapoints.
    message: String,
    accepted: usize,
    /// Every item that was not accepted.
    rejected: Vec<RejectedOut>,
}

/// An item that was not accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RejectedOut {
    /// Its place in the request, from 0.
    index: usize,
    reason: &'static str,
}

/// Create a datapoint.
#[utoipa::path(post, path = "/api/v1/datapoints", tag = "datapoints", security(("jwt" = [])), request_body = DatapointIn, operation_id = "create_datapoint",
    responses((status = 201, body = DatapointCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(services): State<IngestionServices>,
    Writer(user): Writer,
    context: RequestContext,
    key: Option<Extension<IdempotencyKey>>,
    JsonBody(item): JsonBody<DatapointIn>,
) -> Result<Response, Problem> {
    let item = Item::from(item);
    // A repeated request without a time is answered with that of the first, which the log has.
    let may_be_recorded = key.is_some() && item.time.is_none();
    let source = Source { sender: &user, repetition: Repetition::Id(context.resource) };
    let Taken { first, refused, .. } = take(&services, &source, &[item]).await?;
    if let Some((_, refusal)) = refused.first() {
        return Err(refuse(*refusal));
    }
    let mut recorded =
        first.ok_or_else(|| Problem::internal(&"a datapoint was neither recorded nor refused"))?;
    if may_be_recorded {
        let row = read_row(&services.database.primary, recorded.place()).await?;
        recorded = row.and_then(|row| point_of(&row, recorded.place())).unwrap_or(recorded);
    }
    let catalog = services.catalogs.fresh().await?;
    let datapoint = show(&services.server_clock, &services.datapoint_ids, &catalog, &recorded);
    let location = format!("/api/v1/datapoints/{}", datapoint.public_id);
    let out =
        DatapointCreatedOut { status: "success", message: "1 datapoint successfully created.", datapoint };
    // Queries read the log as far as it is not folded, so they show it already.
    Ok(answer::created(Written::default(), &location, VERSION, &out))
}

fn refuse(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::UnknownEvent => Problem::not_found("Event"),
        Refusal::TooFarAhead | Refusal::BeforeTheEpoch => {
            Problem::invalid(refusal.reason()).about("timestamp")
        }
    }
}

/// A batch, read without detours: it is the hot path.
pub(crate) struct BatchBody(BatchIn);

impl<S: Send + Sync> FromRequest<S> for BatchBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes: Bytes = read_json(request).await?;
        // Only what cannot be read is read again, to say where it is wrong.
        let batch: BatchIn = serde_json::from_slice(&bytes).or_else(|_| parse_json(&bytes))?;
        if !(1..=MAX_ITEMS).contains(&batch.datapoints.len()) {
            return Err(Problem::field("datapoints", "must hold 1 to 10000 items"));
        }
        Ok(Self(batch))
    }
}

/// Create several datapoints at once. Those that are wrong are left out and listed; the others are recorded together.
#[utoipa::path(post, path = "/api/v1/datapoints/batch", tag = "datapoints", security(("jwt" = [])), request_body = BatchIn, operation_id = "create_datapoints",
    responses((status = 201, body = BatchOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create_batch(
    State(services): State<IngestionServices>,
    Writer(user): Writer,
    context: RequestContext,
    key: Option<Extension<IdempotencyKey>>,
    BatchBody(batch): BatchBody,
) -> Result<Response, Problem> {
    let repetition = match &key {
        Some(Extension(key)) => Repetition::Key(&key.0),
        None => Repetition::Id(context.resource),
    };
    let items: Vec<Item> = batch.datapoints.into_iter().map(Item::from).collect();
    let Taken { accepted, refused, .. } =
        take(&services, &Source { sender: &user, repetition }, &items).await?;
    let mut message = format!("{accepted} datapoints successfully created.");
    if !refused.is_empty() {
        message = format!("{accepted} datapoints successfully created, {} rejected.", refused.len());
    }
    let rejected =
        refused.iter().map(|(index, refusal)| RejectedOut { index: *index, reason: refusal.reason() });
    let out = BatchOut { status: "success", message, accepted, rejected: rejected.collect() };
    Ok(answer::written(Written::default(), StatusCode::CREATED, None, &out))
}

/// One datapoint. It never changes: with `at`, it is shown if it had come in by then. A deleted one has no past.
#[utoipa::path(get, path = "/api/v1/datapoints/{id}", tag = "datapoints", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_datapoint",
    responses((status = 200, body = DatapointOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    State(catalogs): State<Arc<Catalogs>>,
    State(datapoint_ids): State<IdKey>,
    _: Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let point = find(&database, &datapoint_ids, &id).await?;
    if let Some(at) = at {
        let place = point.place();
        let recorded = recorded_times(&database.primary, &[(place.position, place.day)]).await?;
        if recorded.get(&place.position).is_none_or(|recorded| *recorded > at.time) {
            return there("Datapoint", Past::NotYetCreated);
        }
    }
    let catalog = catalogs.fresh().await?;
    Ok(answer::resource(VERSION, &show(&server_clock, &datapoint_ids, &catalog, &point)))
}

/// Delete a datapoint.
#[utoipa::path(delete, path = "/api/v1/datapoints/{id}", tag = "datapoints", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_datapoint",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(bus): State<Bus>,
    State(datapoint_ids): State<IdKey>,
    Writer(user): Writer,
    IfMatch(versions): IfMatch,
    Text(id): Text,
) -> Result<Json<StatusOut>, Problem> {
    let point = find(&database, &datapoint_ids, &id).await?;
    if versions.is_some_and(|versions| !versions.contains(VERSION)) {
        return Err(Problem::version_mismatch());
    }
    let tombstone = Tombstone {
        day: point.day,
        position: point.point.position,
        index: point.point.index,
        channel: point.channel,
        time: point.point.time,
        actor: user.actor().to_string(),
    };
    commands.reach_bus().await?;
    if !bus.delete_datapoint(&tombstone).await? {
        return Err(missing());
    }
    Ok(Json(StatusOut::success("Datapoint successfully deleted.")))
}

fn missing() -> Problem {
    Problem::not_found("Datapoint")
}

async fn find(database: &Database, datapoint_ids: &IdKey, id: &str) -> Result<Datapoint, Problem> {
    let id = key("Datapoint", id)?;
    let place = datapoint_ids.place(id).ok_or_else(missing)?;
    let row = database.read(|pool| read_row(pool, place)).await?;
    row.and_then(|row| point_of(&row, place)).ok_or_else(missing)
}

/// The datapoint at `place` in `row`, unless it is deleted.
fn point_of(row: &LogRow, place: Place) -> Option<Datapoint> {
    let found = row.point(place.index).unwrap_or_else(|error| {
        tracing::warn!(%error, "a datapoint cannot be shown");
        note_skipped(1);
        None
    });
    let (_, found) = found?;
    let point =
        ChunkPoint { time: found.time, value: found.value, position: place.position, index: place.index };
    Some(Datapoint { channel: found.channel, day: place.day, point })
}

/// `point` as clients see it.
pub(crate) fn show(
    server_clock: &SharedServerClock,
    datapoint_ids: &IdKey,
    catalog: &Catalog,
    point: &Datapoint,
) -> DatapointOut {
    let timestamp = moment(point.point.time);
    DatapointOut {
        public_id: datapoint_ids.id(point.place()),
        value: point.point.value,
        timestamp,
        event_public_id: catalog.numbered(point.channel).map(|known| known.id).unwrap_or_default(),
        experiment_public_id: catalog.experiment_at(timestamp, server_clock.now()).map(|span| span.id),
    }
}
