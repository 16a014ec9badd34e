//! The notices that follow from events and from time.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use signalbox_domain::{
    automation::{Alarm, AlarmEvent, NoticeKind, NotificationSpec, Severity},
    kernel::{AlarmId, ContactId},
};
use signalbox_event_store::RecordedEvent;
use signalbox_projections::automation::notices::{
    AlarmChange, DueAlarm, NewNotice, Repetition, RuleOfAlarm, after, rules_of_alarms,
};

use super::Notifications;
use crate::{Context, Worker, WorkerError, skipped::skip_or_fail};

/// Notices and changes to commit.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    pub(super) notices: Vec<NewNotice>,
    pub(super) changes: Vec<AlarmChange>,
}

impl Noticed {
    /// Those of `events` at `now`; one that cannot be read is skipped.
    pub(super) async fn of(
        context: &Context,
        events: &[&RecordedEvent],
        now: DateTime<Utc>,
    ) -> Result<Self, WorkerError> {
        let mut noticed = Self::default();
        let mut decoded = Vec::new();
        for recorded in events.iter().filter(|event| !event.payload.is_null()) {
            match recorded.decode::<Alarm>() {
                Ok(event) => decoded.push((AlarmId(recorded.aggregate_id), event)),
                Err(error) => {
                    skip_or_fail(&context.pool, Notifications::NAME, recorded, error.into()).await?;
                }
            }
        }
        if decoded.is_empty() {
            return Ok(noticed);
        }
        let alarms: Vec<_> = decoded.iter().map(|(alarm, _)| *alarm).collect();
        let rules = rules_of_alarms(&context.pool, &alarms).await?;
        let rules: HashMap<_, _> = rules.into_iter().map(|rule| (rule.alarm_id, rule)).collect();
        for (alarm, event) in decoded {
            match rules.get(&alarm) {
                Some(rule) => noticed.add(rule, &event, now),
                // Its start or its rule cannot be read.
                None => {
                    tracing::warn!(alarm.id = %alarm, "no contact is notified of an alarm without a rule")
                }
            }
        }
        Ok(noticed)
    }

    fn add(&mut self, rule: &RuleOfAlarm, event: &AlarmEvent, now: DateTime<Utc>) {
        let (alarm, severity) = (rule.alarm_id, rule.severity.or_default());
        let notify = &rule.notify;
        match event {
            AlarmEvent::AlarmFired { silenced: false, .. } | AlarmEvent::AlarmAnnounced => {
                self.notices.extend(notices(&notify.contacts, alarm, (NoticeKind::Firing, 1), severity));
                let (remind_at, escalate_at) =
                    (after(now, notify.remind_seconds), after(now, notify.escalate_seconds));
                if remind_at.is_some() || escalate_at.is_some() {
                    let rule = rule.rule_id;
                    self.changes.push(AlarmChange::Fired { alarm, rule, severity, remind_at, escalate_at });
                }
            }
            AlarmEvent::AlarmCleared { silenced, .. } => {
                if !silenced {
                    // Those who know of it learn its end, also when the rule names others by now, or no longer makes alarms.
                    let mut contacts: BTreeSet<_> = rule.informed.iter().copied().collect();
                    let firing = self.notices.iter().filter(|notice| notice.alarm == alarm);
                    contacts.extend(firing.map(|notice| notice.contact));
                    // Contacts that a change has added have not heard of it.
                    if !rule.is_changed {
                        contacts.extend(notified(notify, rule.is_escalated));
                    }
                    let contacts: Vec<_> = contacts.into_iter().collect();
                    self.notices.extend(notices(&contacts, alarm, (NoticeKind::Cleared, 1), severity));
                }
                self.changes.push(AlarmChange::Cleared { alarm, is_silenced: *silenced });
            }
            AlarmEvent::AlarmAcknowledged(_) => {
                self.changes.push(AlarmChange::Acknowledged { alarm });
            }
            AlarmEvent::AlarmUnacknowledged => {
                let remind_at = after(now, notify.remind_seconds);
                self.changes.push(AlarmChange::Unacknowledged { alarm, remind_at });
            }
            AlarmEvent::AlarmFired { silenced: true, .. } | AlarmEvent::AlarmStarted(_) => {}
        }
    }
}

