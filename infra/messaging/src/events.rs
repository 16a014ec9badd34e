use signalbox_boxed::boxed;
use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::stream::{Config, StorageType},
};
use bytes::Bytes;
use futures::future::try_join_all;
use signalbox_telemetry::Span;
use tokio::sync::Mutex;

use crate::{
    Bus, BusError,
    trace::{publishing, trace_headers},
};

/// Name of the stream.
pub(crate) const STREAM: &str = "EVENTS";

/// The relayed log: `event.<context>.<aggregate>.<event>` for a day, for external consumers.
#[derive(Debug)]
pub struct EventStream {
    bus: Bus,
    /// Sequence of the last stored message, if known.
    newest: Mutex<Option<u64>>,
}

/// An event on its way to the stream.
#[derive(Debug)]
pub struct OutgoingEvent {
    /// Where it is published.
    pub subject: String,
    /// Its place in the log, by which JetStream drops repetitions.
    pub position: i64,
    /// The event.
    pub payload: Bytes,
    /// The trace that it belongs to.
    pub traceparent: Option<String>,
}

impl EventStream {
    /// The stream on `bus`, made if it is missing.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    #[boxed]
    pub async fn open(bus: &Bus) -> Result<Self, BusError> {
        let stream = Self { bus: bus.clone(), newest: Mutex::default() };
        stream.ensure().await?;
        Ok(stream)
    }

    /// Bytes that an event may have, its subject and headers included.
    pub fn max_payload(&self) -> usize {
        self.bus.client.server_info().max_payload
    }

    /// Publishes `events` in their order and waits until all are stored. JetStream drops those that it has already.
    ///
    /// # Errors
    /// [`BusError::Publish`] when one was not stored; publish them all again.
    #[boxed]
    pub async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BusError> {
        let Some((last, others)) = events.split_last() else { return Ok(()) };
        // They end when all is stored.
        let spans: Vec<_> = events.iter().map(span).collect();
        let headers: Vec<_> = events.iter().zip(&spans).map(|(event, span)| headers(event, span)).collect();
        let mut newest = self.newest.lock().await;
        // The server stores the messages of one connection in order, so the last sequence shows whether all were new
        // and stored; otherwise each is checked.
        let expected = newest.take().map(|before| before + events.len() as u64);
        if expected.is_some() {
            for (OutgoingEvent { subject, payload, .. }, headers) in others.iter().zip(&headers) {
                let sent =
                    self.bus.client.publish_with_headers(subject.clone(), headers.clone(), payload.clone());
                sent.await.map_err(|error| BusError::Publish(error.to_string()))?;
            }
            let stored = self.store(last, headers[others.len()].clone()).await?;
            if Some(stored) == expected {
                *newest = expected;
                return Ok(());
            }
        }
        let stored = events.iter().zip(headers).map(|(event, headers)| self.store(event, headers));
        let stored = try_join_all(stored).await?;
        *newest = stored.into_iter().max();
        Ok(())
    }

    /// Publishes `event` and returns its sequence.
    async fn store(&self, event: &OutgoingEvent, headers: HeaderMap) -> Result<u64, BusError> {
        let OutgoingEvent { subject, payload, .. } = event;
        let sent = self.bus.jetstream.publish_with_headers(subject.clone(), headers, payload.clone()).await;
        let stored = sent.map_err(|error| BusError::Publish(error.to_string()))?.await;
        self.bus.note_stored(stream_config(), &stored).await;
        stored.map(|stored| stored.sequence).map_err(|error| self.bus.unstored(&error))
    }

    /// Makes the stream again after JetStream has lost it.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    #[boxed]
    pub async fn ensure(&self) -> Result<(), BusError> {
        self.bus.open_stream(stream_config()).await.map(|_| ())
    }
}

fn stream_config() -> Config {
    Config {
        name: STREAM.to_owned(),
        subjects: vec!["event.>".to_owned()],
        max_age: Duration::from_secs(24 * 3600),
        max_bytes: 1 << 30,
        storage: StorageType::File,
        ..Config::default()
    }
}

/// Nothing for an event that is of no trace.
fn span(event: &OutgoingEvent) -> Span {
    let Some(parent) = &event.traceparent else { return Span::default() };
    let mut span = publishing(&event.subject, Some(parent));
    span.set("signalbox.log.position", event.position);
    span
}

fn headers(event: &OutgoingEvent, span: &Span) -> HeaderMap {
    let mut headers = trace_headers(span.traceparent().as_deref()).unwrap_or_default();
    headers.insert("Nats-Msg-Id", event.position.to_string().as_str());
    headers
}
