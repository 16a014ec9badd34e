use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::SummaryTemplate;
use crate::{
    automation::alarm::limits::MAX_SECONDS,
    kernel::{ContactId, Rejection, present},
};

/// Most contacts of a rule, and most of its escalation.
pub const MAX_CONTACTS: usize = 20;
/// Least time between two reminders and until an escalation, in seconds: a contact gets a message per minute at most.
pub const MIN_REPETITION: u32 = 60;

/// The contacts that are notified of a rule's alarms, and when again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotificationSpec {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<ContactId>,
    /// The rule's sentence about its alarms, see [`SummaryTemplate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Between reminders of an alarm that fires and is not acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remind_seconds: Option<u32>,
    /// From an alarm's firing to its escalation, unless it is acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalate_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub escalation_contacts: Vec<ContactId>,
}

/// Changes of a [`NotificationSpec`]; absent fields stay unchanged, `Some(None)` clears.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationChanges {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub contacts: Option<Option<Vec<ContactId>>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub summary: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub remind_seconds: Option<Option<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub escalate_seconds: Option<Option<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub escalation_contacts: Option<Option<Vec<ContactId>>>,
}

impl NotificationChanges {
    /// Whether one of the fields is given that say that a rule has an alarm.
    pub(in crate::automation) fn names_setting(&self) -> bool {
        // A rule is taken back as it was shown, without an alarm and with no contacts.
        let has_contacts = self.contacts.iter().flatten().any(|contacts| !contacts.is_empty());
        has_contacts
            || [self.remind_seconds, self.escalate_seconds].into_iter().flatten().flatten().count() > 0
    }

    /// The settings after these changes of `before`.
    pub fn apply(self, before: NotificationSpec) -> NotificationSpec {
        NotificationSpec {
            contacts: self.contacts.map_or(before.contacts, Option::unwrap_or_default),
            summary: self.summary.unwrap_or(before.summary),
            remind_seconds: self.remind_seconds.unwrap_or(before.remind_seconds),
            escalate_seconds: self.escalate_seconds.unwrap_or(before.escalate_seconds),
            escalation_contacts: self
                .escalation_contacts
                .map_or(before.escalation_contacts, Option::unwrap_or_default),
        }
    }

    /// The changes that make `after` out of any other settings.
    pub fn all_of(after: NotificationSpec) -> Self {
        let NotificationSpec { contacts, summary, remind_seconds, escalate_seconds, escalation_contacts } =
            after;
        let given = |contacts: Vec<ContactId>| Some(Some(contacts).filter(|contacts| !contacts.is_empty()));
        Self {
            contacts: given(contacts),
            summary: Some(summary),
            remind_seconds: Some(remind_seconds),
            escalate_seconds: Some(escalate_seconds),
            escalation_contacts: given(escalation_contacts),
        }
    }
}

impl NotificationSpec {
    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All contacts that it names.
    pub fn all_contacts(&self) -> BTreeSet<ContactId> {
        self.contacts.iter().chain(&self.escalation_contacts).copied().collect()
    }