/// The notices of `due` at `now`, and its next state.
pub(super) fn repetition(due: DueAlarm, now: DateTime<Utc>) -> Repetition {
    let severity = due.severity.or_default();
    let is_due = |at: Option<DateTime<Utc>>| at.is_some_and(|at| at <= now);
    // The rule may not ask for it any more. A clock that was ahead, and was set right, has left a time that is too late.
    let possible = |at: Option<DateTime<Utc>>, seconds| Some(at?.min(after(now, seconds)?));
    let mut repetition = Repetition {
        remind_at: possible(due.remind_at, due.notify.remind_seconds),
        reminders: due.reminders,
        escalate_at: possible(due.escalate_at, due.notify.escalate_seconds),
        is_escalated: due.is_escalated,
        notices: Vec::new(),
        due,
    };
    let due = &repetition.due;
    if is_due(repetition.remind_at) {
        repetition.reminders += 1;
        repetition.remind_at = after(now, due.notify.remind_seconds);
        let number = repetition.reminders.unsigned_abs();
        let contacts = notified(&due.notify, due.is_escalated);
        repetition.notices.extend(notices(&contacts, due.alarm_id, (NoticeKind::Reminder, number), severity));
    }
    if is_due(repetition.escalate_at) {
        (repetition.is_escalated, repetition.escalate_at) = (true, None);
        let kind = (NoticeKind::Escalation, 1);
        repetition.notices.extend(notices(&due.notify.escalation_contacts, due.alarm_id, kind, severity));
    }
    repetition
}

/// The contacts that know of an alarm.
fn notified(notify: &NotificationSpec, is_escalated: bool) -> Vec<ContactId> {
    let escalated = notify.escalation_contacts.iter().filter(|_| is_escalated);
    let all: BTreeSet<_> = notify.contacts.iter().chain(escalated).copied().collect();
    all.into_iter().collect()
}

