use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::{
    automation::{Condition, DatapointPlace, Operator},
    kernel::{AlarmId, ChannelId, RuleId},
};

pub(super) const RULE: RuleId = RuleId(Uuid::from_u128(1));

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

pub(super) fn above_10(alarm: AlarmSpec) -> AlarmTerms {
    AlarmTerms {
        channel: ChannelId(Uuid::from_u128(2)),
        condition: Condition { operator: Operator::Gt, threshold: 10.0, threshold_high: None },
        alarm,
    }
}

/// A rule on the slope in a window of so many seconds.
pub(super) fn rising(operator: Operator, threshold: f64, seconds: u32) -> AlarmTerms {
    AlarmTerms {
        condition: Condition { operator, threshold, threshold_high: None },
        ..above_10(AlarmSpec { rate_window_seconds: Some(seconds), ..AlarmSpec::default() })
    }
}

/// A value that arrives when it is measured.
pub(super) fn judged(position: i64, seconds: i64, value: f64) -> JudgedValue {
    JudgedValue {
        place: DatapointPlace { position, index: 0 },
        day: NaiveDate::default(),
        value,
        on: at(seconds),
        arrived: at(seconds),
    }
}

/// A judge, what it has decided, and the place of the next value.
pub(super) struct Bench {
    pub(super) judge: AlarmJudge,
    steps: Vec<AlarmStep>,
    next: i64,
    version: i64,
    /// All values that have come and are not deleted.
    pub(super) values: Vec<JudgedValue>,
}

impl Bench {
    /// With a rule that was made at time 0.
    pub(super) fn new(terms: AlarmTerms) -> Self {
        let judge = AlarmJudge::new(RULE, AlarmMemory::blank(0));
        let mut bench = Self { judge, steps: Vec::new(), next: 1, version: 0, values: Vec::new() };
        bench.change(0, Some(terms));
        bench
    }

    pub(super) fn change(&mut self, seconds: i64, terms: Option<AlarmTerms>) {
        self.version += 1;
        let place = (self.next - 1, self.version);
        self.judge.change(terms, place, at(seconds), &self.values, &mut self.steps);
    }

    /// A value that arrives when it is measured.
    pub(super) fn value(&mut self, seconds: i64, value: f64) {
        self.arrive(seconds, seconds, value);
    }

    pub(super) fn arrive(&mut self, measured: i64, arrived: i64, value: f64) {
        let value = JudgedValue { arrived: at(arrived), ..judged(self.next, measured, value) };
        self.values.push(value);
        self.next += 1;
        self.judge.judge(value, &mut self.steps);
    }

    /// All that was measured until then has arrived.
    pub(super) fn end(&mut self, seconds: i64) {
        self.judge.end(at(seconds), &mut self.steps);
    }

    /// The steps since the last call: reason, kind, and seconds on the channel's clock.
    pub(super) fn take(&mut self) -> Vec<(AlarmReason, StepKind, i64)> {
        let step = |step: AlarmStep| (step.reason, step.kind, (step.on - at(0)).num_seconds());
        std::mem::take(&mut self.steps).into_iter().map(step).collect()
    }

    #[track_caller]
    pub(super) fn assert_condition(&mut self, expected: &[(StepKind, i64)]) {
        let expected: Vec<_> =
            expected.iter().map(|(kind, on)| (AlarmReason::Condition, *kind, *on)).collect();
        assert_eq!(self.take(), expected);
    }

    #[track_caller]
    pub(super) fn assert_silence(&mut self, expected: &[(StepKind, i64)]) {
        let expected: Vec<_> = expected.iter().map(|(kind, on)| (AlarmReason::NoData, *kind, *on)).collect();
        assert_eq!(self.take(), expected);
    }
}

use StepKind::{Cleared, Fired, Started};

#[test]
fn an_alarm_fires_and_clears_at_once_by_default() {
    let mut bench = Bench::new(above_10(AlarmSpec::default()));
    for (seconds, value) in [(1, 9.0), (2, 11.0), (3, 12.0), (4, 10.0), (5, 10.5)] {
        bench.value(seconds, value);
    }
    bench.end(1000);
    bench.assert_condition(&[(Fired, 2), (Cleared, 4), (Fired, 5)]);
}

