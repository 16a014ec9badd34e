use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::stream::{Config, StorageType},
};
use bytes::Bytes;
use futures::future::try_join_all;
use tokio::sync::Mutex;

use crate::{Bus, BusError};

const STREAM: &str = "EVENTS";

/// The relayed log: `event.<context>.<aggregate>.<event>` for a day, for consumers that live outside.
#[derive(Debug)]
pub struct EventStream {
    bus: Bus,
    /// Sequence of the message that was stored last, as far as that is known.
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
}

impl EventStream {
    /// The stream on `bus`, made if it is missing.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    pub async fn open(bus: &Bus) -> Result<Self, BusError> {
        let stream = Self { bus: bus.clone(), newest: Mutex::default() };
        stream.ensure().await?;
        Ok(stream)
    }

    /// Publishes `events` in their order and waits until all are stored. JetStream drops those that it has already.
    ///
    /// # Errors
    /// [`BusError::Publish`] when one was not stored; publish them all again.
    pub async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BusError> {
        let Some((last, others)) = events.split_last() else { return Ok(()) };
        let mut newest = self.newest.lock().await;
        // The server stores what comes over one connection in order, so the last sequence tells whether all were new and
        // stored; otherwise each is asked about.
        let expected = newest.take().map(|before| before + events.len() as u64);
        if expected.is_some() {
            for event in others {
                let OutgoingEvent { subject, payload, .. } = event;
                let sent = self.bus.client.publish_with_headers(subject.clone(), id(event), payload.clone());
                sent.await.map_err(|error| BusError::Publish(error.to_string()))?;
            }
            let stored = self.store(last).await?;
            if Some(stored) == expected {
                *newest = expected;
                return Ok(());
            }
        }
        let stored = try_join_all(events.iter().map(|event| self.store(event))).await?;
        *newest = stored.into_iter().max();
        Ok(())
    }

    /// Publishes `event` and gives back its sequence.
    async fn store(&self, event: &OutgoingEvent) -> Result<u64, BusError> {
        let OutgoingEvent { subject, payload, .. } = event;
        let sent = self.bus.jetstream.publish_with_headers(subject.clone(), id(event), payload.clone()).await;
        let stored = sent.map_err(|error| BusError::Publish(error.to_string()))?.await;
        stored.map(|stored| stored.sequence).map_err(|error| BusError::Publish(error.to_string()))
    }

    /// Makes the stream again after JetStream has lost it.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    pub async fn ensure(&self) -> Result<(), BusError> {
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec!["event.>".to_owned()],
            max_age: Duration::from_secs(24 * 3600),
            max_bytes: 1 << 30,
            storage: StorageType::File,
            ..Config::default()
        };
        let made = self.bus.jetstream.get_or_create_stream(config).await;
        made.map(|_| ()).map_err(|error| BusError::Stream(error.to_string()))
    }
}

fn id(event: &OutgoingEvent) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", event.position.to_string().as_str());
    headers
}
