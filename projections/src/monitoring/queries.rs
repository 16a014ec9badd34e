//! Queries about channels.

use signalbox_boxed::boxed;
use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use signalbox_domain::{
    kernel::ChannelId,
    monitoring::{ChannelType, Labels},
};
use signalbox_from_row::FromRow;
use sqlx::{FromRow as _, PgPool, types::Json};
use uuid::Uuid;

use super::ChannelRow;
use crate::page::{Listed, Order, Page, Sorting, and_eq, and_like, list};

/// Filters of the list of channels; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct ChannelFilter {
    /// Type word.
    pub kind: Option<&'static str>,
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    /// Labels that it has, all of them.
    pub labels: Labels,
}

/// The channel `id`, unless it was deleted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channel(pool: &PgPool, id: ChannelId) -> Result<Option<ChannelRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.channels WHERE id = $1 AND deleted_at IS NULL")
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// The channel `id`, also a deleted one.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channel_ever(pool: &PgPool, id: ChannelId) -> Result<Option<ChannelRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.channels WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// Those of the channels `ids` that exist.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn existing_channels(pool: &PgPool, ids: &[ChannelId]) -> Result<Vec<ChannelId>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.channels WHERE id = ANY($1::uuid[]) AND deleted_at IS NULL")
        .bind(ids)
        .fetch_all(pool)
        .await
}

impl Listed for ChannelRow {
    const SORTING: Sorting = Sorting::oldest_first(
        ("created_on", "created_at"),
        &[("name", "name"), ("type", "channel_type")],
        "number",
    );
}

/// A page of channels and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channels(
    pool: &PgPool,
    filter: &ChannelFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<ChannelRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.channels WHERE deleted_at IS NULL");
        and_eq(query, "channel_type", filter.kind);
        and_like(query, "name", filter.name.as_deref());
        if !filter.labels.is_empty() {
            query.push(" AND labels @> ").push_bind(Json(&filter.labels));
        }
    })
    .await
}

/// All channels that have changed after `position`, deleted ones included. A row that cannot be read hides no other.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channels_since(pool: &PgPool, position: i64) -> Result<Vec<ChannelRow>, sqlx::Error> {
    let rows = sqlx::query("SELECT * FROM read.channels WHERE position > $1 ORDER BY position")
        .bind(position)
        .fetch_all(pool)
        .await?;
    let readable = rows.iter().filter_map(|row| {
        ChannelRow::from_row(row)
            .inspect_err(|error| tracing::error!(%error, "the row of a channel cannot be read"))
            .ok()
    });
    Ok(readable.collect())
}

/// The names of those of `channels` that there are, or were.
///
/// # Errors
/// The database's error.
pub async fn channel_names(
    pool: &PgPool,
    channels: impl IntoIterator<Item = Uuid>,
) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let channels: Vec<_> = channels.into_iter().collect();
    let names: Vec<_> = sqlx::query_as("SELECT id, name FROM read.channels WHERE id = ANY($1)")
        .bind(channels)
        .fetch_all(pool)
        .await?;
    Ok(names.into_iter().collect())
}

/// The channel that has `name` now.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channel_named(pool: &PgPool, name: &str) -> Result<Option<ChannelId>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.channels WHERE name = $1 AND deleted_at IS NULL")
        .bind(name)
        .fetch_optional(pool)
        .await
}

/// The channels that have one of `names` now, by name.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channels_named(pool: &PgPool, names: &[String]) -> Result<HashMap<String, Uuid>, sqlx::Error> {
    let found: Vec<(String, Uuid)> = sqlx::query_as(
        "SELECT name, id FROM read.channels WHERE name = ANY($1::text[]) AND deleted_at IS NULL",
    )
    .bind(names)
    .fetch_all(pool)
    .await?;
    Ok(found.into_iter().collect())
}

/// The integer that stands for `channel` in the datapoint log, deleted or not.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channel_number(pool: &PgPool, channel: ChannelId) -> Result<Option<i32>, sqlx::Error> {
    sqlx::query_scalar("SELECT number FROM read.channels WHERE id = $1")
        .bind(channel)
        .fetch_optional(pool)
        .await
}

/// The integers that stand for `channels` in the datapoint log, deleted ones' too.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channel_numbers(pool: &PgPool, channels: &[Uuid]) -> Result<Vec<i32>, sqlx::Error> {
    sqlx::query_scalar("SELECT number FROM read.channels WHERE id = ANY($1)")
        .bind(channels)
        .fetch_all(pool)
        .await
}

