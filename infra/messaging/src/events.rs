use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::stream::{Config, StorageType},
};
use bytes::Bytes;

use crate::{Bus, BusError};

const STREAM: &str = "EVENTS";

/// The relayed log: `event.<context>.<aggregate>.<event>` for a day, for consumers that live outside.
#[derive(Debug, Clone)]
pub struct EventStream {
    bus: Bus,
}

impl EventStream {
    /// The stream on `bus`, made if it is missing.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    pub async fn open(bus: &Bus) -> Result<Self, BusError> {
        let stream = Self { bus: bus.clone() };
        stream.ensure().await?;
        Ok(stream)
    }

    /// Publishes one event under its log position, which JetStream uses to drop repetitions, and waits until it is
    /// stored.
    ///
    /// # Errors
    /// [`BusError::Publish`] when it was not stored; publish it again.
    pub async fn publish(&self, subject: String, position: i64, payload: Bytes) -> Result<(), BusError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", position.to_string().as_str());
        let stored = self.bus.jetstream.publish_with_headers(subject, headers, payload).await;
        let stored = stored.map_err(|error| BusError::Publish(error.to_string()))?;
        stored.await.map_err(|error| BusError::Publish(error.to_string()))?;
        Ok(())
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
