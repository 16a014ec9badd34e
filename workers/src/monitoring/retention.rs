//! Removes datapoints and roll-ups that are older than they are kept, and those of events that were deleted with their values.
//!
//! Drops whole days of log and chunks, and where channels have numbers of days of their own, removes the values of single channels
//! from a day. Dropped values are gone for good, so a wrong clock must not cost more than it takes to notice: days go by
//! [`Context::sweep_time`] and are never younger than they are kept before the newest recorded row, one run takes values of two
//! days from a channel at most, and runs are an hour of PostgreSQL's uptime apart. None is removed while the read model of channels lacks
//! something that the log has, because it would not know what their own numbers keep. Entries in the log precede each run, and the run
//! is recorded together with the drop: one that fails, or whose process crashes before, is repeated under the same entries.
//! Removals are recorded and done in steps; the next process continues them. Days that are due and not dropped yet are a
//! fault that health shows. The values of a deleted event go at once: its deletion is in the log. Roll-ups stay when values go, for a time of their own.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use chrono::{NaiveDate, TimeDelta};
use signalbox_config::Monitoring;
use signalbox_database::{clear_fault, is_lock_conflict, newest_recorded, report_fault};
use signalbox_domain::{
    kernel::Decider,
    monitoring::{Channel, LogEntry, LogEntryCommand, LogType, NewLogEntry},
};
use signalbox_messaging::Wakeup;
use signalbox_projections::monitoring::series::{
    DroppedDays, LoggedDay, Overdue, Removal, SeriesError, continue_removal, drop_in_turn, drop_old_rollups,
    is_turn, next_run, old_rollup_days, oldest_kept, record_removals, remove_deleted,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// Days of roll-ups of one run.
const DAYS: usize = 2;
/// The fault of days that are due.
const FAULT: &str = "retention";
/// Why days stay, in the fault.
const IN_USE: &str = "Days of datapoints are older than they are kept and cannot be dropped, because a session reads \
    them for long, such as a backup or an export. It is tried again every minute: see pg_stat_activity for the session.";
const REBUILDING: &str = "Datapoints that are older than they are kept, or whose event was deleted with them, cannot be removed \
    while the read model `datapoints` is rebuilt. It is tried again every minute.";
// Values that were deleted with their event wait for neither.
const BEHIND: &str = "Datapoints are older than they are kept, and are not removed while the read model `monitoring` does not \
    show all events: one of them may keep its datapoints for longer. It is tried again every minute.";
const SET_ASIDE: &str = "Datapoints are older than they are kept, and are not removed while events are set aside: one of them may \
    keep its datapoints for longer. `signalbox projections poison list` shows why. It is tried again every minute.";
/// Namespace of the entries.
const ENTRIES: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0002);

/// The least time between two comparisons of ages: a deleted event wakes the worker more often.
const COMPARISON: Duration = Duration::from_secs(50);

/// The retention of datapoints.
#[derive(Debug)]
pub struct Retention {
    config: Monitoring,
    compared: Mutex<Option<Instant>>,
}

impl Worker for Retention {
    const NAME: &'static str = "retention";

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Channel::TYPE)
    }

    fn gathers(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        // While the clocks differ, nothing continues either.
        let Some(today) = today(context).await? else { return Ok(false) };
        let removed = match continue_removal(&context.pool, today, self.config.retention_days).await {
            Ok(false) => remove_deleted(&context.pool).await,
            // Values of deleted events do not wait for the numbers that the others wait for.
            Err(waiting @ (SeriesError::ChannelsBehind | SeriesError::ChannelsSetAside)) => {
                match remove_deleted(&context.pool).await {
                    Ok(false) => Err(waiting),
                    outcome => outcome,
                }
            }
            outcome => outcome,
        };
        let outcome = match removed {
            Ok(true) => return Ok(true),
            Ok(false) if !self.is_comparison() => return Ok(false),
            Ok(false) => run_if_due(context, &self.config, today).await,
            Err(error) => Err(series(error)),
        };
        let reason = match outcome {
            Err(WorkerError::Series(SeriesError::Rebuilding)) => REBUILDING,
            Err(WorkerError::Series(SeriesError::ChannelsBehind)) => BEHIND,
            Err(WorkerError::Series(SeriesError::ChannelsSetAside)) => SET_ASIDE,
            Err(WorkerError::Database(error)) if is_lock_conflict(&error) => IN_USE,
            outcome => return outcome,
        };
        report_fault(&context.pool, FAULT, reason).await?;
        Ok(false)
    }
}

impl Retention {
    /// One for the days of `config`.
    pub fn new(config: Monitoring) -> Self {
        Self { config, compared: Mutex::default() }
    }

    /// Whether ages are to be compared now, which is noted.
    fn is_comparison(&self) -> bool {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = compared.is_none_or(|last| last.elapsed() >= COMPARISON);
        if is_due {
            *compared = Some(Instant::now());
        }
        is_due
    }
}

