use std::cmp::Ordering;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{
    AlarmMemory, AlarmReason, AlarmStep, AlarmTerms, JudgedValue, OpenAlarm, StepKind, slope::Window,
};
use crate::{
    automation::DatapointPlace,
    kernel::{AlarmId, RuleId},
};

/// How much later than its predecessor's pace a value may arrive and still be judged before what falls due at its time.
const JITTER: TimeDelta = TimeDelta::seconds(1);

/// Decides when alarms of a rule begin, fire and are cleared. Live evaluation and the back-test both use it, so they agree.
///
/// Each channel has a clock: the time of measurement of the newest judged value, plus what has passed on the service's
/// clock since that value arrived. A step that falls due on it happens at its due time, before a later value is judged; a value
/// measured at the due time itself is judged first, as Prometheus does at an evaluation. The last value stands until the
/// next one arrives, and is judged again when the condition changes. A value that is not newer than the newest judged is not
/// judged.
#[derive(Debug, Clone)]
pub struct AlarmJudge {
    rule: RuleId,
    memory: AlarmMemory,
    window: Window,
}

impl AlarmJudge {
    /// Continues for `rule` from `memory`.
    pub fn new(rule: RuleId, memory: AlarmMemory) -> Self {
        Self { rule, memory, window: Window::default() }
    }

    /// All that is to be remembered.
    pub fn memory(&self) -> &AlarmMemory {
        &self.memory
    }

    /// Takes `values` that were judged before into the window of a slope, in the order of their places.
    pub fn refill(&mut self, values: impl IntoIterator<Item = JudgedValue>) {
        let Some(length) = self.memory.terms.and_then(|terms| terms.alarm.rate_window()) else { return };
        let Some(newest) = self.memory.newest else { return };
        let mut last = None;
        for JudgedValue { place, value, on, .. } in values {
            let was_judged = place > self.memory.window_from
                && place <= newest.place
                && on <= newest.on
                && last.is_none_or(|last| on > last);
            if was_judged {
                self.window.push(length, place, (on, value));
                last = Some(on);
            }
        }
    }

    /// Judges a value. Values are given in the order of their places; those up to the last one are skipped.
    pub fn judge(&mut self, value: JudgedValue, steps: &mut Vec<AlarmStep>) {
        if value.place <= self.memory.seen {
            return;
        }
        self.memory.seen = value.place;
        let Some(terms) = self.memory.terms else { return };
        // Before the first value the channel's clock is the service's.
        let until = match self.memory.newest {
            Some(newest) if value.on <= newest.on => return,
            Some(_) => value.on,
            None => value.arrived,
        };
        self.pass(&terms, until, Ordering::Less, steps);
        self.memory.newest = Some(value);
        if let Some(open) = self.memory.by_no_data.take() {
            self.step(&terms, AlarmReason::NoData, StepKind::Cleared, open, value.on, steps);
        }
        if let Some(length) = terms.alarm.rate_window() {
            self.window.push(length, value.place, (value.on, value.value));
        }
        self.compare(&terms, value.on, steps);
    }

    /// The value at `place` is deleted. It has been judged, and later slopes are those of the others.
    pub fn forget(&mut self, place: DatapointPlace) {
        self.window.forget(place);
    }

    /// It is `at` on the service's clock, and more values may arrive: lets happen what was due [`JITTER`] ago.
    pub fn tick(&mut self, at: DateTime<Utc>, steps: &mut Vec<AlarmStep>) {
        self.end(at - JITTER, steps);
    }

    /// No value up to `at` on the service's clock is missing: lets happen what is due until then.
    pub fn end(&mut self, at: DateTime<Utc>, steps: &mut Vec<AlarmStep>) {
        if let Some(terms) = self.memory.terms {
            self.pass(&terms, self.clock(at), Ordering::Equal, steps);
        }
    }

    /// The rule has other terms for values after the row `position`, from version `version` on: at `at` it was made, changed,
    /// enabled, disabled or deleted.
    ///
    /// `standing` are the values of its channel up to that row, in the order of their places: the newest by time of
    /// measurement, and for a slope those of its window. The newest is judged at the change unless it was under this condition.
    pub fn change(
        &mut self,
        to: Option<AlarmTerms>,
        (position, version): (i64, i64),
        at: DateTime<Utc>,
        standing: &[JudgedValue],
        steps: &mut Vec<AlarmStep>,
    ) {
        self.end(at, steps);
        let from = self.memory.terms;
        let now = self.clock(at);
        let is_same = matches!((from, to), (Some(from), Some(to)) if to.has_condition_of(&from));
        if let Some(from) = from {
            let has_same_silence =
                to.is_some_and(|to| to.alarm.no_data_seconds == from.alarm.no_data_seconds);
            if !is_same && let Some(open) = self.memory.by_condition.take() {
                self.step(&from, AlarmReason::Condition, StepKind::Cleared, open, now, steps);
            }
            if !(is_same && has_same_silence)
                && let Some(open) = self.memory.by_no_data.take()
            {
                self.step(&from, AlarmReason::NoData, StepKind::Cleared, open, now, steps);
            }
        }
        self.memory.seen = self.memory.seen.max(DatapointPlace::end_of(position));
        (self.memory.terms, self.memory.version, self.memory.since) = (to, version, at);
        if is_same {
            return;
        }
        // As the log has it now: a value that was judged may be deleted.
        self.memory.newest = standing.iter().max_by_key(|value| (value.on, value.place)).copied();
        self.memory.window_from = DatapointPlace::default();
        self.window.clear();
        self.refill(standing.iter().copied());
        if let Some(to) = to.filter(|_| self.memory.newest.is_some()) {
            self.compare(&to, self.clock(at), steps);
        }
    }

