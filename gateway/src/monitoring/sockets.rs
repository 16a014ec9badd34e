//! WebSockets: values out to people, values in from controllers.

use std::{collections::HashSet, sync::Arc, time::Duration};

use axum::{
    Error,
    extract::{
        FromRequestParts, State,
        ws::{
            Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code, rejection::WebSocketUpgradeRejection,
        },
    },
    http::{header, request::Parts},
    response::Response,
};
use futures::{SinkExt, StreamExt, stream::SplitStream};
use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::SharedServerClock;
use signalbox_domain::identity::Role;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ingestion::{self, DatapointIn, Item, Repetition, Source, Taken},
    pace::Pace,
};
use crate::{
    auth::{CurrentUser, Reader, Writer, presented},
    context_services::services,
    extract::id,
    http::sockets::{Sink, close, is_too_long, refuse_too_long, upgrade},
    idempotency::valid_key,
    limits::Rate,
    monitoring::ingestion::IngestionServices,
    open_sockets::OpenSocket,
    problem::Problem,
    services::{catalog::Catalogs, limits::Limiter, live_values::LiveValues, open_sockets::OpenSockets},
    state::Services,
    throttle::{ingest_key, user_key},
};

/// Largest message of a client that values are shown to: a subscription to [`MAX_EVENTS`] events.
const MAX_STREAM_BYTES: usize = 1 << 20;
/// Datapoints and bytes of one message at most.
const MAX_ITEMS: usize = 10_000;
const MAX_TELEMETRY_BYTES: usize = 4 << 20;
/// A longer message is not even received: it ends the connection.
const MAX_RECEIVED_BYTES: usize = 16 << 20;
/// Events that one socket may subscribe to.
const MAX_EVENTS: usize = 10_000;
/// How often an idle connection is tried.
const PING: Duration = Duration::from_secs(20);
/// A connection without a frame for this long is dead.
const SILENCE: Duration = Duration::from_secs(75);
/// How long a client may take to read a message before it is given up.
const WRITE: Duration = Duration::from_secs(30);
/// Least time between two subscriptions of one socket that look up events which this gateway does not know.
const LOOK_UP: Duration = Duration::from_secs(1);

/// The credential that opens a socket, and the subprotocol to be agreed on.
pub(super) struct Handshake {
    token: String,
    protocol: Option<String>,
}

services! {
    /// Services of sockets for values.
    SocketServices {
        catalogs: Arc<Catalogs>,
        clock: Clock,
        config: Arc<Config>,
        limiter: Arc<Limiter>,
        live_values: Arc<LiveValues<Utf8Bytes>>,
        open_sockets: OpenSockets,
        server_clock: SharedServerClock,
        stop: CancellationToken;
        ingestion_services: IngestionServices,
    }
}

impl FromRequestParts<Services> for Handshake {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Services) -> Result<Self, Problem> {
        let token = presented(parts).map(|token| token.into_owned()).unwrap_or_default();
        let offered = parts.headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
        let mut words = offered.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
        // Browsers insist on one of those that they offer.
        let protocol = words.clone().find(|word| !word.starts_with("bearer.")).or_else(|| words.next());
        Ok(Self { token, protocol: protocol.map(str::to_owned) })
    }
}

/// Opens a socket that shows values as they come in.
pub(super) async fn stream(
    State(services): State<SocketServices>,
    Reader(user): Reader,
    Handshake { token, protocol }: Handshake,
    request: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let request = upgrade(request, MAX_STREAM_BYTES)?.protocols(protocol);
    let open = services.open_sockets.open(user.id, token, Role::Viewer)?;
    // A client may send a value as soon as it has read the answer to its handshake, which is before the upgraded connection
    // is served here: values are gathered for it from now on.
    let mut moved = services.live_values.watch();
    let seen = *moved.borrow_and_update();
    Ok(request.on_upgrade(move |socket| show_values(services, user, open, (moved, seen), socket)))
}

