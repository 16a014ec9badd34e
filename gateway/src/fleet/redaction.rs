//! Secrets in the configurations of plugin instances: values that the class's schema marks with `writeOnly` or
//! `"format": "password"` are shown to controllers alone.
//!
//! A schema may describe a value in several ways (`anyOf`, `$ref`, …). A value is redacted if one of them marks it, or refers to
//! something that is not found here. The items of a list have no names: their secrets are known again only in a list that is
//! otherwise what it was.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::problem::Problem;

/// Stands for a secret. A configuration that is sent back with it keeps the secret.
pub(super) const REDACTED: &str = "[redacted]";
/// References and values nest no deeper in schemas that are examined; deeper values count as secrets.
const MAX_DEPTH: usize = 64;

/// Which values of a configuration are secret.
pub(super) struct Secrets {
    /// The schema of the class; without one, which value is secret is not known.
    schema: Option<Value>,
}

impl Secrets {
    /// By the schema of a class, as text; `None` for a class that is not installed any longer.
    pub(super) fn of(schema: Option<&str>) -> Self {
        Self { schema: schema.and_then(|schema| serde_json::from_str(schema).ok()) }
    }

    /// `config` without its secrets; the same text if it has none.
    pub(super) fn redact(&self, config: String) -> String {
        let Ok(mut value) = serde_json::from_str::<Value>(&config) else { return REDACTED.to_owned() };
        let mut is_changed = false;
        self.visit(&mut value, None, &mut |secret, _| {
            is_changed = true;
            *secret = Value::from(REDACTED);
        });
        if is_changed { value.to_string() } else { config }
    }

    /// `config` with the secrets of `known` where it has the text that stands for one.
    pub(super) fn restore(&self, config: String, known: Option<&str>) -> Result<String, Problem> {
        let Ok(mut value) = serde_json::from_str::<Value>(&config) else { return Ok(config) };
        let known: Option<Value> = known.and_then(|known| serde_json::from_str(known).ok());
        let (mut is_changed, mut is_lost) = (false, false);
        self.visit(&mut value, known.as_ref(), &mut |secret, known| {
            if *secret == REDACTED {
                match known {
                    Some(known) => *secret = known.clone(),
                    None => is_lost = true,
                }
                is_changed = true;
            }
        });
        if is_lost {
            let fault = format!(
                "has {REDACTED:?} for a secret that is not known, or in a list that was changed: send the secret itself"
            );
            return Err(Problem::field("config_json", fault));
        }
        Ok(if is_changed { value.to_string() } else { config })
    }

    fn visit(
        &self,
        value: &mut Value,
        known: Option<&Value>,
        found: &mut dyn FnMut(&mut Value, Option<&Value>),
    ) {
        match &self.schema {
            Some(schema) => visit(&[schema], schema, value, known, found, 0),
            None => visit_all(value, known, found),
        }
    }
}

/// Every value that is neither a list nor an object.
fn visit_all(value: &mut Value, known: Option<&Value>, found: &mut dyn FnMut(&mut Value, Option<&Value>)) {
    let known = known.filter(|known| {
        !value.is_array() || is_same_list(value, known, |list, found| visit_all(list, None, found))
    });
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                visit_all(field, known.and_then(|known| known.get(name)), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                visit_all(item, known.and_then(|known| known.get(index)), found);
            }
        }
        secret => found(secret, known),
    }
}

/// Whether two lists are equal but for what `visit` calls secret. If not, items may have been removed, moved or changed, and the
/// secrets of one list cannot be assigned to the items of the other.
fn is_same_list(
    one: &Value,
    other: &Value,
    visit: impl Fn(&mut Value, &mut dyn FnMut(&mut Value, Option<&Value>)),
) -> bool {
    let redacted = |list: &Value| {
        let mut list = list.clone();
        visit(&mut list, &mut |secret, _| *secret = Value::from(REDACTED));
        list
    };
    redacted(one) == redacted(other)
}

/// Calls `found` with each secret in `value`, which all of `schemas` describe, and with its value in `known`.
fn visit(
    schemas: &[&Value],
    root: &Value,
    value: &mut Value,
    known: Option<&Value>,
    found: &mut dyn FnMut(&mut Value, Option<&Value>),
    depth: usize,
) {
    let mut all = Vec::new();
    schemas.iter().for_each(|schema| expand(schema, root, &mut all, 0));
    if value.is_null() || all.is_empty() {
        return;
    }
    if depth >= MAX_DEPTH || all.iter().any(|schema| is_secret(schema, root)) {
        return found(value, known);
    }
    let known = known.filter(|known| {
        !value.is_array()
            || is_same_list(value, known, |list, found| visit(schemas, root, list, None, found, depth))
    });
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let below: Vec<_> = all.iter().flat_map(|schema| of_field(schema, name)).collect();
                visit(&below, root, field, known.and_then(|known| known.get(name)), found, depth + 1);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let below: Vec<_> = all.iter().flat_map(|schema| of_item(schema, index)).collect();
                visit(&below, root, item, known.and_then(|known| known.get(index)), found, depth + 1);
            }
        }
        _ => {}
    }
}