#[test]
fn a_pending_alarm_fires_at_the_end_of_for() {
    let mut bench = Bench::new(above_10(AlarmSpec { for_seconds: 60, ..AlarmSpec::default() }));
    bench.value(10, 11.0);
    bench.end(69);
    bench.assert_condition(&[(Started, 10)]);
    bench.end(75);
    bench.assert_condition(&[(Fired, 70)]);
    // The next one is judged after what was due before it.
    let mut bench = Bench::new(above_10(AlarmSpec { for_seconds: 60, ..AlarmSpec::default() }));
    bench.value(10, 11.0);
    bench.value(71, 9.0);
    bench.assert_condition(&[(Started, 10), (Fired, 70), (Cleared, 71)]);
}

#[test]
fn a_value_is_judged_before_what_is_due_at_its_time() {
    let spec = AlarmSpec { for_seconds: 60, keep_firing_seconds: 60, ..AlarmSpec::default() };
    let mut bench = Bench::new(above_10(spec));
    bench.value(10, 11.0);
    // It arrives a second later than the one before it did, and the service has looked at the time meanwhile.
    bench.judge.tick(at(71) - TimeDelta::microseconds(1), &mut bench.steps);
    bench.arrive(70, 71, 9.0);
    bench.assert_condition(&[(Started, 10), (Cleared, 70)]);
    bench.value(100, 11.0);
    bench.value(160, 11.0);
    bench.value(170, 9.0);
    bench.assert_condition(&[(Started, 100), (Fired, 160)]);
    bench.value(230, 11.0);
    bench.value(1000, 11.0);
    bench.assert_condition(&[]);
}

#[test]
fn live_time_passes_a_second_behind_and_keeps_due_times() {
    let mut bench = Bench::new(above_10(AlarmSpec { for_seconds: 60, ..AlarmSpec::default() }));
    bench.value(10, 11.0);
    bench.judge.tick(at(70), &mut bench.steps);
    bench.assert_condition(&[(Started, 10)]);
    bench.judge.tick(at(71), &mut bench.steps);
    assert_eq!(bench.steps[0].at, at(70));
    bench.assert_condition(&[(Fired, 70)]);
}

#[test]
fn a_pending_alarm_is_cleared_without_firing() {
    let mut bench =
        Bench::new(above_10(AlarmSpec { for_seconds: 60, keep_firing_seconds: 100, ..AlarmSpec::default() }));
    bench.value(10, 11.0);
    bench.value(69, 9.0);
    bench.value(70, 11.0);
    bench.end(129);
    bench.assert_condition(&[(Started, 10), (Cleared, 69), (Started, 70)]);
}

#[test]
fn keep_firing_counts_from_the_first_value_below() {
    let mut bench = Bench::new(above_10(AlarmSpec { keep_firing_seconds: 60, ..AlarmSpec::default() }));
    bench.value(0, 11.0);
    bench.value(10, 9.0);
    bench.value(20, 8.0);
    bench.end(69);
    bench.assert_condition(&[(Fired, 0)]);
    bench.value(71, 11.0);
    // It had been cleared before the value that starts the next one.
    bench.assert_condition(&[(Cleared, 70), (Fired, 71)]);
    bench.value(80, 9.0);
    bench.value(139, 11.0);
    bench.value(150, 9.0);
    bench.end(209);
    bench.assert_condition(&[]);
    bench.end(210);
    bench.assert_condition(&[(Cleared, 210)]);
}

#[test]
fn a_clear_threshold_keeps_a_firing_alarm() {
    let mut bench = Bench::new(above_10(AlarmSpec {
        clear_threshold: Some(8.0),
        for_seconds: 5,
        ..AlarmSpec::default()
    }));
    bench.value(0, 11.0);
    bench.value(1, 9.0);
    bench.assert_condition(&[(Started, 0), (Cleared, 1)]);
    bench.value(2, 11.0);
    bench.value(7, 9.0);
    bench.assert_condition(&[(Started, 2), (Cleared, 7)]);
    bench.value(8, 11.0);
    bench.value(14, 9.0);
    bench.value(15, 8.0);
    bench.assert_condition(&[(Started, 8), (Fired, 13)]);
    bench.value(16, 7.9);
    bench.assert_condition(&[(Cleared, 16)]);
    bench.value(17, 9.0);
    bench.assert_condition(&[]);
}

