use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use signalbox_domain::monitoring::{LogEntry, LogEntryCommand, LogStatus, LogType, NewLogEntry};
use signalbox_projections::monitoring::log_entries::{self, LogEntryFilter, LogEntryRow};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer::Page,
    auth::{Reader, Writer},
    change::Change,
    context::RequestContext,
    existence::{examples, judged},
    extract::{EnvelopeParams, JsonBody, Params, Sort, Text, not_null, wanted},
    past::{AsOf, AtParams},
    problem::{Problem, ProblemOut},
    resource::{Found, Shown, changed, created, find_at, shown},
    services::{commands::Commands, replica::Database},
};

/// The source of entries that name none.
const DEFAULT_SOURCE: &str = "api";

/// A log entry. Two of its fields have a second name, by which some clients know them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogEntryOut {
    public_id: String,
    /// `error`, `warning` or `info`.
    #[schema(value_type = crate::words::LogType)]
    r#type: String,
    /// Equal to `type`.
    #[schema(value_type = crate::words::LogType)]
    logging_type: String,
    /// `read` or `unread`.
    #[schema(value_type = crate::words::LogStatus)]
    status: String,
    /// Equal to `status`.
    #[schema(value_type = crate::words::LogStatus)]
    status_type: String,
    content: String,
    /// Its origin, e.g. `auth` for logins.
    source: String,
    created_on: DateTime<Utc>,
    /// The user that it concerns, or that wrote it; null without one.
    user_public_id: Option<String>,
}

/// A new log entry. It is unread.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct LogEntryIn {
    /// 1 to 500 characters.
    content: String,
    /// `error`, `warning` or `info` (default).
    #[schema(value_type = Option<crate::words::LogType>)]
    r#type: Option<LogType>,
    /// Second name of `type`.
    #[schema(value_type = Option<crate::words::LogType>)]
    logging_type: Option<LogType>,
    /// Its origin, 1 to 100 characters; `api` if absent.
    source: Option<String>,
}

/// Changes of a log entry; absent fields stay as they are. A change of nothing marks the entry as read.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct LogEntryChangesIn {
    /// `read` or `unread`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::LogStatus>, nullable = false)]
    status: Option<LogStatus>,
    /// Second name of `status`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::LogStatus>, nullable = false)]
    status_type: Option<LogStatus>,
    /// 1 to 500 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    content: Option<String>,
    /// Its type, if at all: it stays.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::LogType>, nullable = false)]
    r#type: Option<LogType>,
    /// Second name of `type`.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::LogType>, nullable = false)]
    logging_type: Option<LogType>,
    /// Its source, if at all: it stays.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    source: Option<String>,
}

/// Which entries are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogEntryParams {
    /// `error`, `warning` or `info`.
    #[param(value_type = Option<crate::words::LogType>)]
    r#type: Option<LogType>,
    /// Second name of `type`.
    #[param(value_type = Option<crate::words::LogType>)]
    logging_type: Option<LogType>,
    /// `read` or `unread`.
    #[param(value_type = Option<crate::words::LogStatus>)]
    status: Option<LogStatus>,
    /// Second name of `status`.
    #[param(value_type = Option<crate::words::LogStatus>)]
    status_type: Option<LogStatus>,
    /// Their origin.
    source: Option<String>,
    /// Part of the content, in any case of letters.
    content: Option<String>,
    /// The user that they concern, or that wrote them.
    user_public_id: Option<String>,
    /// Written at or after, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    from: Option<DateTime<Utc>>,
    /// Written before, RFC 3339.
    #[serde(default, deserialize_with = "signalbox_domain::kernel::optional_time")]
    to: Option<DateTime<Utc>>,
}

