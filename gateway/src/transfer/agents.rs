use std::{future::pending, sync::Arc, time::Duration};

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::AgentId,
    transfer::{Agent, AgentCommand, AgentProfile, AgentStatus, AgentType, NewAgent},
};
use signalbox_messaging::{MailMessage, Mailbox, Wakeup};
use signalbox_projections::{
    UnknownWord,
    register::{At, past},
    transfer::{
        AgentRow,
        queries::{self, Filter},
    },
    word,
};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, timeout_at},
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    answer,
    auth::{Admin, Reader},
    consistency::Newest,
    context::RequestContext,
    existence::{examples, judged},
    extract::{IfMatch, JsonBody, Number, PageParams, Params, Sort, not_null, present},
    past::{AsOf, AtParams, there},
    problem::{ErrorOut, Problem, ProblemKind},
    resource::after_write,
    services::{commands::Commands, consistency::ReadGate, replica::Database},
};

/// How long a connection test waits for the echo.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one of its messages has before the agent is asked again.
const TEST_REPEATED: Duration = Duration::from_secs(2);

/// A file agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentOut {
    id: i64,
    name: String,
    /// `server` or `client`.
    #[schema(value_type = crate::words::AgentType)]
    r#type: String,
    description: Option<String>,
    /// `online`, `offline` or `error`.
    #[schema(value_type = crate::words::AgentStatus)]
    status: String,
    /// Version of the agent program.
    version: Option<String>,
    hostname: Option<String>,
    system: Option<String>,
    ip_address: Option<String>,
    /// `websocket` or `polling`.
    #[schema(value_type = Option<crate::words::TransportMode>)]
    transport_mode: Option<String>,
    last_seen: Option<DateTime<Utc>>,
    /// A fault that needs attention, in one sentence, e.g. that two processes use the agent's token.
    warning: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// A new agent.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AgentIn {
    /// 1 to 255 characters.
    name: String,
    /// `server` (default) or `client`.
    #[serde(default)]
    #[schema(value_type = Option<crate::words::AgentType>)]
    r#type: Option<AgentType>,
    #[serde(default)]
    description: Option<String>,
}

/// Changes of an agent; absent fields stay as they are.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct AgentChangesIn {
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<crate::words::AgentType>, nullable = false)]
    r#type: Option<AgentType>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
}

/// The outcome of a connection test.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestOut {
    connected: bool,
    /// Time until the echo; null without one.
    round_trip_ms: Option<u64>,
}

/// Which agents are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AgentFilter {
    /// `online`, `offline` or `error`.
    #[param(value_type = Option<crate::words::AgentStatus>)]
    status: Option<AgentStatus>,
    /// `server` or `client`.
    #[param(value_type = Option<crate::words::AgentType>)]
    r#type: Option<AgentType>,
    /// Part of the name.
    name: Option<String>,
}

/// List agents, by name, then id, unless sorted.
#[utoipa::path(get, path = "/api/agents", tag = "agents", security(("jwt" = [])), params(PageParams, Sort<AgentRow>, AgentFilter), operation_id = "list_agents",
    responses((status = 200, body = [AgentOut]), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
    Params(page): Params<PageParams>,
    sort: Sort<AgentRow>,
    Params(filter): Params<AgentFilter>,
) -> Result<Response, Problem> {
    let AgentFilter { status, r#type, name } = filter;
    let (status, kind) = (status.map(word), r#type.map(word));
    let filter = Filter { status, kind, name, ..Filter::default() };
    let page = page.page()?;
    let (rows, total) = database.read(|pool| queries::agents(pool, &filter, sort.order(), page)).await?;
    Ok(answer::list(total, &rows.into_iter().map(AgentOut::from).collect::<Vec<_>>()))
}

/// Create an agent.
#[utoipa::path(post, path = "/api/agents", tag = "agents", security(("jwt" = [])), request_body = AgentIn, operation_id = "create_agent",
    responses((status = 201, body = AgentOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(agent): JsonBody<AgentIn>,
) -> Result<Response, Problem> {
    let profile = AgentProfile {
        name: agent.name,
        kind: agent.r#type.unwrap_or_default(),
        description: agent.description,
    };
    let command = AgentCommand::Create(NewAgent { number: 0, profile });
    let metadata = context.metadata(user.actor(), "create agent");
    let written = commands.write::<Agent>(context.resource, None, &metadata, &command).await?;
    let row = after_write(|| find_written(&database, context.resource, written.unseen)).await?;
    let (version, location) = (row.version, format!("/api/agents/{}", row.number));
    Ok(answer::created(written, &location, version, &AgentOut::from(row)))
}

/// One agent. Signs of life are not in the log: with `at`, `last_seen` tells when it had last come, gone or said what it is.
#[utoipa::path(get, path = "/api/agents/{id}", tag = "agents", security(("jwt" = [])), params(("id" = i64, Path,), AtParams), operation_id = "get_agent",
    responses((status = 200, body = AgentOut), (status = 401, body = ErrorOut), (status = 404, body = ErrorOut), (status = 400, body = ErrorOut)))]
pub(crate) async fn get(
    State(database): State<Database>,
    _: Reader,
    Number(id): Number,
    AsOf(at): AsOf,
) -> Result<Response, Problem> {
    let row = match at {
        None => find(&database, id).await?,
        Some(at) => find_past(&database, id, at).await?,
    };
    Ok(answer::resource(row.version, &AgentOut::from(row)))
}

/// Change an agent.
#[utoipa::path(put, path = "/api/agents/{id}", tag = "agents", security(("jwt" = [])), params(("id" = i64, Path,)), request_body = AgentChangesIn, operation_id = "update_agent",
    responses((status = 200, body = AgentOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut),
        (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 412, body = ErrorOut)))]
