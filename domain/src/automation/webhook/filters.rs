use serde::{Deserialize, Serialize};

use crate::{
    automation::Severity,
    kernel::{ChannelId, Rejection},
    monitoring::channel::{Labels, label_fault},
};

/// Most entries of one filter.
pub const MAX_FILTERED: usize = 100;

/// Limits a subscription to events about some resources. An empty filter lets everything through; events that are not
/// about a resource of its kind pass it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookFilters {
    /// Of events about a channel, those of these channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelId>,
    /// Of events about a channel, those of channels that have all of these labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Of events about a transfer, those of these jobs, by the integers that clients see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<i64>,
    /// Of events about an alarm, those of alarms with one of these severities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub severity: Vec<Severity>,
}

/// The resource that a published event is about, as far as filters ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSubject {
    /// A value of a channel.
    Channel(ChannelSubject),
    /// An alarm of a channel.
    Alarm { channel: ChannelSubject, severity: Severity },
    /// A transfer, and the integer of the job that it runs.
    Transfer { job: Option<i64> },
    /// No filter asks for it.
    Other,
}

/// A channel, with the labels that it had when the event was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSubject {
    pub id: ChannelId,
    /// Read only for subscriptions that ask for them; empty otherwise.
    pub labels: Labels,
}

impl WebhookFilters {
    /// Whether an event about `subject` passes.
    pub fn pass(&self, subject: &EventSubject) -> bool {
        match subject {
            EventSubject::Channel(channel) => self.pass_channel(channel),
            EventSubject::Alarm { channel, severity } => {
                self.pass_channel(channel) && (self.severity.is_empty() || self.severity.contains(severity))
            }
            EventSubject::Transfer { job } => {
                self.jobs.is_empty() || job.is_some_and(|job| self.jobs.contains(&job))
            }
            EventSubject::Other => true,
        }
    }

    fn pass_channel(&self, channel: &ChannelSubject) -> bool {
        let has_label = |(key, value)| channel.labels.get(key) == Some(value);
        (self.channels.is_empty() || self.channels.contains(&channel.id)) && self.labels.iter().all(has_label)
    }

    /// Whether labels of channels decide which events pass.
    pub fn ask_for_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn validate(mut self) -> Result<Self, Rejection> {
        self.channels.sort_unstable();
        self.channels.dedup();
        self.jobs.sort_unstable();
        self.jobs.dedup();
        self.severity.sort_unstable();
        self.severity.dedup();
        if let Some(fault) = label_fault(&self.labels) {
            return Err(Rejection::field("filters.labels", fault));
        }
        for (name, count) in [("channels", self.channels.len()), ("jobs", self.jobs.len())] {
            if count > MAX_FILTERED {
                let fault = format!("must have at most {MAX_FILTERED} entries");
                return Err(Rejection::field(&format!("filters.{name}"), fault));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ONE: ChannelId = ChannelId(Uuid::from_u128(1));
    const TWO: ChannelId = ChannelId(Uuid::from_u128(2));

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn channel(id: ChannelId, pairs: &[(&str, &str)]) -> ChannelSubject {
        ChannelSubject { id, labels: labels(pairs) }
    }

    #[test]
    fn a_filter_limits_events_of_its_kind_alone() {
        let filters = WebhookFilters {
            channels: vec![ONE],
            jobs: vec![7],
            severity: vec![Severity::Critical],
            ..Default::default()
        };
        let alarm = |id, severity| EventSubject::Alarm { channel: channel(id, &[]), severity };
        for (subject, passes) in [
            (EventSubject::Channel(channel(ONE, &[])), true),
            (EventSubject::Channel(channel(TWO, &[])), false),
            (alarm(ONE, Severity::Critical), true),
            (alarm(ONE, Severity::Warning), false),
            (alarm(TWO, Severity::Critical), false),
            (EventSubject::Transfer { job: Some(7) }, true),
            (EventSubject::Transfer { job: Some(8) }, false),
            (EventSubject::Transfer { job: None }, false),
            (EventSubject::Other, true),
        ] {
            assert_eq!(filters.pass(&subject), passes, "{subject:?}");
            assert!(WebhookFilters::default().pass(&subject), "{subject:?}");
        }
    }

    #[test]
    fn a_channel_has_all_labels_of_a_filter() {
        let filters = WebhookFilters { labels: labels(&[("line", "1"), ("room", "")]), ..Default::default() };
        for (pairs, passes) in [
            ([("line", "1"), ("room", "")].as_slice(), true),
            (&[("line", "1"), ("room", ""), ("other", "x")], true),
            (&[("line", "1"), ("room", "x")], false),
            (&[("line", "1")], false),
            (&[], false),
        ] {
            let subject = channel(ONE, pairs);
            assert_eq!(filters.pass(&EventSubject::Channel(subject.clone())), passes, "{pairs:?}");
            let alarm = EventSubject::Alarm { channel: subject, severity: Severity::Info };
            assert_eq!(filters.pass(&alarm), passes, "{pairs:?}");
        }
        assert!(filters.pass(&EventSubject::Other) && filters.pass(&EventSubject::Transfer { job: None }));
    }

    #[test]
    fn entries_are_sorted_distinct_and_bounded() {
        let severity = vec![Severity::Critical, Severity::Info, Severity::Critical];
        let filters = WebhookFilters {
            channels: vec![TWO, ONE, TWO],
            jobs: vec![2, 1, 2],
            severity,
            ..Default::default()
        };
        let valid = filters.validate().unwrap();
        assert_eq!((valid.channels, valid.jobs), (vec![ONE, TWO], vec![1, 2]));
        assert_eq!(valid.severity, [Severity::Info, Severity::Critical]);
        let many = WebhookFilters { jobs: (0..=100).collect(), ..Default::default() };
        assert!(many.validate().is_err());
        for pairs in [[("1st", "x")], [("", "x")], [("k", "a\0b")]] {
            let odd = WebhookFilters { labels: labels(&pairs), ..Default::default() };
            assert!(odd.validate().is_err(), "{pairs:?}");
        }
    }
}