/// Opens a socket that takes values from a controller.
pub(super) async fn telemetry(
    State(services): State<SocketServices>,
    Writer(user): Writer,
    Handshake { token, protocol }: Handshake,
    request: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let request = upgrade(request, MAX_RECEIVED_BYTES)?.protocols(protocol);
    let open = services.open_sockets.open(user.id, token, Role::Operator)?;
    Ok(request.on_upgrade(move |socket| take_values(services, user, open, socket)))
}

async fn show_values(
    services: SocketServices,
    user: CurrentUser,
    open: OpenSocket,
    (moved, seen): (watch::Receiver<u64>, u64),
    socket: WebSocket,
) {
    let (mut sink, mut frames) = socket.split();
    // Also while the client reads nothing of what is written.
    let (code, reason) = tokio::select! {
        biased;
        reason = open.void() => (close_code::POLICY, reason),
        () = services.stop.cancelled() => (close_code::AWAY, "The service stops"),
        () = show(&services, &user, &mut sink, &mut frames, (moved, seen)) => return,
    };
    close(&mut sink, code, reason).await;
}

/// Shows values until the client is gone.
async fn show(
    services: &SocketServices,
    user: &CurrentUser,
    sink: &mut Sink,
    frames: &mut SplitStream<WebSocket>,
    (mut moved, mut seen): (watch::Receiver<u64>, u64),
) {
    let mut subscription = Subscription::default();
    let limits = &services.config.limits;
    let rate = Rate { per_minute: limits.requests_per_minute, burst: limits.request_burst };
    let mut pace = Pace::new(Some(limits.socket_messages_per_second), user_key(user), rate);
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let hello = json!({"type": "connected", "message": "Connected to the stream of datapoints."});
    if write(sink, text(&hello)).await.is_none() {
        return;
    }
    loop {
        tokio::select! {
            frame = next_frame(frames, &pace) => {
                heard = Instant::now();
                pace.count(&services.clock, &services.limiter);
                match frame {
                    Some(Ok(Message::Text(message))) => {
                        if answer(services, sink, &message, &mut subscription).await.is_none() {
                            return;
                        }
                    }
                    Some(Err(error)) if is_too_long(&error) => return refuse_too_long(sink).await,
                    Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                    Some(Ok(_)) => {}
                }
            }
            _ = moved.changed() => {
                let wanted = subscription.channels.as_ref();
                let Some(now) = show_new(services, sink, seen, wanted).await else { return };
                seen = now;
            }
            _ = ping.tick() => {
                if write(sink, Message::Ping(Vec::new().into())).await.is_none() {
                    return;
                }
            }
            () = sleep_until(heard + SILENCE) => return,
        }
    }
}

/// Writes what came after frame `seen`; gives back which frame is seen now.
async fn show_new(
    services: &SocketServices,
    sink: &mut Sink,
    seen: u64,
    wanted: Option<&HashSet<i32>>,
) -> Option<u64> {
    let kept = if wanted.is_none() { services.live_values.frames_since(seen) } else { None };
    let (messages, now) = match kept {
        Some(kept) => kept,
        None => {
            let catalog = services.catalogs.fresh().await.ok()?;
            let is_wanted = |channel| wanted.is_none_or(|wanted| wanted.contains(&channel));
            services.live_values.newest_since(seen, &catalog, services.server_clock.now(), is_wanted)
        }
    };
    for message in messages {
        write(sink, Message::Text(message)).await?;
    }
    Some(now)
}

/// Messages of a browser; anything else is ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    Ping,
    /// Only these events; null for all.
    Subscribe {
        events: Option<Vec<String>>,
    },
}

/// The events that a socket shows.
#[derive(Default)]
struct Subscription {
    /// Integers of their channels; `None` for all events.
    channels: Option<HashSet<i32>>,
    /// When events that this gateway did not know were looked up last.
    looked_up: Option<Instant>,
}

