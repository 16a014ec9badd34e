//! Group commit: one task gathers the batches that arrive while the last transaction was being committed, and appends
//! them as one row. A batch that waits alone is not made to wait for others.
//!
//! If the process crashes, senders get no answer and repeat the batch with the same id, which the log recognises. If
//! a transaction fails, every batch in it fails, because it is unknown whether it was committed.

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, Utc};
use signalbox_boxed::boxed;
use signalbox_clock::Clock;
use signalbox_database::server_time;
use signalbox_metrics::metrics;
use sqlx::{PgPool, Row};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{Committed, partitions::add_days, traces::APPEND_TRACED};

/// Batches that may wait for the writer before senders have to.
const QUEUE: usize = 1024;
/// Limits of one row: batches, points and bytes. Larger rows would delay the first batch, and each row is sent over
/// the bus as one message.
const MAX_BATCHES: usize = 256;
const MAX_POINTS: usize = 65_536;
const MAX_BYTES: usize = 700_000;
/// PostgreSQL's code for a row that fits no partition.
const NO_PARTITION: &str = "23514";
/// By PostgreSQL's clock unless a test's stands for it: retention drops days, and the clock of a process that is years behind would
/// put values on a day that is dropped within the hour.
const APPEND: &str = "
    WITH arrival AS MATERIALIZED (SELECT coalesce($4, clock_timestamp()) AS arrived_at)
    SELECT log_position, log_day, first_index, is_duplicate, arrived_at
      FROM arrival, append_datapoints($1, $2, $3, arrived_at)";

/// A batch to append.
#[derive(Debug)]
pub struct Batch {
    /// Names the batch; the same one is appended once.
    pub id: Uuid,
    /// How many points it holds.
    pub points: usize,
    /// The points, see [`crate::codec::encode_block`].
    pub block: Bytes,
    /// The trace that brought it, if it is recorded.
    pub traceparent: Option<String>,
}

/// Where a batch ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Day of its row.
    pub day: NaiveDate,
    /// Position of its row.
    pub position: i64,
    /// Place of its first point within the row.
    pub first_index: u32,
    /// Whether it had been appended before.
    pub duplicate: bool,
}

/// The log refused a batch, or the outcome is unknown; the same batch may be sent again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the datapoint log cannot be written: {0}")]
pub struct AppendFailed(String);

type Reply = oneshot::Sender<Result<Appended, AppendFailed>>;

/// Handle of the writer task. Clones share it; the task ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Appender(mpsc::Sender<(Batch, Reply)>);

impl Appender {
    /// Starts the writer of this process. Committed rows are sent to `committed` until its receiver is dropped.
    pub fn start(pool: PgPool, clock: Clock, committed: mpsc::Sender<Committed>) -> Self {
        let (queue, batches) = mpsc::channel(QUEUE);
        tokio::spawn(write(pool, clock, batches, committed));
        Self(queue)
    }

    /// Appends `batch` and waits until it is committed.
    ///
    /// # Errors
    /// [`AppendFailed`]; whether it was appended is unknown then.
    #[boxed]
    pub async fn append(&self, batch: Batch) -> Result<Appended, AppendFailed> {
        let (reply, outcome) = oneshot::channel();
        let stopped = || AppendFailed("the writer has stopped".to_owned());
        self.0.send((batch, reply)).await.map_err(|_| stopped())?;
        outcome.await.unwrap_or_else(|_| Err(stopped()))
    }
}

#[derive(Default)]
struct Group {
    batches: Vec<(Batch, Reply)>,
    points: usize,
    bytes: usize,
}

impl Group {
    fn takes(&self, batch: &Batch) -> bool {
        self.batches.is_empty()
            || (self.batches.len() < MAX_BATCHES
                && self.points + batch.points <= MAX_POINTS
                && self.bytes + batch.block.len() <= MAX_BYTES
                // One call must not contain the same batch twice.
                && self.batches.iter().all(|(known, _)| known.id != batch.id))
    }

    fn add(&mut self, batch: Batch, reply: Reply) {
        self.points += batch.points;
        self.bytes += batch.block.len();
        self.batches.push((batch, reply));
    }
}

