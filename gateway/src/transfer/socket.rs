//! An agent's WebSocket session.
//!
//! Three tasks of one session: the socket loop reads and writes frames, one task carries out the agent's messages,
//! one takes messages out of the mailbox. When any of them ends, the session does. If the gateway crashes, the agent
//! reconnects to another one and finds its mailbox there.

use std::{pin::pin, time::Duration};

use axum::{
    extract::{
        State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    response::Response,
};
use futures::{SinkExt, StreamExt, stream::SplitStream};
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_domain::transfer::{Agent, AgentCommand, TransportMode};
use signalbox_messaging::{Bus, Mail, MailMessage, Mailbox, Wakeup};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    doubles, messages,
    pace::Pace,
    peer::{self, Peer},
    requests,
};
use crate::{
    auth::AgentAuth,
    client_address::ClientAddress,
    http::sockets::{self, Sink},
    limits::Rate,
    problem::Problem,
    revocation::PARTING,
    services::{
        agent_work::Work,
        commands::Commands,
        limits::Limiter,
        live_agents::{DESCRIBE_EVERY, LiveAgents},
        replica::Database,
    },
    transfer::services::TransferServices,
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
/// How long a socket that is replaced has for its part of the closing handshake.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long messages that were read before the end of a session may take to be carried out.
const REMAINDER: Duration = Duration::from_secs(5);
/// New sessions of one agent. Programs that reconnect without a delay are slowed down.
const SESSIONS: Rate = Rate { per_minute: 120, burst: 60 };

/// Why a session ended.
#[derive(Debug, Clone, Copy)]
enum End {
    Replaced,
    Revoked,
    Other(&'static str),
}

impl End {
    fn reason(self) -> &'static str {
        match self {
            Self::Replaced => "the session was replaced",
            Self::Revoked => "the token was revoked or has expired",
            Self::Other(reason) => reason,
        }
    }
}

/// The reaction of the other end of a replaced socket within [`FAREWELL`].
#[derive(Debug, Clone, Copy)]
enum Farewell {
    /// It answered the closing handshake.
    Answered,
    /// It closed the connection without an answer.
    Closed,
    /// It did not react, or it was not asked.
    Nothing,
}

/// Opens an agent's WebSocket session.
pub(super) async fn open(
    State(services): State<TransferServices>,
    auth: AgentAuth,
    ClientAddress(address): ClientAddress,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = sockets::upgrade(upgrade, MAX_MESSAGE_BYTES)?;
    let peer = Peer { auth, address, transport: TransportMode::Websocket };
    admit(&services.clock, &services.limiter, &peer)?;
    Ok(upgrade.on_upgrade(move |socket| run(services, peer, socket)))
}

/// Refuses a new session of an agent that has opened too many lately.
pub(super) fn admit(clock: &Clock, limiter: &Limiter, peer: &Peer) -> Result<(), Problem> {
    let key = format!("agent-session:{}", peer.auth.agent);
    limiter.take(&key, SESSIONS, clock.now()).map_err(Problem::too_many)
}

async fn run(services: TransferServices, peer: Peer, socket: WebSocket) {
    let work = services.agent_work.begin(&peer.auth);
    let session = services.clock.new_id();
    let version = match begin(
        &services.commands,
        &services.clock,
        &services.bus,
        &services.live_agents,
        &peer,
        session,
    )
    .await
    {
        Ok(version) => version,
        Err(problem) => {
            tracing::warn!(agent = peer.auth.number, reason = problem.detail(), "a session was not begun");
            return;
        }
    };
    let now = services.clock.monotonic();
    let close = services.live_agents.open(
        peer.auth.agent,
        (session, version),
        peer.auth.token,
        TransportMode::Websocket,
        now,
    );
    let (mut sink, mut stream) = socket.split();
    let reason = converse(&services, &peer, &mut sink, &mut stream, &close, &work).await;
    services.live_agents.close(peer.auth.agent, session);
    let farewell = say_farewell(&mut sink, &mut stream, reason).await;
    drop((sink, stream, work));
    end(&services.clock, &services.bus, &peer, session, reason.reason()).await;
    // A program alone has given up this connection before it opens the next one.
    let is_double = match farewell {
        Farewell::Answered => true,
        // Many programs close the connection without an answer. So does a broken network, but not time after time.
        Farewell::Closed => services.live_agents.note_overlap(peer.auth.agent, Instant::now()),
        Farewell::Nothing => false,
    };
    if is_double {
        doubles::warn(&services.database, &services.clock, &services.bus, &services.live_agents, &peer).await;
    }
}

async fn converse(
    services: &TransferServices,
    peer: &Peer,
    sink: &mut Sink,
    stream: &mut SplitStream<WebSocket>,
    close: &CancellationToken,
    work: &Work,
) -> End {
    let (incoming, to_handle) = mpsc::channel(QUEUE);
    let (outgoing, to_send) = mpsc::channel(QUEUE);
    let described = CancellationToken::new();
    let mut handling = pin!(carry_out(services, peer, to_handle, &described));
    let end = {
        let exchanging = exchange(services, peer, sink, stream, incoming, to_send, &described);
        tokio::select! {
            biased;
            () = work.void.cancelled() => return End::Revoked,
            // A revoked token ends the session, too.
            () = close.cancelled() => if work.void.is_cancelled() { return End::Revoked } else { End::Replaced },
            () = services.stop.cancelled() => End::Other("the gateway stops"),
            reason = exchanging => End::Other(reason),
            () = &mut handling => return End::Other("its messages could not be carried out"),
            () = take_mail(&services.bus, &services.mailbox, peer, outgoing) => End::Other("its mailbox could not be read"),
        }
    };
    // The agent takes what was read from the socket for delivered.
    let _ = timeout(REMAINDER, handling).await;
    end
}

/// Closes the socket. How the other end of a replaced one reacts shows whether it was still in use.
async fn say_farewell(sink: &mut Sink, stream: &mut SplitStream<WebSocket>, end: End) -> Farewell {
    let code = match end {
        End::Replaced => close_code::NORMAL,
        End::Revoked => close_code::POLICY,
        End::Other(_) => return Farewell::Nothing,
    };
    let frame = Message::Close(Some(CloseFrame { code, reason: end.reason().into() }));
    let handshake = async {
        if sink.send(frame).await.is_err() || !matches!(end, End::Replaced) {
            return Farewell::Nothing;
        }
        while let Some(Ok(frame)) = stream.next().await {
            if matches!(frame, Message::Close(_)) {
                return Farewell::Answered;
            }
        }
        Farewell::Closed
    };
    let limit = if matches!(end, End::Revoked) { PARTING } else { FAREWELL };
    timeout(limit, handshake).await.unwrap_or(Farewell::Nothing)
}

/// Records a new session in the log and publishes it to the other gateways. Returns its place in the order of sessions:
/// the agent's version in the log.
pub(super) async fn begin(
    commands: &Commands,
    clock: &Clock,
    bus: &Bus,
    live_agents: &LiveAgents,
    peer: &Peer,
    session: Uuid,
) -> Result<i64, Problem> {
    let command = AgentCommand::Connect { session, transport: peer.transport };
    let metadata = peer::metadata(clock, peer);
    let (_, version) =
        commands.write_versioned::<Agent>(peer.auth.agent.0, None, &metadata, &command).await?;
    let version = version.unwrap_or_default();
    // The description known here may be older than another gateway's.
    live_agents.forget_description(peer.auth.agent);
    let wakeup = Wakeup::AgentSession { agent: peer.auth.agent.0, session, version };
    bus.wake(&wakeup).await?;
    Ok(version)
}

async fn end(clock: &Clock, bus: &Bus, peer: &Peer, session: Uuid, reason: &str) {
    let command = AgentCommand::Disconnect { session, reason: reason.to_owned() };
    let metadata = peer::metadata(clock, peer);
    if let Err(error) = bus.send::<Agent>(peer.auth.agent.0, None, &metadata, &command).await {
        tracing::warn!(agent = peer.auth.number, %error, "the end of a session was not noted; the sweep does it");
    }
}

/// Moves frames between the socket and the two queues until one of them ends; says why.
async fn exchange(
    services: &TransferServices,
    peer: &Peer,
    sink: &mut Sink,
    stream: &mut SplitStream<WebSocket>,
    incoming: mpsc::Sender<MailMessage>,
    mut outgoing: mpsc::Receiver<Mail>,
    described: &CancellationToken,
) -> &'static str {
    let mut pace = Pace::default();
    let mut capabilities: Option<Vec<String>> = None;
    let (mut ready, described_by) = (false, Instant::now() + DESCRIPTION);
    let mut keep_alive = interval(KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            // Requests depend on the agent's description, which it sends first. And transfers that it has forgotten
            // must be repaired before it accepts more: a request that it has just received would look forgotten too.
            mail = outgoing.recv(), if ready => {
                let Some(mail) = mail else { return "its mailbox could not be read" };
                if deliver(&services.database, &services.mailbox, peer, sink, mail, capabilities.as_deref().unwrap_or_default()).await.is_none() {
                    return "the connection was lost";
                }
            }
            frame = stream.next(), if !pace.is_exceeded() => {
                heard = Instant::now();
                match frame {
                    Some(Ok(Message::Text(text))) => {
                        pace.count(text.len());
                        let Ok(message) = serde_json::from_str::<MailMessage>(&text) else { continue };
                        capabilities = listed_capabilities(&message).or(capabilities);
                        if incoming.send(message).await.is_err() {
                            return "its messages could not be carried out";
                        }
                    }
                    Some(Ok(Message::Close(_))) | None => return "the agent closed the connection",
                    Some(Ok(frame)) => {
                        pace.count(frame.into_data().len());
                        services.live_agents.touch(peer.auth.agent, services.clock.monotonic());
                    }
                    Some(Err(error)) if sockets::is_too_long(&error) => {
                        sockets::refuse_too_long(sink).await;
                        return "it sent a message that is too long";
                    }
                    Some(Err(_)) => return "the connection was lost",
                }
            }
            _ = keep_alive.tick() => {
                if poke(sink).await.is_none() {
                    return "the connection was lost";
                }
            }
            () = described.cancelled(), if !ready => ready = true,
            () = sleep_until(described_by), if !ready && capabilities.is_none() => ready = true,
            () = sleep_until(pace.resumes_at()), if pace.is_exceeded() => {}
            () = sleep_until(heard + SILENCE) => return "nothing was heard of it",
        }
    }
}