/// Starts a run if values or roll-ups are overdue and it is time for one; returns whether removals have to be continued.
async fn run_if_due(context: &Context, config: &Monitoring, today: NaiveDate) -> Result<bool, WorkerError> {
    let pool = &context.pool;
    let mut run = next_run(pool, today, config.retention_days).await.map_err(series)?;
    let mut rollups = overdue_rollups(context, config, today).await?;
    let mut later = run.later + rollups.split_off(rollups.len().min(DAYS)).len();
    let is_turn = is_turn(pool).await.map_err(series)?;
    let is_due = !run.is_empty() || !rollups.is_empty();
    if is_due && is_turn {
        announce(context, config, &run, &rollups).await?;
        let dropped = match run.days.last() {
            Some(last) => drop_in_turn(pool, last.day + TimeDelta::days(1), today).await.map_err(series)?,
            None => DroppedDays::default(),
        };
        // Without a drop, the run is recorded here, unless nothing is done in it: a number that was raised keeps all of its days.
        let is_first = dropped.days.is_empty() && !(run.removals.is_empty() && rollups.is_empty());
        record_removals(pool, &run.removals, is_first).await.map_err(series)?;
        if let Some(last) = rollups.last() {
            drop_old_rollups(pool, *last).await.map_err(series)?;
        }
    } else {
        later += run.days.len() + run.removals.len() + rollups.len();
        run = Overdue::default();
    }
    match later {
        0 => drop(clear_fault(pool, FAULT).await?),
        later => {
            let reason = format!(
                "{later} days hold datapoints or roll-ups that are older than they are kept (monitoring.retention_days, \
                 monitoring.rollup_retention_days, or an event's own retention_days), and go by {DAYS} an hour. If that is not \
                 intended, raise the number or check the clocks; `signalbox retention apply` drops them at once."
            );
            report_fault(pool, FAULT, &reason).await?;
        }
    }
    Ok(!run.removals.is_empty())
}

/// Writes the entries that precede a run.
async fn announce(
    context: &Context,
    config: &Monitoring,
    run: &Overdue,
    rollups: &[NaiveDate],
) -> Result<(), WorkerError> {
    let days = (run.days.first(), run.days.last());
    if let (Some(first), Some(last)) = days {
        let name = format!("{} {}", first.day, last.day);
        announce_one(context, &name, retention_entry(&run.days, config.retention_days)).await?;
    }
    if !run.removals.is_empty() {
        let name = format!("removal {:?}", run.removals);
        announce_one(context, &name, removal_entry(&run.removals)).await?;
    }
    if !rollups.is_empty() {
        let name = format!("rollups {rollups:?}");
        let days = config.rollup_retention_days;
        announce_one(context, &name, rollup_entry(rollups, days)).await?;
    }
    Ok(())
}

async fn announce_one(context: &Context, name: &str, entry: NewLogEntry) -> Result<(), WorkerError> {
    let id = Uuid::new_v5(&ENTRIES, name.as_bytes());
    let command = LogEntryCommand::Write(entry);
    context.send_if_still_due::<LogEntry>(Retention::NAME, id, "write", &command).await?;
    Ok(())
}

/// The day by which ages count; none while the clocks differ.
async fn today(context: &Context) -> Result<Option<NaiveDate>, WorkerError> {
    let Some(now) = context.sweep_time().await? else { return Ok(None) };
    let now = newest_recorded(&context.pool).await?.map_or(now, |newest| newest.min(now));
    Ok(Some(now.date_naive()))
}

/// The first days of roll-ups beyond their retention time, one more than a run drops at most.
async fn overdue_rollups(
    context: &Context,
    config: &Monitoring,
    today: NaiveDate,
) -> Result<Vec<NaiveDate>, WorkerError> {
    match config.rollup_retention_days {
        0 => Ok(Vec::new()),
        days => old_rollup_days(&context.pool, oldest_kept(today, days), DAYS + 1).await.map_err(series),
    }
}

/// The log entry about values of single channels.
pub fn removal_entry(removals: &[Removal]) -> NewLogEntry {
    let channels: HashSet<i32> =
        removals.iter().flat_map(|removal| removal.channels.iter().copied()).collect();
    let day = |removal: Option<&Removal>| removal.map(|removal| removal.day.to_string()).unwrap_or_default();
    let count = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let content = format!(
        "Retention removes the datapoints of {} that came in on {} from {} to {}, because they are older than these events \
         keep them.",
        count(channels.len(), "event"),
        count(removals.len(), "day"),
        day(removals.first()),
        day(removals.last()),
    );
    entry(content)
}

/// The log entry about roll-ups.
pub fn rollup_entry(run: &[NaiveDate], days: u32) -> NewLogEntry {
    let day = |day: Option<&NaiveDate>| day.map(ToString::to_string).unwrap_or_default();
    entry(format!(
        "Retention drops the roll-ups of datapoints that came in from {} to {}, because they are kept for {days} days.",
        day(run.first()),
        day(run.last()),
    ))
}

fn entry(content: String) -> NewLogEntry {
    NewLogEntry { kind: LogType::Warning, content, source: Retention::NAME.to_owned(), user: None }
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
    entry(content)
}

fn series(error: SeriesError) -> WorkerError {
    match error {
        SeriesError::Database(error) => error.into(),
        other => WorkerError::Series(other),
    }
}
