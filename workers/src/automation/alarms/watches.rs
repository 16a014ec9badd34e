use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_datapoint_log::{LogRow, micros, moment, recorded_times};
use signalbox_domain::{
    automation::{AlarmJudge, AlarmMemory, AlarmStep, DatapointPlace, JudgedValue},
    kernel::{ChannelId, RuleId},
};
use signalbox_projections::{
    automation::{
        RuleRow,
        alarm_judges::{Judged, alarm_memories},
        rules::{ChangedRule, WatchChange, rules_since},
    },
    monitoring::{
        queries::{channel_names, channel_number},
        series::{Datapoint, newest_until, recorded},
    },
};
use sqlx::PgPool;

use super::notes::{self, Facts};
use crate::WorkerError;

/// How often all rules are read, for changes that have old positions.
const REFRESH: Duration = Duration::from_secs(30);
/// Values that are read at most to fill the window of a slope, or to find the one that stood at a change.
const REFILLED: usize = 100_000;
/// How long before the newest value the one is looked for that stood at a change, when the newest came after the change.
const REACH: TimeDelta = TimeDelta::hours(1);
/// How often a window with more is halved.
const HALVINGS: usize = 32;

/// The rules with alarms, by the channels that they watch.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Position of the newest change of a rule that was read.
    known: i64,
    /// When all rules were read.
    refreshed: Option<Instant>,
    rules: HashMap<RuleId, Watch>,
    by_channel: HashMap<i32, Vec<RuleId>>,
    /// The integers that stand for channels in the log.
    numbers: HashMap<ChannelId, i32>,
    /// Whether `by_channel` is as the rules say.
    is_linked: bool,
}

#[derive(Debug)]
struct Watch {
    judge: AlarmJudge,
    name: String,
    silenced_until: Option<DateTime<Utc>>,
    /// Changes of the rule that values have not reached yet.
    pending: VecDeque<Pending>,
    /// Decisions of this step.
    steps: Vec<AlarmStep>,
    is_changed: bool,
}

#[derive(Debug)]
struct Pending {
    change: WatchChange,
    /// Values after this row of the log are given to the judge: it may be later than the change, which then was read late.
    upto: i64,
    /// The values that stand at the change; `None` while they are not read.
    standing: Option<Vec<JudgedValue>>,
}

impl Watches {
    /// The judges as they were committed.
    pub(super) async fn load(pool: &PgPool) -> Result<Self, WorkerError> {
        let mut watches = Self::default();
        for (rule, memory) in alarm_memories(pool).await? {
            let mut judge = AlarmJudge::new(rule, memory);
            refill(pool, &mut judge).await?;
            watches.rules.insert(rule, Watch::new(judge));
        }
        Ok(watches)
    }

    /// Reads changed rules. Values up to the row `position` were judged.
    pub(super) async fn refresh(
        &mut self,
        pool: &PgPool,
        position: i64,
        now: DateTime<Utc>,
    ) -> Result<(), WorkerError> {
        let is_due = self.refreshed.is_none_or(|at| at.elapsed() >= REFRESH);
        let since = if is_due { 0 } else { self.known };
        for ChangedRule { rule, .. } in rules_since(pool, since).await? {
            self.known = self.known.max(rule.changed_at);
            self.take_in(rule, position, now);
        }
        if is_due {
            self.refreshed = Some(Instant::now());
        }
        if !self.is_linked {
            self.link(pool).await?;
        }
        let pending = self.rules.values_mut().flat_map(|watch| &mut watch.pending);
        for pending in pending.filter(|pending| pending.standing.is_none()) {
            pending.standing = Some(standing(pool, &pending.change, pending.upto, &self.numbers).await?);
        }
        Ok(())
    }

