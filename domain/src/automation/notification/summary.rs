use chrono::TimeDelta;

use crate::kernel::{Rejection, required_text};

/// Longest summary of a rule, in characters.
pub const MAX_SUMMARY: usize = 500;

/// The names that a summary may contain in braces.
const NAMES: [&str; 5] = ["channel", "value", "unit", "threshold", "duration"];

/// The values that a summary may name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SummaryValues<'a> {
    pub channel: &'a str,
    /// The newest judged value.
    pub value: Option<f64>,
    pub unit: Option<&'a str>,
    pub threshold: f64,
    /// Since the alarm started.
    pub duration: TimeDelta,
}

/// A rule's sentence about its alarms: text with names such as `{channel}` in braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryTemplate<'a>(&'a str);

/// A part of a template.
enum Part<'a> {
    Text(&'a str),
    Name(&'a str),
}

impl<'a> SummaryTemplate<'a> {
    /// The trimmed text, if it is a template.
    ///
    /// # Errors
    /// A [`Rejection`] of `summary` that names the fault.
    pub fn validate(text: &str) -> Result<String, Rejection> {
        let text = required_text("summary", text, MAX_SUMMARY)?;
        let is_known = |part: Part<'_>| match part {
            Part::Text(text) => !text.contains(['{', '}']),
            Part::Name(name) => NAMES.contains(&name),
        };
        if parts(&text).all(is_known) {
            return Ok(text);
        }
        let names = NAMES.map(|name| format!("{{{name}}}")).join(", ");
        Err(Rejection::field("summary", format!("may contain braces only in {names}")))
    }

    /// The template of a text that was validated.
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// The summary with `values` in place of names. Names that are not known stay as they are.
    pub fn render(self, values: &SummaryValues<'_>) -> String {
        parts(self.0)
            .map(|part| match part {
                Part::Text(text) => text.to_owned(),
                Part::Name("channel") => values.channel.to_owned(),
                Part::Name("value") => values.value.map_or_else(|| "no value".to_owned(), |v| v.to_string()),
                Part::Name("unit") => values.unit.unwrap_or_default().to_owned(),
                Part::Name("threshold") => values.threshold.to_string(),
                Part::Name("duration") => duration_text(values.duration),
                Part::Name(other) => format!("{{{other}}}"),
            })
            .collect()
    }
}

/// Splits `text` at names in braces. A brace without its counterpart is text.
fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if let Some((name, after)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            rest = after;
            return Some(Part::Name(name));
        }
        let mut ends = rest.char_indices().skip(1).filter(|(_, letter)| *letter == '{');
        let end = ends.next().map_or(rest.len(), |(index, _)| index);
        let (text, after) = rest.split_at(end);
        rest = after;
        (!text.is_empty()).then_some(Part::Text(text))
    })
}

/// `2 d 3 h`, `5 min 10 s`, `0 s`: the largest unit and the next one.
fn duration_text(duration: TimeDelta) -> String {
    let seconds = duration.num_seconds().max(0);
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let first = units.iter().position(|(number, _)| *number > 0).unwrap_or(units.len() - 1);
    let shown = units.iter().skip(first).take(2);
    let words: Vec<_> = shown
        .enumerate()
        .filter(|(place, (number, _))| *place == 0 || *number > 0)
        .map(|(_, (number, unit))| format!("{number} {unit}"))
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> SummaryValues<'static> {
        SummaryValues {
            channel: "boiler",
            value: Some(81.5),
            unit: Some("°C"),
            threshold: 80.0,
            duration: TimeDelta::seconds(310),
        }
    }

    #[test]
    fn names_are_replaced_by_values() {
        let template = SummaryTemplate::new("{channel}: {value} {unit} > {threshold} for {duration}");
        assert_eq!(template.render(&values()), "boiler: 81.5 °C > 80 for 5 min 10 s");
    }

    #[test]
    fn values_with_braces_are_not_replaced_again() {
        let values = SummaryValues { channel: "{value}", ..values() };
        assert_eq!(SummaryTemplate::new("{channel}").render(&values), "{value}");
    }

    #[test]
    fn absent_values_are_written_in_words() {
        let values = SummaryValues { value: None, unit: None, ..values() };
        assert_eq!(SummaryTemplate::new("[{value}{unit}]").render(&values), "[no value]");
    }

    #[test]
    fn a_text_with_other_braces_is_refused() {
        for text in ["", "  ", "{", "a}", "{other}", "{channel", "{{channel}}", "{ channel }", "{}"] {
            assert!(SummaryTemplate::validate(text).is_err(), "{text}");
        }
        assert!(SummaryTemplate::validate(&"a".repeat(MAX_SUMMARY + 1)).is_err());
    }

    #[test]
    fn a_validated_text_is_trimmed() {
        let texts = ["plain", "{channel}{value}", "ä {unit} ü {threshold} ☃ {duration}"];
        for text in texts {
            assert_eq!(SummaryTemplate::validate(&format!(" {text} ")).as_deref(), Ok(text));
        }
    }

    #[test]
    fn durations_show_two_units() {
        for (seconds, expected) in [
            (-5, "0 s"),
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_600, "1 h"),
            (3_601, "1 h"),
            (93_784, "1 d 2 h"),
        ] {
            assert_eq!(duration_text(TimeDelta::seconds(seconds)), expected, "{seconds}");
        }
    }
}
