use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::{
    automation::{Condition, Operator},
    kernel::{ChannelId, Decider, ErrorKind, RuleId, UserId},
};

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn new_alarm() -> NewAlarm {
    NewAlarm {
        rule_id: RuleId(Uuid::from_u128(1)),
        rule_name: "too hot".to_owned(),
        channel_id: ChannelId(Uuid::from_u128(2)),
        channel_name: "boiler".to_owned(),
        reason: AlarmReason::Condition,
        severity: Severity::Warning,
        condition: Condition { operator: Operator::Gt, threshold: 10.0, threshold_high: None },
        rate_window_seconds: None,
        started_on: at(0),
        value: Some(11.0),
    }
}

fn mark(kind: StepKind, seconds: i64) -> AlarmMark {
    AlarmMark { kind, on: at(seconds), value: Some(12.0), silenced: false }
}

fn silently(kind: StepKind, seconds: i64) -> AlarmMark {
    AlarmMark { silenced: true, ..mark(kind, seconds) }
}

fn record(marks: Vec<AlarmMark>) -> AlarmCommand {
    AlarmCommand::Record { alarm: new_alarm(), marks }
}

fn acknowledge(comment: Option<&str>) -> AlarmCommand {
    let user = UserId(Uuid::from_u128(7));
    AlarmCommand::Acknowledge(Acknowledged { user, comment: comment.map(str::to_owned), silenced: false })
}

/// The words of the events that `command` leads to.
fn run(alarm: &mut Alarm, command: AlarmCommand) -> Vec<String> {
    use cqrs_es::DomainEvent;
    let events = alarm.decide(command).unwrap();
    let words = events.iter().map(DomainEvent::event_type).collect();
    events.into_iter().for_each(|event| alarm.evolve(event));
    words
}

fn with(marks: Vec<AlarmMark>) -> Alarm {
    let mut alarm = Alarm::default();
    run(&mut alarm, record(marks));
    alarm
}

#[test]
fn steps_that_were_recorded_are_skipped() {
    let mut alarm = Alarm::default();
    assert_eq!(run(&mut alarm, record(vec![mark(StepKind::Started, 0)])), ["alarm_started"]);
    assert_eq!(run(&mut alarm, record(vec![mark(StepKind::Started, 0)])), [""; 0]);
    let fired = vec![mark(StepKind::Fired, 5)];
    assert_eq!(run(&mut alarm, record(fired.clone())), ["alarm_fired"]);
    assert_eq!(run(&mut alarm, record(fired.clone())), [""; 0]);
    assert_eq!(run(&mut alarm, record(vec![mark(StepKind::Cleared, 9)])), ["alarm_cleared"]);
    assert_eq!(run(&mut alarm, record(fired)), [""; 0]);
    assert_eq!(run(&mut alarm, record(vec![mark(StepKind::Cleared, 9)])), [""; 0]);
}

#[test]
fn all_steps_of_an_alarm_are_recorded_at_once() {
    let mut alarm = Alarm::default();
    let steps = [StepKind::Started, StepKind::Fired, StepKind::Cleared];
    let marks = steps.into_iter().zip(0..).map(|(kind, seconds)| mark(kind, seconds)).collect();
    assert_eq!(run(&mut alarm, record(marks)), ["alarm_started", "alarm_fired", "alarm_cleared"]);
}

#[test]
fn a_silenced_alarm_is_announced_once_if_it_still_fires() {
    let mut alarm = with(vec![silently(StepKind::Fired, 1)]);
    assert_eq!(run(&mut alarm, AlarmCommand::Announce), ["alarm_announced"]);
    assert_eq!(run(&mut alarm, AlarmCommand::Announce), [""; 0]);
    for marks in [
        vec![],
        vec![mark(StepKind::Fired, 1)],
        vec![silently(StepKind::Fired, 1), silently(StepKind::Cleared, 2)],
    ] {
        assert_eq!(run(&mut with(marks.clone()), AlarmCommand::Announce), [""; 0], "{marks:?}");
    }
}

#[test]
fn the_end_is_published_only_of_a_published_firing() {
    let is_silenced = |marks: Vec<AlarmMark>| {
        let events = Alarm::default().decide(record(marks)).unwrap();
        match events.last() {
            Some(AlarmEvent::AlarmCleared { silenced, .. }) => *silenced,
            other => panic!("{other:?} is not the end"),
        }
    };
    let (fired, cleared) = (mark(StepKind::Fired, 1), mark(StepKind::Cleared, 2));
    assert!(!is_silenced(vec![fired, cleared]));
    assert!(is_silenced(vec![cleared]), "it never fired");
    assert!(is_silenced(vec![silently(StepKind::Fired, 1), cleared]));
    assert!(is_silenced(vec![fired, silently(StepKind::Cleared, 2)]));
}