    fn take_in(&mut self, row: RuleRow, position: i64, now: DateTime<Utc>) {
        let mut changes = row.watched;
        let Some(last) = changes.last() else { return };
        // The event by which it was disabled or deleted cannot be read.
        if last.terms.is_some() && (row.deleted_at.is_some() || !row.enabled) {
            let version = last.version + 1;
            changes.push(WatchChange { after: position, at: now, version, terms: None });
        }
        let watch = match self.rules.entry(row.id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                // Earlier ones have left nothing.
                changes.drain(..changes.len() - 1);
                let Some(begun) = changes.first_mut().filter(|begun| begun.terms.is_some()) else { return };
                if begun.after < position {
                    begun.at = now;
                }
                free.insert(Watch::new(AlarmJudge::new(row.id, AlarmMemory::blank(position))))
            }
        };
        (watch.name, watch.silenced_until) = (row.name, row.silenced_until);
        let version = watch.judge.memory().version;
        let newest = watch.pending.back().map_or(version, |pending| pending.change.version);
        let count = watch.pending.len();
        let new = changes.into_iter().filter(|change| change.version > newest);
        watch.pending.extend(new.map(|change| Pending {
            upto: change.after.max(position),
            standing: None,
            change,
        }));
        self.is_linked &= watch.pending.len() == count;
    }

    /// Finds the rules of each channel.
    async fn link(&mut self, pool: &PgPool) -> Result<(), WorkerError> {
        self.by_channel.clear();
        self.is_linked = true;
        for (rule, watch) in &self.rules {
            let present = watch.judge.memory().terms;
            let terms = watch.pending.iter().map(|pending| pending.change.terms).chain([present]).flatten();
            for channel in terms.map(|terms| terms.channel).collect::<HashSet<_>>() {
                let known = match self.numbers.get(&channel) {
                    Some(number) => Some(*number),
                    None => channel_number(pool, channel).await?,
                };
                let Some(number) = known else {
                    // The read model of channels will show it.
                    self.is_linked = false;
                    continue;
                };
                self.numbers.insert(channel, number);
                self.by_channel.entry(number).or_default().push(*rule);
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Lets the values of `row` be judged.
    pub(super) fn judge(&mut self, row: &LogRow) {
        let batches = row.batches().unwrap_or_else(|error| {
            // The row stays unreadable, and later rows must be judged.
            tracing::error!(%error, "no alarm judges what cannot be read");
            Vec::new()
        });
        let Self { rules, by_channel, numbers, .. } = self;
        let deletion = row.deletion().unwrap_or_else(|error| {
            tracing::error!(%error, "a deletion that cannot be read leaves its value in the slopes of alarms");
            None
        });
        if let Some(deleted) = deletion {
            let place = DatapointPlace { position: deleted.position, index: deleted.index };
            for rule in by_channel.get(&deleted.channel).into_iter().flatten() {
                if let Some(watch) = rules.get_mut(rule) {
                    watch.judge.forget(place);
                }
            }
        }
        let points = batches.into_iter().flat_map(|(_, points)| points);
        for (point, index) in points.zip(0..) {
            let value = JudgedValue {
                place: DatapointPlace { position: row.position, index },
                day: row.day,
                value: point.value,
                on: moment(point.time),
                arrived: row.recorded_at,
            };
            for rule in by_channel.get(&point.channel).into_iter().flatten() {
                if let Some(watch) = rules.get_mut(rule) {
                    watch.judge(point.channel, value, numbers);
                }
            }
        }
    }

    /// All values up to the row `position` were judged: time has passed until `now`.
    pub(super) fn pass(&mut self, position: i64, now: DateTime<Utc>) {
        for watch in self.rules.values_mut() {
            watch.become_until(position);
            watch.judge.tick(now, &mut watch.steps);
        }
    }

    /// Takes the changes to commit, and drops judges of rules without an alarm.
    pub(super) async fn judged(&mut self, pool: &PgPool, now: DateTime<Utc>) -> Result<Judged, WorkerError> {
        let stepped = self.rules.values().flat_map(|watch| &watch.steps);
        let channels: HashSet<_> = stepped.map(|step| step.terms.channel.0).collect();
        let channels =
            if channels.is_empty() { HashMap::new() } else { channel_names(pool, channels).await? };
        let mut judged = Judged::default();
        for (rule, watch) in &mut self.rules {
            let steps = std::mem::take(&mut watch.steps);
            if !std::mem::take(&mut watch.is_changed) && steps.is_empty() {
                continue;
            }
            let memory = watch.judge.memory();
            if memory.terms.is_none() && watch.pending.is_empty() {
                judged.gone.push(*rule);
            } else {
                judged.memories.push((*rule, memory.clone()));
            }
            let silenced = watch.silenced_until.is_some_and(|until| now < until);
            let facts = Facts { rule: *rule, rule_name: &watch.name, channels: &channels, silenced };
            judged.notes.extend(notes::of(&facts, steps));
        }
        for rule in &judged.gone {
            self.rules.remove(rule);
            self.is_linked = false;
        }
        Ok(judged)
    }
}

impl Watch {
    fn new(judge: AlarmJudge) -> Self {
        Self {
            judge,
            name: String::new(),
            silenced_until: None,
            pending: VecDeque::new(),
            steps: Vec::new(),
            is_changed: false,
        }
    }

    fn judge(&mut self, number: i32, value: JudgedValue, numbers: &HashMap<ChannelId, i32>) {
        self.become_until(value.place.position - 1);
        let watched = self.judge.memory().terms.and_then(|terms| numbers.get(&terms.channel));
        if watched == Some(&number) {
            self.judge.judge(value, &mut self.steps);
            self.is_changed = true;
        }
    }

    /// Applies the changes of the rule that count for values after the row `position`.
    fn become_until(&mut self, position: i64) {
        while let Some(Pending { change, standing, .. }) =
            self.pending.pop_front_if(|pending| pending.change.after <= position)
        {
            let place = (change.after, change.version);
            let standing = standing.unwrap_or_default();
            self.judge.change(change.terms, place, change.at, &standing, &mut self.steps);
            self.is_changed = true;
        }
    }
}

/// Reads the values that the window of a slope held.
async fn refill(pool: &PgPool, judge: &mut AlarmJudge) -> Result<(), WorkerError> {
    let AlarmMemory { terms: Some(terms), newest: Some(newest), .. } = *judge.memory() else { return Ok(()) };
    let Some(window) = terms.alarm.rate_window() else { return Ok(()) };
    let Some(number) = channel_number(pool, terms.channel).await? else { return Ok(()) };
    let points = values_before(pool, number, newest.on, window).await?;
    // The window does not ask when they arrived.
    judge.refill(points.iter().map(|point| judged_value(point, moment(point.point.time))));
    Ok(())
}

/// The values of the channel up to row `upto` of the log that stand at `change`: the newest, and those of its window.
async fn standing(
    pool: &PgPool,
    change: &WatchChange,
    upto: i64,
    numbers: &HashMap<ChannelId, i32>,
) -> Result<Vec<JudgedValue>, WorkerError> {
    let Some(terms) = change.terms else { return Ok(Vec::new()) };
    let Some(number) = numbers.get(&terms.channel).copied() else { return Ok(Vec::new()) };
    let newest =
        newest_until(pool, &[number], DateTime::<Utc>::MAX_UTC).await.map_err(WorkerError::Series)?;
    let Some(newest) = newest.first() else { return Ok(Vec::new()) };
    let window = terms.alarm.rate_window();
    let is_late = newest.point.position > upto;
    let reach = window.into_iter().chain(is_late.then_some(REACH)).max();
    let mut found = match reach {
        Some(reach) => values_before(pool, number, moment(newest.point.time), reach).await?,
        None => vec![*newest],
    };
    found.retain(|point| point.point.position <= upto);
    let Some(newest) = found.iter().max_by_key(|point| point.point.order()).copied() else {
        return Ok(Vec::new());
    };
    let begin = window.map_or(newest.point.time, |window| micros(moment(newest.point.time) - window));
    found.retain(|point| point.point.time >= begin);
    let arrived = recorded_times(pool, &[(newest.point.position, newest.day)]).await?;
    let arrived = |point: &Datapoint| {
        // That of the others is not asked for.
        let known = arrived.get(&point.point.position).copied();
        known.unwrap_or_else(|| moment(point.point.time).min(change.at))
    };
    Ok(found.iter().map(|point| judged_value(point, arrived(point))).collect())
}

/// The values of a channel measured up to `end`, in the order of their arrival, not more than `reach` before it; of very many
/// the newest.
async fn values_before(
    pool: &PgPool,
    number: i32,
    end: DateTime<Utc>,
    reach: TimeDelta,
) -> Result<Vec<Datapoint>, WorkerError> {
    let mut begin = end - reach;
    let end = end + TimeDelta::microseconds(1);
    for _ in 0..HALVINGS {
        if let Some(points) =
            recorded(pool, number, (begin, end), REFILLED).await.map_err(WorkerError::Series)?
        {
            return Ok(points);
        }
        begin += (end - begin) / 2;
    }
    Ok(Vec::new())
}

fn judged_value(point: &Datapoint, arrived: DateTime<Utc>) -> JudgedValue {
    let place = point.place();
    JudgedValue {
        place: DatapointPlace { position: place.position, index: place.index },
        day: place.day,
        value: point.point.value,
        on: moment(point.point.time),
        arrived,
    }
}
