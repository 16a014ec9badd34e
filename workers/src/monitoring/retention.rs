//! Drops datapoints that are older than they are kept.
//!
//! Reads the partitions of the datapoint log; drops whole days of log and chunks. Dropped days are gone for good, so a wrong
//! clock must not cost more than it takes to notice: days go by [`Context::sweep_time`] and are never younger than
//! `retention_days` before the newest recorded row, one run drops two days that hold values at most, and runs are an hour
//! of PostgreSQL's uptime apart. An entry in the log precedes each run, and the run is recorded together with the drop: one that
//! fails, or whose process crashes before, is repeated under the same entry. Days that are due and not dropped yet are a fault
//! that health shows.

use std::time::Duration;

use chrono::{NaiveDate, TimeDelta};
use signalbox_database::{clear_fault, is_lock_conflict, newest_recorded, report_fault};
use signalbox_domain::monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry};
use signalbox_projections::monitoring::series::{LoggedDay, SeriesError, days_before, drop_in_turn, is_turn};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// Days with values of one run.
const DAYS: usize = 2;
/// The fault of days that are due.
const FAULT: &str = "retention";
/// Why days stay, in the fault.
const IN_USE: &str = "Days of datapoints are older than monitoring.retention_days and cannot be dropped, because a session reads \
    them for long, such as a backup or an export. It is tried again every minute: see pg_stat_activity for the session.";
/// Namespace of the entries.
const ENTRIES: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0002);

/// The retention of datapoints.
#[derive(Debug)]
pub struct Retention;

impl Worker for Retention {
    const NAME: &'static str = "retention";

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let due = overdue_days(context).await?;
        let run = one_run(&due);
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            clear_fault(&context.pool, FAULT).await?;
            return Ok(false);
        };
        let mut rest = due.len();
        if is_turn(&context.pool).await.map_err(series)? {
            let entry = Uuid::new_v5(&ENTRIES, format!("{} {}", first.day, last.day).as_bytes());
            let days = context.config.monitoring.retention_days;
            let command = LogEntryCommand::Write(retention_entry(run, days));
            context.send_if_still_due::<LogEntry>(Self::NAME, entry, "write", &command).await?;
            match drop_in_turn(&context.pool, last.day + TimeDelta::days(1)).await {
                Err(SeriesError::Database(error)) if is_lock_conflict(&error) => {
                    report_fault(&context.pool, FAULT, IN_USE).await?;
                    return Ok(false);
                }
                dropped => dropped.map_err(series)?,
            };
            rest -= run.len();
        }
        match rest {
            0 => drop(clear_fault(&context.pool, FAULT).await?),
            rest => {
                let reason = format!(
                    "{rest} days of datapoints are older than monitoring.retention_days and go by {DAYS} an hour. If that is \
                     not intended, raise the setting or check the clocks; `signalbox retention apply` drops them at once."
                );
                report_fault(&context.pool, FAULT, &reason).await?;
            }
        }
        Ok(false)
    }
}

/// The days beyond the retention time; none while the clocks differ, or if all days are kept.
async fn overdue_days(context: &Context) -> Result<Vec<LoggedDay>, WorkerError> {
    let days = context.config.monitoring.retention_days;
    if days == 0 {
        return Ok(Vec::new());
    }
    let Some(now) = context.sweep_time().await? else { return Ok(Vec::new()) };
    let now = newest_recorded(&context.pool).await?.map_or(now, |newest| newest.min(now));
    days_before(&context.pool, oldest_kept(now.date_naive(), days)).await.map_err(series)
}

/// The oldest day that is kept for `days` on `today`.
pub fn oldest_kept(today: NaiveDate, days: u32) -> NaiveDate {
    today.checked_sub_signed(TimeDelta::days(i64::from(days))).unwrap_or_default()
}

/// The first days of `due` that one run drops: up to [`DAYS`] that hold values, and empty ones among them.
fn one_run(due: &[LoggedDay]) -> &[LoggedDay] {
    let with_values = due.iter().enumerate().filter(|(_, day)| day.points > 0);
    let end = with_values.map(|(place, _)| place + 1).nth(DAYS - 1);
    &due[..end.unwrap_or(due.len())]
}

/// The log entry about dropped days.
pub fn retention_entry(run: &[LoggedDay], days: u32) -> NewLogEntry {
    let points: i64 = run.iter().map(|day| day.points).sum();
    let day = |day: Option<&LoggedDay>| day.map(|day| day.day.to_string()).unwrap_or_default();
    let content = format!(
        "Retention drops {points} datapoints that came in from {} to {}, because datapoints are kept for {days} days.",
        day(run.first()),
        day(run.last()),
    );
    NewLogEntry { kind: LogType::Warning, content, source: Retention::NAME.to_owned(), user: None }
}

fn series(error: SeriesError) -> WorkerError {
    match error {
        SeriesError::Database(error) => error.into(),
        other => WorkerError::Series(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(points: &[i64]) -> Vec<LoggedDay> {
        let day = |(place, points): (u64, &i64)| LoggedDay {
            day: NaiveDate::default() + chrono::Days::new(place),
            points: *points,
        };
        (0..).zip(points).map(day).collect()
    }

    #[test]
    fn a_run_drops_two_days_with_values() {
        for (points, expected) in [
            (&[][..], 0),
            (&[5], 1),
            (&[5, 5], 2),
            (&[5, 5, 5], 2),
            (&[0, 5, 0, 0, 5, 0, 5], 5),
            (&[0, 0, 0], 3),
        ] {
            assert_eq!(one_run(&due(points)).len(), expected, "{points:?}");
        }
    }
}