#[test]
fn silence_fires_after_the_rule_or_the_last_value() {
    let mut bench = Bench::new(above_10(AlarmSpec { no_data_seconds: Some(60), ..AlarmSpec::default() }));
    bench.end(60);
    bench.assert_silence(&[]);
    bench.end(61);
    bench.assert_silence(&[(Fired, 60)]);
    bench.end(500);
    bench.assert_silence(&[]);
    bench.value(500, 1.0);
    bench.assert_silence(&[(Cleared, 500)]);
    // A value at the very end of the allowed time is in time.
    bench.value(560, 1.0);
    bench.assert_silence(&[]);
    bench.value(621, 1.0);
    bench.assert_silence(&[(Fired, 620), (Cleared, 621)]);
}

#[test]
fn the_alarms_of_a_rule_do_not_change_each_other() {
    let mut bench = Bench::new(above_10(AlarmSpec { no_data_seconds: Some(60), ..AlarmSpec::default() }));
    bench.value(0, 11.0);
    bench.assert_condition(&[(Fired, 0)]);
    bench.end(100);
    bench.assert_silence(&[(Fired, 60)]);
    bench.value(100, 12.0);
    bench.assert_silence(&[(Cleared, 100)]);
    bench.value(101, 1.0);
    bench.assert_condition(&[(Cleared, 101)]);
}

#[test]
fn a_late_value_is_not_judged() {
    let mut bench = Bench::new(above_10(AlarmSpec::default()));
    bench.value(10, 1.0);
    bench.arrive(9, 11, 99.0);
    bench.arrive(10, 11, 99.0);
    bench.assert_condition(&[]);
    bench.arrive(11, 12, 99.0);
    bench.assert_condition(&[(Fired, 11)]);
}

#[test]
fn the_clock_of_a_channel_is_that_of_its_device() {
    let spec = AlarmSpec { for_seconds: 60, no_data_seconds: Some(600), ..AlarmSpec::default() };
    let mut bench = Bench::new(above_10(spec));
    // An hour behind, and sent with a delay.
    bench.arrive(-3600, 100, 11.0);
    bench.end(159);
    bench.assert_condition(&[(Started, -3600)]);
    bench.end(160);
    assert_eq!(bench.steps[0].at, at(160), "the same moment on the service's clock");
    bench.assert_condition(&[(Fired, -3540)]);
    bench.end(701);
    bench.assert_silence(&[(Fired, -3000)]);
    // A value from before what the clock has led to: no end lies before its beginning.
    bench.arrive(-3300, 702, 1.0);
    assert_eq!(
        bench.take(),
        [(AlarmReason::NoData, Cleared, -3000), (AlarmReason::Condition, Cleared, -3300)]
    );
}

#[test]
fn a_device_ahead_of_time_is_not_silent() {
    let mut bench = Bench::new(above_10(AlarmSpec { no_data_seconds: Some(60), ..AlarmSpec::default() }));
    bench.arrive(540, 1, 1.0);
    bench.end(61);
    bench.assert_silence(&[]);
    bench.end(62);
    bench.assert_silence(&[(Fired, 600)]);
}

#[test]
fn a_slope_is_judged_at_each_value() {
    let terms = rising(Operator::Gte, 2.0, 10);
    let mut bench = Bench::new(terms);
    bench.value(0, 100.0);
    bench.assert_condition(&[]);
    bench.value(1, 101.0);
    bench.assert_condition(&[]);
    bench.value(2, 105.0);
    bench.assert_condition(&[(Fired, 2)]);
    // Two values are needed.
    bench.value(30, 900.0);
    bench.assert_condition(&[(Cleared, 30)]);
}

