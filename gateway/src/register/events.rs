use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_event_store::{LogFilter, LogOrder, RecordedEvent, SearchError, head_position, search};
use signalbox_projections::{Listed, Sorting, register::redact};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};

use crate::{
    auth::Admin,
    extract::{LimitParams, Number, Params, Sort, wanted},
    problem::{Problem, ProblemOut},
    services::replica::Database,
};

/// An event of the log. Hashes of passwords and tokens and sealed secrets are hidden.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LogEventOut {
    /// Gapless place in the log, from 1.
    pub position: i64,
    /// When it was recorded.
    pub time: DateTime<Utc>,
    /// Kind of the aggregate that it happened to, e.g. `transfer`.
    #[schema(value_type = crate::words::LogStreamType)]
    pub stream_type: String,
    /// Key of the aggregate.
    pub stream_id: String,
    /// Place in the aggregate's stream, from 1; equals the aggregate's version after the event.
    pub version: i64,
    /// Type of the event, e.g. `transfer_failed`.
    #[schema(value_type = crate::words::LogEventType)]
    pub r#type: String,
    /// Version of the shape of `data`.
    pub data_version: String,
    /// The actor: `user:<id>`, `agent:<id>` or `system:<part>`.
    pub actor: String,
    /// The command that led to it; equal for all events of one command.
    pub command_id: String,
    /// Position of the event that led to the command; null where a request or the time did.
    pub causation: Option<i64>,
    /// Equal for everything that one cause led to.
    pub correlation: String,
    /// The version that came back with it; null for one that is new.
    pub restored_version: Option<i64>,
    /// The event itself.
    #[schema(value_type = Object)]
    pub data: Value,
}

impl From<RecordedEvent> for LogEventOut {
    fn from(event: RecordedEvent) -> Self {
        let RecordedEvent { mut payload, metadata, .. } = event;
        redact(&mut payload);
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        Self {
            position: event.position,
            time: event.recorded_at,
            stream_type: event.aggregate_type,
            stream_id: event.aggregate_id.to_string(),
            version: event.sequence,
            r#type: event.event_type,
            data_version: event.event_version,
            actor: text("actor"),
            command_id: text("command_id"),
            causation: metadata["causation"].as_i64(),
            correlation: text("correlation"),
            restored_version: metadata["restored_version"].as_i64(),
            data: payload,
        }
    }
}

/// How many events a piece has.
pub(super) type PieceLimit = LimitParams<100, 500>;

/// A piece of the log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogEventsOut {
    data: Vec<LogEventOut>,
    /// The `cursor` for the piece that follows; null after the last one.
    next: Option<i64>,
    /// Newest position of the whole log.
    head: i64,
}

/// In which order events are listed.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderIn {
    Newest,
    Oldest,
}

impl Listed for LogEventOut {
    const SORTING: Sorting = Sorting::newest_first(("position", "position"), &[], "position");
}

/// Which events are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FilterParams {
    /// Kind of the aggregate, e.g. `transfer`.
    stream_type: Option<String>,
    /// Key of the aggregate; with `stream_type`.
    stream_id: Option<String>,
    /// Type of the event, e.g. `transfer_failed`.
    event_type: Option<String>,
    /// The actor: `user:<id>`, `agent:<id>` or `system:<part>`.
    actor: Option<String>,
    /// The word that all consequences of one cause have in common.
    correlation: Option<String>,
}

/// Which piece of them is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PieceParams {
    /// Recorded at or after, RFC 3339. Positions are in the order of time, but for steps of the clock.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Recorded before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
    /// At this position or after it.
    from_position: Option<i64>,
    /// At this position or before it.
    to_position: Option<i64>,
    /// `newest` first (default) or `oldest` first; `sort` goes before it.
    #[param(value_type = Option<crate::words::LogOrder>)]
    order: Option<OrderIn>,
    /// `next` of the piece before.
    cursor: Option<i64>,
}

/// How the events of a piece are ordered, and how many it has.
pub(super) struct Piece {
    order: LogOrder,
    limit: i64,
}

impl FilterParams {
    pub(super) fn filter(self) -> Result<LogFilter, Problem> {
        if self.stream_id.is_some() && self.stream_type.is_none() {
            return Err(Problem::field("stream_id", "needs stream_type beside it"));
        }
        Ok(LogFilter {
            stream_type: self.stream_type,
            stream_id: wanted(self.stream_id),
            event_type: self.event_type,
            actor: self.actor,
            correlation: self.correlation,
            ..LogFilter::default()
        })
    }
}

