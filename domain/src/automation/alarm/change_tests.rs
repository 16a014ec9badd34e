//! Rules that are made, enabled and changed while values stand.

use super::{
    judge_tests::{Bench, RULE, above_10, judged, rising},
    *,
};
use crate::automation::{Condition, Operator};

use StepKind::{Cleared, Fired, Started};

#[test]
fn a_changed_condition_clears_and_another_name_does_not() {
    let spec = AlarmSpec { no_data_seconds: Some(60), ..AlarmSpec::default() };
    let other =
        AlarmTerms { condition: Condition { threshold: 40.0, ..above_10(spec).condition }, ..above_10(spec) };
    let started = || {
        let mut bench = Bench::new(above_10(spec));
        bench.value(0, 30.0);
        bench.end(100);
        bench.take();
        bench
    };
    let ends = [(AlarmReason::Condition, Cleared, 110), (AlarmReason::NoData, Cleared, 110)];
    for terms in [Some(other), None] {
        let mut bench = started();
        bench.change(110, terms);
        assert_eq!(bench.take(), ends, "{terms:?}");
    }
    let mut bench = started();
    bench.change(110, Some(above_10(spec)));
    assert!(bench.take().is_empty());
    // A disabled rule judges nothing.
    let mut bench = started();
    bench.change(110, None);
    bench.take();
    bench.value(120, 99.0);
    bench.end(1000);
    assert!(bench.take().is_empty());
    bench.change(1000, Some(other));
    bench.end(1060);
    bench.assert_condition(&[(Fired, 1000)]);
    bench.value(1061, 41.0);
    bench.assert_silence(&[(Fired, 1060), (Cleared, 1061)]);
}

#[test]
fn the_standing_value_is_judged_when_a_rule_is_made_enabled_or_changed() {
    let spec = AlarmSpec::default();
    let above_20 =
        AlarmTerms { condition: Condition { threshold: 20.0, ..above_10(spec).condition }, ..above_10(spec) };
    let held = above_10(AlarmSpec { for_seconds: 60, ..spec });
    let mut bench = Bench::new(above_10(spec));
    bench.change(50, None);
    for (seconds, value) in [(40, 9.0), (30, 8.0), (70, 30.0), (60, 7.0)] {
        bench.value(seconds, value);
    }
    // The newest by time of measurement stands.
    bench.change(100, Some(above_10(spec)));
    bench.assert_condition(&[(Fired, 100)]);
    bench.change(110, Some(above_20));
    bench.assert_condition(&[(Cleared, 110), (Fired, 110)]);
    bench.change(120, None);
    bench.assert_condition(&[(Cleared, 120)]);
    bench.change(130, Some(held));
    bench.end(300);
    bench.assert_condition(&[(Started, 130), (Fired, 190)]);
    // A value older than the standing one is late.
    bench.arrive(65, 310, 5.0);
    bench.assert_condition(&[]);
    bench.arrive(320, 320, 5.0);
    bench.assert_condition(&[(Cleared, 320)]);
    bench.change(330, Some(above_20));
    bench.assert_condition(&[]);
    // One that is deleted stands no longer.
    bench.value(340, 50.0);
    bench.assert_condition(&[(Fired, 340)]);
    bench.values.pop();
    bench.change(350, Some(above_10(spec)));
    bench.assert_condition(&[(Cleared, 350)]);
}

#[test]
fn a_standing_slope_is_judged_too_and_its_window_is_kept() {
    let terms = rising(Operator::Gte, 2.0, 10);
    let mut bench = Bench::new(above_10(AlarmSpec::default()));
    bench.change(0, None);
    for (seconds, value) in [(0, 900.0), (20, 1.0), (21, 4.0), (22, 7.0)] {
        bench.value(seconds, value);
    }
    bench.change(40, Some(terms));
    bench.assert_condition(&[(Fired, 40)]);
    let mut again = AlarmJudge::new(RULE, bench.judge.memory().clone());
    again.refill(bench.values.clone());
    let (mut live, mut refilled) = (Vec::new(), Vec::new());
    bench.judge.judge(judged(9, 50, 7.0), &mut live);
    again.judge(judged(9, 50, 7.0), &mut refilled);
    assert_eq!((live.len(), &live), (1, &refilled));
}

#[test]
fn a_shorter_for_fires_at_the_change() {
    let spec = AlarmSpec { for_seconds: 600, ..AlarmSpec::default() };
    let mut bench = Bench::new(above_10(spec));
    bench.value(0, 11.0);
    bench.change(100, Some(above_10(AlarmSpec { for_seconds: 60, ..spec })));
    bench.end(101);
    bench.assert_condition(&[(Started, 0), (Fired, 100)]);
}

#[test]
fn silence_counts_from_the_last_change_of_the_rule() {
    let terms = above_10(AlarmSpec { no_data_seconds: Some(60), ..AlarmSpec::default() });
    let mut bench = Bench::new(terms);
    bench.value(10, 1.0);
    bench.change(50, Some(terms));
    bench.end(110);
    bench.assert_silence(&[]);
    bench.end(111);
    bench.assert_silence(&[(Fired, 110)]);
    bench.change(120, Some(terms));
    bench.end(300);
    bench.assert_silence(&[]);
}