/// `schema` and all that it says of the same value.
fn expand<'a>(schema: &'a Value, root: &'a Value, into: &mut Vec<&'a Value>, depth: usize) {
    if depth >= MAX_DEPTH || into.len() >= 1000 || !schema.is_object() {
        return;
    }
    into.push(schema);
    if let Some(target) = schema["$ref"].as_str().and_then(|reference| target(reference, root)) {
        expand(target, root, into, depth + 1);
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        let choices = schema[word].as_array().into_iter().flatten();
        choices.for_each(|schema| expand(schema, root, into, depth + 1));
    }
    for word in ["if", "then", "else"] {
        expand(&schema[word], root, into, depth + 1);
    }
    // Lists of names among the older `dependencies` are no schemas.
    for word in ["dependentSchemas", "dependencies"] {
        let dependent = schema[word].as_object().into_iter().flat_map(|schemas| schemas.values());
        dependent.for_each(|schema| expand(schema, root, into, depth + 1));
    }
}

/// The part of the schema `root` that `reference` names, if it is a plain pointer.
fn target<'a>(reference: &str, root: &'a Value) -> Option<&'a Value> {
    let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

/// Whether `schema`, a part of `root`, marks its value, or refers to what is not found.
fn is_secret(schema: &Value, root: &Value) -> bool {
    let is_lost = |reference: &Value| match reference {
        Value::Null => false,
        Value::String(reference) => target(reference, root).is_none(),
        _ => true,
    };
    schema["writeOnly"] == true
        || schema["format"] == "password"
        || is_lost(&schema["$ref"])
        || ["$dynamicRef", "$recursiveRef"].iter().any(|word| !schema[*word].is_null())
}

fn of_field<'a>(schema: &'a Value, name: &str) -> Vec<&'a Value> {
    let mut of_field: Vec<_> = schema["properties"].get(name).into_iter().collect();
    // Patterns are not matched: a value that one of them marks is redacted under any name.
    of_field
        .extend(schema["patternProperties"].as_object().into_iter().flat_map(|patterns| patterns.values()));
    if schema["properties"].get(name).is_none() {
        of_field.extend([&schema["additionalProperties"], &schema["unevaluatedProperties"]]);
    }
    of_field
}