impl Subscription {
    /// Subscribes to `events`. The catalog in memory knows them, unless one was created elsewhere a moment ago: only then
    /// the database is asked, and seldom, because a client may subscribe as often as it likes.
    async fn to(&mut self, services: &SocketServices, events: &[String]) -> Option<()> {
        let ids: Vec<_> = events.iter().filter_map(|text| id(text)).collect();
        let mut catalog = services.catalogs.fresh().await.ok()?;
        let is_unknown = ids.iter().any(|id| catalog.channel(*id).is_none());
        if is_unknown && self.looked_up.is_none_or(|last| last.elapsed() >= LOOK_UP) {
            self.looked_up = Some(Instant::now());
            catalog = services.catalogs.newest().await.ok()?;
        }
        let channels = ids.iter().filter_map(|id| catalog.channel(*id)).map(|known| known.number);
        self.channels = Some(channels.collect());
        Some(())
    }
}

async fn answer(
    services: &SocketServices,
    sink: &mut Sink,
    message: &str,
    subscription: &mut Subscription,
) -> Option<()> {
    match serde_json::from_str(message) {
        Ok(Said::Ping) => write(sink, text(&json!({"type": "pong"}))).await,
        Ok(Said::Subscribe { events: None }) => {
            subscription.channels = None;
            Some(())
        }
        Ok(Said::Subscribe { events: Some(events) }) if events.len() > MAX_EVENTS => {
            let message = format!("{} events are too many: at most {MAX_EVENTS}", events.len());
            write(sink, text(&json!({"type": "error", "message": message}))).await
        }
        Ok(Said::Subscribe { events: Some(events) }) => subscription.to(services, &events).await,
        Err(_) => Some(()),
    }
}

async fn take_values(services: SocketServices, user: CurrentUser, open: OpenSocket, socket: WebSocket) {
    let (mut sink, mut frames) = socket.split();
    let limits = &services.config.limits;
    let rate = Rate { per_minute: limits.ingest_requests_per_minute, burst: limits.ingest_request_burst };
    let mut pace = Pace::new(None, ingest_key(&user), rate);
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            reason = open.void() => return close(&mut sink, close_code::POLICY, reason).await,
            () = services.stop.cancelled() => return close(&mut sink, close_code::AWAY, "The service stops").await,
            frame = next_frame(&mut frames, &pace) => {
                heard = Instant::now();
                pace.count(&services.clock, &services.limiter);
                match frame {
                    Some(Ok(Message::Text(message))) => {
                        if let Some(said) = take(&services, &user, &message).await
                            && write_unless_void(&open, &mut sink, text(&said)).await.is_none()
                        {
                            return;
                        }
                    }
                    Some(Err(error)) if is_too_long(&error) => return refuse_too_long(&mut sink).await,
                    Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                    Some(Ok(_)) => {}
                }
            }
            _ = ping.tick() => {
                let ping = Message::Ping(Vec::new().into());
                if write_unless_void(&open, &mut sink, ping).await.is_none() {
                    return;
                }
            }
            () = sleep_until(heard + SILENCE) => return,
        }
    }
}

/// Writes `message`, but closes the socket if its credential becomes void before the client has read it.
async fn write_unless_void(open: &OpenSocket, sink: &mut Sink, message: Message) -> Option<()> {
    let reason = tokio::select! {
        biased;
        reason = open.void() => reason,
        written = write(sink, message) => return written,
    };
    close(sink, close_code::POLICY, reason).await;
    None
}

/// The next frame, as soon as `pace` allows it.
async fn next_frame(frames: &mut SplitStream<WebSocket>, pace: &Pace) -> Option<Result<Message, Error>> {
    sleep_until(pace.not_before()).await;
    frames.next().await
}

