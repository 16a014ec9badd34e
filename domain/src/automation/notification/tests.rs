use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use uuid::Uuid;

use super::*;
use crate::{
    automation::Severity,
    kernel::{AlarmId, ContactId},
};

const ALARM: AlarmId = AlarmId(Uuid::from_u128(1));
const OTHER_ALARM: AlarmId = AlarmId(Uuid::from_u128(2));

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn time(text: &str) -> NaiveTime {
    NaiveTime::parse_from_str(text, "%H:%M").unwrap()
}

fn quiet_hours(from: &str, to: &str) -> QuietHours {
    QuietHours { from: time(from), to: time(to), timezone: "Europe/Berlin".to_owned() }
}

fn notice(alarm: AlarmId, kind: NoticeKind, severity: Severity, arrived_on: DateTime<Utc>) -> Notice {
    Notice { alarm, kind, number: 1, severity, arrived_on }
}

fn noon() -> DateTime<Utc> {
    at("2026-01-10T12:00:00Z")
}

fn after(seconds: i64) -> DateTime<Utc> {
    noon() + TimeDelta::seconds(seconds)
}

#[test]
fn quiet_hours_contain_their_start_and_not_their_end() {
    let hours = quiet_hours("22:00", "06:00");
    let end = Some(at("2026-01-11T05:00:00Z"));
    assert_eq!(hours.end_after(at("2026-01-10T20:59:59Z")), None);
    assert_eq!(hours.end_after(at("2026-01-10T21:00:00Z")), end);
    assert_eq!(hours.end_after(at("2026-01-11T04:59:59Z")), end);
    assert_eq!(hours.end_after(at("2026-01-11T05:00:00Z")), None);
}

#[test]
fn quiet_hours_of_one_day_end_on_it() {
    let hours = quiet_hours("12:00", "13:00");
    assert_eq!(hours.end_after(at("2026-07-10T10:30:00Z")), Some(at("2026-07-10T11:00:00Z")));
    assert_eq!(hours.end_after(at("2026-07-10T11:30:00Z")), None);
}

#[test]
fn a_skipped_end_is_the_first_instant_after_the_gap() {
    let hours = quiet_hours("01:00", "02:30");
    assert_eq!(hours.end_after(at("2026-03-29T00:30:00Z")), Some(at("2026-03-29T01:00:00Z")));
}

#[test]
fn a_repeated_end_is_the_first_of_the_two() {
    let hours = quiet_hours("22:00", "02:30");
    assert_eq!(hours.end_after(at("2026-10-24T22:00:00Z")), Some(at("2026-10-25T00:30:00Z")));
    assert_eq!(hours.end_after(at("2026-10-25T01:15:00Z")), None);
}

#[test]
fn invalid_quiet_hours_are_refused_by_their_part() {
    assert_eq!(quiet_hours("22:00", "06:00").validate(), Ok(()));
    assert_eq!(quiet_hours("22:00", "22:00").validate(), Err(InvalidQuietHours::Empty));
    let seconds = QuietHours { to: time("06:00") + TimeDelta::seconds(1), ..quiet_hours("22:00", "06:00") };
    assert_eq!(seconds.validate(), Err(InvalidQuietHours::Seconds));
    let elsewhere = QuietHours { timezone: "Berlin".to_owned(), ..quiet_hours("22:00", "06:00") };
    assert_eq!(elsewhere.validate(), Err(InvalidQuietHours::Timezone));
}

#[test]
fn the_first_notice_waits_for_others() {
    let waiting = [
        notice(ALARM, NoticeKind::Firing, Severity::Warning, noon()),
        notice(OTHER_ALARM, NoticeKind::Firing, Severity::Warning, after(7)),
    ];
    let grouping = Grouping::default();
    assert_eq!(grouping.due_at(&[]), None);
    assert_eq!(grouping.due_at(&waiting), Some(after(10)));
    assert!(grouping.due(&waiting, after(9)).is_empty());
    assert_eq!(grouping.due(&waiting, after(10)), [&waiting[0], &waiting[1]]);
}

#[test]
fn a_message_keeps_its_distance_to_the_last_one() {
    let waiting = [notice(ALARM, NoticeKind::Firing, Severity::Warning, noon())];
    let grouping = Grouping { last_message: Some(after(-20)), ..Grouping::default() };
    assert_eq!(grouping.due_at(&waiting), Some(after(40)));
    let grouping = Grouping { last_message: Some(after(-55)), ..Grouping::default() };
    assert_eq!(grouping.due_at(&waiting), Some(after(10)));
}