pub(crate) async fn update(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(gate): State<Arc<ReadGate>>,
    Admin(user): Admin,
    IfMatch(versions): IfMatch,
    Number(id): Number,
    context: RequestContext,
    JsonBody(changes): JsonBody<AgentChangesIn>,
) -> Result<Response, Problem> {
    let metadata = context.metadata(user.actor(), "update agent");
    let mut newest = Newest::new(versions);
    let (key, written) = loop {
        let row = find(&database, id).await.map_err(|missing| {
            let name = changes.name.clone().unwrap_or_else(|| "example".to_owned());
            let description = changes.description.clone().flatten();
            let update = AgentCommand::Update(AgentProfile { name, description, ..AgentProfile::default() });
            judged::<Agent>(missing, [examples::agent(), update])
        })?;
        let key = row.id.0;
        let Some(version) = newest.version::<Agent>(&gate, key, row.version).await? else { continue };
        let command = AgentCommand::Update(changed_profile(row, changes.clone())?);
        let written = commands.write::<Agent>(key, Some(version), &metadata, &command).await;
        if let Some(written) = newest.judge::<Agent>(&gate, key, written).await? {
            break (key, written);
        }
    };
    let row = after_write(|| find_written(&database, key, written.unseen)).await?;
    let version = row.version;
    Ok(answer::changed(written, version, &AgentOut::from(row)))
}

/// Delete an agent. Refused while jobs use it.
#[utoipa::path(delete, path = "/api/agents/{id}", tag = "agents", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "delete_agent",
    responses((status = 204), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut),
        (status = 409, body = ErrorOut), (status = 412, body = ErrorOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(mailbox): State<Mailbox>,
    Admin(user): Admin,
    IfMatch(versions): IfMatch,
    Number(id): Number,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&database, id).await?;
    let metadata = context.metadata(user.actor(), "delete agent");
    match commands.write::<Agent>(row.id.0, versions, &metadata, &AgentCommand::Delete).await {
        Ok(written) => {
            if let Err(error) = mailbox.remove(row.id).await {
                tracing::warn!(%error, agent = row.number, "the mailbox of a deleted agent stays until it expires");
            }
            Ok(answer::deleted(written))
        }
        Err(rejection) if rejection.code == "agent_in_use" => Err(in_use(&database, &row).await?),
        Err(rejection) => Err(rejection.into()),
    }
}

/// Send the agent a message and wait up to 5 s for the echo.
#[utoipa::path(post, path = "/api/agents/{id}/test", tag = "agents", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "test_agent",
    responses((status = 200, body = TestOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut),
        (status = 503, body = ErrorOut)))]
pub(crate) async fn test(
    State(database): State<Database>,
    State(clock): State<Clock>,
    State(mailbox): State<Mailbox>,
    State(wakeups): State<broadcast::Sender<Wakeup>>,
    _: Admin,
    Number(id): Number,
) -> Result<Json<TestOut>, Problem> {
    let agent = find(&database, id).await?.id;
    let mut echoes = wakeups.subscribe();
    let mut tries = Vec::new();
    let tested = try_out(&clock, &mailbox, agent, &mut echoes, &mut tries).await;
    for waiting in tries.iter().filter(|_| !matches!(tested, Ok(Some(_)))) {
        if let Err(error) = mailbox.withdraw(agent, &waiting.key).await {
            tracing::warn!(%error, "a connection test stays in the mailbox");
        }
    }
    let round_trip = tested?;
    let connected = round_trip.is_some();
    let round_trip_ms =
        round_trip.map(|round_trip| u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX));
    Ok(Json(TestOut { connected, round_trip_ms }))
}

