//! Writes the log entries of rules whose action is `log`.
//!
//! Follows the event log by a checkpoint, sends `Write` for each firing; the entry's key is derived from rule and
//! datapoint or alarm, so that a firing is written once, however often it is read. If it crashes, the next one continues from
//! the checkpoint.

use std::time::Duration;

use futures::{StreamExt, stream};
use signalbox_domain::{
    automation::{AlarmReason, Condition, FiredAlarm, Firing, Operator, Rule, RuleAction, RuleEvent},
    kernel::{Decider, RuleId},
    monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry},
};
use signalbox_event_store::{EventKey, RecordedEvent, read_all_for};
use signalbox_messaging::Wakeup;
use uuid::Uuid;

use crate::{
    Context, Worker, WorkerError, checkpoint,
    skipped::{self, skip_or_fail, skip_unreadable},
};

/// Events of one step.
const BATCH: i64 = 1000;
/// Entries that are written at the same time.
const CONCURRENT: usize = 64;
const CHECKPOINT: &str = "rule_log";
/// Source of the entries.
const SOURCE: &str = "rules";
/// Longest entry, in characters.
const MAX_CONTENT: usize = 500;

/// The log action of rules.
#[derive(Debug)]
pub struct RuleLog;

impl Worker for RuleLog {
    const NAME: &'static str = "rule_log";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::LogAppended { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Rule::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let position = checkpoint::read(&context.pool, CHECKPOINT).await?;
        let slice = read_all_for(&mut *context.pool.acquire().await?, position, BATCH, &[Rule::TYPE]).await?;
        let Some(last) = slice.last() else { return retry(context).await };
        let is_handled = |key: &EventKey| key.aggregate_type == Rule::TYPE;
        skip_unreadable(&context.pool, Self::NAME, &slice.unreadable, is_handled).await?;
        let is_full = slice.is_full;
        let mut handled =
            stream::iter(slice.events).map(|event| handle(context, event)).buffer_unordered(CONCURRENT);
        while let Some((event, result)) = handled.next().await {
            if let Err(error) = result {
                skip_or_fail(&context.pool, Self::NAME, &event, error).await?;
            }
        }
        checkpoint::advance(&context.pool, CHECKPOINT, position, last).await?;
        Ok(is_full)
    }
}

/// Writes the entries of skipped firings that can be read now.
async fn retry(context: &Context) -> Result<bool, WorkerError> {
    for position in skipped::due(&context.pool, RuleLog::NAME).await? {
        let slice = skipped::event_at(&context.pool, position, &["rule_triggered"]).await?;
        if let Some(event) = slice.events.into_iter().next()
            && handle(context, event).await.1.is_ok()
        {
            skipped::begin(&context.pool, RuleLog::NAME, position).await?;
            skipped::done(&context.pool, RuleLog::NAME, position).await?;
        }
    }
    Ok(false)
}

/// Writes the entry for `event`.
async fn handle(context: &Context, event: RecordedEvent) -> (RecordedEvent, Result<(), WorkerError>) {
    let result = match logged(&event) {
        Ok(Some(logged)) => write(context, logged).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    (event, result)
}

/// A firing whose action is an entry.
struct Logged {
    rule: RuleId,
    position: i64,
    firing: Firing,
}

/// The firing in `event`, if its action is an entry.
fn logged(event: &RecordedEvent) -> Result<Option<Logged>, WorkerError> {
    if event.aggregate_type != Rule::TYPE {
        return Ok(None);
    }
    Ok(match event.decode::<Rule>()? {
        RuleEvent::RuleTriggered(firing) if firing.action == RuleAction::Log => {
            Some(Logged { rule: RuleId(event.aggregate_id), position: event.position, firing })
        }
        _ => None,
    })
}

async fn write(context: &Context, logged: Logged) -> Result<(), WorkerError> {
    let Logged { rule, position, firing } = logged;
    let by_value = || firing.reading.datapoint_id.clone();
    let key = firing.alarm.map_or_else(by_value, |alarm| alarm.alarm_id.to_string());
    let entry = Uuid::new_v5(&rule.0, key.as_bytes());
    let new = NewLogEntry {
        kind: LogType::Warning,
        content: sentence(&firing),
        source: SOURCE.to_owned(),
        user: None,
    };
    let command = LogEntryCommand::Write(new);
    context.send_because::<LogEntry>(RuleLog::NAME, position, entry, "write", &command).await.map(|_| ())
}

fn sentence(firing: &Firing) -> String {
    let Firing { reading, rule_name, condition, alarm, .. } = firing;
    let (channel, value, phrase) = (&reading.channel_name, reading.value, phrase(condition));
    let text = match alarm {
        Some(FiredAlarm { reason: AlarmReason::NoData, .. }) => {
            format!("{channel} sends no values (the last one was {value}): {rule_name}")
        }
        Some(FiredAlarm { rate_window_seconds: Some(window), .. }) => {
            format!("{channel} = {value}, its slope per second over {window} s {phrase}: {rule_name}")
        }
        _ => format!("{channel} = {value} {phrase}: {rule_name}"),
    };
    text.chars().take(MAX_CONTENT).collect()
}

fn phrase(condition: &Condition) -> String {
    let (low, high) = (condition.threshold, condition.threshold_high.unwrap_or(condition.threshold));
    match condition.operator {
        Operator::Gt => format!("is greater than {low}"),
        Operator::Lt => format!("is less than {low}"),
        Operator::Gte => format!("is at least {low}"),
        Operator::Lte => format!("is at most {low}"),
        Operator::Eq => format!("equals {low}"),
        Operator::Between => format!("is between {low} and {high}"),
        Operator::NotBetween => format!("is not between {low} and {high}"),
    }
}
