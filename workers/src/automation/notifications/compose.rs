//! The message that is made of notices.

use std::{cmp::Reverse, collections::HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    automation::{
        AlarmLine, AlarmReason, MessageDelivery, NewDelivery, Notice, SummaryTemplate, SummaryValues,
        alarm_lines,
    },
    kernel::{ContactId, DeliveryId},
};
use signalbox_projections::automation::{
    composing::AlarmFacts,
    messages::{ALARM_MESSAGE, AlarmEntry, MessageBody, SHOWN_ALARMS},
};
use uuid::Uuid;

/// The message `id` to a contact about `notices`.
pub(super) fn message(
    console: &str,
    (contact, name): (ContactId, String),
    (id, notices): (Uuid, &[&Notice]),
    facts: Vec<AlarmFacts>,
    now: DateTime<Utc>,
) -> MessageDelivery {
    let alarms = alarm_lines(notices);
    let facts: HashMap<_, _> = facts.into_iter().map(|facts| (facts.alarm_id, facts)).collect();
    let known = alarms.iter().filter_map(|line| Some((line, facts.get(&line.alarm)?)));
    let mut shown: Vec<_> = known.map(|(line, facts)| entry(console, line, facts, now)).collect();
    // The worst that still lasts is seen first.
    shown.sort_by_key(|entry| Reverse((entry.cleared_on.is_none(), entry.severity)));
    shown.truncate(SHOWN_ALARMS);
    let more = alarms.len() - shown.len();
    let body = MessageBody {
        kind: ALARM_MESSAGE.to_owned(),
        time: now,
        id,
        contact: name,
        contact_id: contact,
        alarms: shown,
        more,
    };
    MessageDelivery {
        contact,
        delivery: NewDelivery {
            id: DeliveryId(Uuid::new_v5(&contact.0, id.as_bytes())),
            event_id: id,
            event_type: ALARM_MESSAGE.to_owned(),
            // It is made of numbers and texts, so that it is always JSON.
            body: serde_json::to_string(&body).unwrap_or_default(),
        },
        alarms,
    }
}

fn entry(console: &str, line: &AlarmLine, facts: &AlarmFacts, now: DateTime<Utc>) -> AlarmEntry {
    let channel = facts.channel_name.clone().unwrap_or_else(|| facts.channel_id.to_string());
    AlarmEntry {
        alarm_id: facts.alarm_id,
        kind: line.kind,
        severity: facts.severity.or_default(),
        summary: summary(facts, &channel, now),
        value: facts.value,
        unit: facts.unit.clone(),
        started_on: facts.started_on,
        cleared_on: facts.cleared_on,
        link: format!("{console}/alarms/{}", facts.alarm_id),
        rule: facts.rule_name.clone(),
        rule_id: facts.rule_id,
        sensor: channel,
        sensor_id: facts.channel_id,
    }
}

fn summary(facts: &AlarmFacts, channel: &str, now: DateTime<Utc>) -> String {
    let unit = facts.unit.as_deref();
    let value =
        facts.value.map(|value| format!("{value} {}", unit.unwrap_or_default()).trim_end().to_owned());
    if facts.reason.is(AlarmReason::NoData) {
        // A rule's sentence is about its limit.
        if facts.cleared_on.is_some() {
            // By a value, or because the rule was changed, disabled or deleted.
            return format!("{}: {channel} sent no values", facts.rule_name);
        }
        let value = value.map(|value| format!(" (the last one was {value})")).unwrap_or_default();
        return format!("{}: {channel} sends no values{value}", facts.rule_name);
    }
    if let Some(template) = &facts.summary {
        let duration = facts.cleared_on.unwrap_or(now) - facts.started_on;
        return SummaryTemplate::new(template).render(&SummaryValues {
            channel,
            value: facts.value,
            unit,
            threshold: facts.threshold,
            duration: duration.max(TimeDelta::zero()),
        });
    }
    match value {
        None => format!("{}: {channel}", facts.rule_name),
        Some(value) => format!("{}: {channel} is {value}", facts.rule_name),
    }
}

#[cfg(test)]
mod tests {
    use signalbox_domain::{
        automation::{NoticeKind, Severity},
        kernel::{AlarmId, ChannelId, RuleId},
    };

    use super::*;