#[test]
fn a_deleted_value_is_left_out_of_later_slopes_as_after_a_restart() {
    let terms = rising(Operator::Gt, 0.018, 400);
    let mut bench = Bench::new(terms);
    for (seconds, value) in [(0, -5.0), (84, 20.0), (120, -5.0)] {
        bench.value(seconds, value);
    }
    bench.take();
    let deleted = bench.values.remove(1);
    bench.judge.forget(deleted.place);
    let mut again = AlarmJudge::new(RULE, bench.judge.memory().clone());
    again.refill(bench.values.clone());
    let next = judged(4, 240, 0.0);
    let (mut live, mut refilled) = (Vec::new(), Vec::new());
    bench.judge.judge(next, &mut live);
    again.judge(next, &mut refilled);
    assert_eq!(live, refilled);
    assert!(bench.judge.memory().by_condition.is_some_and(|open| open.fired_on.is_some()));
}

#[test]
fn a_refilled_judge_continues_with_the_same_slope() {
    let terms = rising(Operator::Gte, 1.0, 100);
    let mut bench = Bench::new(terms);
    // The third one is late.
    let values = [judged(1, 0, 0.0), judged(2, 10, 1.0), judged(3, 5, 90.0), judged(4, 20, 1.5)];
    for value in values {
        bench.judge.judge(value, &mut bench.steps);
    }
    let mut again = AlarmJudge::new(RULE, bench.judge.memory().clone());
    again.refill(values.into_iter().chain([judged(5, 15, 90.0)]));
    for next in [judged(6, 30, 40.0), judged(7, 31, 0.0), judged(8, 32, -50.0)] {
        let (mut live, mut refilled) = (Vec::new(), Vec::new());
        bench.judge.judge(next, &mut live);
        again.judge(next, &mut refilled);
        assert_eq!(live, refilled);
    }
    assert_eq!(again.memory(), bench.judge.memory());
    assert!(again.memory().by_condition.is_none());
}

#[test]
fn values_up_to_the_last_one_are_skipped() {
    let mut bench = Bench::new(above_10(AlarmSpec::default()));
    bench.value(1, 11.0);
    bench.next = 1;
    bench.value(2, 9.0);
    bench.assert_condition(&[(Fired, 1)]);
}

/// A linear congruential generator: the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// For random values the same steps follow, in a valid order, however often `tick` is called.
#[test]
fn steps_do_not_depend_on_how_often_time_passes() {
    for seed in 0..2000 {
        let mut numbers = Numbers(seed);
        let mut seconds = |most: u64| u32::try_from(numbers.below(most)).unwrap();
        let spec = AlarmSpec {
            for_seconds: seconds(20),
            keep_firing_seconds: seconds(20),
            clear_threshold: (seconds(2) == 0).then_some(8.0),
            no_data_seconds: Some(seconds(30) + 1).filter(|_| seconds(2) == 0),
            rate_window_seconds: None,
            severity: Severity::Warning,
        };
        let (mut often, mut seldom) = (Bench::new(above_10(spec)), Bench::new(above_10(spec)));
        let mut now = 0;
        for _ in 0..60 {
            let next = now + 1 + numbers.below(25) as i64;
            for moment in now..=next {
                often.judge.tick(at(moment), &mut often.steps);
            }
            now = next;
            let value = 6.0 + numbers.below(7) as f64;
            often.value(now, value);
            seldom.value(now, value);
        }
        assert_eq!(often.steps, seldom.steps, "seed {seed}");
        assert_eq!(often.judge.memory(), seldom.judge.memory(), "seed {seed}");
        assert_in_order(&often.steps);
    }
}

fn assert_in_order(steps: &[AlarmStep]) {
    for reason in AlarmReason::ALL {
        let mut open: Option<(AlarmId, StepKind)> = None;
        let mut last = at(-1);
        for step in steps.iter().filter(|step| step.reason == reason) {
            assert!(step.on >= last, "{step:?} lies before its predecessor");
            last = step.on;
            open = match (open, step.kind) {
                (None, Started | Fired) => Some((step.alarm, step.kind)),
                (Some((id, Started)), Fired) if id == step.alarm => Some((id, Fired)),
                (Some((id, _)), Cleared) if id == step.alarm => None,
                (open, _) => panic!("{step:?} does not follow {open:?}"),
            };
        }
    }
}
