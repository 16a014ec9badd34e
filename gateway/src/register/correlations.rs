use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use signalbox_projections::register::{CausalTrace, Outcome, TracedDelivery, TracedEvent, causal_trace};
use utoipa::{IntoParams, ToSchema};

use super::events::LogEventOut;
use crate::{
    auth::Admin,
    extract::{LimitParams, Params, Text},
    problem::{Problem, ProblemOut},
    services::replica::Database,
};

/// Consequences of one cause, across all services.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoryOut {
    correlation: String,
    /// The events as a tree: the consequences of an event follow it, one level deeper.
    events: Vec<ChapterOut>,
    /// The `cursor` for the events that follow; null when these are all.
    next: Option<i64>,
}

/// An event of a story.
#[derive(Debug, Serialize, ToSchema)]
struct ChapterOut {
    /// How many causes it has in this piece of the story.
    depth: usize,
    /// `succeeded`, `failed`, `cancelled` or `retried`, if it ends something; else null.
    #[schema(value_type = Option<crate::words::Outcome>)]
    outcome: Option<&'static str>,
    /// Its deliveries to webhooks.
    deliveries: Vec<ToldOut>,
    #[serde(flatten)]
    event: LogEventOut,
}

/// A delivery to one webhook.
#[derive(Debug, Serialize, ToSchema)]
struct ToldOut {
    public_id: String,
    webhook_public_id: String,
    /// `pending`, `delivered`, `failed` or `dead_letter`.
    #[schema(value_type = crate::words::DeliveryStatus)]
    status: String,
    /// Attempts that have ended.
    attempts: i32,
    /// The receiver's last answer.
    response_code: Option<i32>,
    /// The last error.
    last_error: Option<String>,
    /// When it was delivered or given up.
    ended_at: Option<DateTime<Utc>>,
}

/// Which piece of the story is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StoryParams {
    /// `next` of the piece before.
    cursor: Option<i64>,
}

/// All consequences of one cause, with actors, times and outcomes. A cause is a request, named by its `X-Request-ID`, or
/// an action that the system began by itself.
#[utoipa::path(get, path = "/api/v1/log/correlations/{id}", tag = "log", security(("jwt" = [])), operation_id = "get_log_correlation",
    params(("id" = String, Path, description = "`correlation` of an event"), StoryParams, LimitParams<500, 1000>),
    responses((status = 200, body = StoryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Text(correlation): Text,
    Params(StoryParams { cursor }): Params<StoryParams>,
    Params(limit): Params<LimitParams<500, 1000>>,
) -> Result<Json<StoryOut>, Problem> {
    let missing = || Problem::not_found("Correlation");
    // The database cannot store such a text, so it matches nothing.
    if correlation.contains('\0') {
        return Err(missing());
    }
    let limit = limit.limit()?;
    let CausalTrace { events, next } =
        database.read(|pool| causal_trace(pool, &correlation, cursor.unwrap_or(0), limit)).await?;
    if events.is_empty() && cursor.is_none() {
        return Err(missing());
    }
    Ok(Json(StoryOut { correlation, events: events.into_iter().map(Into::into).collect(), next }))
}

impl From<TracedEvent> for ChapterOut {
    fn from(event: TracedEvent) -> Self {
        Self {
            depth: event.depth,
            outcome: event.outcome.map(word),
            deliveries: event.deliveries.into_iter().map(Into::into).collect(),
            event: event.event.into(),
        }
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Retried => "retried",
    }
}

impl From<TracedDelivery> for ToldOut {
    fn from(told: TracedDelivery) -> Self {
        Self {
            public_id: told.id.to_string(),
            webhook_public_id: told.webhook_id.to_string(),
            status: told.status.into(),
            attempts: told.attempts,
            response_code: told.response_code,
            last_error: told.last_error,
            ended_at: told.ended_at,
        }
    }
}