    const CONTACT: ContactId = ContactId(Uuid::from_u128(7));

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn facts(alarm: AlarmId) -> AlarmFacts {
        AlarmFacts {
            alarm_id: alarm,
            rule_id: RuleId(Uuid::from_u128(2)),
            channel_id: ChannelId(Uuid::from_u128(3)),
            severity: Severity::Critical.into(),
            reason: AlarmReason::Condition.into(),
            value: Some(81.5),
            started_on: at(0),
            cleared_on: None,
            rule_name: "too hot".to_owned(),
            threshold: 80.0,
            summary: None,
            channel_name: Some("boiler".to_owned()),
            unit: Some("°C".to_owned()),
        }
    }

    fn notice(alarm: AlarmId) -> Notice {
        let (kind, severity) = (NoticeKind::Firing, Severity::Critical);
        Notice { alarm, kind, number: 1, severity, arrived_on: at(0) }
    }

    fn body(message: &MessageDelivery) -> MessageBody {
        serde_json::from_str(&message.delivery.body).unwrap()
    }

    fn compose(console: &str, notices: &[Notice], facts: Vec<AlarmFacts>) -> MessageDelivery {
        let notices: Vec<_> = notices.iter().collect();
        message(console, (CONTACT, "day".to_owned()), (Uuid::from_u128(5), &notices), facts, at(90))
    }

    #[test]
    fn an_alarm_is_named_with_its_value_and_page() {
        let alarm = AlarmId(Uuid::from_u128(1));
        let composed = compose("https://plant.example.org", &[notice(alarm)], vec![facts(alarm)]);
        let entry = &body(&composed).alarms[0];
        assert_eq!(entry.summary, "too hot: boiler is 81.5 °C");
        assert_eq!(entry.link, format!("https://plant.example.org/alarms/{alarm}"));
        assert_eq!((composed.alarms.len(), composed.delivery.event_id), (1, Uuid::from_u128(5)));
        let template = Some("{channel} over {threshold} {unit} for {duration}".to_owned());
        let own = AlarmFacts { summary: template, ..facts(alarm) };
        let composed = compose("", &[notice(alarm)], vec![own]);
        let entry = &body(&composed).alarms[0];
        assert_eq!(entry.summary, "boiler over 80 °C for 1 min 30 s");
        assert_eq!(entry.link, format!("/alarms/{alarm}"));
    }

    #[test]
    fn silent_channels_have_words_of_their_own() {
        let alarm = AlarmId(Uuid::from_u128(1));
        let summary = Some("{channel} is {value}".to_owned());
        let silent = AlarmFacts { reason: AlarmReason::NoData.into(), summary, ..facts(alarm) };
        let text = |facts: AlarmFacts| {
            let composed = compose("", &[notice(alarm)], vec![facts]);
            body(&composed).alarms[0].summary.clone()
        };
        let expected = "too hot: boiler sends no values (the last one was 81.5 °C)";
        assert_eq!(text(silent.clone()), expected);
        assert_eq!(text(AlarmFacts { value: None, ..silent.clone() }), "too hot: boiler sends no values");
        let cleared = AlarmFacts { cleared_on: Some(at(60)), ..silent };
        assert_eq!(text(cleared), "too hot: boiler sent no values");
    }

    #[test]
    fn the_worst_alarms_that_last_are_shown() {
        let ids: Vec<_> = (1..=30).map(|number| AlarmId(Uuid::from_u128(number))).collect();
        let notices: Vec<_> = ids.iter().copied().map(notice).collect();
        let mut all: Vec<_> = ids
            .iter()
            .map(|id| AlarmFacts {
                severity: Severity::Warning.into(),
                cleared_on: Some(at(5)),
                ..facts(*id)
            })
            .collect();
        all[25].cleared_on = None;
        all[28] = facts(ids[28]);
        let shown = body(&compose("", &notices, all)).alarms;
        let first: Vec<_> = shown.iter().take(3).map(|entry| entry.alarm_id).collect();
        assert_eq!(first, [ids[28], ids[25], ids[0]]);
    }

    #[test]
    fn alarms_that_are_not_shown_are_counted() {
        let ids: Vec<_> = (1..=30).map(|number| AlarmId(Uuid::from_u128(number))).collect();
        let notices: Vec<_> = ids.iter().copied().map(notice).collect();
        let composed = compose("", &notices, ids.into_iter().map(facts).collect());
        let body = body(&composed);
        assert_eq!((body.alarms.len(), body.more, composed.alarms.len()), (SHOWN_ALARMS, 10, 30));
    }
}