/// A message of a connection test.
struct Try {
    request_id: String,
    key: String,
    sent: Instant,
}

/// Asks until the agent answers; gives back how long that took, or nothing if it does not. Adds to `tries` what was sent.
async fn try_out(
    clock: &Clock,
    mailbox: &Mailbox,
    agent: AgentId,
    echoes: &mut broadcast::Receiver<Wakeup>,
    tries: &mut Vec<Try>,
) -> Result<Option<Duration>, Problem> {
    let end = Instant::now() + TEST_TIMEOUT;
    // A session that has just been replaced may have taken the message with it: then the new one is asked.
    while Instant::now() < end {
        let (request_id, sent) = (clock.new_id().to_string(), Instant::now());
        let key = format!("test.{request_id}");
        let message =
            MailMessage { kind: "connection_test".to_owned(), data: json!({ "request_id": request_id }) };
        tries.push(Try { request_id, key: key.clone(), sent });
        mailbox.post(agent, &key, &message).await?;
        let until = (sent + TEST_REPEATED).min(end);
        if let Ok(answered) = timeout_at(until, echo(echoes, tries)).await {
            return Ok(Some(answered.elapsed()));
        }
    }
    Ok(None)
}

/// Waits until the agent has echoed one of `tries`; gives back when that was sent.
async fn echo(wakeups: &mut broadcast::Receiver<Wakeup>, tries: &[Try]) -> Instant {
    loop {
        match wakeups.recv().await {
            Ok(Wakeup::TestEcho { request_id }) => {
                if let Some(answered) = tries.iter().find(|sent| sent.request_id == request_id) {
                    return answered.sent;
                }
            }
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return pending().await,
        }
    }
}

fn changed_profile(row: AgentRow, changes: AgentChangesIn) -> Result<AgentProfile, UnknownWord> {
    Ok(AgentProfile {
        name: changes.name.unwrap_or(row.name),
        kind: changes.r#type.map_or_else(|| row.agent_type.known(), Ok)?,
        description: changes.description.unwrap_or(row.description),
    })
}

async fn in_use(database: &Database, agent: &AgentRow) -> Result<Problem, Problem> {
    let jobs = database.read(|pool| queries::jobs_of_agent(pool, agent.id)).await?;
    let names = jobs.iter().map(|(number, name)| format!("{number} ({name})")).collect::<Vec<_>>().join(", ");
    let detail = format!("jobs use this agent: {names}; delete or change them first");
    Ok(Problem::new(ProblemKind::Conflict, "agent_in_use", detail))
}

async fn find(database: &Database, number: i64) -> Result<AgentRow, Problem> {
    database.read(|pool| queries::agent(pool, number)).await?.ok_or_else(missing)
}

/// The agent `id` that was just written: from the log while the read model does not show it.
async fn find_written(database: &Database, id: Uuid, unseen: Option<At>) -> Result<AgentRow, Problem> {
    match unseen {
        None => database.read(|pool| queries::agent_by_id(pool, id.into())).await?.ok_or_else(missing),
        Some(at) => there("Agent", past(&database.primary, id, at).await?),
    }
}

async fn find_past(database: &Database, number: i64, at: At) -> Result<AgentRow, Problem> {
    let id = match queries::agent(&database.primary, number).await? {
        Some(row) => row.id,
        None => queries::removed_agent(&database.primary, number).await?.ok_or_else(missing)?,
    };
    there("Agent", past(&database.primary, id.0, at).await?)
}

fn missing() -> Problem {
    Problem::not_found("Agent")
}

impl From<AgentRow> for AgentOut {
    fn from(row: AgentRow) -> Self {
        Self {
            id: row.number,
            name: row.name,
            r#type: row.agent_type.into(),
            description: row.description,
            status: row.status.into(),
            version: row.version_text,
            hostname: row.hostname,
            system: row.system,
            ip_address: row.ip_address,
            transport_mode: row.transport_mode.map(String::from),
            last_seen: row.last_seen,
            warning: row.warning,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}