async fn deliver(
    database: &Database,
    mailbox: &Mailbox,
    peer: &Peer,
    sink: &mut Sink,
    mail: Mail,
    capabilities: &[String],
) -> Option<()> {
    let acknowledges = capabilities.iter().any(|word| word == "ack");
    let mail = match requests::allowed(&database.primary, mailbox, peer.auth.agent, capabilities, vec![mail])
        .await
    {
        Ok(mut mails) => mails.pop(),
        Err(problem) => {
            tracing::warn!(agent = peer.auth.number, reason = problem.detail(), "a message waits");
            None
        }
    };
    // A message that may not be sent now stays in the mailbox, which offers it again.
    let Some(mail) = mail else { return Some(()) };
    let (id, message) = (mail.id, messages::for_agent(mail.message, capabilities));
    let frame = if acknowledges {
        json!({"id": id, "type": message.kind, "data": message.data})
    } else {
        json!({"type": message.kind, "data": message.data})
    };
    write(sink, Message::Text(frame.to_string().into())).await?;
    // An agent that does not acknowledge has the message once it is written.
    if !acknowledges && let Err(problem) = messages::acknowledge(database, mailbox, peer, &[id]).await {
        tracing::warn!(
            agent = peer.auth.number,
            reason = problem.detail(),
            "a delivered message may come again"
        );
    }
    Some(())
}

