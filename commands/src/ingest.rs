//! Appends datapoints: batches from gateways are appended in shared commits, and committed rows are announced to
//! sockets and workers.
//!
//! Reads and writes: the datapoint log. Any number of processes may run it. If one crashes, gateways repeat the
//! request with the same batch id at another.

use std::time::Duration;

use bytes::Bytes;
use chrono::TimeDelta;
use signalbox_clock::Clock;
use signalbox_database::{server_time, sweep_time};
use signalbox_datapoint_log::{
    Appender, Batch, Committed, Tombstone, add_days, append_tombstone, check_block, drop_old_batches,
    forget_traces, forget_values,
};
use signalbox_messaging::{Bus, BusError, IngestMessage, IngestOutcome, LiveRow, Wakeup};
use signalbox_metrics::metrics;
use signalbox_telemetry::{Kind, Span, current, is_recorded};
use sqlx::PgPool;
use tokio::{sync::mpsc, time::sleep};

/// Rows that may wait to be announced; sockets read those that were left out from the log.
const ANNOUNCED: usize = 64;
/// How often days are made ahead.
const DAYS: Duration = Duration::from_secs(3600);
/// How long rules find the traces that brought datapoints.
const TRACES: TimeDelta = TimeDelta::hours(1);

pub(crate) async fn run(pool: &PgPool, bus: &Bus, clock: &Clock) -> Result<(), BusError> {
    let (committed, rows) = mpsc::channel(ANNOUNCED);
    let appender = Appender::start(pool.clone(), clock.clone(), committed);
    let (for_deletions, for_clock) = (pool.clone(), clock.clone());
    tokio::try_join!(
        bus.serve_ingest(move |message| append(appender.clone(), message)),
        bus.serve_deletions(move |deletion| delete(for_deletions.clone(), for_clock.clone(), deletion)),
        announce(bus, rows),
        make_days(pool, clock),
    )
    .map(|_| ())
}

async fn append(appender: Appender, message: IngestMessage) -> Option<IngestOutcome> {
    let IngestMessage { batch_id, points, block } = message;
    if let Err(error) = check_block(&block, points as usize) {
        // The sender retries; another version of this program may know the encoding.
        tracing::error!(%error, %batch_id, "a batch of datapoints was not appended, because it cannot be read");
        return None;
    }
    let traceparent = current().filter(|traceparent| is_recorded(traceparent));
    let _span = Span::begin(Kind::Internal, traceparent.as_deref(), || "append datapoints".to_owned());
    let batch = Batch { id: batch_id, points: points as usize, block, traceparent };
    // The error was logged once for all batches of the commit.
    let appended = appender.append(batch).await.ok()?;
    if !appended.duplicate {
        metrics().datapoints(points.into());
    }
    Some(IngestOutcome {
        day: appended.day,
        position: appended.position,
        first_index: appended.first_index,
        duplicate: appended.duplicate,
    })
}

async fn delete(pool: PgPool, clock: Clock, deletion: Tombstone) -> Option<bool> {
    match append_tombstone(&pool, &deletion, &clock).await {
        Ok(position) => Some(position.is_some()),
        Err(error) => {
            tracing::error!(%error, "the deletion of a datapoint was not appended");
            None
        }
    }
}

async fn announce(bus: &Bus, mut rows: mpsc::Receiver<Committed>) -> Result<(), BusError> {
    while let Some(Committed { position, recorded_at, payload, .. }) = rows.recv().await {
        let recorded_at = Some(recorded_at);
        bus.publish_live(&LiveRow { position, recorded_at, payload: Bytes::from(payload) }).await?;
        // Rows in quick succession are announced together.
        if rows.is_empty() {
            bus.wake(&Wakeup::DatapointsAppended { position }).await?;
        }
    }
    Ok(())
}

/// Creates partitions of coming days and drops old batch ids. If this fails for days, appends create their partitions
/// themselves.
async fn make_days(pool: &PgPool, clock: &Clock) -> Result<(), BusError> {
    loop {
        let done = async {
            add_days(pool, server_time(pool, clock).await?.date_naive()).await?;
            if let Some(now) = sweep_time(pool, clock).await? {
                forget_traces(pool, now - TRACES).await?;
                forget_values(pool, now).await?;
                drop_old_batches(pool, now.date_naive()).await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        if let Err(error) = done.await {
            tracing::warn!(%error, "days of the datapoint log were not made; it is tried again");
        }
        sleep(DAYS).await;
    }
}