fn of_item(schema: &Value, index: usize) -> Vec<&Value> {
    let listed = |word: &str| schema[word].as_array().and_then(|schemas| schemas.get(index));
    let mut of_item: Vec<_> = [listed("prefixItems"), listed("items")].into_iter().flatten().collect();
    of_item.extend([
        &schema["items"],
        &schema["additionalItems"],
        &schema["unevaluatedItems"],
        &schema["contains"],
    ]);
    of_item
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets() -> Secrets {
        let schema = json!({
            "properties": {
                "host": {"type": "string"},
                "password": {"type": "string", "writeOnly": true},
                "pin": {"anyOf": [{"type": "integer", "format": "password"}, {"type": "null"}]},
                "devices": {"type": "array", "items": {"$ref": "#/$defs/device"}},
            },
            "additionalProperties": {"allOf": [{"properties": {"key": {"writeOnly": true}}}]},
            "$defs": {"device": {"properties": {
                "name": {"type": "string"},
                "token": {"format": "password"},
                "parent": {"$ref": "#/$defs/device"},
            }}},
        });
        Secrets::of(Some(&schema.to_string()))
    }

    fn config() -> Value {
        json!({"host": "h", "password": "p1", "pin": 7, "other": {"key": "p2", "x": 1},
            "devices": [{"name": "n", "token": "p3", "parent": {"token": "p4"}}, {"name": "m", "token": null}]})
    }

    fn redacted(config: &Value) -> Value {
        serde_json::from_str(&secrets().redact(config.to_string())).unwrap()
    }

    #[test]
    fn marked_values_are_redacted_wherever_they_stand() {
        let expected = json!({"host": "h", "password": REDACTED, "pin": REDACTED, "other": {"key": REDACTED, "x": 1},
            "devices": [{"name": "n", "token": REDACTED, "parent": {"token": REDACTED}}, {"name": "m", "token": null}]});
        assert_eq!(redacted(&config()), expected);
        let plain = " {\"host\":   \"h\"}";
        assert_eq!(secrets().redact(plain.to_owned()), plain);
    }

    #[test]
    fn redacted_text_sent_back_keeps_the_secrets() {
        let known = config().to_string();
        let back = |config: &Value| secrets().restore(config.to_string(), Some(&known));
        let mut changed = redacted(&config());
        assert_eq!(serde_json::from_str::<Value>(&back(&changed).unwrap()).unwrap(), config());
        changed["host"] = json!("elsewhere");
        changed["pin"] = json!(8);
        let mut expected = config();
        (expected["host"], expected["pin"]) = (json!("elsewhere"), json!(8));
        assert_eq!(serde_json::from_str::<Value>(&back(&changed).unwrap()).unwrap(), expected);
        // There is no second device with a token of its own to keep.
        changed["devices"][1]["token"] = json!(REDACTED);
        changed["devices"][1]["parent"] = json!({"token": REDACTED});
        assert!(back(&changed).is_err());
        assert!(secrets().restore(redacted(&config()).to_string(), None).is_err());
    }

    #[test]
    fn secrets_of_a_list_that_was_changed_are_not_given_to_other_items() {
        let device = |host: &str, secret: &str| json!({"name": host, "token": secret});
        let known = json!({"devices": [device("a", "p1"), device("b", "p2")]}).to_string();
        let back = |devices: Value| {
            let restored = secrets().restore(json!({"devices": devices}).to_string(), Some(&known));
            restored.map(|text| serde_json::from_str::<Value>(&text).unwrap())
        };
        let (a, b) = (device("a", REDACTED), device("b", REDACTED));
        assert_eq!(back(json!([a, b])).unwrap().to_string(), known);
        assert!(back(json!([b])).is_err(), "the first was removed");
        assert!(back(json!([b, a])).is_err(), "they were exchanged");
        assert!(back(json!([device("c", REDACTED), b])).is_err(), "the first is another one");
        let anew = json!([device("b", "p2")]);
        assert_eq!(back(anew.clone()).unwrap(), json!({"devices": anew}));
        let one_anew = back(json!([a, device("b", "p3")])).unwrap();
        assert_eq!(one_anew["devices"], json!([device("a", "p1"), device("b", "p3")]));
        let unknown = Secrets::of(None);
        let redacted = unknown.redact(json!(["p1", "p2"]).to_string());
        assert!(unknown.restore(redacted, Some("[\"p1\",\"p2\",\"p3\"]")).is_err());
    }

    #[test]
    fn what_a_schema_refers_to_in_ways_that_are_not_followed_is_secret() {
        let redacted = |schema: Value| {
            let schema = json!({"properties": {"a": schema}, "$defs": {"odd name": {"writeOnly": true},
                "plain": {"type": "string"}, "anchored": {"$anchor": "here", "writeOnly": true}}});
            Secrets::of(Some(&schema.to_string())).redact(json!({"a": "p1"}).to_string()).contains(REDACTED)
        };
        for schema in [
            json!({"$ref": "#here"}),
            json!({"$ref": "#/$defs/odd%20name"}),
            json!({"$ref": "other.json"}),
            json!({"$ref": "#/$defs/nothing"}),
            json!({"$dynamicRef": "#here"}),
            json!({"$recursiveRef": "#"}),
            json!({"dependentSchemas": {"b": {"writeOnly": true}}}),
            json!({"dependencies": {"b": {"writeOnly": true}, "c": ["d"]}}),
            json!({"if": {"writeOnly": true}}),
        ] {
            assert!(redacted(schema.clone()), "{schema}");
        }
        assert!(!redacted(json!({"$ref": "#/$defs/plain"})));
    }

    #[test]
    fn without_a_schema_every_value_is_redacted() {
        let config = Secrets::of(None).redact(config().to_string());
        assert!(
            !config.contains('p') || !["p1", "p2", "p3", "p4"].iter().any(|secret| config.contains(secret))
        );
        assert!(!config.contains("\"h\"") && config.contains("null"), "{config}");
    }

    #[test]
    fn a_recursive_schema_terminates() {
        let schema = json!({"$ref": "#", "anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let secrets = Secrets::of(Some(&schema.to_string()));
        assert_eq!(secrets.redact("{\"a\":1}".to_owned()), "{\"a\":1}");
    }
}