/// List log entries, newest first.
#[utoipa::path(get, path = "/api/v1/logging", tag = "logging", security(("jwt" = [])), params(EnvelopeParams, Sort<LogEntryRow>, LogEntryParams), operation_id = "list_log_entries",
    responses((status = 200, body = Page<LogEntryOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<LogEntryRow>,
    Params(params): Params<LogEntryParams>,
) -> Result<Json<Page<LogEntryOut>>, Problem> {
    let filter = LogEntryFilter {
        kind: params.r#type.or(params.logging_type).map(LogType::as_str),
        status: params.status.or(params.status_type).map(LogStatus::as_str),
        source: params.source,
        content: params.content,
        user: wanted(params.user_public_id),
        from: params.from,
        to: params.to,
    };
    let page = envelope.page()?;
    let (rows, total) =
        database.read(|pool| log_entries::log_entries(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// One log entry.
#[utoipa::path(get, path = "/api/v1/logging/{id}", tag = "logging", security(("jwt" = [])), params(("id" = String, Path,), AtParams), operation_id = "get_log_entry",
    responses((status = 200, body = LogEntryOut), (status = 401, body = ProblemOut), (status = 404, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Reader,
    Text(id): Text,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    find_at::<LogEntryRow>(&database, &id, at).await.map(shown)
}

/// Write a log entry.
#[utoipa::path(post, path = "/api/v1/logging", tag = "logging", security(("jwt" = [])), request_body = LogEntryIn, operation_id = "create_log_entry",
    responses((status = 201, body = LogEntryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Writer(current): Writer,
    context: RequestContext,
    JsonBody(entry): JsonBody<LogEntryIn>,
) -> Result<Response, Problem> {
    let new = NewLogEntry {
        kind: entry.r#type.or(entry.logging_type).unwrap_or_default(),
        content: entry.content,
        source: entry.source.unwrap_or_else(|| DEFAULT_SOURCE.to_owned()),
        user: Some(current.id),
    };
    let metadata = context.metadata(current.actor(), "write log entry");
    let command = LogEntryCommand::Write(new);
    let written = commands.write::<LogEntry>(context.resource, None, &metadata, &command).await?;
    created::<LogEntryRow>(&database, context.resource, written).await
}

/// Mark a log entry as read or unread, or change its content.
#[utoipa::path(put, path = "/api/v1/logging/{id}", tag = "logging", security(("jwt" = [])), params(("id" = String, Path,)), request_body = LogEntryChangesIn, operation_id = "update_log_entry",
    responses((status = 200, body = LogEntryOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn update(
    change: Change<Writer>,
    JsonBody(changes): JsonBody<LogEntryChangesIn>,
) -> Result<Response, Problem> {
    let LogEntryChangesIn { status, status_type, content, r#type, logging_type, source } = changes;
    let status = status.or(status_type).or(if content.is_none() { Some(LogStatus::Read) } else { None });
    let command = LogEntryCommand::Change { status, content };
    let row = change
        .find::<LogEntryRow>()
        .await
        .map_err(|missing| judged::<LogEntry>(missing, [examples::log_entry(), command.clone()]))?;
    for (field, given) in
        [("type", r#type.map(LogType::as_str)), ("logging_type", logging_type.map(LogType::as_str))]
    {
        Problem::unless_kept(field, "log entry", row.log_type.as_str(), given)?;
    }
    Problem::unless_kept("source", "log entry", &row.source, source.as_deref().map(str::trim))?;
    let written = change.write::<LogEntry>(row.id, "change log entry", &command).await?;
    changed::<LogEntryRow>(&change.database, &change.id, written).await
}

impl Found for LogEntryRow {
    const KIND: &'static str = "Log entry";

    fn query(pool: &PgPool, id: Uuid) -> BoxFuture<'_, Result<Option<Self>, sqlx::Error>> {
        log_entries::log_entry(pool, id)
    }
}

impl Shown for LogEntryRow {
    const PATH: &'static str = "/api/v1/logging";
    type Out = LogEntryOut;

    fn version(&self) -> i64 {
        self.version
    }
}

impl From<LogEntryRow> for LogEntryOut {
    fn from(row: LogEntryRow) -> Self {
        Self {
            public_id: row.id.to_string(),
            r#type: row.log_type.to_string(),
            logging_type: row.log_type.into(),
            status: row.status.to_string(),
            status_type: row.status.into(),
            content: row.content,
            source: row.source,
            created_on: row.created_at,
            user_public_id: row.user_id.map(|user| user.to_string()),
        }
    }
}
