//! Publishes the log to JetStream, for external consumers.
//!
//! Reads the log after its checkpoint, writes the stream `EVENTS`. The checkpoint moves after the publish was
//! acknowledged, and JetStream drops repetitions by position, so a crash in between repeats and loses nothing. A
//! JetStream that has lost its disk is not refilled: consumers read past events from the log. An event that cannot be
//! published (it cannot be read, or is larger than a message) is skipped and retried.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use signalbox_event_store::{LogSlice, RecordedEvent, read_after};
use signalbox_messaging::{BusError, EventStream, OutgoingEvent, Wakeup};
use signalbox_projections::context_of;
use signalbox_telemetry::{is_recorded, is_tracing};
use tokio::sync::OnceCell;

use crate::{
    Context, Worker, WorkerError, checkpoint,
    skipped::{self, skip, skip_unreadable},
};

/// Events published before the checkpoint moves.
const BATCH: i64 = 500;
const CHECKPOINT: &str = "events";
/// Bytes that headers and subject of a message have at most.
const HEADERS: usize = 4096;

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
        let slice: LogSlice<Box<RawValue>> =
            read_after(&mut *context.pool.acquire().await?, position, BATCH).await?;
        let Some(last) = slice.last() else { return retry(context, stream).await };
        skip_unreadable(&context.pool, Self::NAME, &slice.unreadable, |_| true).await?;
        let mut fitting = Vec::with_capacity(slice.events.len());
        for event in &slice.events {
            match fit(stream, event) {
                Ok(event) => fitting.push(event),
                Err(error) => skip(&context.pool, Self::NAME, &event.into(), &error.to_string()).await?,
            }
        }
        publish(stream, &fitting).await?;
        checkpoint::advance(&context.pool, CHECKPOINT, position, last).await?;
        Ok(slice.is_full)
    }
}

/// Publishes skipped events that can be published now.
async fn retry(context: &Context, stream: &EventStream) -> Result<bool, WorkerError> {
    for position in skipped::due(&context.pool, Relay::NAME).await? {
        let slice: LogSlice<Box<RawValue>> =
            read_after(&mut *context.pool.acquire().await?, position - 1, 1).await?;
        if let Some(Ok(event)) = slice.events.first().map(|event| fit(stream, event)) {
            publish(stream, &[event]).await?;
            skipped::begin(&context.pool, Relay::NAME, position).await?;
            skipped::done(&context.pool, Relay::NAME, position).await?;
        }
    }
    Ok(false)
}

/// The message of `event`, unless the server would refuse it.
fn fit(stream: &EventStream, event: &Relayed) -> Result<OutgoingEvent, WorkerError> {
    let outgoing = outgoing(event).map_err(|error| BusError::Publish(error.to_string()))?;
    let (size, limit) = (outgoing.payload.len(), stream.max_payload().saturating_sub(HEADERS));
    if size > limit { Err(WorkerError::TooLarge { size, limit }) } else { Ok(outgoing) }
}

async fn publish(stream: &EventStream, events: &[OutgoingEvent]) -> Result<(), WorkerError> {
    if let Err(error) = stream.publish(events).await {
        // The stream may be gone with JetStream's disk.
        stream.ensure().await?;
        return Err(error.into());
    }
    Ok(())
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
