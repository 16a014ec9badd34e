//! Settings as values that lie over each other: defaults, a file, the environment.

use toml::{Table, Value};

use crate::{ConfigError, error::invalid};

/// How the names of our own variables begin.
pub(crate) const PREFIX: &str = "SIGNALBOX_";

/// The values of a TOML text.
pub(crate) fn parse(text: &str) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| invalid(error.message()))
}

/// Lays `over` over `values`.
pub(crate) fn merge(values: &mut Table, over: Table) {
    for (key, value) in over {
        match (values.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => merge(inner, over),
            // A ratio may be written as 1; it stays a number with a fraction.
            (Some(Value::Float(slot)), Value::Integer(whole)) => *slot = whole as f64,
            (_, value) => {
                values.insert(key, value);
            }
        }
    }
}

/// Lays the variable `name` over `values`, if it names a setting.
pub(crate) fn set_from_environment(values: &mut Table, name: &str, value: &str) -> Result<(), ConfigError> {
    let path = match name {
        "DATABASE_URL" => Some(("database".to_owned(), "url".to_owned())),
        "NATS_URL" => Some(("nats".to_owned(), "url".to_owned())),
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(("telemetry".to_owned(), "otlp_endpoint".to_owned())),
        _ => name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once("__"))
            .map(|(section, key)| (section.to_ascii_lowercase(), key.to_ascii_lowercase())),
    };
    let Some((section, key)) = path else { return Ok(()) };
    let known = values.get_mut(&section).and_then(Value::as_table_mut).and_then(|table| table.get_mut(&key));
    let slot = known.ok_or_else(|| invalid(&format!("{name} names no setting")))?;
    *slot =
        typed_like(slot, value).ok_or_else(|| invalid(&format!("{name} has a value of the wrong type")))?;
    Ok(())
}

/// `text` as a value of the same type as `example`; lists are separated by commas.
fn typed_like(example: &Value, text: &str) -> Option<Value> {
    match example {
        Value::Integer(_) => text.trim().parse().ok().map(Value::Integer),
        Value::Float(_) => text.trim().parse().ok().map(Value::Float),
        Value::Boolean(_) => text.trim().parse().ok().map(Value::Boolean),
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
        }
        _ => Some(Value::String(text.to_owned())),
    }
}
