use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::{
    automation::{
        AlarmChanges, AlarmReason, AlarmSpec, DatapointPlace, EventType, NotificationSpec, Reading,
        contact::{CONTACT_CLAIM, rules_of_contact},
    },
    kernel::{AlarmId, ChannelId, Claim, ClaimOp, ContactId, Decider, Rejection, UserId},
    monitoring::channel::CHANNEL_CLAIM,
};

const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(3));

fn at(milliseconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)
}

fn condition(operator: Operator) -> Condition {
    Condition { operator, threshold: 10.0, threshold_high: Some(20.0) }
}

fn spec() -> RuleSpec {
    RuleSpec {
        name: "too hot".to_owned(),
        channel: CHANNEL,
        condition: condition(Operator::Gt),
        action: RuleAction::Webhook { event_type: EventType::SensorThresholdExceeded },
        cooldown_seconds: 60,
        enabled: true,
        alarm: None,
        notify: NotificationSpec::default(),
    }
}

/// A rule that watches values after row 7.
fn rule(spec: RuleSpec) -> Rule {
    let mut rule = Rule::default();
    rule.evolve(RuleEvent::RuleCreated(NewRule { owner: UserId(Uuid::nil()), spec, after: 7 }));
    rule
}

fn reading(position: i64, index: u32, value: f64, at: DateTime<Utc>) -> Reading {
    Reading {
        datapoint_id: format!("{position}-{index}"),
        place: DatapointPlace { position, index },
        channel_id: CHANNEL,
        channel_name: "boiler".to_owned(),
        value,
        device: "api".to_owned(),
        occurred_at: at,
    }
}

/// Lets `rule` judge, and returns the ids of the datapoints on which it fired.
fn judge(rule: &mut Rule, readings: Vec<Reading>) -> Vec<String> {
    let events = rule.decide(RuleCommand::Judge { readings }).unwrap();
    let fired = events.iter().map(|event| match event {
        RuleEvent::RuleTriggered(firing) => firing.reading.datapoint_id.clone(),
        other => panic!("{other:?}"),
    });
    let fired = fired.collect();
    events.into_iter().for_each(|event| rule.evolve(event));
    fired
}

fn change(rule: &mut Rule, changes: RuleChanges, after: i64) -> Result<Vec<RuleEvent>, Rejection> {
    let events = rule.decide(RuleCommand::Change { changes, after })?;
    events.iter().cloned().for_each(|event| rule.evolve(event));
    Ok(events)
}

#[test]
fn every_operator_holds_where_it_should() {
    use Operator::{Between, Eq, Gt, Gte, Lt, Lte, NotBetween};
    let just_below = 10.0_f64.next_down();
    let just_above = 10.0_f64.next_up();
    let cases: [(Operator, &[f64], &[f64]); 7] = [
        (Gt, &[just_above, 20.0, f64::MAX], &[10.0, just_below, -1.0]),
        (Lt, &[just_below, 0.0, f64::MIN], &[10.0, just_above]),
        (Gte, &[10.0, just_above], &[just_below]),
        (Lte, &[10.0, just_below], &[just_above]),
        (Eq, &[10.0, 10.0 + 9e-10, 10.0 - 9e-10], &[10.0 + 2e-9, 10.0 - 2e-9, f64::MAX]),
        (Between, &[10.0, 15.0, 20.0], &[just_below, 20.0_f64.next_up()]),
        (NotBetween, &[just_below, 20.0_f64.next_up()], &[10.0, 15.0, 20.0]),
    ];
    for (operator, holds, fails) in cases {
        for value in holds {
            assert!(condition(operator).holds(*value), "{operator:?} {value}");
        }
        for value in fails {
            assert!(!condition(operator).holds(*value), "{operator:?} {value}");
        }
        assert_eq!(Operator::parse(operator.as_str()), Some(operator));
        assert_eq!(serde_json::to_value(operator).unwrap(), operator.as_str());
    }
}

#[test]
fn the_tolerance_is_included() {
    let zero = Condition { operator: Operator::Eq, threshold: 0.0, threshold_high: None };
    assert!(zero.holds(1e-9) && zero.holds(-1e-9) && !zero.holds(1.1e-9));
}

