//! Trying a subscription out: a test delivery, what its filter would let through, and what it has missed.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use signalbox_database::SharedServerClock;
use signalbox_domain::{
    automation::{
        DeliveryBatch, DeliveryBatchCommand, EventType, NewDelivery, Replay, Webhook, WebhookCommand,
    },
    kernel::DeliveryId,
};
use signalbox_event_store::{head_position, position_before, read_all_with};
use signalbox_projections::automation::{
    WebhookRow, deliveries,
    outgoing::{Background, Outgoing, PUBLISHED},
    past_delivery,
};
use utoipa::ToSchema;

use super::{deliveries::DeliveryOut, webhooks::WebhookOut};
use crate::{
    answer,
    auth::Admin,
    context::RequestContext,
    extract::{JsonBody, Text},
    past::there,
    problem::{Problem, ProblemOut},
    resource::{after_write, find, find_written},
    services::{commands::Commands, replica::Database},
};

/// Type of the event that a test delivery carries; no subscription lists it.
const TEST_EVENT: &str = "webhook.test";
/// Events that a dry run shows.
pub(crate) const SHOWN: usize = 100;
/// Events of the log that a dry run looks at, all kinds of events counted.
const LOOKED_AT: i64 = 100_000;
/// Events of the log that are read at once.
const PAGE: i64 = 10_000;

/// Which past events are to be delivered.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReplayIn {
    /// Events of this time or later, RFC 3339.
    #[serde(deserialize_with = "signalbox_domain::kernel::time")]
    from: DateTime<Utc>,
    /// Events before this time, RFC 3339; now, if absent.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// Which filter is tried out, on what.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DryRunIn {
    /// Events of this time or later, RFC 3339; a day ago, if absent.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Events before this time, RFC 3339; now, if absent.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
    /// Another list than the subscription's.
    #[schema(value_type = Option<Vec<crate::words::WebhookEvent>>)]
    events: Option<Vec<EventType>>,
}

/// Events that pass the filter. Nothing was sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRunOut {
    /// How many events would have been delivered.
    matched: usize,
    /// Whether the whole time was looked at; otherwise only its beginning, because there are too many events in it.
    complete: bool,
    /// The first 100 of them, oldest first.
    data: Vec<DryRunEventOut>,
}

/// An event that would have been delivered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRunEventOut {
    event_id: String,
    #[schema(value_type = crate::words::WebhookEvent)]
    event_type: &'static str,
    time: DateTime<Utc>,
    /// The body that would have been posted, byte for byte.
    body: String,
}

/// Send the subscriber an event of type `webhook.test`, whatever it is subscribed to. Its delivery is in the delivery log.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/test", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "test_webhook",
    responses((status = 201, body = DeliveryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut)))]
pub(crate) async fn test(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(server_clock): State<SharedServerClock>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let webhook = find::<WebhookRow>(&database, &id).await?;
    if !webhook.enabled {
        let message = "The webhook is disabled and receives nothing: enable it first.";
        return Err(Problem::conflict("webhook_disabled", message));
    }
    let event_id = context.resource;
    let time = server_clock.now().to_rfc3339_opts(SecondsFormat::Micros, false);
    let body = json!({"type": TEST_EVENT, "time": time, "id": event_id}).to_string();
    let event_type = TEST_EVENT.to_owned();
    let id = DeliveryId(event_id);
    let delivery = NewDelivery { id, event_id, event_type, body };
    let command = DeliveryBatchCommand::Queue { webhook: webhook.id, deliveries: vec![delivery] };
    let metadata = context.metadata(user.actor(), "test webhook");
    let written = commands.write::<DeliveryBatch>(event_id, None, &metadata, &command).await?;
    let shown = || async {
        match written.unseen {
            None => Ok(deliveries::delivery(&database.primary, webhook.id, id).await?),
            Some(at) => {
                Ok(Some(there("Delivery", past_delivery(&database.primary, event_id, id, at).await?)?))
            }
        }
    };
    let row = after_write(shown).await?;
    let row = row.ok_or_else(|| Problem::not_found("Delivery"))?;
    let location = format!("/api/v1/webhooks/{}/deliveries/{}", webhook.id, row.id);
    Ok(answer::written(written, StatusCode::CREATED, Some(&location), &DeliveryOut::from(&row)))
}

