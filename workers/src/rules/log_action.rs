//! Writes the log entries of rules whose action is `log`.
//!
//! Follows the event log by a checkpoint, sends `Write` for each firing; the entry's key follows from rule and datapoint,
//! so that a firing is written once, however often it is read. If it dies, the next one goes on from the checkpoint.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    automation::{Condition, Firing, Operator, Rule, RuleAction, RuleEvent},
    kernel::Decider,
    monitoring::{LogEntry, LogEntryCommand, LogType, NewLogEntry},
};
use signalbox_event_store::{RecordedEvent, read_all_for};
use signalbox_messaging::Wakeup;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, checkpoint};

/// Events of one step.
const BATCH: i64 = 1000;
/// Entries that are written at the same time.
const CONCURRENT: usize = 64;
const CHECKPOINT: &str = "rule_log";
/// What the entries say they come from.
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
        let events = read_all_for(&context.pool, position, BATCH, &[Rule::TYPE]).await?;
        let Some(last) = events.last() else { return Ok(false) };
        let firings = events.iter().filter_map(logged);
        stream::iter(firings)
            .map(|logged| write(context, logged))
            .buffer_unordered(CONCURRENT)
            .try_collect::<()>()
            .await?;
        checkpoint::advance(&context.pool, CHECKPOINT, position, last.position).await?;
        Ok(events.len() as i64 == BATCH)
    }
}

/// A firing that asks for an entry.
struct Logged {
    rule: Uuid,
    position: i64,
    firing: Firing,
}

/// The firing that `event` is, if it asks for an entry.
fn logged(event: &RecordedEvent) -> Option<Logged> {
    if event.aggregate_type != Rule::TYPE {
        return None;
    }
    match event.decode::<Rule>() {
        Ok(RuleEvent::RuleTriggered(firing)) => (firing.action == RuleAction::Log).then_some(Logged {
            rule: event.aggregate_id,
            position: event.position,
            firing,
        }),
        Ok(_) => None,
        Err(error) => {
            tracing::error!(%error, "a firing is not written down");
            None
        }
    }
}

async fn write(context: &Context, logged: Logged) -> Result<(), WorkerError> {
    let Logged { rule, position, firing } = logged;
    let entry = Uuid::new_v5(&rule, firing.reading.datapoint_id.as_bytes());
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
    let Firing { reading, rule_name, condition, .. } = firing;
    let text = format!("{} = {} {}: {rule_name}", reading.channel_name, reading.value, phrase(condition));
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
