use std::collections::BTreeMap;

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{DeliveryBatch, DeliveryBatchCommand, DeliveryStatus},
    kernel::{DeliveryId, Metadata, WebhookId},
};
use signalbox_projections::{
    self as rows, Order,
    automation::{
        WebhookRow,
        deliveries::{self, Attempt, Bodies, BodyError, DeliveryFilter, DeliveryRow},
        past_delivery,
    },
    register::At,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer::{self, Page},
    auth::Admin,
    context::RequestContext,
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, Texts, key},
    past::{AsOf, AtParams, there},
    problem::{Problem, ProblemOut},
    resource::{after_write, find},
    services::{commands::Commands, replica::Database},
    state::Written,
};

/// Deliveries that one request makes again.
const MOST_AT_ONCE: usize = 1000;
/// Commands under way at the same time.
const CONCURRENT: usize = 16;

/// An event on its way to a subscriber, or there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryOut {
    pub(super) public_id: String,
    /// Equal in all deliveries of one event; receivers get it as `id` and as `X-Webhook-ID`.
    event_id: String,
    event_type: String,
    /// `pending`, `delivered`, `failed` (another attempt follows) or `dead_letter`.
    #[schema(value_type = crate::words::DeliveryStatus)]
    status: String,
    /// Attempts that have ended, without those that the receiver postponed: at most 3, or 10 with `retry: standard`.
    attempts: i32,
    /// The last error; null after a success.
    last_error: Option<String>,
    /// HTTP status of the subscriber's last answer; null when none came.
    response_code: Option<i32>,
    created_on: DateTime<Utc>,
    delivered_on: Option<DateTime<Utc>>,
    /// When the last attempt ended, or the delivery was queued.
    updated_on: DateTime<Utc>,
    /// When the next attempt may begin; null when none follows.
    next_attempt_on: Option<DateTime<Utc>>,
    /// How often it was made again from the beginning.
    redeliveries: i32,
}

/// A delivery with all there is to know of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryDetailOut {
    #[serde(flatten)]
    delivery: DeliveryOut,
    /// The posted body, byte for byte; null while the event that queued it cannot be read.
    body: Option<String>,
    /// The newest 30 attempts, oldest first.
    attempt_log: Vec<AttemptOut>,
}

/// The result of one attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptOut {
    /// From 1; begins anew with each redelivery.
    attempt: u32,
    /// From 0.
    redelivery: u32,
    started_on: DateTime<Utc>,
    duration_ms: u32,
    /// HTTP status of the answer; null when none came.
    response_code: Option<u16>,
    /// The error; null after a success.
    error: Option<String>,
}

/// Which deliveries are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryParams {
    /// `pending`, `delivered`, `failed` or `dead_letter`.
    #[param(value_type = Option<crate::words::DeliveryStatus>)]
    status: Option<DeliveryStatus>,
    /// Type of the event.
    event_type: Option<String>,
    /// Queued at or after, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Queued before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// Deliveries to be made again.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RedeliverIn {
    /// Dead-lettered deliveries that were given up at this time or later, RFC 3339.
    #[serde(deserialize_with = "signalbox_domain::kernel::time")]
    since: DateTime<Utc>,
}

/// Deliveries that are made again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedeliveredOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: String,
    /// How many.
    redelivered: usize,
    /// Whether there are others that one request could not take: ask again.
    more: bool,
}

/// List the deliveries of a webhook subscription, newest first.
#[utoipa::path(get, path = "/api/v1/webhooks/{id}/deliveries", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,), EnvelopeParams, Sort<DeliveryRow>, DeliveryParams), operation_id = "list_deliveries",
    responses((status = 200, body = Page<DeliveryOut>), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Text(id): Text,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<DeliveryRow>,
    Params(params): Params<DeliveryParams>,
) -> Result<Json<Page<DeliveryOut>>, Problem> {
    let page = envelope.page()?;
    let webhook = find::<WebhookRow>(&database, &id).await?;
    listed(&database, webhook.id, params, (sort.order(), page), envelope).await
}

/// A page of the deliveries to the subscription or contact `receiver`.
pub(super) async fn listed(
    database: &Database,
    receiver: WebhookId,
    params: DeliveryParams,
    (order, page): (Order, rows::Page),
    envelope: EnvelopeParams,
) -> Result<Json<Page<DeliveryOut>>, Problem> {
    let DeliveryParams { status, event_type, from, to } = params;
    let filter = DeliveryFilter { status: status.map(DeliveryStatus::as_str), event_type, from, to };
    let (rows, total) =
        database.read(|pool| deliveries::deliveries(pool, receiver, &filter, order, page)).await?;
    Ok(Json(envelope.envelope(total, rows.iter().map(Into::into).collect())))
}