    /// These settings of a rule that has an alarm, or has none.
    ///
    /// # Errors
    /// A [`Rejection`] that names the field.
    pub(in crate::automation) fn validate(mut self, has_alarm: bool) -> Result<Self, Rejection> {
        let fields = [
            ("contact_ids", !self.contacts.is_empty()),
            ("summary", self.summary.is_some()),
            ("remind_seconds", self.remind_seconds.is_some()),
            ("escalate_seconds", self.escalate_seconds.is_some()),
            ("escalation_contact_ids", !self.escalation_contacts.is_empty()),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, is_given)| *is_given && !has_alarm) {
            return Err(Rejection::field(field, "is a setting of alarms: give alarm, too"));
        }
        for (field, contacts) in
            [("contact_ids", &mut self.contacts), ("escalation_contact_ids", &mut self.escalation_contacts)]
        {
            let mut known = BTreeSet::new();
            contacts.retain(|contact| known.insert(*contact));
            if contacts.len() > MAX_CONTACTS {
                return Err(Rejection::field(field, format!("must name at most {MAX_CONTACTS} contacts")));
            }
        }
        for (field, seconds) in
            [("remind_seconds", self.remind_seconds), ("escalate_seconds", self.escalate_seconds)]
        {
            if seconds.is_some_and(|seconds| !(MIN_REPETITION..=MAX_SECONDS).contains(&seconds)) {
                let fault = format!("must be between {MIN_REPETITION} and {MAX_SECONDS}");
                return Err(Rejection::field(field, fault));
            }
        }
        if self.remind_seconds.is_some() && self.contacts.is_empty() {
            return Err(Rejection::field("contact_ids", "is required for remind_seconds"));
        }
        match (self.escalate_seconds, self.escalation_contacts.is_empty()) {
            (Some(_), true) => {
                return Err(Rejection::field("escalation_contact_ids", "is required for escalate_seconds"));
            }
            (None, false) => {
                return Err(Rejection::field("escalate_seconds", "is required for escalation_contact_ids"));
            }
            _ => {}
        }
        self.summary = self.summary.as_deref().map(SummaryTemplate::validate).transpose()?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn contacts(numbers: impl IntoIterator<Item = u128>) -> Vec<ContactId> {
        numbers.into_iter().map(|number| ContactId(Uuid::from_u128(number))).collect()
    }

    fn full() -> NotificationSpec {
        NotificationSpec {
            contacts: contacts([1, 2]),
            summary: Some("{channel} is hot".to_owned()),
            remind_seconds: Some(600),
            escalate_seconds: Some(1800),
            escalation_contacts: contacts([3]),
        }
    }

    #[track_caller]
    fn assert_refused(spec: NotificationSpec, field: &str) {
        let fault = spec.validate(true).unwrap_err();
        assert!(fault.message.starts_with(field), "{}", fault.message);
    }

    #[test]
    fn settings_are_complete_and_bounded() {
        assert_eq!(full().validate(true), Ok(full()));
        assert_eq!(NotificationSpec::default().validate(false), Ok(NotificationSpec::default()));
        assert_refused(NotificationSpec { contacts: contacts(0..21), ..full() }, "contact_ids");
        assert_refused(NotificationSpec { contacts: Vec::new(), ..full() }, "contact_ids");
        assert_refused(NotificationSpec { remind_seconds: Some(59), ..full() }, "remind_seconds");
        assert_refused(NotificationSpec { escalate_seconds: Some(u32::MAX), ..full() }, "escalate_seconds");
        assert_refused(NotificationSpec { escalate_seconds: None, ..full() }, "escalate_seconds");
        let without = NotificationSpec { escalation_contacts: Vec::new(), ..full() };
        assert_refused(without, "escalation_contact_ids");
        assert_refused(NotificationSpec { summary: Some("{name}".to_owned()), ..full() }, "summary");
        let twice = NotificationSpec { contacts: contacts([1, 2, 1]), ..full() };
        assert_eq!(twice.validate(true), Ok(full()));
    }

    #[test]
    fn a_rule_without_an_alarm_notifies_of_nothing() {
        let fault = full().validate(false).unwrap_err();
        assert!(fault.message.starts_with("contact_ids "), "{}", fault.message);
    }

    #[test]
    fn changes_replace_keep_and_clear() {
        let changes = NotificationChanges {
            contacts: Some(None),
            remind_seconds: Some(None),
            summary: Some(Some("hot".to_owned())),
            ..NotificationChanges::default()
        };
        assert!(!changes.names_setting());
        let expected = NotificationSpec {
            contacts: Vec::new(),
            summary: Some("hot".to_owned()),
            remind_seconds: None,
            ..full()
        };
        assert_eq!(changes.apply(full()), expected);
        for spec in [full(), NotificationSpec::default()] {
            assert_eq!(NotificationChanges::all_of(spec.clone()).apply(full()), spec);
        }
        assert!(NotificationChanges::all_of(full()).names_setting());
        assert!(!NotificationChanges::all_of(NotificationSpec::default()).names_setting());
    }
}
