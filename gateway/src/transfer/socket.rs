//! An agent's WebSocket session.
//!
//! Three tasks under one roof: the socket loop reads and writes frames, one task carries out what the agent says, one
//! takes messages out of the mailbox. When any of them ends, the session does. If the gateway dies, the agent
//! reconnects to another one and finds its mailbox there.

use std::time::Duration;

use axum::{
    extract::{
        State,
        ws::{Message, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use futures::{SinkExt, StreamExt, stream::SplitSink};
use serde_json::json;
use signalbox_domain::transfer::{Agent, AgentCommand, TransportMode};
use signalbox_messaging::{Mail, MailMessage, Wakeup};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::messages::{self, Peer};
use crate::{
    auth::AgentAuth,
    client_address::ClientAddress,
    problem::Problem,
    state::{AppState, State as Gateway},
};

/// Largest message of an agent.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// How often an idle socket carries a ping and a data frame; agents of the FileFlux family count data frames only.
const KEEP_ALIVE: Duration = Duration::from_secs(25);
/// A socket without a frame for this long is dead.
const SILENCE: Duration = Duration::from_secs(75);
/// How long the mail waits for the agent's description; one that sends none is taken to know no extension.
const DESCRIPTION: Duration = Duration::from_secs(2);
/// How long one frame may take to be written.
const WRITE: Duration = Duration::from_secs(10);
/// How long one look into the mailbox waits.
const MAIL_WAIT: Duration = Duration::from_secs(30);
/// Messages under way in each direction; more wait in the mailbox or in the agent.
const QUEUE: usize = 64;

/// Opens an agent's WebSocket session.
pub(super) async fn open(
    State(state): State<AppState>,
    auth: AgentAuth,
    ClientAddress(address): ClientAddress,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|error| Problem::malformed(format!("this is a WebSocket: {error}")))?;
    let peer = Peer { auth, address, transport: TransportMode::Websocket };
    Ok(upgrade.max_message_size(MAX_MESSAGE_BYTES).on_upgrade(move |socket| run(state, peer, socket)))
}

async fn run(state: AppState, peer: Peer, socket: WebSocket) {
    let session = state.clock.new_id();
    if let Err(problem) = begin(&state, &peer, session).await {
        tracing::warn!(agent = peer.auth.number, reason = problem.detail(), "a session was not begun");
        return;
    }
    let now = state.clock.now();
    let close =
        state.live_agents.open(peer.auth.agent, session, peer.auth.token, TransportMode::Websocket, now);
    let (incoming, to_handle) = mpsc::channel(QUEUE);
    let (outgoing, to_send) = mpsc::channel(QUEUE);
    let described = CancellationToken::new();
    let reason = tokio::select! {
        () = close.cancelled() => "the session was replaced or its token revoked",
        () = state.stop.cancelled() => "the gateway stops",
        reason = exchange(&state, &peer, socket, incoming, to_send, &described) => reason,
        () = carry_out(&state, &peer, to_handle, &described) => "its messages could not be carried out",
        () = take_mail(&state, &peer, outgoing) => "its mailbox could not be read",
    };
    state.live_agents.close(peer.auth.agent, session);
    end(&state, &peer, session, reason).await;
}

/// Tells the log and the other gateways of a new session.
pub(super) async fn begin(state: &Gateway, peer: &Peer, session: Uuid) -> Result<(), Problem> {
    let command = AgentCommand::Connect { session, transport: peer.transport };
    state.write::<Agent>(peer.auth.agent.0, None, &messages::metadata(state, peer), &command).await?;
    let wakeup = Wakeup::AgentSession { agent: peer.auth.agent.0, session };
    Ok(state.bus.wake(&wakeup).await?)
}

async fn end(state: &Gateway, peer: &Peer, session: Uuid, reason: &str) {
    let command = AgentCommand::Disconnect { session, reason: reason.to_owned() };
    let metadata = messages::metadata(state, peer);
    if let Err(error) = state.bus.send::<Agent>(peer.auth.agent.0, None, &metadata, &command).await {
        tracing::warn!(agent = peer.auth.number, %error, "the end of a session was not noted; the sweep does it");
    }
}

/// Moves frames between the socket and the two queues until one of them ends; says why.
async fn exchange(
    state: &Gateway,
    peer: &Peer,
    socket: WebSocket,
    incoming: mpsc::Sender<MailMessage>,
    mut outgoing: mpsc::Receiver<Mail>,
    described: &CancellationToken,
) -> &'static str {
    let (mut sink, mut stream) = socket.split();
    let mut capabilities: Option<Vec<String>> = None;
    let (mut ready, described_by) = (false, Instant::now() + DESCRIPTION);
    let mut keep_alive = interval(KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            // What the agent is asked depends on what it knows, which it says first. And what it says it has forgotten must
            // be put right before it takes more: a request that it has just taken would look forgotten too.
            mail = outgoing.recv(), if ready => {
                let Some(mail) = mail else { return "its mailbox could not be read" };
                if deliver(state, peer, &mut sink, mail, capabilities.as_deref().unwrap_or_default()).await.is_none() {
                    return "the connection was lost";
                }
            }
            frame = stream.next() => {
                heard = Instant::now();
                match frame {
                    Some(Ok(Message::Text(text))) => {
                        let Ok(message) = serde_json::from_str::<MailMessage>(&text) else { continue };
                        capabilities = listed_capabilities(&message).or(capabilities);
                        if incoming.send(message).await.is_err() {
                            return "its messages could not be carried out";
                        }
                    }
                    Some(Ok(Message::Close(_))) | None => return "the agent closed the connection",
                    Some(Ok(_)) => state.live_agents.touch(peer.auth.agent, state.clock.now()),
                    Some(Err(_)) => return "the connection was lost",
                }
            }
            _ = keep_alive.tick() => {
                if poke(&mut sink).await.is_none() {
                    return "the connection was lost";
                }
            }
            () = described.cancelled(), if !ready => ready = true,
            () = sleep_until(described_by), if !ready && capabilities.is_none() => ready = true,
            () = sleep_until(heard + SILENCE) => return "nothing was heard of it",
        }
    }
}