#[test]
fn a_firing_says_why() {
    let rule = rule(spec());
    let hot = reading(8, 0, 11.5, at(0));
    let events = rule.decide(RuleCommand::Judge { readings: vec![hot.clone()] }).unwrap();
    let expected = Firing {
        reading: hot,
        rule_name: "too hot".to_owned(),
        condition: condition(Operator::Gt),
        action: spec().action,
        alarm: None,
    };
    assert_eq!(events, vec![RuleEvent::RuleTriggered(expected)]);
    let payload = serde_json::to_value(&events[0]).unwrap();
    assert_eq!(payload["value"], 11.5);
    assert_eq!(payload["action"]["webhook"]["event_type"], "sensor.threshold_exceeded");
    assert_eq!(serde_json::from_value::<RuleEvent>(payload).unwrap(), events[0]);
}

#[test]
fn between_two_firings_the_cooldown_passes() {
    let mut rule = rule(spec());
    let values = [
        (8, 10.0, 0),
        (9, 10.5, 1_000),
        (10, 11.0, 60_999),
        (11, 11.0, 61_000),
        (12, 9.0, 200_000),
        (13, 12.0, 200_001),
    ];
    let readings = values.map(|(position, value, ms)| reading(position, 0, value, at(ms)));
    assert_eq!(judge(&mut rule, readings.to_vec()), ["9-0", "11-0", "13-0"]);
}

#[test]
fn without_a_cooldown_it_fires_on_every_value_that_matters() {
    let mut rule = rule(RuleSpec { cooldown_seconds: 0, ..spec() });
    let readings = (0..5).map(|index| reading(8, index, 9.0 + f64::from(index), at(0))).collect();
    assert_eq!(judge(&mut rule, readings), ["8-2", "8-3", "8-4"]);
}

#[test]
fn what_was_judged_fires_nothing_when_it_is_judged_again() {
    for cooldown_seconds in [0, 60] {
        let mut rule = rule(RuleSpec { cooldown_seconds, ..spec() });
        let readings: Vec<_> = (8..20).map(|row| reading(row, 0, 11.0, at(row * 20_000))).collect();
        let fired = judge(&mut rule, readings[..6].to_vec());
        assert_eq!(fired.len(), if cooldown_seconds == 0 { 6 } else { 2 });
        assert_eq!(judge(&mut rule, readings[..6].to_vec()), [""; 0]);
        // A worker that crashed half-way is followed by one that starts again.
        let rest = judge(&mut rule, readings.clone());
        assert_eq!(rest.len() + fired.len(), if cooldown_seconds == 0 { 12 } else { 4 });
    }
}

#[test]
fn each_value_is_judged_by_the_rule_as_it_was_when_the_value_came_in() {
    let mut rule = rule(RuleSpec { cooldown_seconds: 0, ..spec() });
    let enabled = |enabled| RuleChanges { enabled: Some(enabled), ..Default::default() };
    let threshold = |threshold| RuleChanges { threshold: Some(threshold), ..Default::default() };
    for (changes, after) in
        [(enabled(false), 9), (enabled(true), 11), (threshold(5.0), 13), (threshold(8.0), 13)]
    {
        change(&mut rule, changes, after).unwrap();
    }
    rule.evolve(RuleEvent::RuleDeleted { name: "too hot".to_owned(), after: 15, contacts: Vec::new() });
    // Evaluation lags: no value had been judged when the last change was made.
    let values = [
        (7, 11.0),
        (8, 11.0),
        (9, 9.0),
        (10, 11.0),
        (11, 11.0),
        (12, 11.0),
        (13, 9.0),
        (14, 9.0),
        (15, 7.0),
        (16, 11.0),
    ];
    let readings: Vec<_> = values.iter().map(|(row, value)| reading(*row, 0, *value, at(0))).collect();
    assert_eq!(judge(&mut rule, readings.clone()), ["8-0", "12-0", "14-0"]);
    assert_eq!(judge(&mut rule, readings), [""; 0]);
    assert!(change(&mut rule, enabled(true), 20).is_err(), "it is gone");
    assert!(rule.decide(RuleCommand::Delete { after: 20 }).is_err());
}

