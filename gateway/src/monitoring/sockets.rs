//! WebSockets: values out to people, values in from controllers.

use std::{collections::HashSet, time::Duration};

use axum::{
    extract::{
        FromRequestParts, State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    http::{header, request::Parts},
    response::Response,
};
use futures::{SinkExt, StreamExt, stream::SplitSink};
use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_domain::identity::Role;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use uuid::Uuid;

use super::{
    ingest::{self, DatapointIn},
    open_sockets::{OpenSocket, OpenSockets},
};
use crate::{
    auth::{Reader, Who, Writer, presented},
    idempotency::valid_key,
    problem::Problem,
    state::AppState,
};

/// Largest message of a client.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;
/// Datapoints of one message at most.
const MAX_ITEMS: usize = 500;
/// Events that one socket may subscribe to.
const MAX_EVENTS: usize = 10_000;
/// How often an idle connection is tried.
const PING: Duration = Duration::from_secs(20);
/// A connection without a frame for this long is dead.
const SILENCE: Duration = Duration::from_secs(75);
/// How long a client may take to read a message before it is given up.
const WRITE: Duration = Duration::from_secs(30);

type Sink = SplitSink<WebSocket, Message>;

/// The credential that opens a socket, and the subprotocol to be agreed on.
pub(super) struct Handshake {
    token: String,
    protocol: Option<String>,
}

impl FromRequestParts<AppState> for Handshake {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        let token = presented(parts).map(|token| token.into_owned()).unwrap_or_default();
        let offered = parts.headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
        let mut words = offered.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
        // Browsers insist on one of those that they offer.
        let protocol = words.clone().find(|word| !word.starts_with("bearer.")).or_else(|| words.next());
        Ok(Self { token, protocol: protocol.map(str::to_owned) })
    }
}

fn upgrade(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    protocol: Option<String>,
) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = upgrade.map_err(|error| Problem::malformed(format!("this is a WebSocket: {error}")))?;
    Ok(upgrade.max_message_size(MAX_MESSAGE_BYTES).protocols(protocol))
}

/// Opens a socket that shows values as they come in.
pub(super) async fn stream(
    State(state): State<AppState>,
    _: Reader,
    Handshake { token, protocol }: Handshake,
    request: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let open = OpenSockets::open(&state, token, Role::Viewer);
    Ok(upgrade(request, protocol)?.on_upgrade(move |socket| show_values(state, open, socket)))
}

/// Opens a socket that takes values from a controller.
pub(super) async fn telemetry(
    State(state): State<AppState>,
    Writer(who): Writer,
    Handshake { token, protocol }: Handshake,
    request: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let open = OpenSockets::open(&state, token, Role::Operator);
    Ok(upgrade(request, protocol)?.on_upgrade(move |socket| take_values(state, who, open, socket)))
}

async fn show_values(state: AppState, open: OpenSocket, socket: WebSocket) {
    let (mut sink, mut frames) = socket.split();
    let mut moved = state.live_values.watch();
    let mut seen = *moved.borrow_and_update();
    let mut wanted: Option<HashSet<i32>> = None;
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let hello = json!({"type": "connected", "message": "Connected to the stream of datapoints."});
    if write(&mut sink, text(&hello)).await.is_none() {
        return;
    }
    loop {
        tokio::select! {
            () = open.void.cancelled() => return close(&mut sink, close_code::POLICY, "Token has been revoked").await,
            () = state.stop.cancelled() => return close(&mut sink, close_code::AWAY, "The service stops").await,
            frame = frames.next() => {
                heard = Instant::now();
                match frame {
                    Some(Ok(Message::Text(message))) => {
                        if answer(&state, &mut sink, &message, &mut wanted).await.is_none() {
                            return;
                        }
                    }
                    Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                    Some(Ok(_)) => {}
                }
            }
            _ = moved.changed() => {
                let Some(now) = show_new(&state, &mut sink, seen, wanted.as_ref()).await else { return };
                seen = now;
            }
            _ = ping.tick() => {
                if write(&mut sink, Message::Ping(Vec::new().into())).await.is_none() {
                    return;
                }
            }
            () = sleep_until(heard + SILENCE) => return,
        }
    }
}

/// Writes what came after frame `seen`; gives back which frame is seen now.
async fn show_new(
    state: &AppState,
    sink: &mut Sink,
    seen: u64,
    wanted: Option<&HashSet<i32>>,
) -> Option<u64> {
    let kept = if wanted.is_none() { state.live_values.frames_since(seen) } else { None };
    let (messages, now) = match kept {
        Some(kept) => kept,
        None => {
            let catalog = state.catalogs.fresh(state).await.ok()?;
            let is_wanted = |channel| wanted.is_none_or(|wanted| wanted.contains(&channel));
            state.live_values.newest_since(seen, &catalog, is_wanted)
        }
    };
    for message in messages {
        write(sink, Message::Text(message)).await?;
    }
    Some(now)
}

/// What a browser may say; anything else is ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    Ping,
    /// Only these events; null for all.
    Subscribe {
        events: Option<Vec<String>>,
    },
}

