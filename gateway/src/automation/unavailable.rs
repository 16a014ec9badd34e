use serde::{Deserialize, Deserializer, de::Error};

const REFUSAL: &str = "must be absent or null, because rules do not notify contacts yet: subscribe a webhook to \
    alarm.firing and alarm.cleared instead";

/// A field for notifications, which no part of the service sends. A value is refused: ignored, it would let a user
/// rely on messages that never arrive.
#[derive(Debug)]
pub(super) struct Unavailable;

impl<'de> Deserialize<'de> for Unavailable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(REFUSAL))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::http::{extract::parse_json, problem::Problem};

    #[derive(Debug, Deserialize)]
    struct In {
        #[serde(rename = "contact_ids")]
        _contact_ids: Option<Unavailable>,
    }

    fn parse(body: &Value) -> Result<In, Problem> {
        parse_json(body.to_string().as_bytes())
    }

    #[test]
    fn values_of_unavailable_fields_are_refused() {
        for value in [json!([]), json!(["a"]), json!(60), json!("text"), json!({}), json!(false)] {
            assert!(parse(&json!({"contact_ids": value})).is_err(), "{value}");
        }
    }

    #[test]
    fn unavailable_fields_may_be_absent_or_null() {
        for body in [json!({}), json!({"contact_ids": null})] {
            assert!(parse(&body).is_ok(), "{body}");
        }
    }
}