#[test]
fn an_open_alarm_can_be_acknowledged_and_back() {
    let mut alarm = with(vec![mark(StepKind::Fired, 1)]);
    assert_eq!(run(&mut alarm, acknowledge(Some(" seen "))), ["alarm_acknowledged"]);
    assert_eq!(run(&mut alarm, acknowledge(Some("seen"))), [""; 0]);
    assert_eq!(run(&mut alarm, acknowledge(None)), ["alarm_acknowledged"]);
    assert_eq!(run(&mut alarm, AlarmCommand::Unacknowledge), ["alarm_unacknowledged"]);
    assert_eq!(run(&mut alarm, AlarmCommand::Unacknowledge), [""; 0]);
    run(&mut alarm, record(vec![mark(StepKind::Cleared, 2)]));
    for command in [acknowledge(None), AlarmCommand::Unacknowledge] {
        let refused = alarm.decide(command).unwrap_err();
        assert_eq!((refused.kind, refused.code.as_str()), (ErrorKind::Conflict, "alarm_cleared"));
    }
    let missing = Alarm::default().decide(acknowledge(None)).unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
}

#[test]
fn a_comment_is_bounded() {
    let alarm = with(vec![mark(StepKind::Fired, 1)]);
    for comment in ["", " ", &"c".repeat(events::MAX_COMMENT + 1)] {
        let refused = alarm.decide(acknowledge(Some(comment))).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid, "{comment}");
        assert!(refused.message.starts_with("comment "), "{refused}");
    }
}

#[test]
fn settings_that_are_given_make_an_alarm() {
    let none = AlarmChanges::default();
    assert_eq!(none.clone().apply(None).unwrap(), None);
    let explicit = AlarmChanges { alarm: Some(true), ..none.clone() };
    assert_eq!(explicit.apply(None).unwrap(), Some(AlarmSpec::default()));
    let implied = AlarmChanges { for_seconds: Some(Some(5)), ..none.clone() };
    let spec = AlarmSpec { for_seconds: 5, ..AlarmSpec::default() };
    assert_eq!(implied.apply(None).unwrap(), Some(spec));
    let null = AlarmChanges { for_seconds: Some(None), no_data_seconds: Some(None), ..none.clone() };
    assert_eq!(null.clone().apply(None).unwrap(), None, "null gives nothing");
    assert_eq!(null.apply(Some(spec)).unwrap(), Some(AlarmSpec::default()));
    assert_eq!(none.clone().apply(Some(spec)).unwrap(), Some(spec));
    let off = AlarmChanges { alarm: Some(false), ..none.clone() };
    assert_eq!(off.apply(Some(spec)).unwrap(), None);
    let severe = AlarmChanges { severity: Some(Severity::Critical), ..none };
    assert_eq!(severe.clone().apply(Some(spec)).unwrap().unwrap().severity, Severity::Critical);
    assert!(severe.apply(None).unwrap_err().message.starts_with("severity "));
    assert_eq!(AlarmChanges::all_of(Some(spec)).apply(None).unwrap(), Some(spec));
    assert_eq!(AlarmChanges::all_of(None).apply(Some(spec)).unwrap(), None);
}

#[test]
fn out_of_range_settings_name_their_field() {
    let condition = |operator| Condition { operator, threshold: 10.0, threshold_high: Some(20.0) };
    let spec = AlarmSpec::default();
    let clear = |clear_threshold| AlarmSpec { clear_threshold: Some(clear_threshold), ..spec };
    for (field, spec, operator) in [
        ("for_seconds", AlarmSpec { for_seconds: u32::MAX, ..spec }, Operator::Gt),
        ("keep_firing_seconds", AlarmSpec { keep_firing_seconds: u32::MAX, ..spec }, Operator::Gt),
        ("no_data_seconds", AlarmSpec { no_data_seconds: Some(0), ..spec }, Operator::Gt),
        ("rate_window_seconds", AlarmSpec { rate_window_seconds: Some(0), ..spec }, Operator::Gt),
        ("rate_window_seconds", AlarmSpec { rate_window_seconds: Some(86_401), ..spec }, Operator::Gt),
        ("clear_threshold", clear(f64::NAN), Operator::Gt),
        ("clear_threshold", clear(10.5), Operator::Gte),
        ("clear_threshold", clear(9.5), Operator::Lt),
        ("clear_threshold", clear(10.0), Operator::Between),
        ("clear_threshold", clear(10.0), Operator::Eq),
    ] {
        let refused = spec.validate(&condition(operator)).unwrap_err();
        assert!(refused.message.starts_with(field), "{refused}");
        assert!(refused.pointer.is_some());
    }
    for (spec, operator) in
        [(clear(10.0), Operator::Gt), (clear(9.0), Operator::Gte), (clear(11.0), Operator::Lte)]
    {
        spec.validate(&condition(operator)).unwrap();
    }
}
