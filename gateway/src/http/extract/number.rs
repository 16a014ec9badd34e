//! Whole numbers in paths, headers and messages of agents.

use std::str::FromStr;

use axum::http::{HeaderMap, header};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

/// The number that `text` writes in decimal digits. Rust also reads a sign, which no number of a path or header has.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
}

/// How many bytes the body has, if the request says so.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    digits(headers.get(header::CONTENT_LENGTH)?.to_str().ok()?)
}

/// For `deserialize_with`: an id of service 1 as agents write it, a JSON number or a decimal string.
pub(crate) fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    as_number(&value).ok_or_else(|| D::Error::custom("must be a positive whole number"))
}

/// The positive integer in `value`, a number or its text.
pub(crate) fn as_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| digits(value.as_str()?)).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digits_have_no_sign() {
        assert_eq!(
            (digits("0"), digits("007"), digits("9223372036854775807")),
            (Some(0), Some(7), Some(i64::MAX))
        );
        for text in ["", "-1", "+1", " 1", "1.0", "0x1", "\u{661}", "9223372036854775808"] {
            assert_eq!(digits::<i64>(text), None, "{text}");
        }
    }

    #[test]
    fn ids_of_agents_are_numbers_or_decimal_strings() {
        for (value, expected) in
            [(json!(7), Some(7)), (json!("7"), Some(7)), (json!("+7"), None), (json!(-7), None)]
        {
            assert_eq!(as_number(&value), expected, "{value}");
        }
    }
}