#[test]
fn a_critical_firing_is_sent_at_once_with_the_others() {
    let waiting = [
        notice(ALARM, NoticeKind::Firing, Severity::Warning, noon()),
        notice(OTHER_ALARM, NoticeKind::Firing, Severity::Critical, after(3)),
    ];
    let grouping = Grouping { last_message: Some(after(-1)), ..Grouping::default() };
    assert_eq!(grouping.due(&waiting, after(3)), [&waiting[0], &waiting[1]]);
    let cleared = [notice(OTHER_ALARM, NoticeKind::Cleared, Severity::Critical, after(3))];
    assert_eq!(grouping.due_at(&cleared), Some(after(59)));
}

#[test]
fn times_of_a_clock_that_was_ahead_hold_nothing_back() {
    let tomorrow = after(86_400);
    let waiting = [notice(ALARM, NoticeKind::Firing, Severity::Warning, tomorrow)];
    let grouping = Grouping { last_message: Some(tomorrow), ..Grouping::default() };
    assert_eq!(grouping.due(&waiting, noon()), [&waiting[0]]);
    let hours = quiet_hours("22:00", "06:00");
    let grouping = Grouping { quiet_hours: Some(&hours), last_message: None };
    assert!(grouping.due(&waiting, at("2026-01-10T23:00:00Z")).is_empty());
}

#[test]
fn quiet_hours_hold_back_all_but_critical_alarms() {
    let hours = quiet_hours("22:00", "06:00");
    let (night, end) = (at("2026-01-10T23:00:00Z"), at("2026-01-11T05:00:00Z"));
    let grouping = Grouping { quiet_hours: Some(&hours), last_message: None };
    let waiting = [
        notice(ALARM, NoticeKind::Firing, Severity::Warning, night),
        notice(OTHER_ALARM, NoticeKind::Firing, Severity::Critical, night),
    ];
    assert_eq!(grouping.due(&waiting, night), [&waiting[1]]);
    assert_eq!(grouping.due_at(&waiting[..1]), Some(end));
    assert_eq!(grouping.due(&waiting[..1], end), [&waiting[0]]);
}

#[test]
fn a_notice_from_before_quiet_hours_is_sent_in_them() {
    let hours = quiet_hours("22:00", "06:00");
    let evening = at("2026-01-10T20:59:55Z");
    let grouping = Grouping { quiet_hours: Some(&hours), last_message: None };
    let waiting = [
        notice(ALARM, NoticeKind::Firing, Severity::Warning, evening),
        notice(OTHER_ALARM, NoticeKind::Firing, Severity::Warning, evening + TimeDelta::seconds(6)),
    ];
    assert_eq!(grouping.due(&waiting, evening + GROUP_INTERVAL), [&waiting[0]]);
}

#[test]
fn fired_and_cleared_in_one_message_is_one_line() {
    let notices = [
        notice(ALARM, NoticeKind::Firing, Severity::Warning, noon()),
        notice(OTHER_ALARM, NoticeKind::Reminder, Severity::Warning, noon()),
        notice(ALARM, NoticeKind::Cleared, Severity::Warning, after(2)),
    ];
    let lines = alarm_lines(&notices.each_ref());
    assert_eq!(
        lines,
        [
            AlarmLine { alarm: ALARM, kind: LineKind::FiredAndCleared },
            AlarmLine { alarm: OTHER_ALARM, kind: LineKind::Reminder },
        ]
    );
}

#[test]
fn a_reminder_of_a_cleared_alarm_is_left_out() {
    let notices = [
        notice(ALARM, NoticeKind::Reminder, Severity::Warning, noon()),
        notice(ALARM, NoticeKind::Cleared, Severity::Warning, after(2)),
    ];
    assert_eq!(alarm_lines(&notices.each_ref()), [AlarmLine { alarm: ALARM, kind: LineKind::Cleared }]);
}

#[test]
fn the_message_id_follows_from_contact_and_steps() {
    let contact = ContactId(Uuid::from_u128(3));
    let fired = notice(ALARM, NoticeKind::Firing, Severity::Warning, noon());
    let cleared = notice(ALARM, NoticeKind::Cleared, Severity::Warning, noon());
    let reminder = notice(ALARM, NoticeKind::Reminder, Severity::Warning, noon());
    let second_reminder = Notice { number: 2, ..reminder };
    let read_later = Notice { arrived_on: after(5), ..fired };

    let id = message_id(contact, &[&fired, &cleared]);
    assert_eq!(id, message_id(contact, &[&cleared, &read_later]));
    assert_ne!(id, message_id(contact, &[&fired]));
    assert_ne!(id, message_id(ContactId(Uuid::from_u128(4)), &[&fired, &cleared]));
    assert_ne!(message_id(contact, &[&reminder]), message_id(contact, &[&second_reminder]));
}
