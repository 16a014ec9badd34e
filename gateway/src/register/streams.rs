use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_event_store::{InvalidMoment, LogFilter, Moment};
use signalbox_projections::register::{StateError, StreamState, stream_state};
use utoipa::{IntoParams, ToSchema};

use super::events::{LogEventOut, LogEventsOut, PieceLimit, PieceParams};
use crate::{
    auth::Admin,
    extract::{Params, Sort, Texts, key},
    problem::{Problem, ProblemOut},
    services::replica::Database,
};

/// An aggregate as it was at a moment, and the events that led there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogStreamOut {
    #[schema(value_type = crate::words::LogStreamType)]
    stream_type: String,
    stream_id: String,
    /// Its version then.
    version: i64,
    /// Position of its last event until then.
    position: i64,
    /// When that event was recorded.
    time: DateTime<Utc>,
    /// Its state, in the words of its rules; without hashes and sealed secrets.
    #[schema(value_type = Object)]
    state: Value,
    /// A piece of its events until then.
    events: LogEventsOut,
}

/// Which moment is meant.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MomentParams {
    /// A time, RFC 3339, or a position; now, if absent.
    at: Option<String>,
}

/// One stream: the aggregate as it was, and its events. They are listed like all events.
#[utoipa::path(get, path = "/api/v1/log/streams/{type}/{id}", tag = "log", security(("jwt" = [])), operation_id = "get_log_stream",
    params(("type" = String, Path, description = "Kind of the aggregate"), ("id" = String, Path, description = "Its key"), MomentParams, PieceParams, PieceLimit, Sort<LogEventOut>),
    responses((status = 200, body = LogStreamOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Texts(kind, id): Texts,
    Params(moment): Params<MomentParams>,
    Params(params): Params<PieceParams>,
    Params(limit): Params<PieceLimit>,
    sort: Sort<LogEventOut>,
) -> Result<Json<LogStreamOut>, Problem> {
    let missing = || Problem::not_found("Stream");
    let id = key("Stream", &id)?;
    let piece = params.piece(&sort, limit)?;
    let moment: Option<Moment> = moment.at.as_deref().map(str::parse).transpose()?;
    let found = stream_state(&database.primary, &kind, id, moment.unwrap_or(Moment::Now))
        .await?
        .ok_or_else(missing)?;
    let StreamState { version, position, recorded_at, state: shown } = found;
    let filter = LogFilter { stream_type: Some(kind.clone()), stream_id: Some(id), ..LogFilter::default() };
    let events = params.until(position).read(&database, piece, filter).await?;
    Ok(Json(LogStreamOut {
        stream_type: kind,
        stream_id: id.to_string(),
        version,
        position,
        time: recorded_at,
        state: shown,
        events,
    }))
}

impl From<InvalidMoment> for Problem {
    fn from(error: InvalidMoment) -> Self {
        Self::invalid(error.to_string()).about("at")
    }
}

impl From<StateError> for Problem {
    fn from(error: StateError) -> Self {
        match error {
            StateError::TooLong => Self::invalid(error.to_string()),
            StateError::Database(error) => error.into(),
            StateError::Search(error) => error.into(),
            StateError::Event(_) | StateError::Shown(_) => Self::internal(&error),
        }
    }
}