/// Deliver past events that the subscription lists and was not sent, in the background.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/replay", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = ReplayIn, operation_id = "replay_webhook",
    responses((status = 202, body = WebhookOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn replay(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    Text(id): Text,
    context: RequestContext,
    JsonBody(span): JsonBody<ReplayIn>,
) -> Result<Response, Problem> {
    in_order(span.from, span.to)?;
    let webhook = find::<WebhookRow>(&database, &id).await?;
    let (after, last) = positions_between(&database, span.from, span.to).await?;
    let command = WebhookCommand::Replay(Replay { id: context.resource, after, last });
    let metadata = context.metadata(user.actor(), "replay webhook");
    let written = commands.write::<Webhook>(webhook.id.0, None, &metadata, &command).await?;
    let row = find_written::<WebhookRow>(&database, &id, written).await?;
    Ok(answer::written(written, StatusCode::ACCEPTED, None, &WebhookOut::from(row)))
}

/// See what a subscription's filter lets through of recorded events, without sending anything.
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/dry-run", tag = "webhooks", security(("jwt" = [])), params(("id" = String, Path,)), request_body = DryRunIn, operation_id = "dry_run_webhook",
    responses((status = 200, body = DryRunOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut), (status = 409, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn dry_run(
    State(database): State<Database>,
    State(server_clock): State<SharedServerClock>,
    _: Admin,
    Text(id): Text,
    JsonBody(trial): JsonBody<DryRunIn>,
) -> Result<Json<DryRunOut>, Problem> {
    let from = trial.from.unwrap_or_else(|| server_clock.now() - TimeDelta::days(1));
    in_order(from, trial.to)?;
    let webhook = find::<WebhookRow>(&database, &id).await?;
    let (mut after, last) = positions_between(&database, from, trial.to).await?;
    let lists = |event: &Outgoing| match &trial.events {
        Some(events) => events.contains(&event.event_type) && webhook.filters.pass(&event.subject),
        None => webhook.receives(event.event_type.as_str(), &event.subject),
    };
    let end = last.min(after + LOOKED_AT);
    let mut out = DryRunOut { matched: 0, complete: end == last, data: Vec::new() };
    while after < end {
        let mut connection = database.primary.acquire().await?;
        let slice = read_all_with(&mut connection, after, PAGE.min(end - after), &PUBLISHED).await?;
        drop(connection);
        let Some(reached) = slice.last() else { break };
        after = reached;
        let events = slice.events;
        let background = Background::of(&database.primary, &events, webhook.filters.ask_for_labels()).await?;
        for recorded in events.iter().filter(|event| !event.payload.is_null()) {
            // An event that cannot be read is not sent either.
            let published = background.outgoing(recorded).ok().flatten();
            let Some(event) = published.filter(lists) else { continue };
            out.matched += 1;
            if out.data.len() < SHOWN {
                out.data.push(DryRunEventOut {
                    event_id: event.id.to_string(),
                    event_type: event.event_type.as_str(),
                    time: event.time,
                    body: event.body,
                });
            }
        }
    }
    Ok(Json(out))
}

fn in_order(from: DateTime<Utc>, to: Option<DateTime<Utc>>) -> Result<(), Problem> {
    match to {
        Some(to) if to < from => Err(Problem::field("to", "must not be before from")),
        _ => Ok(()),
    }
}

/// The positions of what was recorded from `from` to `to`: after the first and up to the second.
async fn positions_between(
    database: &Database,
    from: DateTime<Utc>,
    to: Option<DateTime<Utc>>,
) -> Result<(i64, i64), Problem> {
    let after = position_before(&database.primary, from).await?;
    let last = match to {
        Some(to) => position_before(&database.primary, to).await?,
        None => head_position(&database.primary).await?,
    };
    Ok((after, last.max(after)))
}