async fn poke(sink: &mut Sink) -> Option<()> {
    write(sink, Message::Ping(Vec::new().into())).await?;
    let data = json!({"type": "connection_test", "data": {"request_id": "keep-alive"}});
    write(sink, Message::Text(data.to_string().into())).await
}

async fn write(sink: &mut Sink, frame: Message) -> Option<()> {
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

/// Carries out what the agent says, in its order. Only descriptions after the first one may be overtaken, so that a flood
/// of them delays nothing else.
async fn carry_out(
    services: &TransferServices,
    peer: &Peer,
    to_handle: mpsc::Receiver<MailMessage>,
    described: &CancellationToken,
) {
    let (latest, descriptions) = watch::channel(None);
    tokio::select! {
        () = carry_out_in_turn(services, peer, to_handle, described, latest) => {}
        () = describe_again(services, peer, descriptions) => {}
    }
}

async fn carry_out_in_turn(
    services: &TransferServices,
    peer: &Peer,
    mut to_handle: mpsc::Receiver<MailMessage>,
    described: &CancellationToken,
    latest: watch::Sender<Option<MailMessage>>,
) {
    while let Some(message) = to_handle.recv().await {
        let describes = message.kind == "agent_info";
        if describes && described.is_cancelled() {
            latest.send_replace(Some(message));
            continue;
        }
        if !handle(services, peer, message).await {
            return;
        }
        if describes {
            described.cancel();
        }
    }
}

/// Carries out the newest description, at most one a second.
async fn describe_again(
    services: &TransferServices,
    peer: &Peer,
    mut descriptions: watch::Receiver<Option<MailMessage>>,
) {
    while descriptions.changed().await.is_ok() {
        let next = Instant::now() + DESCRIBE_EVERY;
        let message = descriptions.borrow_and_update().clone();
        if let Some(message) = message
            && !handle(services, peer, message).await
        {
            return;
        }
        sleep_until(next).await;
    }
}

/// Carries out one message. An unavailable service ends the session: the agent keeps its report and sends it again.
async fn handle(services: &TransferServices, peer: &Peer, message: MailMessage) -> bool {
    let handled = messages::handle(services, peer, message).await;
    if let Err(problem) = &handled {
        tracing::warn!(agent = peer.auth.number, reason = problem.detail(), "a message was not carried out");
    }
    handled.is_ok()
}

async fn take_mail(bus: &Bus, mailbox: &Mailbox, peer: &Peer, outgoing: mpsc::Sender<Mail>) {
    let mut connections = bus.connections();
    loop {
        // A pull that was under way when the bus went away is never answered.
        let fetched = tokio::select! {
            fetched = mailbox.fetch(peer.auth.agent, QUEUE, MAIL_WAIT) => fetched,
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
