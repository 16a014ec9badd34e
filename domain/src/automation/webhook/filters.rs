use serde::{Deserialize, Serialize};

use crate::kernel::{ChannelId, Rejection};

/// Most entries of one filter.
pub const MAX_FILTERED: usize = 100;

/// Limits a subscription to events about some resources. An empty filter lets everything through; events that are not
/// about a resource of its kind pass it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookFilters {
    /// Of events about a channel, those of these channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelId>,
    /// Of events about a transfer, those of these jobs, by the integers that clients see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<i64>,
}

/// The resource that a published event is about, as far as filters ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSubject {
    /// A value of a channel.
    Channel(ChannelId),
    /// A transfer, and the integer of the job that it runs.
    Transfer { job: Option<i64> },
    /// No filter asks for it.
    Other,
}

impl WebhookFilters {
    /// Whether an event about `subject` passes.
    pub fn pass(&self, subject: EventSubject) -> bool {
        match subject {
            EventSubject::Channel(channel) => self.channels.is_empty() || self.channels.contains(&channel),
            EventSubject::Transfer { job } => {
                self.jobs.is_empty() || job.is_some_and(|job| self.jobs.contains(&job))
            }
            EventSubject::Other => true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.jobs.is_empty()
    }

    pub(super) fn validate(mut self) -> Result<Self, Rejection> {
        self.channels.sort_unstable();
        self.channels.dedup();
        self.jobs.sort_unstable();
        self.jobs.dedup();
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

    #[test]
    fn a_filter_limits_events_of_its_kind_alone() {
        let filters = WebhookFilters { channels: vec![ONE], jobs: vec![7] };
        for (subject, passes) in [
            (EventSubject::Channel(ONE), true),
            (EventSubject::Channel(TWO), false),
            (EventSubject::Transfer { job: Some(7) }, true),
            (EventSubject::Transfer { job: Some(8) }, false),
            (EventSubject::Transfer { job: None }, false),
            (EventSubject::Other, true),
        ] {
            assert_eq!(filters.pass(subject), passes, "{subject:?}");
            assert!(WebhookFilters::default().pass(subject), "{subject:?}");
        }
    }

    #[test]
    fn entries_are_sorted_distinct_and_bounded() {
        let filters = WebhookFilters { channels: vec![TWO, ONE, TWO], jobs: vec![2, 1, 2] };
        let valid = filters.validate().unwrap();
        assert_eq!((valid.channels, valid.jobs), (vec![ONE, TWO], vec![1, 2]));
        let many = WebhookFilters { jobs: (0..=100).collect(), ..Default::default() };
        assert!(many.validate().is_err());
    }
}
