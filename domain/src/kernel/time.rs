//! Times that people and programs write.
//!
//! PostgreSQL holds years from 4713 BC to 294276 and chrono more; codecs and arithmetic fail near the ends of either. The
//! years 1 to 9999 fit everywhere and have four digits in every format.

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use serde::{Deserialize, Deserializer, de::Error};

const EXPECTED: &str = "must be a time such as 2026-01-31T12:00:00Z, in the years 1 to 9999";

/// Parses `text` as ISO 8601 in the form of RFC 3339; without a zone it is UTC. `None` outside of the years 1 to
/// 9999.
pub fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    let zoned = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc());
    let time = zoned.or_else(|_| text.parse::<NaiveDateTime>().map(|time| time.and_utc())).ok()?;
    is_in_range(time).then_some(time)
}

/// Whether `time` is in the years 1 to 9999.
pub fn is_in_range(time: DateTime<Utc>) -> bool {
    (1..=9999).contains(&time.year())
}

/// For `deserialize_with`: a time as [`parse_time`] reads it.
///
/// # Errors
/// The text is not such a time.
pub fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DateTime<Utc>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_time(text.trim()).ok_or_else(|| D::Error::custom(EXPECTED))
}

/// For `deserialize_with`, with `default`: a time, or null.
///
/// # Errors
/// The text is not such a time.
pub fn optional_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse_time(text.trim()).ok_or_else(|| D::Error::custom(EXPECTED))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        let expected = "2026-03-01T10:00:00.5Z".parse::<DateTime<Utc>>().unwrap();
        for text in [
            "2026-03-01T10:00:00.5Z",
            "2026-03-01T11:00:00.500+01:00",
            "2026-03-01T10:00:00.5",
            "2026-03-01 10:00:00.5Z",
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
        for text in ["", "now", "2026-03-01", "10:00:00", "1772359200", "2026-02-30T00:00:00Z"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn times_outside_of_four_digit_years_are_refused() {
        for text in [
            "-4713-11-24T00:00:00Z",
            "-9999-01-01T00:00:00",
            "0000-12-31T23:59:59Z",
            "+10000-01-01T00:00:00",
            "+262142-12-31T23:59:59",
            // In UTC these are in the years 0 and 10000.
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        for text in ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"] {
            assert!(parse_time(text).is_some(), "{text}");
        }
    }
}
