//! Datapoints on the bus: batches on their way to the log, and rows that were committed on their way to sockets.

use signalbox_boxed::boxed;
use std::{future::Future, sync::Arc, time::Duration};

use async_nats::{HeaderMap, Message, Request, RequestErrorKind};
use bytes::Bytes;
use chrono::{DateTime, NaiveDate, Utc};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use signalbox_domain::kernel::Rejection;
use signalbox_telemetry::current;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use crate::{
    Bus, BusError,
    trace::{answering, note, sending, trace_headers, traceparent},
};

const BATCHES: &str = "ingest.datapoints";
const DELETIONS: &str = "ingest.deletions";
const LIVE: &str = "live.datapoints";
/// Header of an announced row: when it was appended, in microseconds since 1970.
const RECORDED_AT: &str = "recorded-at";

/// How long a sender keeps asking before it gives up.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of one request.
const REQUEST: Duration = Duration::from_secs(3);
/// Requests that one process carries out at the same time; more wait on the bus.
const CONCURRENT: usize = 512;

/// A batch on its way to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestMessage {
    /// Names the batch; the same one is appended once.
    pub batch_id: Uuid,
    /// How many points it holds.
    pub points: u32,
    /// The encoded points.
    pub block: Bytes,
}

/// Where a batch ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestOutcome {
    /// Day of its row.
    pub day: NaiveDate,
    /// Position of its row.
    pub position: i64,
    /// Place of its first point within the row.
    pub first_index: u32,
    /// Whether it had been appended before.
    pub duplicate: bool,
}

/// A committed row of the datapoint log, for live subscribers. Lost ones are read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRow {
    /// Its position.
    pub position: i64,
    /// When it was appended; `None` from a process of an earlier version.
    pub recorded_at: Option<DateTime<Utc>>,
    /// The encoded points.
    pub payload: Bytes,
}

impl Bus {
    /// Sends a batch to the log and waits until it is committed. Unanswered ones are sent again with the same id.
    ///
    /// # Errors
    /// A [`Rejection`] of kind `Unavailable` if no answer arrived in time; then it is unknown whether the batch was
    /// appended.
    #[boxed]
    pub async fn ingest(&self, message: &IngestMessage) -> Result<IngestOutcome, Rejection> {
        let mut payload = Vec::with_capacity(20 + message.block.len());
        payload.extend_from_slice(message.batch_id.as_bytes());
        payload.extend_from_slice(&message.points.to_le_bytes());
        payload.extend_from_slice(&message.block);
        self.ask(BATCHES, payload.into()).await
    }

    /// Answers batches, shared with every other process that does. `None` makes the sender ask again.
    ///
    /// # Errors
    /// [`BusError::Stream`] when the subscription is refused.
    pub async fn serve_ingest<H, F>(&self, handle: H) -> Result<(), BusError>
    where
        H: Fn(IngestMessage) -> F + Send + Sync + 'static,
        F: Future<Output = Option<IngestOutcome>> + Send,
    {
        let handle = Arc::new(handle);
        self.serve_asked(BATCHES, move |payload| {
            let handle = handle.clone();
            async move {
                let (id, points) = (payload.get(..16)?, payload.get(16..20)?);
                let message = IngestMessage {
                    batch_id: Uuid::from_slice(id).ok()?,
                    points: u32::from_le_bytes(points.try_into().ok()?),
                    block: payload.slice(20..),
                };
                serde_json::to_vec(&handle(message).await?).ok()
            }
        })
        .await
    }

    /// Sends the deletion of a point to the log, and waits until it is committed; false when the point was gone.
    ///
    /// # Errors
    /// As [`Bus::ingest`].
    pub async fn delete_datapoint<T: Serialize>(&self, deletion: &T) -> Result<bool, Rejection> {
        let payload = serde_json::to_vec(deletion).map_err(|_| Rejection::unreadable_command())?;
        self.ask(DELETIONS, payload.into()).await
    }

    /// Answers deletions, shared with every other process that does. `None` makes the sender ask again.
    ///
    /// # Errors
    /// [`BusError::Stream`] when the subscription is refused.
    pub async fn serve_deletions<T, H, F>(&self, handle: H) -> Result<(), BusError>
    where
        T: DeserializeOwned + Send,
        H: Fn(T) -> F + Send + Sync + 'static,
        F: Future<Output = Option<bool>> + Send,
    {
        let handle = Arc::new(handle);
        self.serve_asked(DELETIONS, move |payload| {
            let handle = handle.clone();
            async move {
                let deletion = serde_json::from_slice(&payload).ok()?;
                serde_json::to_vec(&handle(deletion).await?).ok()
            }
        })
        .await
    }

