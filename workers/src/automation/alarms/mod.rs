//! Judges alarms of rules on every datapoint, in the order of commit, and lets their time pass.
//!
//! Reads the datapoint log after its progress, and the rules with alarms; a judge per rule decides when an alarm starts,
//! fires and is cleared. The memories of the judges, the progress and the decided changes of state are committed together,
//! if no other process has moved the progress on: this decides. Then the changes are sent, as `Record` to the alarm and
//! as `Act` to its rule, by keys that follow from their places, and removed. If the process crashes before, the next one
//! sends them; the aggregates skip what they have recorded. The lease only saves work.
//!
//! The service's time is read before the end of the datapoint log, and passes for an alarm when all values up to that
//! end were judged: a value that was answered before a moment is judged before what falls due at it.

mod notes;
mod watches;

use std::time::Duration;

use chrono::{DateTime, Utc};
use signalbox_datapoint_log::{LogEnd, LogRow, head, read_after, read_points_after};
use signalbox_domain::{
    automation::{Alarm, AlarmCommand, Rule},
    kernel::Decider,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::automation::{
    alarm_judges::{AlarmProgress, alarm_progress, commit_judged},
    alarms::unannounced,
};
use tokio::sync::Mutex;

use self::watches::Watches;
use crate::{Context, Worker, WorkerError, failures::Failures};

/// Points and rows of one step.
const POINTS: i64 = 20_000;
const ROWS: i64 = 2000;
/// Alarms that are announced in one step after a silence.
const ANNOUNCED: i64 = 100;

/// The judging of alarms.
#[derive(Debug, Default)]
pub struct Alarms {
    /// `None` if it has to be loaded.
    state: Mutex<Option<State>>,
    /// Rules and alarms that cannot be sent to.
    failures: Failures,
}

#[derive(Debug)]
struct State {
    progress: AlarmProgress,
    watches: Watches,
}

/// Result of a step.
struct Step {
    has_more: bool,
    /// Whether no other process has judged meanwhile.
    is_current: bool,
}

impl Worker for Alarms {
    const NAME: &'static str = "alarms";

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        match wakeup {
            Wakeup::DatapointsAppended { .. } => true,
            // A change of a rule is answered when its alarms are judged by it.
            Wakeup::ReadAdvanced { aggregates, .. } => aggregates.iter().any(|word| word == Rule::TYPE),
            _ => false,
        }
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(50)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut known = self.state.lock().await;
        self.failures.report(context, Self::NAME).await?;
        // Of each rule some: many changes of one rule do not delay the alarms of another.
        let waiting = notes::record(context, &self.failures).await?;
        if waiting >= notes::MOST_WAITING {
            return Ok(true);
        }
        let mut state = match known.take() {
            Some(state) => state,
            None => match alarm_progress(&context.pool).await? {
                Some(progress) => State { progress, watches: Watches::load(&context.pool).await? },
                None => return Ok(waiting > 0),
            },
        };
        // After an error the memory may be ahead of what is committed, so the next step loads it again.
        let Step { has_more, is_current } = state.step(context, &self.failures).await?;
        *known = is_current.then_some(state);
        Ok(has_more || waiting > 0)
    }
}

impl State {
    async fn step(&mut self, context: &Context, failures: &Failures) -> Result<Step, WorkerError> {
        let now = context.server_time().await?;
        announce(context, failures, now).await?;
        let end = head(&context.pool).await?;
        let from = self.progress;
        self.watches.refresh(&context.pool, from.position, now).await?;
        let (rows, to) = if self.watches.is_empty() {
            // The day stays an earlier one.
            (Vec::new(), LogEnd { position: end.position, day: from.day, points: end.points })
        } else {
            read(context, from, end.position).await?
        };
        for row in &rows {
            self.watches.judge(row);
        }
        let is_at_end = to.position >= end.position;
        if is_at_end {
            self.watches.pass(end.position, now);
        }
        let judged = self.watches.judged(&context.pool, now).await?;
        let has_notes = !judged.notes.is_empty();
        let is_idle = judged.memories.is_empty() && judged.gone.is_empty() && !has_notes;
        if to.position <= from.position && is_idle {
            return Ok(Step { has_more: false, is_current: true });
        }
        self.progress = AlarmProgress {
            generation: from.generation + 1,
            position: to.position.max(from.position),
            day: to.day,
            total: to.points,
        };
        let is_current = commit_judged(&context.pool, from, self.progress, &judged).await?;
        if is_current && has_notes {
            notes::record(context, failures).await?;
        }
        Ok(Step { has_more: !is_at_end || has_notes || !is_current, is_current })
    }
}

/// The next rows up to row `upto`, and their end.
async fn read(
    context: &Context,
    from: AlarmProgress,
    upto: i64,
) -> Result<(Vec<LogRow>, LogEnd), WorkerError> {
    let AlarmProgress { position, day, total, .. } = from;
    let mut rows = Vec::new();
    if position < upto {
        let mut connection = context.pool.acquire().await?;
        rows = read_points_after(&mut connection, (position, day, total), POINTS, ROWS).await?;
        drop(connection);
        if rows.is_empty() {
            // Retention may have dropped rows, and with them more points than are read at once.
            rows = read_after(&context.pool, position, day, 1).await?;
        }
        rows.retain(|row| row.position <= upto);
    }
    let end = LogEnd { position, day, points: total };
    let to =
        rows.last().map_or(end, |last| LogEnd { position: last.position, day: last.day, points: last.total });
    Ok((rows, to))
}

/// Lets alarms be published whose rules are not silenced any more.
async fn announce(context: &Context, failures: &Failures, now: DateTime<Utc>) -> Result<(), WorkerError> {
    let paused = failures.paused();
    let waiting = unannounced(&context.pool, now, ANNOUNCED + paused.len() as i64).await?;
    for alarm in waiting.into_iter().filter(|alarm| !paused.contains(&alarm.0)) {
        let command = AlarmCommand::Announce;
        let sent = context.send_for_item::<Alarm>(Alarms::NAME, alarm.0, "announce", &command).await;
        failures.settle(alarm.0, sent.map(drop))?;
    }
    Ok(())
}