#[test]
fn moved_rule_evaluates_only_its_new_channel() {
    let mut rule = rule(RuleSpec { cooldown_seconds: 0, ..spec() });
    let other = ChannelId(Uuid::from_u128(4));
    change(&mut rule, RuleChanges { channel: Some(other), ..Default::default() }, 20).unwrap();
    let on_other = |reading| Reading { channel_id: other, ..reading };
    let [a, b, c, d] = [19, 20, 21, 22].map(|row| reading(row, 0, 11.0, at(0)));
    assert_eq!(judge(&mut rule, vec![a, on_other(b), c, on_other(d)]), ["22-0"]);
}

#[test]
fn more_changes_than_are_remembered_do_no_harm() {
    let mut rule = rule(RuleSpec { cooldown_seconds: 0, ..spec() });
    for row in 10..100 {
        let threshold = Some(if row % 2 == 0 { 15.0 } else { 5.0 });
        change(&mut rule, RuleChanges { threshold, ..Default::default() }, row).unwrap();
    }
    let readings = (8..110).map(|row| reading(row, 0, 11.0, at(0))).collect();
    let fired = judge(&mut rule, readings);
    assert!(fired.contains(&"100-0".to_owned()) && fired.contains(&"98-0".to_owned()), "{fired:?}");
    assert!(!fired.contains(&"97-0".to_owned()), "{fired:?}");
}

#[test]
fn changed_threshold_keeps_the_cooldown() {
    let mut rule = rule(spec());
    assert_eq!(judge(&mut rule, vec![reading(8, 0, 11.0, at(0))]), ["8-0"]);
    change(&mut rule, RuleChanges { threshold: Some(5.0), ..Default::default() }, 8).unwrap();
    let readings = vec![reading(9, 0, 6.0, at(59_000)), reading(10, 0, 6.0, at(60_000))];
    assert_eq!(judge(&mut rule, readings), ["10-0"]);
}

#[test]
fn wrong_rules_are_refused() {
    let with = |condition: Condition| RuleSpec { condition, ..spec() };
    let range = |threshold_high| Condition { threshold_high, ..condition(Operator::Between) };
    let wrong = [
        RuleSpec { name: " ".to_owned(), ..spec() },
        RuleSpec { name: "x".repeat(256), ..spec() },
        RuleSpec { cooldown_seconds: u32::MAX, ..spec() },
        with(range(None)),
        with(range(Some(9.0))),
        with(range(Some(f64::INFINITY))),
        with(Condition { threshold: f64::NAN, ..condition(Operator::Gt) }),
    ];
    for spec in wrong {
        let create = RuleCommand::Create(NewRule { owner: UserId(Uuid::nil()), spec, after: 0 });
        assert!(Rule::default().decide(create.clone()).is_err(), "{create:?}");
    }
    assert!(with(range(Some(10.0))).validate().is_ok(), "a range of one value");
}

#[test]
fn changes_are_validated_as_a_whole() {
    let mut log_rule = rule(RuleSpec {
        action: RuleAction::Log,
        condition: Condition { threshold_high: None, ..condition(Operator::Gt) },
        ..spec()
    });
    let operator = RuleChanges { operator: Some(Operator::Between), ..Default::default() };
    assert!(change(&mut log_rule, operator.clone(), 0).is_err(), "there is no upper bound");
    let bound = RuleChanges { threshold_high: Some(Some(20.0)), ..operator };
    assert!(change(&mut log_rule, bound, 0).is_ok());
    assert!(
        change(&mut log_rule, RuleChanges { threshold: Some(21.0), ..Default::default() }, 0).is_err(),
        "the bounds would cross"
    );
    let of_alarms =
        RuleChanges { webhook_event_type: Some(Some(EventType::AlarmFiring)), ..Default::default() };
    assert!(change(&mut log_rule, of_alarms, 0).is_err(), "no rule publishes it, whatever its action");
    let webhook = RuleChanges { action_type: Some(ActionType::Webhook), ..Default::default() };
    assert!(change(&mut log_rule, webhook.clone(), 0).is_err(), "there is no event");
    let event = RuleChanges { webhook_event_type: Some(Some(EventType::SensorReading)), ..webhook };
    assert!(change(&mut log_rule, event, 0).is_ok());
    assert_eq!(change(&mut log_rule, RuleChanges::default(), 0), Ok(vec![]));
}