impl PieceParams {
    /// The order, and how many events.
    pub(super) fn piece(&self, sort: &Sort<LogEventOut>, limit: PieceLimit) -> Result<Piece, Problem> {
        let is_descending = match (sort.given(), self.order) {
            (Some(given), _) => given.is_descending(),
            (None, order) => !matches!(order, Some(OrderIn::Oldest)),
        };
        let order = if is_descending { LogOrder::NewestFirst } else { LogOrder::OldestFirst };
        Ok(Piece { order, limit: limit.limit()? })
    }

    /// No event after `position`.
    pub(super) fn until(self, position: i64) -> Self {
        let to_position = self.to_position.unwrap_or(position).min(position);
        Self { to_position: Some(to_position), ..self }
    }

    /// Narrows `filter` to what this piece is of.
    fn narrow(&self, order: LogOrder, filter: LogFilter) -> LogFilter {
        let (mut first, mut last) = (self.from_position.unwrap_or(1), self.to_position.unwrap_or(i64::MAX));
        match (order, self.cursor) {
            (LogOrder::NewestFirst, Some(cursor)) => last = last.min(cursor.saturating_sub(1)),
            (LogOrder::OldestFirst, Some(cursor)) => first = first.max(cursor.saturating_add(1)),
            (_, None) => {}
        }
        LogFilter { from: self.from, to: self.to, first: Some(first), last: Some(last), ..filter }
    }

    /// The piece of what `filter` wants.
    pub(super) async fn read(
        &self,
        database: &Database,
        Piece { order, limit }: Piece,
        filter: LogFilter,
    ) -> Result<LogEventsOut, Problem> {
        let wanted = self.narrow(order, filter);
        // Both at one server: the other may have more, or less.
        let (head, events) = database.read(|pool| search_to_head(pool, wanted.clone(), order, limit)).await?;
        let is_full = events.len() as i64 == limit;
        let next = events.last().filter(|_| is_full).map(|event| event.position);
        Ok(LogEventsOut { data: events.into_iter().map(Into::into).collect(), next, head })
    }
}

/// The head of the log, and what `wanted` finds up to it: later events are beyond the returned head.
async fn search_to_head(
    pool: &PgPool,
    mut wanted: LogFilter,
    order: LogOrder,
    limit: i64,
) -> Result<(i64, Vec<RecordedEvent>), SearchError> {
    let head = head_position(pool).await?;
    wanted.last = Some(wanted.last.map_or(head, |last| last.min(head)));
    Ok((head, search(pool, &wanted, order, limit).await?))
}

/// List events of the log. Pages are pieces by position, so that what is appended meanwhile shifts nothing.
#[utoipa::path(get, path = "/api/v1/log", tag = "log", security(("jwt" = [])), params(FilterParams, PieceParams, PieceLimit, Sort<LogEventOut>), operation_id = "list_log",
    responses((status = 200, body = LogEventsOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Admin,
    Params(filter): Params<FilterParams>,
    Params(params): Params<PieceParams>,
    Params(limit): Params<PieceLimit>,
    sort: Sort<LogEventOut>,
) -> Result<Json<LogEventsOut>, Problem> {
    let piece = params.piece(&sort, limit)?;
    Ok(Json(params.read(&database, piece, filter.filter()?).await?))
}

/// One event, by its position.
#[utoipa::path(get, path = "/api/v1/log/{id}", tag = "log", security(("jwt" = [])), params(("id" = i64, Path, description = "Position")), operation_id = "get_log_event",
    responses((status = 200, body = LogEventOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Admin,
    Number(position): Number,
) -> Result<Json<LogEventOut>, Problem> {
    let at = LogFilter { first: Some(position), last: Some(position), ..LogFilter::default() };
    let found = database.read(|pool| search(pool, &at, LogOrder::OldestFirst, 1)).await?;
    found.into_iter().next().map(|event| Json(event.into())).ok_or_else(|| Problem::not_found("Event"))
}

impl From<SearchError> for Problem {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::TooBroad => Self::invalid(error.to_string()),
            SearchError::Database(error) => error.into(),
        }
    }
}
