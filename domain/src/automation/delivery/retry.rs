use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

/// Most attempts of one round, under any policy.
pub const MAX_ATTEMPTS: u32 = STANDARD_WAITS.len() as u32 + 1;
/// The shortest wait when a receiver has asked for one, so that one that asks for none does not get all attempts that it may
/// postpone within a moment.
pub const MIN_POSTPONEMENT: TimeDelta = TimeDelta::seconds(1);
/// The longest wait that a receiver may ask for by `Retry-After`.
pub const MAX_POSTPONEMENT: TimeDelta = TimeDelta::hours(1);
/// Attempts of one round that a receiver may postpone; later ones count.
pub const MAX_POSTPONED: u32 = 20;

/// The wait after the first attempt and after the second.
const DEFAULT_WAITS: [TimeDelta; 2] = [TimeDelta::seconds(2), TimeDelta::seconds(4)];
/// The example schedule of the Standard Webhooks specification, 1.0.0: 75 h 35 min 5 s in all.
const STANDARD_WAITS: [TimeDelta; 9] = [
    TimeDelta::seconds(5),
    TimeDelta::minutes(5),
    TimeDelta::minutes(30),
    TimeDelta::hours(2),
    TimeDelta::hours(5),
    TimeDelta::hours(10),
    TimeDelta::hours(14),
    TimeDelta::hours(20),
    TimeDelta::hours(24),
];

/// When a failed attempt is followed by another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryPolicy {
    /// Three attempts within seconds, whatever the receiver answers.
    #[default]
    Default,
    /// Ten attempts within days; `410 Gone` and `Retry-After` are respected.
    Standard,
}

impl RetryPolicy {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Standard => "standard",
        }
    }

    /// The policy that clients call `word`.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Default, Self::Standard].into_iter().find(|known| known.as_str() == word)
    }

    /// The wait after attempt number `attempt`, counted from 1; `None` after the last one.
    pub fn wait_after(self, attempt: u32) -> Option<TimeDelta> {
        let waits = match self {
            Self::Default => DEFAULT_WAITS.as_slice(),
            Self::Standard => STANDARD_WAITS.as_slice(),
        };
        waits.get(attempt.checked_sub(1)? as usize).copied()
    }

    /// Whether it is the default one, which is not written down.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

/// The fault of an attempt, for people that may not read the receiver's own words: these can name addresses and people.
pub fn fault_class(status: Option<u16>) -> String {
    match status {
        Some(code) => format!("The receiver answered {code}"),
        None => "The receiver was not reached".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(policy: RetryPolicy) -> Vec<i64> {
        (1..).map_while(|attempt| policy.wait_after(attempt)).map(|wait| wait.num_seconds()).collect()
    }

    #[test]
    fn the_default_schedule_has_three_attempts() {
        assert_eq!(waits(RetryPolicy::Default), [2, 4]);
        assert_eq!(RetryPolicy::Default.wait_after(0), None);
    }

    /// The column "Time since start" of the specification's table.
    #[test]
    fn the_standard_schedule_is_the_published_one() {
        let mut since_start = 0;
        let times: Vec<_> = waits(RetryPolicy::Standard)
            .into_iter()
            .map(|wait| {
                since_start += wait;
                format!("{:02}:{:02}:{:02}", since_start / 3600, since_start / 60 % 60, since_start % 60)
            })
            .collect();
        let published = [
            "00:00:05", "00:05:05", "00:35:05", "02:35:05", "07:35:05", "17:35:05", "31:35:05", "51:35:05",
            "75:35:05",
        ];
        assert_eq!(times, published);
        assert_eq!(MAX_ATTEMPTS, 10);
    }

    #[test]
    fn the_word_is_the_same_everywhere() {
        for policy in [RetryPolicy::Default, RetryPolicy::Standard] {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.as_str());
            assert_eq!(RetryPolicy::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(RetryPolicy::parse("never"), None);
    }
}
