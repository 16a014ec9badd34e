//! Publishes the log to JetStream, for consumers that live outside.
//!
//! Reads the log after its checkpoint, writes the stream `EVENTS`. The checkpoint moves after the publish was
//! acknowledged, and JetStream drops repetitions by position, so a crash in between repeats and loses nothing. A
//! JetStream that has lost its disk is not filled again: whoever needs the past reads the log.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use signalbox_event_store::{RecordedEvent, read_after};
use signalbox_messaging::{BusError, EventStream, OutgoingEvent, Wakeup};
use signalbox_projections::context_of;
use signalbox_telemetry::{is_recorded, is_tracing};
use tokio::sync::OnceCell;

use crate::{Context, Worker, WorkerError, checkpoint};

/// Events published before the checkpoint moves.
const BATCH: i64 = 500;
const CHECKPOINT: &str = "events";

/// The relay.
#[derive(Debug, Default)]
pub struct Relay {
    stream: OnceCell<EventStream>,
}

/// An event whose documents are passed on as they are.
type Relayed = RecordedEvent<Box<RawValue>>;

impl Worker for Relay {
    const NAME: &'static str = "relay";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        matches!(wakeup, Wakeup::LogAppended { .. })
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(50)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let stream = self.stream.get_or_try_init(|| EventStream::open(&context.bus)).await?;
        let position = checkpoint::read(&context.pool, CHECKPOINT).await?;
        let events: Vec<Relayed> = read_after(&context.pool, position, BATCH).await?;
        let Some(last) = events.last() else { return Ok(false) };
        if let Err(error) = publish(stream, &events).await {
            // The stream may be gone with JetStream's disk.
            stream.ensure().await?;
            return Err(error.into());
        }
        checkpoint::advance(&context.pool, CHECKPOINT, position, last.position).await?;
        Ok(events.len() as i64 == BATCH)
    }
}

async fn publish(stream: &EventStream, events: &[Relayed]) -> Result<(), BusError> {
    let outgoing: Result<Vec<_>, _> = events.iter().map(outgoing).collect();
    stream.publish(&outgoing.map_err(|error| BusError::Publish(error.to_string()))?).await
}

fn outgoing(event: &Relayed) -> Result<OutgoingEvent, serde_json::Error> {
    let context = context_of(&event.aggregate_type);
    Ok(OutgoingEvent {
        subject: format!("event.{context}.{}.{}", event.aggregate_type, event.event_type),
        position: event.position,
        payload: Bytes::from(serde_json::to_vec(event)?),
        traceparent: traceparent(event),
    })
}

/// The trace of `event`, if it is recorded.
fn traceparent(event: &Relayed) -> Option<String> {
    #[derive(Deserialize)]
    struct Traced {
        traceparent: Option<String>,
    }
    if !is_tracing() {
        return None;
    }
    let traced: Traced = serde_json::from_str(event.metadata.get()).ok()?;
    traced.traceparent.filter(|traceparent| is_recorded(traceparent))
}
