//! Follows the log by Server-Sent Events. Every follower reads the log itself, from the position that it has reached: there
//! is no queue that could grow, and none whose end would be lost. Wake-ups make it quick, polling makes it sure.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use signalbox_domain::identity::Role;
use signalbox_event_store::{LogFilter, LogOrder, head_position, search};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use super::events::{FilterParams, LogEventOut};
use crate::{
    auth::Admin,
    context_services::services,
    extract::Params,
    problem::{Problem, ProblemOut},
    resumed::Resumed,
    revocation::end_unread,
    services::{open_sockets::OpenSockets, replica::Database},
};

/// Followers of one gateway at the same time.
pub(crate) const FOLLOWERS: usize = 64;
/// Events that are read at a time; a follower holds no more, and as many on their way.
const PIECE: i64 = 100;
/// How long a follower waits for a wake-up before it looks by itself.
const POLL: Duration = Duration::from_secs(1);
/// A follower hears something this often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client may take to read a piece before it is given up.
const STALLED: Duration = Duration::from_secs(60);

/// Where to begin.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AfterParams {
    /// Position after which to begin; 0 for the whole log, from now on if absent. `Last-Event-ID` goes before it.
    after: Option<i64>,
}

services! {
    /// Services that the log is followed by.
    FollowServices {
        database: Database,
        followers: Arc<Semaphore>,
        log_moved: watch::Sender<i64>,
        open_sockets: OpenSockets,
        stop: CancellationToken,
    }
}

/// Follow the log, oldest first. Each event's `id` is its position: a client that reconnects with it as `Last-Event-ID`
/// continues behind it. Without events, an event `heartbeat` is sent at least every 15 s, whose `id` is how far the log
/// was searched.
#[utoipa::path(get, path = "/api/v1/log/stream", tag = "log", security(("jwt" = [])), operation_id = "follow_log",
    params(FilterParams, AfterParams, ("Last-Event-ID" = Option<i64>, Header, description = "Position of the last event that was seen")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut),
        (status = 422, body = ProblemOut)))]
pub(crate) async fn follow(
    State(services): State<FollowServices>,
    Admin(user): Admin,
    Resumed { token, exchange, last_event_id }: Resumed,
    Params(filter): Params<FilterParams>,
    Params(AfterParams { after }): Params<AfterParams>,
) -> Result<Response, Problem> {
    let filter = filter.filter()?;
    let seen = match last_event_id.or(after) {
        Some(position) => position.max(0),
        None => head_position(&services.database.primary).await?,
    };
    let place = services.followers.clone().try_acquire_owned();
    let place = place.map_err(|_| Problem::unavailable("Too many follow the log: try again in a moment."))?;
    let open = services.open_sockets.open(user.id, token, Role::Admin)?;
    let (sender, pieces) = mpsc::channel(PIECE as usize);
    let follower = Follower {
        moved: services.log_moved.subscribe(),
        services: services.clone(),
        filter,
        seen,
        sender,
        spoke: Instant::now(),
    };
    tokio::spawn(async move {
        let client = follower.sender.clone();
        let is_void = tokio::select! {
            // In each of these cases the client reconnects and continues where it was.
            Err(Ended) = follower.run() => false,
            () = client.closed() => false,
            _ = open.void() => true,
            () = services.stop.cancelled() => false,
        };
        drop((open, place, client));
        if is_void {
            end_unread(exchange).await;
        }
    });
    Ok(Sse::new(ReceiverStream::new(pieces)).into_response())
}

struct Follower {
    services: FollowServices,
    filter: LogFilter,
    /// Position up to which all is sent.
    seen: i64,
    /// Moves when the log does.
    moved: watch::Receiver<i64>,
    sender: mpsc::Sender<Result<Event, Infallible>>,
    /// When something was sent.
    spoke: Instant,
}

/// The client has gone away or has stopped reading, or the log cannot be read.
struct Ended;

impl Follower {
    async fn run(mut self) -> Result<Infallible, Ended> {
        loop {
            self.send_new().await?;
            if self.spoke.elapsed() >= HEARTBEAT {
                let message = Event::default().event("heartbeat");
                self.send(message, self.seen, &json!({ "position": self.seen })).await?;
            }
            // Woken or not, it looks.
            let _ = timeout(POLL, self.moved.changed()).await;
        }
    }

    /// Sends what is new, piece by piece.
    async fn send_new(&mut self) -> Result<(), Ended> {
        loop {
            let head = head_position(&self.services.database.primary).await.map_err(|_| Ended)?;
            if head <= self.seen {
                return Ok(());
            }
            let new = LogFilter { first: Some(self.seen + 1), last: Some(head), ..self.filter.clone() };
            let found = search(&self.services.database.primary, &new, LogOrder::OldestFirst, PIECE).await;
            let events = found.map_err(|error| {
                tracing::warn!(%error, "a follower of the log is sent away");
                Ended
            })?;
            let is_all = (events.len() as i64) < PIECE;
            self.seen = match events.last() {
                Some(last) if !is_all => last.position,
                _ => head,
            };
            for event in events {
                let event = LogEventOut::from(event);
                self.send(Event::default(), event.position, &event).await?;
            }
        }
    }

    async fn send(&mut self, event: Event, position: i64, data: &impl Serialize) -> Result<(), Ended> {
        let event = event.id(position.to_string()).json_data(data).map_err(|_| Ended)?;
        self.spoke = Instant::now();
        timeout(STALLED, self.sender.send(Ok(event))).await.map_err(|_| Ended)?.map_err(|_| Ended)
    }
}
