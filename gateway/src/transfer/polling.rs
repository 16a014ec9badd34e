//! The long-polling fallback.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_clock::Clock;
use signalbox_domain::{kernel::AgentId, transfer::TransportMode};
use signalbox_messaging::{Bus, Mail, MailMessage, Mailbox};
use signalbox_projections::transfer::queries;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use super::{
    doubles,
    messages::{self, AgentInfo},
    peer::Peer,
    requests,
    socket::{admit, begin},
};
use crate::{
    auth::AgentAuth,
    client_address::ClientAddress,
    extract::{JsonBody, OptionalBody, Params, digits},
    problem::{ErrorOut, Problem},
    services::{agent_work::Work, commands::Commands, live_agents::LiveAgents, replica::Database},
    transfer::services::TransferServices,
};

/// Messages in one answer.
const MAX_MESSAGES: usize = 50;
/// Delay after the mailbox could not be read.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Registration over the polling transport.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ConnectIn {
    /// The data of `agent_info`.
    #[serde(default)]
    #[schema(value_type = Object)]
    system_info: Option<Value>,
}

/// A registration.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConnectOut {
    #[schema(value_type = crate::words::Connected)]
    status: &'static str,
    agent_id: i64,
    #[schema(value_type = crate::words::TransportMode)]
    mode: &'static str,
}

/// A message for the agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MailOut {
    /// Positive; acknowledges it.
    id: i64,
    message: MessageInOut,
}

/// A message in either direction.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MessageInOut {
    /// Kind of the message, e.g. `heartbeat`.
    r#type: String,
    /// The content of the message; its form depends on the kind.
    #[schema(value_type = Object)]
    #[serde(default)]
    data: Value,
}

/// Messages that the agent has taken charge of.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct AckIn {
    message_ids: Vec<i64>,
}

/// The message was taken.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OkOut {
    #[schema(value_type = crate::words::Taken)]
    status: &'static str,
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PollParams {
    /// Seconds to wait, 1 to 120; 30 otherwise.
    timeout: Option<String>,
}

/// Register over the polling transport.
#[utoipa::path(post, path = "/api/agent/connect", tag = "agent protocol", security(("agent" = [])), request_body = Option<ConnectIn>, operation_id = "agent_connect",
    responses((status = 200, body = ConnectOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn connect(
    State(services): State<TransferServices>,
    auth: AgentAuth,
    address: ClientAddress,
    OptionalBody(ConnectIn { system_info }): OptionalBody<ConnectIn>,
) -> Result<Json<ConnectOut>, Problem> {
    let peer = peer(auth, address);
    admit(&services.clock, &services.limiter, &peer)?;
    open_session(&services.commands, &services.clock, &services.bus, &services.live_agents, &peer).await?;
    if let Some(info) = system_info.and_then(|info| serde_json::from_value::<AgentInfo>(info).ok()) {
        messages::describe(
            &services.database,
            &services.commands,
            &services.clock,
            &services.bus,
            &services.live_agents,
            &peer,
            info,
        )
        .await?;
    }
    Ok(Json(ConnectOut { status: "connected", agent_id: peer.auth.number, mode: "polling" }))
}

/// Wait for messages.
#[utoipa::path(get, path = "/api/agent/poll", tag = "agent protocol", security(("agent" = [])), params(PollParams), operation_id = "agent_poll",
    responses((status = 200, body = [MailOut]), (status = 204), (status = 401, body = ErrorOut)))]
pub(crate) async fn poll(
    State(services): State<TransferServices>,
    auth: AgentAuth,
    address: ClientAddress,
    Params(params): Params<PollParams>,
) -> Result<Response, Problem> {
    let peer = peer(auth, address);
    let seconds = params.timeout.and_then(|text| digits(&text)).filter(|seconds| (1..=120).contains(seconds));
    let work = services.agent_work.begin(&peer.auth);
    let close = session(&services, &peer).await?;
    queries::note_poll(&services.database.primary, peer.auth.agent).await?;
    let waiting = Waiting::begin(&services, peer.auth.agent);
    if waiting.is_double {
        doubles::warn(&services.database, &services.clock, &services.bus, &services.live_agents, &peer).await;
    }
    let deadline = Instant::now() + Duration::from_secs(seconds.unwrap_or(30));
    let polled = tokio::select! {
        biased;
        () = work.void.cancelled() => return Err(Work::refusal()),
        // Replaced: the next call finds the session that took its place.
        () = close.cancelled() => Ok((Vec::new(), Vec::new())),
        () = services.stop.cancelled() => Ok((Vec::new(), Vec::new())),
        polled = wait_for_mail(&services.database, &services.bus, &services.mailbox, peer.auth.agent, deadline) => polled,
    };
    drop(waiting);
    let (mails, capabilities) = polled?;
    if work.void.is_cancelled() {
        return Err(Work::refusal());
    }
    if mails.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mails: Vec<_> = mails.into_iter().map(|mail| MailOut::new(mail, &capabilities)).collect();
    Ok(Json(mails).into_response())
}