    /// The channel's clock at `at` on the service's.
    fn clock(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        self.memory.newest.map_or(at, |newest| newest.on + (at - newest.arrived).max(TimeDelta::zero()))
    }

    /// The service's clock at `on` on the channel's.
    fn service_clock(&self, on: DateTime<Utc>) -> DateTime<Utc> {
        self.memory.newest.map_or(on, |newest| newest.arrived + (on - newest.on))
    }

    /// Lets happen what falls due before `until`, or with `latest` equal, also then, in the order of time.
    fn pass(
        &mut self,
        terms: &AlarmTerms,
        until: DateTime<Utc>,
        latest: Ordering,
        steps: &mut Vec<AlarmStep>,
    ) {
        // At the due time the condition has held for long enough, but the silence is not longer than allowed.
        let condition = self.condition_due(terms).filter(|due| due.cmp(&until) <= latest);
        let silence = self.silence_due(terms).filter(|due| *due < until);
        if let Some(due) = silence.filter(|due| condition.is_none_or(|condition| *due < condition)) {
            self.fire_for_silence(terms, due, steps);
        }
        if let Some(due) = condition {
            self.fire_or_clear(terms, due, steps);
        }
        if let Some(due) = silence.filter(|due| condition.is_some_and(|condition| *due >= condition)) {
            self.fire_for_silence(terms, due, steps);
        }
    }

    fn condition_due(&self, terms: &AlarmTerms) -> Option<DateTime<Utc>> {
        let open = self.memory.by_condition?;
        let due = match open.fired_on {
            None => open.started_on + terms.alarm.hold(),
            Some(_) => open.released_on? + terms.alarm.keep_firing(),
        };
        // With shorter durations it may have been due before they were changed.
        Some(due.max(self.clock(self.memory.since)))
    }

    fn silence_due(&self, terms: &AlarmTerms) -> Option<DateTime<Utc>> {
        let allowed = terms.alarm.no_data()?;
        if self.memory.by_no_data.is_some() { None } else { Some(self.clock(self.memory.since) + allowed) }
    }

    fn fire_or_clear(&mut self, terms: &AlarmTerms, due: DateTime<Utc>, steps: &mut Vec<AlarmStep>) {
        let Some(open) = self.memory.by_condition.take() else { return };
        if open.fired_on.is_some() {
            return self.step(terms, AlarmReason::Condition, StepKind::Cleared, open, due, steps);
        }
        self.memory.by_condition = Some(OpenAlarm { fired_on: Some(due), ..open });
        self.step(terms, AlarmReason::Condition, StepKind::Fired, open, due, steps);
    }

    fn fire_for_silence(&mut self, terms: &AlarmTerms, due: DateTime<Utc>, steps: &mut Vec<AlarmStep>) {
        let open = self.open(AlarmReason::NoData, due, Some(due));
        self.memory.by_no_data = Some(open);
        self.step(terms, AlarmReason::NoData, StepKind::Fired, open, due, steps);
    }

    /// Compares the newest value, or the slope up to it.
    fn compare(&mut self, terms: &AlarmTerms, on: DateTime<Utc>, steps: &mut Vec<AlarmStep>) {
        let judged = match terms.alarm.rate_window() {
            Some(_) => self.window.slope(),
            None => self.memory.newest.map(|newest| newest.value),
        };
        let reason = AlarmReason::Condition;
        let Some(mut open) = self.memory.by_condition else {
            if judged.is_some_and(|value| terms.condition.holds(value)) {
                let fires = terms.alarm.for_seconds == 0;
                let open = self.open(reason, on, fires.then_some(on));
                self.memory.by_condition = Some(open);
                let kind = if fires { StepKind::Fired } else { StepKind::Started };
                self.step(terms, reason, kind, open, on, steps);
            }
            return;
        };
        let holds = judged.is_some_and(|value| match open.fired_on {
            None => terms.condition.holds(value),
            Some(_) => terms.stays(value),
        });
        if holds {
            open.released_on = None;
        } else if open.fired_on.is_none() || terms.alarm.keep_firing_seconds == 0 {
            self.memory.by_condition = None;
            return self.step(terms, reason, StepKind::Cleared, open, on, steps);
        } else {
            open.released_on.get_or_insert(on);
        }
        self.memory.by_condition = Some(open);
    }

    /// A new alarm; its id follows from what it began with.
    fn open(&self, reason: AlarmReason, on: DateTime<Utc>, fired_on: Option<DateTime<Utc>>) -> OpenAlarm {
        let place = self.memory.newest.map_or_else(DatapointPlace::default, |newest| newest.place);
        let key = format!("{} {} {} {}", reason.as_str(), on.timestamp_micros(), place.position, place.index);
        let id = AlarmId(Uuid::new_v5(&self.rule.0, key.as_bytes()));
        OpenAlarm { id, started_on: on, fired_on, released_on: None }
    }

    fn step(
        &self,
        terms: &AlarmTerms,
        reason: AlarmReason,
        kind: StepKind,
        open: OpenAlarm,
        on: DateTime<Utc>,
        steps: &mut Vec<AlarmStep>,
    ) {
        // The next value may be older than the clock that had run on without it.
        let on = if kind == StepKind::Cleared { on.max(open.last_step()) } else { on };
        steps.push(AlarmStep {
            alarm: open.id,
            reason,
            kind,
            on,
            at: self.service_clock(on),
            started_on: open.started_on,
            newest: self.memory.newest,
            terms: *terms,
        });
    }
}
