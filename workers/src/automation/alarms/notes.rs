//! Decided changes of alarms, as they are stored until the log has them.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_datapoint_log::{IdKey, Origin, Place, read_row};
use signalbox_domain::{
    automation::{
        Alarm, AlarmCommand, AlarmMark, AlarmStep, Condition, DatapointPlace, FiredAlarm, JudgedValue,
        NewAlarm, Reading, Rule, RuleCommand, StepKind,
    },
    kernel::{AlarmId, ChannelId, CommandOutcome, ErrorKind, Rejection, RuleId},
};
use signalbox_projections::{
    automation::alarm_judges::{NotePlace, Noted, noted, remove_noted},
    monitoring::{
        queries::{channel_names, channel_number},
        series::newest_until,
    },
};
use uuid::Uuid;

use super::Alarms;
use crate::{Context, Worker, WorkerError, automation::rules::device::Devices, failures::Failures};

/// Notes of a rule that are sent before those of others have their turn, and are removed.
const OF_RULE: i64 = 32;
/// Notes that may wait while new values are judged.
pub(super) const MOST_WAITING: i64 = 10_000;
/// Rules whose notes are sent at the same time.
const CONCURRENT: usize = 64;

/// A command that follows from a decision.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
enum Note {
    /// Record changes of an alarm.
    Record { alarm_id: AlarmId, alarm: NewAlarm, marks: Vec<AlarmMark> },
    /// Run the action of a rule whose alarm has started to fire.
    Act {
        rule_id: RuleId,
        channel_id: ChannelId,
        alarm: FiredAlarm,
        /// Absent in notes of older releases.
        #[serde(default)]
        condition: Option<Condition>,
        at: DateTime<Utc>,
        newest: Option<JudgedValue>,
    },
}

/// Facts about a rule that its notes contain.
pub(super) struct Facts<'a> {
    pub(super) rule: RuleId,
    pub(super) rule_name: &'a str,
    /// Names of channels.
    pub(super) channels: &'a HashMap<Uuid, String>,
    pub(super) silenced: bool,
}

impl Facts<'_> {
    fn alarm(&self, step: &AlarmStep) -> NewAlarm {
        let terms = step.terms;
        NewAlarm {
            rule_id: self.rule,
            rule_name: self.rule_name.to_owned(),
            channel_id: terms.channel,
            channel_name: self.channels.get(&terms.channel.0).cloned().unwrap_or_default(),
            reason: step.reason,
            severity: terms.alarm.severity,
            condition: terms.condition,
            rate_window_seconds: terms.alarm.rate_window_seconds,
            started_on: step.started_on,
            value: step.newest.map(|newest| newest.value),
        }
    }
}

/// The notes of the steps of a rule, in order: those of an alarm together, and then the actions.
pub(super) fn of(facts: &Facts<'_>, steps: Vec<AlarmStep>) -> Vec<Value> {
    let (mut records, mut actions) = (Vec::<Note>::new(), Vec::new());
    for step in steps {
        let value = step.newest.map(|newest| newest.value);
        let mark = AlarmMark { kind: step.kind, on: step.on, value, silenced: facts.silenced };
        match records.last_mut() {
            Some(Note::Record { alarm_id, marks, .. }) if *alarm_id == step.alarm => marks.push(mark),
            _ => {
                let (alarm_id, alarm) = (step.alarm, facts.alarm(&step));
                records.push(Note::Record { alarm_id, alarm, marks: vec![mark] });
            }
        }
        if step.kind == StepKind::Fired {
            actions.push(Note::Act {
                rule_id: facts.rule,
                channel_id: step.terms.channel,
                alarm: FiredAlarm {
                    alarm_id: step.alarm,
                    reason: step.reason,
                    rate_window_seconds: step.terms.alarm.rate_window_seconds,
                },
                condition: Some(step.terms.condition),
                at: step.at,
                newest: step.newest,
            });
        }
    }
    // A note is made of numbers and texts, so that it is always JSON.
    records.into_iter().chain(actions).filter_map(|note| serde_json::to_value(note).ok()).collect()
}

impl Note {
    fn rule(&self) -> RuleId {
        match self {
            Self::Record { alarm, .. } => alarm.rule_id,
            Self::Act { rule_id, .. } => *rule_id,
        }
    }

    async fn send(self, context: &Context, key: &str) -> Result<(), WorkerError> {
        match self {
            Self::Record { alarm_id, alarm, marks } => {
                let command = AlarmCommand::Record { alarm, marks };
                settle(context.send::<Alarm>(Alarms::NAME, alarm_id.0, None, key, &command).await)
            }
            Self::Act { rule_id, channel_id, alarm, condition, at, newest } => {
                let Some(reading) = reading(context, channel_id, newest, at).await? else {
                    tracing::info!(rule.id = %rule_id, "no value says for what the rule would act");
                    return Ok(());
                };
                let command = RuleCommand::Act { reading, alarm, condition };
                settle(context.send::<Rule>(Alarms::NAME, rule_id.0, None, key, &command).await)
            }
        }
    }
}