/// One delivery, with its body and its attempts. The deliveries of a webhook that was deleted are gone, with their past.
#[utoipa::path(get, path = "/api/v1/webhooks/{id}/deliveries/{did}", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,), ("did" = String, Path,), AtParams), operation_id = "get_delivery",
    responses((status = 200, body = DeliveryDetailOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    path: Texts,
    AsOf(at): AsOf,
) -> Result<Json<DeliveryDetailOut>, Problem> {
    let now = find_delivery(&database, &path).await?;
    detailed(&database, now, at).await
}

/// The delivery `now` as it was `at`, with its body and attempts.
pub(super) async fn detailed(
    database: &Database,
    now: DeliveryRow,
    at: Option<At>,
) -> Result<Json<DeliveryDetailOut>, Problem> {
    let row = find_at(database, now, at).await?;
    let bodies = Bodies::at(&database.primary, &[row.position]).await;
    let body = match bodies.and_then(|mut bodies| bodies.take(row.id, row.position)) {
        Ok(body) => Some(body),
        // Its attempts are shown all the same; the worker that cannot send it reports why.
        Err(BodyError::Unreadable(_)) => None,
        Err(BodyError::Database(error)) => return Err(error.into()),
        Err(error) => return Err(Problem::internal(&error)),
    };
    let delivery = (&row).into();
    let attempt_log = row.history.0.into_iter().map(Into::into).collect();
    Ok(Json(DeliveryDetailOut { delivery, body, attempt_log }))
}

/// Deliver at once what was delivered or given up, or waits for its next attempt, with attempts of its own as many as at first.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/deliveries/{did}/redeliver", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,), ("did" = String, Path,)),
    operation_id = "redeliver",
    responses((status = 200, body = DeliveryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut)))]
pub(crate) async fn redeliver(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    path: Texts,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find_delivery(&database, &path).await?;
    delivered_again(&database, &commands, row, context.metadata(user.actor(), "redeliver")).await
}

/// The answer to a request by which `row` is delivered again.
pub(super) async fn delivered_again(
    database: &Database,
    commands: &Commands,
    row: DeliveryRow,
    metadata: Metadata,
) -> Result<Response, Problem> {
    let command = DeliveryBatchCommand::Redeliver { at: database.time().await?, ids: vec![row.id] };
    let written = commands.write::<DeliveryBatch>(row.consignment_id, None, &metadata, &command).await?;
    let shown = || async {
        match written.unseen {
            None => find_in(database, row.webhook_id, row.id).await,
            at => find_at(database, row.clone(), at).await,
        }
    };
    let row = after_write(shown).await?;
    Ok(answer::written(written, StatusCode::OK, None, &DeliveryOut::from(&row)))
}

/// Deliver again all that was given up since a time, oldest first, at most 1000 of them.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/redeliver", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = RedeliverIn, operation_id = "redeliver_failed",
    responses((status = 200, body = RedeliveredOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn redeliver_failed(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
    JsonBody(given_up): JsonBody<RedeliverIn>,
) -> Result<Response, Problem> {
    let webhook = find::<WebhookRow>(&database, &id).await?;
    // One more shows whether others remain.
    let limit = MOST_AT_ONCE as i64 + 1;
    let mut dead = deliveries::dead_since(&database.primary, webhook.id, given_up.since, limit).await?;
    let more = dead.len() > MOST_AT_ONCE;
    dead.truncate(MOST_AT_ONCE);
    let redelivered = dead.len();
    let mut batches = BTreeMap::<Uuid, Vec<DeliveryId>>::new();
    for (batch, delivery) in dead {
        batches.entry(batch).or_default().push(delivery);
    }
    let at = database.time().await?;
    let sent = stream::iter(batches).map(|(batch, ids)| {
        let metadata = context.metadata(user.actor(), &format!("redeliver {batch}"));
        let commands = commands.clone();
        async move {
            let command = DeliveryBatchCommand::Redeliver { at, ids };
            commands.write::<DeliveryBatch>(batch, None, &metadata, &command).await
        }
    });
    let written: Vec<Written> = sent.buffer_unordered(CONCURRENT).try_collect().await?;
    let unseen = written.iter().find_map(|written| written.unseen);
    let repeated = written.iter().all(|written| written.repeated);
    let message = match redelivered {
        1 => "1 delivery is made again.".to_owned(),
        count => format!("{count} deliveries are made again."),
    };
    let out = RedeliveredOut { status: "success", message, redelivered, more };
    Ok(answer::written(Written { unseen, repeated, ..Written::default() }, StatusCode::OK, None, &out))
}

async fn find_delivery(database: &Database, Texts(webhook, id): &Texts) -> Result<DeliveryRow, Problem> {
    let webhook = find::<WebhookRow>(database, webhook).await?;
    find_in(database, webhook.id, key("Delivery", id)?.into()).await
}

/// The delivery `id` to the subscription or contact `receiver`.
pub(super) async fn find_in(
    database: &Database,
    receiver: WebhookId,
    id: DeliveryId,
) -> Result<DeliveryRow, Problem> {
    let found = database.read(|pool| deliveries::delivery(pool, receiver, id)).await?;
    found.ok_or_else(|| Problem::not_found("Delivery"))
}

/// The delivery `now` as it was `at`, or as it is.
async fn find_at(database: &Database, now: DeliveryRow, at: Option<At>) -> Result<DeliveryRow, Problem> {
    let Some(at) = at else { return Ok(now) };
    there("Delivery", past_delivery(&database.primary, now.consignment_id, now.id, at).await?)
}

impl From<&DeliveryRow> for DeliveryOut {
    fn from(row: &DeliveryRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            event_id: row.event_id.to_string(),
            event_type: row.event_type.clone(),
            status: row.status.to_string(),
            attempts: row.attempts,
            last_error: row.last_error.clone(),
            response_code: row.response_code,
            created_on: row.created_at,
            delivered_on: row.ended_at.filter(|_| row.status.is(DeliveryStatus::Delivered)),
            updated_on: row.updated_at,
            next_attempt_on: row.due_at,
            redeliveries: row.round - 1,
        }
    }
}

impl From<Attempt> for AttemptOut {
    fn from(attempt: Attempt) -> Self {
        let Attempt { round, attempt, result } = attempt;
        Self {
            attempt,
            redelivery: round - 1,
            started_on: result.started_at,
            duration_ms: result.duration_ms,
            response_code: result.status,
            error: result.error,
        }
    }
}
