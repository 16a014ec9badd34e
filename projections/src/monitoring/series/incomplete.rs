//! Rows of the datapoint log that cannot be decoded.
//!
//! The fold leaves them out and records them in `ops.unreadable_rows`, so that one damaged row does not stop all channels.
//! Which channels and times they held is unknown, so every query counts those that may hold points of its range. The count
//! travels beside the result, because it belongs to the answer as a whole: [`counting_skipped`] collects it.

use std::{cell::Cell, future::Future};

use chrono::NaiveDate;
use signalbox_database::{clear_fault, report_fault};
use signalbox_datapoint_log::{UnreadableRow, read_rows};
use sqlx::PgConnection;

use super::SeriesError;

/// The fault that stands while there are such rows.
const FAULT: &str = "datapoints.rows";

tokio::task_local! {
    static SKIPPED: Cell<Counts>;
}

/// Data that may be missing from an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows of the log that cannot be decoded.
    pub rows: usize,
    /// Chunks that cannot be decoded.
    pub damaged: usize,
    /// Hours whose values are gone and whose roll-ups an end of a bucket cuts.
    pub hours: usize,
}

/// A row that a fold has left out.
#[derive(Debug)]
pub(super) struct Skipped {
    pub(super) position: i64,
    pub(super) day: NaiveDate,
    reason: String,
}

impl Skipped {
    pub(super) fn new(day: NaiveDate, row: UnreadableRow) -> Self {
        Self { position: row.position, day, reason: row.reason }
    }
}

/// The output of `work`, and how many rows and chunks its queries of datapoints may lack.
pub async fn counting_skipped<T>(work: impl Future<Output = T>) -> (T, usize) {
    let (output, Counts { rows, damaged, .. }) = counting(work).await;
    (output, rows + damaged)
}

/// The output of `work`, and the data that its queries of datapoints may lack.
pub async fn counting<T>(work: impl Future<Output = T>) -> (T, Counts) {
    SKIPPED
        .scope(Cell::default(), async {
            let output = work.await;
            (output, SKIPPED.with(Cell::get))
        })
        .await
}

/// Counts `rows` of the log for the present answer. Several queries of one answer meet the same rows.
pub fn note_skipped(rows: usize) {
    change(|counts| counts.rows = counts.rows.max(rows));
}

/// Counts a damaged chunk for the present answer.
pub(super) fn note_damaged() {
    change(|counts| counts.damaged += 1);
}

/// Counts an hour that the present answer cannot take apart.
pub(super) fn note_cut_hour() {
    change(|counts| counts.hours += 1);
}

fn change(by: impl FnOnce(&mut Counts)) {
    // Workers and folds have no answer to count for.
    let _ = SKIPPED.try_with(|cell| {
        let mut counts = cell.get();
        by(&mut counts);
        cell.set(counts);
    });
}

/// Records rows that a fold leaves out.
pub(super) async fn record_skipped(
    connection: &mut PgConnection,
    rows: &[Skipped],
) -> Result<(), SeriesError> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO ops.unreadable_rows (position, day, reason)
         SELECT * FROM unnest($1::bigint[], $2::date[], $3::text[]) ON CONFLICT DO NOTHING",
    )
    .bind(rows.iter().map(|row| row.position).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.day).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.reason.clone()).collect::<Vec<_>>())
    .execute(&mut *connection)
    .await?;
    for row in rows {
        let Skipped { position, reason, .. } = row;
        tracing::error!(position, reason, "a row of the datapoint log cannot be read and is left out");
    }
    report_skipped(connection).await
}

/// Reports the recorded rows as a fault, or clears it.
pub(super) async fn report_skipped(connection: &mut PgConnection) -> Result<(), SeriesError> {
    let (count, first, reason): (i64, Option<i64>, Option<String>) = sqlx::query_as(
        "SELECT count(*), min(position), (array_agg(reason ORDER BY position))[1] FROM ops.unreadable_rows",
    )
    .fetch_one(&mut *connection)
    .await?;
    match (first, reason) {
        (Some(first), Some(reason)) => {
            let reason = format!(
                "{count} rows of the datapoint log cannot be decoded, the first at position {first} ({reason}). Their \
                 datapoints are missing from answers; table ops.unreadable_rows lists them."
            );
            report_fault(&mut *connection, FAULT, &reason).await?;
        }
        _ => drop(clear_fault(&mut *connection, FAULT).await?),
    }
    Ok(())
}

/// Forgets recorded rows that can be decoded now, by a newer program, or are gone. A rebuild has folded the former.
pub(super) async fn recheck_skipped(connection: &mut PgConnection) -> Result<(), SeriesError> {
    let recorded: Vec<(i64, NaiveDate)> =
        sqlx::query_as("SELECT position, day FROM ops.unreadable_rows").fetch_all(&mut *connection).await?;
    let rows = read_rows(&mut *connection, &recorded).await?;
    let remaining = rows.iter().filter(|row| row.entry().is_err()).map(|row| row.position);
    sqlx::query("DELETE FROM ops.unreadable_rows WHERE position <> ALL($1)")
        .bind(remaining.collect::<Vec<_>>())
        .execute(&mut *connection)
        .await?;
    report_skipped(connection).await
}

/// Forgets recorded rows of days before `oldest`, which retention has dropped.
pub(super) async fn forget_skipped(
    connection: &mut PgConnection,
    oldest: NaiveDate,
) -> Result<(), SeriesError> {
    sqlx::query("DELETE FROM ops.unreadable_rows WHERE day < $1").bind(oldest).execute(connection).await?;
    Ok(())
}
