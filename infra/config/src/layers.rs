//! Settings as values that lie over each other: defaults, a file, the environment.

use std::path::Path;

use toml::{Table, Value};

use crate::{ConfigError, error::invalid};

/// How the names of our own variables begin.
pub(crate) const PREFIX: &str = "SIGNALBOX_";

/// The values of `text`, which stands in the file at `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        ConfigError::Syntax { path: path.to_owned(), line, fault: error.message().to_owned() }
    })
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
    let Some(path) = path_of(name) else { return Ok(()) };
    let (section, key) = path.split_once('.').unwrap_or_default();
    let known = values.get_mut(section).and_then(Value::as_table_mut).and_then(|table| table.get_mut(key));
    let slot = known.ok_or_else(|| invalid(&format!("{name} names no setting")))?;
    *slot =
        typed_like(slot, value).ok_or_else(|| invalid(&format!("{name} has a value of the wrong type")))?;
    Ok(())
}

/// The setting that the variable `name` sets, e.g. `server.address`.
pub(crate) fn path_of(name: &str) -> Option<String> {
    match name {
        "DATABASE_URL" => Some("database.url".to_owned()),
        "NATS_URL" => Some("nats.url".to_owned()),
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("telemetry.otlp_endpoint".to_owned()),
        _ => {
            let (section, key) = name.strip_prefix(PREFIX)?.split_once("__")?;
            Some(format!("{section}.{key}").to_ascii_lowercase())
        }
    }
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
