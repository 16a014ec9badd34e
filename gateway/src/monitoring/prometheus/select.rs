//! The channels that a query selects, as series.

use std::{collections::BTreeMap, sync::Arc};

use regex::{Regex, RegexBuilder};
use signalbox_domain::monitoring::Labels;

use super::{
    batch::{NAME, is_metric_name},
    messages::{LabelMatcher, MatchType},
};
use crate::{
    problem::{Problem, ProblemKind},
    services::catalog::KnownChannel,
};

/// The name of series of channels that Prometheus has not written.
const VALUE: &str = "signalbox_value";
/// Matchers of a query at most.
const MAX_MATCHERS: usize = 64;
/// Series of all queries of a request at most: the channels of each are named until the client has read the answer.
pub(super) const MAX_SERIES: usize = 250_000;
/// Bytes of a compiled regular expression at most.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A condition on a label; one that is not there is empty.
pub(super) struct Matcher {
    name: String,
    test: Test,
}

enum Test {
    Equal(String),
    NotEqual(String),
    Regex(Regex),
    NotRegex(Regex),
}

impl Matcher {
    pub(super) fn all(matchers: Vec<LabelMatcher>) -> Result<Vec<Self>, Problem> {
        if matchers.len() > MAX_MATCHERS {
            return Err(Problem::malformed(format!("a query has more than {MAX_MATCHERS} matchers")));
        }
        matchers.into_iter().map(Self::of).collect()
    }

    fn of(matcher: LabelMatcher) -> Result<Self, Problem> {
        let LabelMatcher { kind, name, value } = matcher;
        let test = match MatchType::try_from(kind) {
            Ok(MatchType::Equal) => Test::Equal(value),
            Ok(MatchType::NotEqual) => Test::NotEqual(value),
            Ok(MatchType::Regex) => Test::Regex(anchored(&name, &value)?),
            Ok(MatchType::NotRegex) => Test::NotRegex(anchored(&name, &value)?),
            Err(_) => return Err(Problem::malformed(format!("a matcher has the unknown type {kind}"))),
        };
        Ok(Self { name, test })
    }

    fn fits(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.name).map_or("", String::as_str);
        match &self.test {
            Test::Equal(expected) => value == expected,
            Test::NotEqual(other) => value != other,
            Test::Regex(regex) => regex.is_match(value),
            Test::NotRegex(regex) => !regex.is_match(value),
        }
    }
}

/// Matches whole values, as in PromQL.
fn anchored(name: &str, pattern: &str) -> Result<Regex, Problem> {
    let regex = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(MAX_REGEX_BYTES).build();
    regex.map_err(|_| {
        Problem::malformed(format!(
            "the regular expression for the label {name:?} is not valid, or too large"
        ))
    })
}

/// The channels of a series: mostly one, but labels need not be unique.
#[derive(Debug)]
pub(super) struct Series(Vec<Arc<KnownChannel>>);

impl Series {
    /// Made whenever they are needed: those of all series of many queries would fill the memory.
    pub(super) fn labels(&self) -> Labels {
        self.0.first().map_or_else(Labels::new, |channel| series_labels(channel))
    }

    /// The integers of its channels.
    pub(super) fn numbers(&self) -> impl Iterator<Item = i32> {
        self.0.iter().map(|channel| channel.number)
    }
}

/// The series of `channels` that fit all of `matchers`, in the order of their labels; at most `room` of them.
pub(super) fn selected<'a>(
    channels: impl Iterator<Item = &'a Arc<KnownChannel>>,
    matchers: &[Matcher],
    room: usize,
) -> Result<Vec<Series>, Problem> {
    let mut found: BTreeMap<Labels, Vec<Arc<KnownChannel>>> = BTreeMap::new();
    for channel in channels {
        let labels = series_labels(channel);
        if matchers.iter().all(|matcher| matcher.fits(&labels)) {
            found.entry(labels).or_insert_with(|| Vec::with_capacity(1)).push(channel.clone());
        }
        if found.len() > room {
            let detail = format!(
                "the queries select more than {MAX_SERIES} series together: ask for fewer series, or send fewer queries at once"
            );
            return Err(Problem::new(ProblemKind::Malformed, "too_many_series", detail));
        }
    }
    Ok(found.into_values().map(Series).collect())
}