/// Records the datapoints of a message; gives back what is to be said of it. A sender that names its message by an `id`
/// hears in any case what became of it, and may send it again, here or as a batch over HTTP with the id as
/// `Idempotency-Key`: it is taken once. Others hear only what is wrong.
async fn take(services: &SocketServices, user: &CurrentUser, message: &str) -> Option<Value> {
    if message.len() > MAX_TELEMETRY_BYTES {
        return Some(too_long(message));
    }
    let Ok(Value::Object(mut message)) = serde_json::from_str(message) else {
        return Some(complaint("a message must be a JSON object with datapoints"));
    };
    let id = message.remove("id").filter(|id| !id.is_null());
    let items = match message.remove("datapoints") {
        Some(Value::Array(items)) if !items.is_empty() => Ok(items),
        None | Some(Value::Null | Value::Array(_)) if id.is_none() => return None,
        None | Some(Value::Null | Value::Array(_)) => Ok(Vec::new()),
        Some(_) => Err(Problem::invalid("nothing was recorded: datapoints must be a list")),
    };
    let taken = match items {
        Ok(items) => take_items(services, user, id.as_ref(), items).await,
        Err(problem) => Err(problem),
    };
    let mut said = match taken {
        Ok(taken) if id.is_some() => taken.confirmation(),
        Ok(taken) => taken.complaint()?,
        Err(problem) => complaint(problem.detail()),
    };
    if let Some(id) = id {
        said["id"] = id;
    }
    Some(said)
}

/// Results of the datapoints of a message.
struct Received {
    accepted: usize,
    rejected: Vec<Value>,
}

impl Received {
    fn confirmation(self) -> Value {
        json!({"type": "ack", "accepted": self.accepted, "rejected": self.rejected})
    }

    fn complaint(self) -> Option<Value> {
        let Self { accepted, rejected } = self;
        let message = match (accepted, rejected.len()) {
            (_, 0) => return None,
            (0, _) => "No valid datapoints in the message.".to_owned(),
            (accepted, count) => format!("{accepted} datapoints recorded, {count} rejected."),
        };
        Some(json!({"type": "error", "message": message, "accepted": accepted, "rejected": rejected}))
    }
}

fn complaint(message: &str) -> Value {
    json!({"type": "error", "message": message})
}

/// The answer to a message that is received, and not read any further than to its `id`.
fn too_long(message: &str) -> Value {
    #[derive(Deserialize)]
    struct Named {
        id: Option<Value>,
    }
    let count = message.len();
    let mut said = complaint(&format!(
        "nothing was recorded: the message has {count} bytes, and may have {MAX_TELEMETRY_BYTES}; send fewer datapoints at once"
    ));
    if let Ok(Named { id: Some(id) }) = serde_json::from_str(message) {
        said["id"] = id;
    }
    said
}

async fn take_items(
    services: &SocketServices,
    user: &CurrentUser,
    id: Option<&Value>,
    items: Vec<Value>,
) -> Result<Received, Problem> {
    if items.len() > MAX_ITEMS {
        let count = items.len();
        let detail = format!("{count} datapoints are too many for one message: at most {MAX_ITEMS}");
        return Err(Problem::too_large(detail));
    }
    let key = id.map(|id| {
        valid_key(id.as_str()).map_err(|_| Problem::malformed("id must be 1 to 255 visible ASCII characters"))
    });
    let key = key.transpose()?;
    let (mut readable, mut places, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
    for (index, item) in items.into_iter().enumerate() {
        match serde_json::from_value::<DatapointIn>(item).ok() {
            Some(item) => {
                readable.push(Item::from(item));
                places.push(index);
            }
            None => rejected.push(json!({"index": index, "reason": "not a datapoint"})),
        }
    }
    let repetition = match &key {
        Some(key) => Repetition::Key(key),
        None => Repetition::Id(services.clock.new_id()),
    };
    let source = Source { sender: user, repetition };
    let Taken { accepted, refused, .. } =
        ingestion::take(&services.ingestion_services, &source, &readable).await.map_err(not_recorded)?;
    let refused = refused.iter();
    rejected
        .extend(refused.map(|(index, refusal)| json!({"index": places[*index], "reason": refusal.reason()})));
    Ok(Received { accepted, rejected })
}

fn not_recorded(problem: Problem) -> Problem {
    Problem::unavailable(format!("not recorded: {}", problem.detail()))
}

fn text(message: &Value) -> Message {
    Message::Text(message.to_string().into())
}

async fn write(sink: &mut Sink, message: Message) -> Option<()> {
    timeout(WRITE, sink.send(message)).await.ok()?.ok()
}