fn notices(
    contacts: &[ContactId],
    alarm: AlarmId,
    (kind, number): (NoticeKind, u32),
    severity: Severity,
) -> impl Iterator<Item = NewNotice> {
    contacts.iter().map(move |contact| NewNotice { contact: *contact, alarm, kind, number, severity })
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use signalbox_domain::kernel::RuleId;
    use uuid::Uuid;

    use super::*;

    const DAY: ContactId = ContactId(Uuid::from_u128(1));
    const BOSS: ContactId = ContactId(Uuid::from_u128(2));
    const ALARM: AlarmId = AlarmId(Uuid::from_u128(9));

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn notify() -> NotificationSpec {
        NotificationSpec {
            contacts: vec![DAY],
            summary: None,
            remind_seconds: Some(600),
            escalate_seconds: Some(1800),
            escalation_contacts: vec![BOSS],
        }
    }

    fn rule(is_escalated: bool) -> RuleOfAlarm {
        let (rule_id, severity) = (RuleId(Uuid::nil()), Severity::Critical.into());
        RuleOfAlarm {
            alarm_id: ALARM,
            rule_id,
            severity,
            notify: notify(),
            is_escalated,
            informed: Vec::new(),
            is_changed: false,
        }
    }

    fn due(remind: i64, escalate: Option<i64>) -> DueAlarm {
        DueAlarm {
            alarm_id: ALARM,
            severity: Severity::Critical.into(),
            remind_at: Some(at(remind)),
            reminders: 2,
            escalate_at: escalate.map(at),
            is_escalated: escalate.is_none(),
            notify: notify(),
        }
    }

    fn kinds(notices: &[NewNotice]) -> Vec<(ContactId, NoticeKind, u32)> {
        notices.iter().map(|notice| (notice.contact, notice.kind, notice.number)).collect()
    }

    fn noticed(event: &AlarmEvent, is_escalated: bool) -> Noticed {
        let mut noticed = Noticed::default();
        noticed.add(&rule(is_escalated), event, at(100));
        noticed
    }

    #[test]
    fn contacts_are_notified_of_firing_and_clearing() {
        let fired = noticed(&AlarmEvent::AlarmFired { fired_on: at(0), value: None, silenced: false }, false);
        assert_eq!(kinds(&fired.notices), [(DAY, NoticeKind::Firing, 1)]);
        let AlarmChange::Fired { remind_at, escalate_at, .. } = fired.changes[0] else { panic!("{fired:?}") };
        assert_eq!((remind_at, escalate_at), (Some(at(700)), Some(at(1900))));
        let cleared = AlarmEvent::AlarmCleared { cleared_on: at(0), value: None, silenced: false };
        assert_eq!(kinds(&noticed(&cleared, false).notices), [(DAY, NoticeKind::Cleared, 1)]);
        let all = [(DAY, NoticeKind::Cleared, 1), (BOSS, NoticeKind::Cleared, 1)];
        assert_eq!(kinds(&noticed(&cleared, true).notices), all);
    }

    #[test]
    fn contacts_that_a_rule_no_longer_names_learn_the_end_of_its_alarm() {
        let mut changed = rule(false);
        changed.notify.contacts = Vec::new();
        (changed.informed, changed.is_changed) = (vec![BOSS], true);
        let cleared = AlarmEvent::AlarmCleared { cleared_on: at(0), value: None, silenced: false };
        let mut noticed = Noticed::default();
        noticed.add(&changed, &cleared, at(100));
        assert_eq!(kinds(&noticed.notices), [(BOSS, NoticeKind::Cleared, 1)]);
    }

    #[test]
    fn contacts_that_a_rule_names_since_an_alarm_fired_do_not_learn_its_end() {
        let mut changed = rule(false);
        changed.notify.contacts = vec![DAY, BOSS];
        (changed.informed, changed.is_changed) = (vec![DAY], true);
        let cleared = AlarmEvent::AlarmCleared { cleared_on: at(0), value: None, silenced: false };
        let mut noticed = Noticed::default();
        noticed.add(&changed, &cleared, at(100));
        assert_eq!(kinds(&noticed.notices), [(DAY, NoticeKind::Cleared, 1)]);
        // It fires and is cleared before anything was committed.
        changed.informed = Vec::new();
        let mut noticed = Noticed::default();
        noticed.add(
            &changed,
            &AlarmEvent::AlarmFired { fired_on: at(0), value: None, silenced: false },
            at(100),
        );
        noticed.add(&changed, &cleared, at(100));
        let all = [DAY, BOSS].map(|contact| (contact, NoticeKind::Cleared, 1));
        assert_eq!(kinds(&noticed.notices)[2..], all);
    }

    #[test]
    fn a_silenced_alarm_is_noticed_when_it_is_announced() {
        let silenced = AlarmEvent::AlarmFired { fired_on: at(0), value: None, silenced: true };
        let silenced = noticed(&silenced, false);
        assert!(silenced.notices.is_empty() && silenced.changes.is_empty());
        assert_eq!(kinds(&noticed(&AlarmEvent::AlarmAnnounced, false).notices).len(), 1);
        let cleared = AlarmEvent::AlarmCleared { cleared_on: at(0), value: None, silenced: true };
        let cleared = noticed(&cleared, true);
        assert_eq!(
            (cleared.notices.len(), cleared.changes),
            (0, vec![AlarmChange::Cleared { alarm: ALARM, is_silenced: true }])
        );
    }

    #[test]
    fn reminders_are_repeated_and_an_escalation_is_not() {
        let reminded = repetition(due(100, Some(200)), at(150));
        assert_eq!(kinds(&reminded.notices), [(DAY, NoticeKind::Reminder, 3)]);
        assert_eq!((reminded.remind_at, reminded.is_escalated), (Some(at(750)), false));
        let escalated = repetition(due(900, Some(200)), at(250));
        assert_eq!(kinds(&escalated.notices), [(BOSS, NoticeKind::Escalation, 1)]);
        assert_eq!((escalated.reminders, escalated.escalate_at, escalated.is_escalated), (2, None, true));
        let ahead = repetition(due(90_000, Some(90_000)), at(150));
        assert_eq!((ahead.remind_at, ahead.escalate_at), (Some(at(750)), Some(at(1950))));
        assert!(ahead.notices.is_empty(), "{ahead:?}");
        let mut changed = due(100, Some(100));
        changed.notify = NotificationSpec { contacts: vec![DAY], ..NotificationSpec::default() };
        let unasked = repetition(changed, at(150));
        assert_eq!((unasked.remind_at, unasked.escalate_at, unasked.notices.len()), (None, None, 0));
        let after = repetition(due(100, None), at(150));
        let all = [(DAY, NoticeKind::Reminder, 3), (BOSS, NoticeKind::Reminder, 3)];
        assert_eq!(kinds(&after.notices), all);
    }
}