/// The labels that `channel` was written with by Prometheus, or those that stand for it there.
fn series_labels(channel: &KnownChannel) -> Labels {
    if channel.labels.get(NAME).is_some_and(|name| is_metric_name(name)) {
        return without_empty(Labels::clone(&channel.labels));
    }
    let own = channel.labels.iter().filter(|(name, _)| *name != NAME);
    let own = own.map(|(name, value)| match name.as_str() {
        "channel" | "unit" => (format!("exported_{name}"), value.clone()),
        _ => (name.clone(), value.clone()),
    });
    let mut labels: Labels = own.collect();
    labels.insert(NAME.to_owned(), VALUE.to_owned());
    labels.insert("channel".to_owned(), channel.name.clone());
    labels.insert("unit".to_owned(), channel.unit.clone().unwrap_or_default());
    without_empty(labels)
}

/// An empty label is one that is not there.
fn without_empty(mut labels: Labels) -> Labels {
    labels.retain(|_, value| !value.is_empty());
    labels
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn channel(unit: Option<&str>, own: &[(&str, &str)]) -> KnownChannel {
        KnownChannel {
            id: Uuid::nil(),
            public_id: String::new(),
            number: 1,
            name: "boiler".to_owned(),
            unit: unit.map(str::to_owned),
            labels: Arc::new(labels(own)),
            is_deleted: false,
            is_made_for_series: false,
        }
    }

    #[test]
    fn a_channel_is_a_series() {
        for (channel, expected) in [
            (channel(Some("°C"), &[]), &[(NAME, VALUE), ("channel", "boiler"), ("unit", "°C")][..]),
            (channel(None, &[("line", "2")]), &[(NAME, VALUE), ("channel", "boiler"), ("line", "2")]),
            (
                channel(Some(""), &[("channel", "a"), ("unit", "b"), ("empty", "")]),
                &[(NAME, VALUE), ("channel", "boiler"), ("exported_channel", "a"), ("exported_unit", "b")],
            ),
            (
                channel(None, &[(NAME, "bad name"), ("line", "2")]),
                &[(NAME, VALUE), ("channel", "boiler"), ("line", "2")],
            ),
            (channel(Some("bar"), &[(NAME, "up"), ("unit", "x")]), &[(NAME, "up"), ("unit", "x")]),
        ] {
            assert_eq!(series_labels(&channel), labels(expected));
        }
    }

    #[test]
    fn no_more_series_are_selected_than_there_is_room_for() {
        let channels: Vec<_> =
            ["1", "2", "2"].iter().map(|line| Arc::new(channel(None, &[("line", line)]))).collect();
        let found = selected(channels.iter(), &[], 2).unwrap();
        let lines: Vec<_> =
            found.iter().map(|series| (series.labels()["line"].clone(), series.numbers().count())).collect();
        assert_eq!(lines, [("1".to_owned(), 1), ("2".to_owned(), 2)]);
        let refused = selected(channels.iter(), &[], 1).unwrap_err();
        assert!(refused.detail().contains("more than"), "{refused:?}");
        let line = LabelMatcher { kind: MatchType::Equal as i32, name: "line".into(), value: "2".into() };
        let matchers = Matcher::all(vec![line]).unwrap();
        assert_eq!(selected(channels.iter(), &matchers, 1).unwrap().len(), 1);
    }

    #[test]
    fn matchers_test_whole_values_and_what_is_not_there() {
        let fits = |kind: MatchType, name: &str, value: &str| {
            let matcher = LabelMatcher { kind: kind as i32, name: name.to_owned(), value: value.to_owned() };
            Matcher::of(matcher).unwrap().fits(&labels(&[(NAME, "up"), ("job", "node\n")]))
        };
        for (kind, name, value, expected) in [
            (MatchType::Equal, NAME, "up", true),
            (MatchType::Equal, "none", "", true),
            (MatchType::NotEqual, NAME, "up", false),
            (MatchType::NotEqual, "none", "x", true),
            (MatchType::Regex, NAME, "u", false),
            (MatchType::Regex, NAME, "u|up", true),
            (MatchType::Regex, "none", ".*", true),
            (MatchType::NotRegex, "none", ".+", true),
            (MatchType::NotRegex, NAME, ".+", false),
            (MatchType::Regex, "job", "node", false),
        ] {
            assert_eq!(fits(kind, name, value), expected, "{kind:?} {name} {value}");
        }
        let of = |kind, value: &str| {
            Matcher::of(LabelMatcher { kind, name: NAME.to_owned(), value: value.to_owned() }).is_ok()
        };
        assert!(!of(MatchType::Regex as i32, "(") && !of(9, "up"));
        assert!(!of(MatchType::Regex as i32, "((((a{99}){99}){99}){99})"));
    }
}
