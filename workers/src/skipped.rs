//! Events that a worker which follows the log cannot handle: each is skipped by itself, listed beside the streams
//! that read models have set aside, and retried with growing backoff.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use signalbox_event_store::{EventKey, LogSlice, RecordedEvent, UnreadableEvent, read_all_with};
use signalbox_projections::{begin_skipped, due_skipped, forget_skipped, note_waiting, report_waiting};
use sqlx::PgPool;

use crate::WorkerError;

/// How often skipped events are reported.
const REPORT: Duration = Duration::from_secs(30);
/// Events retried in one step.
const RETRIES: i64 = 20;

/// Notes that worker `name` skips the event `key`.
pub(crate) async fn skip(pool: &PgPool, name: &str, key: &EventKey, error: &str) -> Result<(), WorkerError> {
    tracing::error!(worker = name, position = key.position, error, "an event is skipped");
    note_waiting(&mut *pool.acquire().await?, &part(name), key, error, true).await?;
    report(pool, name).await
}

/// Notes that worker `name` skips those of `unreadable` for which `is_handled` holds.
pub(crate) async fn skip_unreadable(
    pool: &PgPool,
    name: &str,
    unreadable: &[UnreadableEvent],
    is_handled: impl Fn(&EventKey) -> bool,
) -> Result<(), WorkerError> {
    for event in unreadable.iter().filter(|event| is_handled(&event.key)) {
        skip(pool, name, &event.key, &event.error).await?;
    }
    Ok(())
}

/// Positions of skipped events that worker `name` should retry now.
pub(crate) async fn due(pool: &PgPool, name: &str) -> Result<Vec<i64>, WorkerError> {
    let positions = due_skipped(pool, &part(name), RETRIES).await?;
    if !positions.is_empty() || is_report_due(name) {
        report(pool, name).await?;
    }
    Ok(positions)
}

/// Whether [`REPORT`] has passed since the last time: a fault that is not reported again lapses.
fn is_report_due(name: &str) -> bool {
    static REPORTED: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = reported.get(name).is_none_or(|at| at.elapsed() >= REPORT);
    if is_due {
        reported.insert(name.to_owned(), Instant::now());
    }
    is_due
}

/// The event at `position`, if it can be read now.
pub(crate) async fn event_at(pool: &PgPool, position: i64, words: &[&str]) -> Result<LogSlice, WorkerError> {
    Ok(read_all_with(&mut *pool.acquire().await?, position - 1, 1, words).await?)
}

/// Worker `name` starts to handle the event at `position` again: [`done`] keeps it if it is skipped once more.
pub(crate) async fn begin(pool: &PgPool, name: &str, position: i64) -> Result<(), WorkerError> {
    Ok(begin_skipped(pool, &part(name), position).await?)
}

/// Worker `name` has handled the event at `position`.
pub(crate) async fn done(pool: &PgPool, name: &str, position: i64) -> Result<(), WorkerError> {
    forget_skipped(pool, &part(name), position).await?;
    report(pool, name).await
}

/// Skips `recorded` if `error` concerns it alone; returns the error otherwise.
pub(crate) async fn skip_or_fail(
    pool: &PgPool,
    name: &str,
    recorded: &RecordedEvent,
    error: WorkerError,
) -> Result<(), WorkerError> {
    if !error.is_of_item() {
        return Err(error);
    }
    skip(pool, name, &recorded.into(), &error.to_string()).await
}

fn part(name: &str) -> String {
    format!("worker.{name}")
}

async fn report(pool: &PgPool, name: &str) -> Result<(), WorkerError> {
    let part = part(name);
    Ok(report_waiting(pool, &part, &format!("{part}.events"), "events are skipped").await?)
}
