//! The value of each channel that was last reported to webhooks, and whether any webhook subscribes to values.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{DatapointPlace, EventType, ReadingEvent},
    kernel::ChannelId,
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use crate::table::{ReadRow, Table};

/// The last report of a channel.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ReadingRow {
    /// Key of the channel.
    pub id: ChannelId,
    /// Row of the datapoint log that holds the value.
    pub position: i64,
    /// Place within the row.
    pub index: i64,
    /// When it was reported.
    pub reported_at: DateTime<Utc>,
    /// Version of the aggregate.
    pub version: i64,
}

impl ReadRow for ReadingRow {
    const TABLE: &'static str = "readings";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl ReadingRow {
    /// Where the value is in the datapoint log.
    pub fn place(&self) -> DatapointPlace {
        DatapointPlace { position: self.position, index: u32::try_from(self.index).unwrap_or_default() }
    }
}

pub(super) fn fold(rows: &mut Table<ReadingRow>, recorded: &RecordedEvent, event: ReadingEvent) {
    let ReadingEvent::ReadingReported { reading, reported_at } = event;
    let DatapointPlace { position, index } = reading.place;
    let (id, version, index) = (recorded.aggregate_id, recorded.sequence, i64::from(index));
    let new = ReadingRow { id: ChannelId(id), position, index, reported_at, version };
    match rows.change(id) {
        Some(row) => *row = new,
        None => rows.put(new),
    }
}

/// The last reports of all channels.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn readings(pool: &PgPool) -> Result<Vec<ReadingRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.readings").fetch_all(pool).await
}

/// Start of the current state of the enabled subscriptions to readings; `None` if there are none.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn readings_subscribed_since(pool: &PgPool) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar("SELECT min(updated_at) FROM read.webhooks WHERE enabled AND $1 = ANY(events)")
        .bind(EventType::SensorReading.as_str())
        .fetch_one(pool)
        .await
}