async fn answer(
    state: &AppState,
    sink: &mut Sink,
    message: &str,
    wanted: &mut Option<HashSet<i32>>,
) -> Option<()> {
    match serde_json::from_str(message) {
        Ok(Said::Ping) => write(sink, text(&json!({"type": "pong"}))).await,
        Ok(Said::Subscribe { events: None }) => {
            *wanted = None;
            Some(())
        }
        Ok(Said::Subscribe { events: Some(events) }) if events.len() > MAX_EVENTS => {
            let message = format!("{} events are too many: at most {MAX_EVENTS}", events.len());
            write(sink, text(&json!({"type": "error", "message": message}))).await
        }
        Ok(Said::Subscribe { events: Some(events) }) => {
            let catalog = state.catalogs.newest(state).await.ok()?;
            let channel = |id: &String| catalog.channel(Uuid::parse_str(id).ok()?).map(|known| known.number);
            *wanted = Some(events.iter().filter_map(channel).collect());
            Some(())
        }
        Err(_) => Some(()),
    }
}

async fn take_values(state: AppState, who: Who, open: OpenSocket, socket: WebSocket) {
    let (mut sink, mut frames) = socket.split();
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            () = open.void.cancelled() => return close(&mut sink, close_code::POLICY, "Token has been revoked").await,
            () = state.stop.cancelled() => return close(&mut sink, close_code::AWAY, "The service stops").await,
            frame = frames.next() => {
                heard = Instant::now();
                match frame {
                    Some(Ok(Message::Text(message))) => {
                        if let Some(said) = take(&state, &who, &message).await
                            && write(&mut sink, text(&said)).await.is_none()
                        {
                            return;
                        }
                    }
                    Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                    Some(Ok(_)) => {}
                }
            }
            _ = ping.tick() => {
                if write(&mut sink, Message::Ping(Vec::new().into())).await.is_none() {
                    return;
                }
            }
            () = sleep_until(heard + SILENCE) => return,
        }
    }
}

/// Records the datapoints of a message; gives back what is to be said of it. A sender that names its message by an `id`
/// hears in any case what became of it, and may send it again, here or as a batch over HTTP with the id as
/// `Idempotency-Key`: it is taken once. Others hear only what is wrong.
async fn take(state: &AppState, who: &Who, message: &str) -> Option<Value> {
    let Ok(Value::Object(mut message)) = serde_json::from_str(message) else {
        return Some(complaint("a message must be a JSON object with datapoints"));
    };
    let id = message.remove("id").filter(|id| !id.is_null());
    let items = match message.remove("datapoints") {
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ if id.is_none() => return None,
        _ => Vec::new(),
    };
    let mut said = match take_items(state, who, id.as_ref(), items).await {
        Ok(taken) if id.is_some() => taken.confirmation(),
        Ok(taken) => taken.complaint()?,
        Err(problem) => complaint(problem.detail()),
    };
    if let Some(id) = id {
        said["id"] = id;
    }
    Some(said)
}

/// What became of the datapoints of a message.
struct Taken {
    accepted: usize,
    rejected: Vec<Value>,
}

impl Taken {
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

async fn take_items(
    state: &AppState,
    who: &Who,
    id: Option<&Value>,
    items: Vec<Value>,
) -> Result<Taken, Problem> {
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
        match read_item(item) {
            Some(item) => {
                readable.push(item);
                places.push(index);
            }
            None => rejected.push(json!({"index": index, "reason": "not a datapoint"})),
        }
    }
    let checked = ingest::check(state, &readable, state.clock.now()).await.map_err(not_recorded)?;
    let refused = checked.refused.iter();
    rejected
        .extend(refused.map(|(index, refusal)| json!({"index": places[*index], "reason": refusal.reason()})));
    let accepted = checked.points.len();
    if accepted > 0 {
        let batch = key.map(|key| ingest::batch_id(who.user, &key, &readable));
        let batch = batch.unwrap_or_else(|| state.clock.new_id());
        ingest::record(state, who, batch, checked.points).await.map_err(not_recorded)?;
    }
    Ok(Taken { accepted, rejected })
}

fn not_recorded(problem: Problem) -> Problem {
    Problem::unavailable(format!("not recorded: {}", problem.detail()))
}

/// A datapoint; controllers of the WebMACS family may write its value as a text.
fn read_item(mut item: Value) -> Option<DatapointIn> {
    if let Some(value) = item.get_mut("value")
        && let Some(number) = value.as_str().and_then(|text| text.trim().parse::<f64>().ok())
    {
        // What is not finite becomes null, which is no value.
        *value = json!(number);
    }
    serde_json::from_value(item).ok()
}

fn text(message: &Value) -> Message {
    Message::Text(message.to_string().into())
}

async fn write(sink: &mut Sink, message: Message) -> Option<()> {
    timeout(WRITE, sink.send(message)).await.ok()?.ok()
}

async fn close(sink: &mut Sink, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    // Whoever is gone needs no farewell.
    let _ = timeout(Duration::from_secs(2), sink.send(Message::Close(Some(frame)))).await;
}
