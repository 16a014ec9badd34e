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
use signalbox_config::Config;
use signalbox_domain::identity::Role;
use signalbox_event_store::head_position;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use utoipa::{IntoParams, ToSchema};

use crate::{
    auth::Reader,
    context_services::services,
    extract::Params,
    problem::{Problem, ProblemOut},
    resumed::Resumed,
    revocation::end_unread,
    services::{
        auth::Credentials,
        changes::{Batch, Change, ChangeFeed, Missing, Source, catch_up},
        consistency::ReadGate,
        open_sockets::OpenSockets,
        replica::Database,
    },
};

/// Messages on their way to a client; it is cut when it takes none for `server.stall_seconds`.
const ON_THE_WAY: usize = 64;
/// A client hears something this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream waits for a notification before it checks by itself.
const POLL: Duration = Duration::from_secs(1);
/// Positions that a client may have missed; after more of them, it has to read everything again.
const MOST_MISSED: i64 = 50_000;

/// Where to begin.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct BeginParams {
    /// Position of the event log after which to begin; from now on if absent. `Last-Event-ID` takes precedence.
    after: Option<i64>,
}

/// A resource that changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LiveChangeOut<'a> {
    /// `agent`, `agent_token`, `api_token`, `channel`, `contact`, `dashboard`, `delivery`, `experiment`, `extraction_job`, `firmware`,
    /// `job`, `log_entry`, `plugin_instance`, `plugin_package`, `rule`, `transfer`, `user` or `webhook`.
    #[schema(value_type = crate::words::ChangedResource)]
    r#type: &'static str,
    /// As in its address; of a `delivery`, that of the webhook or contact.
    id: &'a str,
    /// Its version after the change, which is its `ETag`; of a `delivery`, that of the batch it was queued in.
    version: i64,
    /// Present, and true, if reads may not show the change yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    eventual: bool,
}

services! {
    /// Services of live streams of changes.
    ChangeServices {
        changes: Arc<ChangeFeed>,
        config: Arc<Config>,
        credentials: Credentials,
        database: Database,
        gate: Arc<ReadGate>,
        log_moved: watch::Sender<i64>,
        open_sockets: OpenSockets,
        stop: CancellationToken,
    }
}

impl ChangeServices {
    fn source(&self) -> Source<'_> {
        Source { pool: &self.database.primary, gate: &self.gate, log_moved: &self.log_moved }
    }
}

/// Follow which resources change. Each `change` names a resource that the caller may see, or saw until then, and not its content:
/// a client that shows it reads it again. Reads show the change when it is sent, unless it says `eventual`. Several changes of a
/// resource may become one. Events of a type `start` (first), `reset` (more was missed than is kept: read everything anew) and
/// comments at least every 15 s have ids, too: a client that reconnects with the last one as `Last-Event-ID` misses nothing.
#[utoipa::path(get, path = "/api/v1/live", tag = "live", security(("jwt" = [])), operation_id = "follow_changes",
    params(BeginParams, ("Last-Event-ID" = Option<i64>, Header, description = "The last id that was seen")),
    responses((status = 200, body = LiveChangeOut, content_type = "text/event-stream"), (status = 401, body = ProblemOut),
        (status = 422, body = ProblemOut), (status = 429, body = ProblemOut)))]
pub(crate) async fn live(
    State(services): State<ChangeServices>,
    Reader(user): Reader,
    Resumed { token, exchange, last_event_id }: Resumed,
    Params(BeginParams { after }): Params<BeginParams>,
) -> Result<Response, Problem> {
    let open = services.open_sockets.open(user.id, token.clone(), Role::Viewer)?;
    let moved = services.changes.open();
    let head = head_position(&services.database.primary).await?;
    let (sender, messages) = mpsc::channel(ON_THE_WAY);
    let client = Client { sender, stall: Duration::from_secs(services.config.server.stall_seconds.into()) };
    let seen = last_event_id.or(after).unwrap_or(head).max(0);
    let stream = Stream { services: services.clone(), token, moved, seen, client, spoke: Instant::now() };
    tokio::spawn(async move {
        let sender = stream.client.sender.clone();
        let is_void = tokio::select! {
            // The client reconnects and resumes.
            Err(Ended) = stream.run(head) => false,
            () = sender.closed() => false,
            _ = open.void() => true,
            () = services.stop.cancelled() => false,
        };
        drop((open, sender));
        if is_void {
            end_unread(exchange).await;
        }
    });
    Ok(Sse::new(ReceiverStream::new(messages)).into_response())
}