#[test]
fn commands_survive_the_bus() {
    let changes = RuleChanges {
        threshold_high: Some(None),
        webhook_event_type: Some(None),
        threshold: Some(0.1),
        ..Default::default()
    };
    let command = RuleCommand::Change { changes: changes.clone(), after: 3 };
    let text = serde_json::to_string(&command).unwrap();
    let RuleCommand::Change { changes: read, after: 3 } = serde_json::from_str(&text).unwrap() else {
        panic!("{text}");
    };
    assert_eq!(read, changes);
}

#[test]
fn only_what_changes_touches_the_claims() {
    let claims = |to: RuleSpec| {
        Rule::claims(Uuid::nil(), &RuleEvent::RuleUpdated { from: spec(), to, after: 0 }).len()
    };
    assert_eq!(claims(RuleSpec { enabled: false, ..spec() }), 0);
    assert_eq!(claims(RuleSpec { enabled: false, name: "other".to_owned(), ..spec() }), 2);
    let channel = ChannelId(Uuid::nil());
    assert_eq!(claims(RuleSpec { enabled: false, channel, ..spec() }), 1);
    assert_eq!(claims(RuleSpec { channel, ..spec() }), 1);
}

/// A rule that is or stays enabled needs its channel; one that is disabled does not, as its channel may be deleted.
#[test]
fn an_enabled_rule_requires_its_channel() {
    let needs = |from: bool, to: bool| {
        let [from, to] = [from, to].map(|enabled| RuleSpec { enabled, ..spec() });
        let to = RuleSpec { name: "other".to_owned(), ..to };
        let claims = Rule::claims(Uuid::nil(), &RuleEvent::RuleUpdated { from, to, after: 0 });
        claims.contains(&Claim::new(ClaimOp::Require, CHANNEL_CLAIM, spec().channel.0.to_string()))
    };
    assert_eq!([needs(false, true), needs(true, true), needs(true, false)], [true, true, false]);
}

/// Of a rule that an earlier release has made, too.
#[test]
fn a_changed_rule_claims_all_of_its_contacts() {
    let [one, two, three] = [1, 2, 3].map(|number| ContactId(Uuid::from_u128(number)));
    let naming = |contacts: &[ContactId], name: &str| {
        let notify = NotificationSpec { contacts: contacts.to_vec(), ..spec().notify };
        RuleSpec { name: name.to_owned(), enabled: false, notify, ..spec() }
    };
    let (from, to) = (naming(&[one, two], "same"), naming(&[two, three], "same"));
    let id = Uuid::from_u128(9);
    let own = |op, contact| Claim::new(op, rules_of_contact(contact), id.to_string());
    let expected = [
        Claim::new(ClaimOp::Require, CONTACT_CLAIM, three.to_string()),
        own(ClaimOp::Take, two),
        own(ClaimOp::Take, three),
        own(ClaimOp::Release, one),
    ];
    assert_eq!(Rule::claims(id, &RuleEvent::RuleUpdated { from, to, after: 0 }), expected);
}

fn fired(number: u128) -> FiredAlarm {
    FiredAlarm {
        alarm_id: AlarmId(Uuid::from_u128(number)),
        reason: AlarmReason::Condition,
        rate_window_seconds: None,
    }
}

/// Lets the alarm `number` act, and returns the arrival times of the values on which the rule fired.
fn act(rule: &mut Rule, number: u128, milliseconds: i64) -> Vec<DateTime<Utc>> {
    let reading = reading(8, 0, 11.0, at(milliseconds));
    let command = RuleCommand::Act { reading, alarm: fired(number), condition: None };
    let events = rule.decide(command).unwrap();
    let times = events.iter().map(|event| match event {
        RuleEvent::RuleTriggered(firing) => {
            assert_eq!(firing.alarm, Some(fired(number)));
            firing.reading.occurred_at
        }
        other => panic!("{other:?}"),
    });
    let times = times.collect();
    events.into_iter().for_each(|event| rule.evolve(event));
    times
}