/// The integers that stand for the channels with all of `labels` in the datapoint log, deleted ones' too.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn labelled_channel_numbers(pool: &PgPool, labels: &Labels) -> Result<Vec<i32>, sqlx::Error> {
    sqlx::query_scalar("SELECT number FROM read.channels WHERE labels @> $1")
        .bind(Json(labels))
        .fetch_all(pool)
        .await
}

/// The integers that stand for deleted channels in the datapoint log.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn deleted_channel_numbers(pool: &PgPool) -> Result<HashSet<i32>, sqlx::Error> {
    let numbers: Vec<_> = sqlx::query_scalar("SELECT number FROM read.channels WHERE deleted_at IS NOT NULL")
        .fetch_all(pool)
        .await?;
    Ok(numbers.into_iter().collect())
}

/// A state of the read model that somebody holds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldState {
    /// The applied position, at least.
    pub position: i64,
    /// Of the rows, as [`Progress`](crate::Progress) has it.
    pub revision: i64,
}

impl HeldState {
    /// A state of which everything holds that holds since both.
    #[must_use]
    pub fn or_older(self, other: Self) -> Self {
        Self { position: self.position.min(other.position), revision: self.revision.min(other.revision) }
    }
}

/// Events behind a held state that are looked through at most.
const LOOKED_THROUGH: i64 = 10_000;

/// The channels that are deleted in the log, of those that the read model showed in the state `held`, and perhaps others that are deleted.
/// A deletion that was answered is seen.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn channels_deleted_since(pool: &PgPool, held: HeldState) -> Result<HashSet<Uuid>, sqlx::Error> {
    // Claims change together with the events that make them, and a deleted channel's id may be that of a channel again.
    let (is_far_behind, deleted): (bool, Vec<String>) = sqlx::query_as(
        "SELECT h.position - $1 > $3 OR c.revision IS DISTINCT FROM $2
                    OR EXISTS (SELECT FROM read.poisonous_events p WHERE p.projection = 'monitoring'),
                ARRAY(SELECT e.aggregate_id FROM events e
                       WHERE e.position > $1 AND e.position <= $1 + $3
                         AND e.aggregate_type = 'channel' AND e.event_type = 'channel_deleted'
                         AND NOT EXISTS (SELECT FROM claims k WHERE k.kind = 'channel' AND k.key = e.aggregate_id))
           FROM log_head h LEFT JOIN read.checkpoints c ON c.projection = 'monitoring'
          WHERE h.log = 'events' ORDER BY h.position DESC LIMIT 1",
    )
    .bind(held.position)
    .bind(held.revision)
    .bind(LOOKED_THROUGH)
    .fetch_one(pool)
    .await?;
    if !is_far_behind {
        return Ok(deleted.iter().filter_map(|id| id.parse().ok()).collect());
    }
    let deleted: Vec<Uuid> = sqlx::query_scalar(
        "SELECT c.id FROM read.channels c
          WHERE NOT EXISTS (SELECT FROM claims k WHERE k.kind = 'channel' AND k.key = c.id::text)",
    )
    .fetch_all(pool)
    .await?;
    Ok(deleted.into_iter().collect())
}

/// A channel that carries measurements.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct SensorChannel {
    /// Key.
    pub id: ChannelId,
    /// The integer that stands for it in the datapoint log.
    pub number: i32,
    /// Display name.
    pub name: String,
}

/// All channels that carry measurements.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn sensors(pool: &PgPool) -> Result<Vec<SensorChannel>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, number, name FROM read.channels WHERE deleted_at IS NULL AND channel_type = $1",
    )
    .bind(ChannelType::Sensor.as_str())
    .fetch_all(pool)
    .await
}

/// When an experiment ran; datapoints of that time belong to it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ExperimentSpan {
    /// Key.
    pub id: Uuid,
    /// Display name.
    pub name: String,
    /// From then on.
    pub started_at: DateTime<Utc>,
    /// Until then; `None` while it runs.
    pub stopped_at: Option<DateTime<Utc>>,
}

/// All experiments, by start. Only one runs at a time.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn experiment_spans(pool: &PgPool) -> Result<Vec<ExperimentSpan>, sqlx::Error> {
    sqlx::query_as("SELECT id, name, started_at, stopped_at FROM read.experiments ORDER BY started_at, id")
        .fetch_all(pool)
        .await
}