/// A note is done when it was recorded, or never can be. Any other refusal keeps it, because nothing decides it again.
fn settle(sent: Result<CommandOutcome, Rejection>) -> Result<(), WorkerError> {
    match sent {
        Ok(_) => Ok(()),
        Err(rejection)
            if rejection.is_unreadable_history()
                || matches!(rejection.kind, ErrorKind::NotFound | ErrorKind::Invalid) =>
        {
            tracing::error!(%rejection, "a change of an alarm cannot be recorded");
            Ok(())
        }
        Err(rejection) => Err(rejection.into()),
    }
}

/// Sends the oldest notes and removes them; in order for each rule, many rules at once. Those of rules among `failures`, whose
/// alarms only a newer release knows, stay. Returns how many others there were, up to [`MOST_WAITING`].
pub(super) async fn record(context: &Context, failures: &Failures) -> Result<i64, WorkerError> {
    let noted = noted(&context.pool, &failures.paused(), OF_RULE, MOST_WAITING).await?;
    let Some(waiting) = noted.first().map(|noted| noted.waiting) else { return Ok(0) };
    let (mut by_rule, mut done) = (BTreeMap::<RuleId, Vec<(NotePlace, Note)>>::new(), Vec::new());
    for Noted { generation, ordinal, note, .. } in noted {
        let place = (generation, ordinal);
        match serde_json::from_value::<Note>(note) {
            Ok(note) => by_rule.entry(note.rule()).or_default().push((place, note)),
            Err(error) => {
                tracing::error!(?place, %error, "a change of an alarm cannot be read");
                done.push(place);
            }
        }
    }
    let mut sent = stream::iter(by_rule)
        .map(|(rule, notes)| async move {
            let mut done = Vec::new();
            for ((generation, ordinal), note) in notes {
                if let Err(error) = note.send(context, &format!("{generation} {ordinal}")).await {
                    return (rule, done, Err(error));
                }
                done.push((generation, ordinal));
            }
            (rule, done, Ok(()))
        })
        .buffer_unordered(CONCURRENT);
    let mut failed = None;
    while let Some((rule, of_rule, result)) = sent.next().await {
        done.extend(of_rule);
        failed = failures.settle(rule.0, result).err().or(failed);
    }
    remove_noted(&context.pool, &done).await?;
    failed.map_or(Ok(waiting), Err)
}

/// The newest value of a channel, as of the moment at which an alarm fires; `None` if there is none.
async fn reading(
    context: &Context,
    channel: ChannelId,
    newest: Option<JudgedValue>,
    at: DateTime<Utc>,
) -> Result<Option<Reading>, WorkerError> {
    let found = match newest {
        Some(JudgedValue { place, day, value, .. }) => {
            Some((Place { day, position: place.position, index: place.index }, value))
        }
        None => earlier_value(context, channel, at).await?,
    };
    let Some((place, value)) = found else { return Ok(None) };
    let origin = origin(context, place).await?;
    let devices = Devices::load(&context.pool, [channel.0], [origin]).await?;
    let names = channel_names(&context.pool, [channel.0]).await?;
    Ok(Some(Reading {
        datapoint_id: IdKey::load(&context.pool).await?.id(place).to_string(),
        place: DatapointPlace { position: place.position, index: place.index },
        channel_id: channel,
        channel_name: names.get(&channel.0).cloned().unwrap_or_default(),
        value,
        device: devices.name(channel.0, origin),
        occurred_at: at,
    }))
}

/// The newest value from before the rule.
async fn earlier_value(
    context: &Context,
    channel: ChannelId,
    at: DateTime<Utc>,
) -> Result<Option<(Place, f64)>, WorkerError> {
    let Some(number) = channel_number(&context.pool, channel).await? else { return Ok(None) };
    let found = newest_until(&context.pool, &[number], at).await.map_err(WorkerError::Series)?;
    Ok(found.first().map(|point| (point.place(), point.point.value)))
}

/// The sender of the value at `place`; of a deleted one it is not known any more.
async fn origin(context: &Context, place: Place) -> Result<Origin, WorkerError> {
    let row = read_row(&context.pool, place).await?;
    let batches = row.map_or(Ok(Vec::new()), |row| row.batches()).unwrap_or_else(|error| {
        tracing::error!(%error, "the sender of a value is not known: its row in the datapoint log is damaged");
        Vec::new()
    });
    let mut end = 0;
    for (origin, points) in batches {
        end += points.len();
        if (place.index as usize) < end {
            return Ok(origin);
        }
    }
    Ok(Origin::User(Uuid::nil()))
}