#[test]
fn a_rule_with_an_alarm_does_not_fire_on_values() {
    let spec = RuleSpec { cooldown_seconds: 0, alarm: Some(AlarmSpec::default()), ..spec() };
    let mut alarming = rule(spec.clone());
    assert_eq!(judge(&mut alarming, vec![reading(8, 0, 11.0, at(0))]), [""; 0]);
    let alarm = AlarmChanges { alarm: Some(false), ..Default::default() };
    change(&mut alarming, RuleChanges { alarm, ..Default::default() }, 8).unwrap();
    let values = vec![reading(8, 0, 11.0, at(0)), reading(9, 0, 11.0, at(1))];
    assert_eq!(judge(&mut alarming, values), ["9-0"], "values from before are judged as they were");
}

#[test]
fn an_alarm_acts_by_the_condition_that_held() {
    let mut alarming = rule(RuleSpec { alarm: Some(AlarmSpec::default()), ..spec() });
    let changes = RuleChanges { threshold: Some(9.0), ..Default::default() };
    change(&mut alarming, changes, 8).unwrap();
    let condition = Some(spec().condition);
    let command = RuleCommand::Act { reading: reading(8, 0, 11.0, at(0)), alarm: fired(1), condition };
    let [RuleEvent::RuleTriggered(firing)] = &alarming.decide(command).unwrap()[..] else { panic!() };
    assert_eq!(Some(firing.condition), condition);
}

#[test]
fn an_alarm_acts_once_and_after_the_cooldown() {
    let mut alarming = rule(RuleSpec { alarm: Some(AlarmSpec::default()), ..spec() });
    assert_eq!(act(&mut alarming, 1, 0), [at(0)]);
    assert!(act(&mut alarming, 2, 59_999).is_empty());
    assert_eq!(act(&mut alarming, 3, 60_000), [at(60_000)]);
    let mut always = rule(RuleSpec { alarm: Some(AlarmSpec::default()), cooldown_seconds: 0, ..spec() });
    assert_eq!(act(&mut always, 1, 0), [at(0)]);
    assert!(act(&mut always, 1, 0).is_empty());
    assert_eq!(act(&mut always, 2, 0), [at(0)]);
}

#[test]
fn only_a_rule_with_an_alarm_can_be_silenced() {
    let silence = |until| RuleCommand::Silence(Silence { until, comment: None });
    let refused = rule(spec()).decide(silence(Some(at(0)))).unwrap_err();
    assert_eq!(refused.code, "rule_without_alarm");
    assert!(rule(spec()).decide(silence(None)).unwrap().is_empty());
    let mut alarming = rule(RuleSpec { alarm: Some(AlarmSpec::default()), ..spec() });
    assert!(alarming.decide(silence(None)).unwrap().is_empty());
    let events = alarming.decide(silence(Some(at(0)))).unwrap();
    assert_eq!(events.len(), 1);
    events.into_iter().for_each(|event| alarming.evolve(event));
    assert!(alarming.decide(silence(Some(at(0)))).unwrap().is_empty());
    assert_eq!(alarming.decide(silence(None)).unwrap().len(), 1);
    let comment = Some("c".repeat(501));
    let long = RuleCommand::Silence(Silence { until: Some(at(1)), comment });
    assert!(alarming.decide(long).unwrap_err().message.starts_with("comment "));
}

#[test]
fn a_rule_without_an_alarm_is_written_as_before() {
    let written = serde_json::to_value(spec()).unwrap();
    assert!(written.get("alarm").is_none());
    assert_eq!(serde_json::from_value::<RuleSpec>(written).unwrap(), spec());
    let with = RuleSpec { alarm: Some(AlarmSpec { for_seconds: 5, ..AlarmSpec::default() }), ..spec() };
    assert_eq!(serde_json::from_value::<RuleSpec>(serde_json::to_value(&with).unwrap()).unwrap(), with);
}