async fn write(
    pool: PgPool,
    clock: Clock,
    mut batches: mpsc::Receiver<(Batch, Reply)>,
    committed: mpsc::Sender<Committed>,
) {
    let mut waiting = None;
    while let Some(group) = next_group(&mut batches, &mut waiting).await {
        metrics().queue("append_datapoints", usize::from(waiting.is_some()) + batches.len());
        match append_group(&pool, &clock, &group).await {
            Ok((outcomes, recorded_at)) => {
                // Sent before the replies, so that readers start as early as possible. Readers that lag read the log.
                if let Some(row) = row_of(&group, recorded_at, &outcomes) {
                    let _ = committed.try_send(row);
                }
                for ((_, reply), outcome) in group.batches.into_iter().zip(outcomes) {
                    // A sender that was dropped repeats the batch with the same id.
                    let _ = reply.send(Ok(outcome));
                }
            }
            Err(error) => {
                tracing::error!(%error, batches = group.batches.len(), "appending datapoints failed");
                for (_, reply) in group.batches {
                    let _ = reply.send(Err(AppendFailed(error.to_string())));
                }
            }
        }
    }
}

async fn next_group(
    batches: &mut mpsc::Receiver<(Batch, Reply)>,
    waiting: &mut Option<(Batch, Reply)>,
) -> Option<Group> {
    let mut group = Group::default();
    let (batch, reply) = match waiting.take() {
        Some(first) => first,
        None => batches.recv().await?,
    };
    group.add(batch, reply);
    while let Ok((batch, reply)) = batches.try_recv() {
        if !group.takes(&batch) {
            *waiting = Some((batch, reply));
            break;
        }
        group.add(batch, reply);
    }
    Some(group)
}

/// The row as it was committed: without batches that were in the log before.
fn row_of(group: &Group, recorded_at: DateTime<Utc>, outcomes: &[Appended]) -> Option<Committed> {
    let mut row = None::<Committed>;
    for ((batch, _), outcome) in group.batches.iter().zip(outcomes) {
        if !outcome.duplicate {
            let row = row.get_or_insert_with(|| Committed {
                day: outcome.day,
                position: outcome.position,
                recorded_at,
                payload: Vec::new(),
            });
            row.payload.extend_from_slice(&batch.block);
        }
    }
    row
}

/// Where the batches are, and when their row was recorded.
type Outcomes = (Vec<Appended>, DateTime<Utc>);

async fn append_group(pool: &PgPool, clock: &Clock, group: &Group) -> Result<Outcomes, sqlx::Error> {
    match append_once(pool, clock, group).await {
        // Days are made ahead; this is for a clock that jumped, or for a system that was away for days.
        Err(error) if is_without_partition(&error) => {
            add_days(pool, server_time(pool, clock).await?.date_naive()).await?;
            append_once(pool, clock, group).await
        }
        result => result,
    }
}

pub(crate) fn is_without_partition(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == NO_PARTITION)
}

async fn append_once(pool: &PgPool, clock: &Clock, group: &Group) -> Result<Outcomes, sqlx::Error> {
    let batches = || group.batches.iter().map(|(batch, _)| batch);
    let is_traced = batches().any(|batch| batch.traceparent.is_some());
    let query = sqlx::query(if is_traced { APPEND_TRACED } else { APPEND })
        .bind(batches().map(|batch| batch.id).collect::<Vec<_>>())
        .bind(batches().map(|batch| batch.points as i32).collect::<Vec<_>>())
        .bind(batches().map(|batch| batch.block.as_ref()).collect::<Vec<_>>())
        .bind(clock.manual_time());
    let query = if is_traced {
        query.bind(batches().map(|batch| batch.traceparent.as_deref()).collect::<Vec<_>>())
    } else {
        query
    };
    let rows = query.fetch_all(pool).await?;
    let outcome = |row: &sqlx::postgres::PgRow| {
        Ok::<_, sqlx::Error>(Appended {
            position: row.try_get(0)?,
            day: row.try_get(1)?,
            first_index: row.try_get::<i32, _>(2)? as u32,
            duplicate: row.try_get(3)?,
        })
    };
    let recorded_at = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(4)?;
    Ok((rows.iter().map(outcome).collect::<Result<_, _>>()?, recorded_at))
}