async fn deliver(
    state: &Gateway,
    peer: &Peer,
    sink: &mut SplitSink<WebSocket, Message>,
    mail: Mail,
    capabilities: &[String],
) -> Option<()> {
    let acknowledges = capabilities.iter().any(|word| word == "ack");
    let (id, message) = (mail.id, messages::for_agent(mail.message, capabilities));
    let frame = if acknowledges {
        json!({"id": id, "type": message.kind, "data": message.data})
    } else {
        json!({"type": message.kind, "data": message.data})
    };
    write(sink, Message::Text(frame.to_string().into())).await?;
    // An agent that does not acknowledge has the message once it is written.
    if !acknowledges && let Err(problem) = messages::acknowledge(state, peer, &[id]).await {
        tracing::warn!(
            agent = peer.auth.number,
            reason = problem.detail(),
            "a delivered message may come again"
        );
    }
    Some(())
}

async fn poke(sink: &mut SplitSink<WebSocket, Message>) -> Option<()> {
    write(sink, Message::Ping(Vec::new().into())).await?;
    let data = json!({"type": "connection_test", "data": {"request_id": "keep-alive"}});
    write(sink, Message::Text(data.to_string().into())).await
}

async fn write(sink: &mut SplitSink<WebSocket, Message>, frame: Message) -> Option<()> {
    timeout(WRITE, sink.send(frame)).await.ok()?.ok()
}

/// The capabilities that an `agent_info` lists; other messages say nothing of them.
fn listed_capabilities(message: &MailMessage) -> Option<Vec<String>> {
    if message.kind != "agent_info" {
        return None;
    }
    let words = message.data["capabilities"].as_array().map(Vec::as_slice).unwrap_or_default();
    Some(words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect())
}

async fn carry_out(
    state: &Gateway,
    peer: &Peer,
    mut to_handle: mpsc::Receiver<MailMessage>,
    described: &CancellationToken,
) {
    while let Some(message) = to_handle.recv().await {
        let describes = message.kind == "agent_info";
        // An unavailable service ends the session: the agent keeps its report and sends it again.
        if let Err(problem) = messages::handle(state, peer, message).await {
            tracing::warn!(
                agent = peer.auth.number,
                reason = problem.detail(),
                "a message was not carried out"
            );
            return;
        }
        if describes {
            described.cancel();
        }
    }
}

async fn take_mail(state: &Gateway, peer: &Peer, outgoing: mpsc::Sender<Mail>) {
    let mut connections = state.bus.connections();
    loop {
        // A pull that was under way when the bus went away is never answered.
        let fetched = tokio::select! {
            fetched = state.mailbox.fetch(peer.auth.agent, QUEUE, MAIL_WAIT) => fetched,
            _ = connections.changed() => continue,
        };
        match fetched {
            Ok(mails) => {
                for mail in mails {
                    if outgoing.send(mail).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                tracing::debug!(agent = peer.auth.number, %error, "the mailbox is asked again");
                sleep(Duration::from_millis(500)).await;
            }
        }
    }
}