/// The client has gone away or has stopped reading, its credential is void, or the log cannot be read.
#[derive(Debug, PartialEq, Eq)]
struct Ended;

struct Stream {
    services: ChangeServices,
    token: String,
    moved: watch::Receiver<i64>,
    /// Position up to which all is sent.
    seen: i64,
    client: Client,
    /// When something was sent.
    spoke: Instant,
}

struct Client {
    sender: mpsc::Sender<Result<Event, Infallible>>,
    stall: Duration,
}

impl Client {
    async fn send(&self, event: Event) -> Result<(), Ended> {
        timeout(self.stall, self.sender.send(Ok(event))).await.map_err(|_| Ended)?.map_err(|_| Ended)
    }
}

impl Stream {
    async fn run(mut self, head: i64) -> Result<Infallible, Ended> {
        self.send_position("start").await?;
        if self.seen > head {
            // The log is another one.
            self.reset(head).await?;
        }
        loop {
            self.moved.mark_unchanged();
            self.send_new().await?;
            if self.spoke.elapsed() >= KEEP_ALIVE {
                let comment = Event::default().id(self.seen.to_string()).comment("keep-alive");
                self.send(comment).await?;
            }
            let silence_left = KEEP_ALIVE.saturating_sub(self.spoke.elapsed());
            // Notified or not, it checks.
            let _ = timeout(POLL.min(silence_left), self.moved.changed()).await;
        }
    }

    async fn send_new(&mut self) -> Result<(), Ended> {
        loop {
            match self.services.changes.after(self.seen) {
                Missing::Nothing => return Ok(()),
                Missing::Kept(batches) => {
                    for batch in batches {
                        self.send_batch(&batch).await?;
                    }
                }
                Missing::UpTo(kept) if kept - self.seen > MOST_MISSED => self.reset(kept).await?,
                Missing::UpTo(kept) => {
                    let missed = catch_up(&self.services.changes, self.services.source(), self.seen, kept)
                        .await
                        .map_err(|problem| {
                            tracing::warn!(
                                problem = problem.detail(),
                                "a live stream is ended: it cannot catch up"
                            );
                            Ended
                        })?;
                    self.send_batch(&missed).await?;
                }
            }
        }
    }

    async fn send_batch(&mut self, batch: &Batch) -> Result<(), Ended> {
        // The role may have changed since the stream was opened.
        let user = self.services.credentials.identify(&self.token).await.map_err(|_| Ended)?;
        for change in &batch.changes {
            if change.position > self.seen && change.audience.includes(&user) {
                self.send(message(change)?).await?;
            }
        }
        self.seen = self.seen.max(batch.last);
        Ok(())
    }

    async fn reset(&mut self, position: i64) -> Result<(), Ended> {
        self.seen = position;
        self.send_position("reset").await
    }

    async fn send_position(&mut self, name: &str) -> Result<(), Ended> {
        let event = Event::default().event(name).id(self.seen.to_string());
        let event = event.json_data(json!({ "position": self.seen })).map_err(|_| Ended)?;
        self.send(event).await
    }

    async fn send(&mut self, event: Event) -> Result<(), Ended> {
        self.spoke = Instant::now();
        self.client.send(event).await
    }
}

fn message(change: &Change) -> Result<Event, Ended> {
    let Change { position, kind, id, version, is_eventual, .. } = change;
    let out = LiveChangeOut { r#type: kind, id, version: *version, eventual: *is_eventual };
    Event::default().event("change").id(position.to_string()).json_data(out).map_err(|_| Ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut() {
        let (sender, messages) = mpsc::channel(ON_THE_WAY);
        let client = Client { sender, stall: Duration::from_secs(60) };
        for _ in 0..ON_THE_WAY {
            client.send(Event::default()).await.unwrap();
        }
        assert_eq!(client.send(Event::default()).await, Err(Ended));
        drop(messages);
    }
}