    /// Publishes a committed row to live subscribers.
    ///
    /// # Errors
    /// [`BusError::Publish`] when the connection is closed.
    #[boxed]
    pub async fn publish_live(&self, row: &LiveRow) -> Result<(), BusError> {
        let payload = [&row.position.to_le_bytes()[..], &row.payload].concat();
        let mut headers = HeaderMap::new();
        if let Some(recorded_at) = row.recorded_at {
            headers.insert(RECORDED_AT, recorded_at.timestamp_micros().to_string());
        }
        let published = self.client.publish_with_headers(LIVE, headers, payload.into()).await;
        published.map_err(|error| BusError::Publish(error.to_string()))
    }

    /// All rows that are committed from now on.
    ///
    /// # Errors
    /// [`BusError::Stream`] when the subscription is refused.
    pub async fn live_rows(&self) -> Result<impl Stream<Item = LiveRow> + Send + use<>, BusError> {
        let subscribed = self.client.subscribe(LIVE).await;
        let messages = subscribed.map_err(|error| BusError::Stream(error.to_string()))?;
        Ok(messages.filter_map(|message| async move {
            let position = i64::from_le_bytes(message.payload.get(..8)?.try_into().ok()?);
            Some(LiveRow {
                position,
                recorded_at: recorded_at(&message),
                payload: message.payload.slice(8..),
            })
        }))
    }

    async fn ask<T: DeserializeOwned>(&self, subject: &'static str, payload: Bytes) -> Result<T, Rejection> {
        let parent = current();
        let mut span = sending(subject, parent.as_deref());
        let headers = trace_headers(span.traceparent().as_deref());
        let answered = self.until_answered(subject, payload, headers).await;
        if let Err(rejection) = &answered {
            note(&mut span, rejection);
        }
        answered
    }

    async fn until_answered<T: DeserializeOwned>(
        &self,
        subject: &'static str,
        payload: Bytes,
        headers: Option<HeaderMap>,
    ) -> Result<T, Rejection> {
        let deadline = Instant::now() + DEADLINE;
        let mut backoff = Duration::from_millis(20);
        loop {
            let request =
                Request { payload: Some(payload.clone()), headers: headers.clone(), ..Request::new() };
            let reason = match timeout(REQUEST, self.client.send_request(subject, request)).await {
                Ok(Ok(message)) => match serde_json::from_slice(&message.payload) {
                    Ok(outcome) => return Ok(outcome),
                    Err(_) => "it was not carried out".to_owned(),
                },
                Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                    "no command handler runs".to_owned()
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no command handler answered".to_owned(),
            };
            if Instant::now() + backoff >= deadline {
                tracing::error!(%reason, subject, "datapoints were not answered");
                return Err(Rejection::unavailable(
                    "The service cannot take datapoints now: send the same again in a moment.",
                ));
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(Duration::from_millis(500));
        }
    }

    async fn serve_asked<H, F>(&self, subject: &'static str, handle: H) -> Result<(), BusError>
    where
        H: Fn(Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Option<Vec<u8>>> + Send,
    {
        let subscribed = self.client.queue_subscribe(subject, "commands".to_owned()).await;
        let mut messages = subscribed.map_err(|error| BusError::Stream(error.to_string()))?;
        let (handle, places) = (Arc::new(handle), Arc::new(Semaphore::new(CONCURRENT)));
        while let Some(message) = messages.next().await {
            // A message without a reply inbox is not an ingest request.
            let Message { payload, headers, reply: Some(inbox), .. } = message else { continue };
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let (client, handle) = (self.client.clone(), handle.clone());
            tokio::spawn(async move {
                let span = answering(subject, traceparent(headers.as_ref()));
                let answer = span.around(handle(payload)).await.unwrap_or_default();
                if let Err(error) = client.publish(inbox, answer.into()).await {
                    tracing::warn!(%error, "an answer was not sent; its sender asks again");
                }
                drop(place);
            });
        }
        Ok(())
    }
}

fn recorded_at(message: &Message) -> Option<DateTime<Utc>> {
    let micros = message.headers.as_ref()?.get(RECORDED_AT)?.as_str().parse().ok()?;
    DateTime::from_timestamp_micros(micros)
}