/// Send one message: heartbeat, progress, end of a leg.
#[utoipa::path(post, path = "/api/agent/messages", tag = "agent protocol", security(("agent" = [])), request_body = MessageInOut, operation_id = "agent_send",
    responses((status = 200, body = OkOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn send(
    State(services): State<TransferServices>,
    auth: AgentAuth,
    address: ClientAddress,
    JsonBody(message): JsonBody<MessageInOut>,
) -> Result<Json<OkOut>, Problem> {
    let message = MailMessage { kind: message.r#type, data: message.data };
    messages::handle(&services, &peer(auth, address), message).await?;
    Ok(Json(OkOut { status: "ok" }))
}

/// Confirm messages that the agent has taken charge of.
#[utoipa::path(post, path = "/api/agent/ack", tag = "agent protocol", security(("agent" = [])), request_body = AckIn, operation_id = "agent_acknowledge",
    responses((status = 200, body = OkOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn acknowledge(
    State(database): State<Database>,
    State(mailbox): State<Mailbox>,
    auth: AgentAuth,
    address: ClientAddress,
    JsonBody(acknowledgement): JsonBody<AckIn>,
) -> Result<Json<OkOut>, Problem> {
    messages::acknowledge(&database, &mailbox, &peer(auth, address), &acknowledgement.message_ids).await?;
    Ok(Json(OkOut { status: "ok" }))
}

fn peer(auth: AgentAuth, ClientAddress(address): ClientAddress) -> Peer {
    Peer { auth, address, transport: TransportMode::Polling }
}

async fn open_session(
    commands: &Commands,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
    peer: &Peer,
) -> Result<CancellationToken, Problem> {
    let session = clock.new_id();
    let version = begin(commands, clock, bus, live_agents, peer, session).await?;
    let (auth, now) = (&peer.auth, clock.monotonic());
    Ok(live_agents.open(auth.agent, (session, version), auth.token, TransportMode::Polling, now))
}

/// The agent's session: this gateway's, one that another gateway has begun, or a new one. A poll beside a living
/// WebSocket leaves that session alone; the mailbox is the same.
async fn session(services: &TransferServices, peer: &Peer) -> Result<CancellationToken, Problem> {
    let row = queries::agent_by_id(&services.database.primary, peer.auth.agent).await?;
    let row = row.ok_or_else(|| Problem::unauthenticated("invalid agent token"))?;
    let is_by_socket = row.transport_mode.is_some_and(|mode| mode.is(TransportMode::Websocket));
    match (row.session, is_by_socket) {
        (Some(_), true) => Ok(CancellationToken::new()),
        (Some(session), _) => {
            if let Some(close) = services.live_agents.polling(peer.auth.agent, session) {
                return Ok(close);
            }
            // Sessions that were recorded after the row was read have a higher version.
            let (auth, now, version) = (&peer.auth, services.clock.monotonic(), row.version);
            Ok(services.live_agents.open(
                auth.agent,
                (session, version),
                auth.token,
                TransportMode::Polling,
                now,
            ))
        }
        (None, _) => {
            admit(&services.clock, &services.limiter, peer)?;
            open_session(&services.commands, &services.clock, &services.bus, &services.live_agents, peer)
                .await
        }
    }
}

/// Messages that the agent may get now, and its capabilities.
async fn wait_for_mail(
    database: &Database,
    bus: &Bus,
    mailbox: &Mailbox,
    agent: AgentId,
    deadline: Instant,
) -> Result<(Vec<Mail>, Vec<String>), Problem> {
    let mut connections = bus.connections();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(10) {
            return Ok((Vec::new(), Vec::new()));
        }
        // A pull that was under way when the bus went away is never answered.
        let fetched = tokio::select! {
            fetched = mailbox.fetch(agent, MAX_MESSAGES, left) => fetched,
            _ = connections.changed() => continue,
        };
        match fetched {
            Ok(mails) if mails.is_empty() => {}
            Ok(mails) => {
                let row = queries::agent_by_id(&database.primary, agent).await?;
                let capabilities = row.map(|agent| agent.capabilities).unwrap_or_default();
                // Messages that are held back stay in the mailbox, which offers them again.
                let mails =
                    requests::allowed(&database.primary, mailbox, agent, &capabilities, mails).await?;
                if !mails.is_empty() {
                    return Ok((mails, capabilities));
                }
            }
            Err(error) => {
                tracing::debug!(agent = %agent, %error, "the mailbox is asked again");
                sleep(RETRY_DELAY.min(left)).await;
            }
        }
    }
}

/// Counts a poll as long as it lives, however it ends.
struct Waiting<'a> {
    services: &'a TransferServices,
    agent: AgentId,
    /// Whether polls of this agent have overlapped so often that two processes must be polling.
    is_double: bool,
}

impl<'a> Waiting<'a> {
    fn begin(services: &'a TransferServices, agent: AgentId) -> Self {
        let overlaps = services.live_agents.count_poll(agent, 1, services.clock.monotonic());
        let is_double = overlaps && services.live_agents.note_overlap(agent, Instant::now());
        Self { services, agent, is_double }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.services.live_agents.count_poll(self.agent, -1, self.services.clock.monotonic());
    }
}

impl MailOut {
    fn new(mail: Mail, capabilities: &[String]) -> Self {
        let MailMessage { kind, data } = messages::for_agent(mail.message, capabilities);
        Self { id: mail.id, message: MessageInOut { r#type: kind, data } }
    }
}
