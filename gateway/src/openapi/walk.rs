//! Ways through the description as JSON.

use serde_json::{Map, Value};

use crate::{paths, problem::Dialect};

/// Tag of the routes for clients of InfluxDB.
const LINE_PROTOCOL: &str = "line protocol";

/// A described operation.
pub(super) struct Operation<'a> {
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) value: &'a mut Value,
}

impl Operation<'_> {
    pub(super) fn id(&self) -> &str {
        self.value["operationId"].as_str().unwrap_or_default()
    }

    pub(super) fn tag(&self) -> &str {
        self.value["tags"][0].as_str().unwrap_or_default()
    }

    /// Whether its errors are texts without codes of ours.
    pub(super) fn has_plain_errors(&self) -> bool {
        paths::dialect(self.path) == Dialect::Service1 || self.tag() == LINE_PROTOCOL
    }

    /// Whether it shows JSON when it succeeds.
    pub(super) fn shows_json(&self) -> bool {
        let answers = self.value["responses"].as_object().into_iter().flatten();
        answers
            .filter(|(status, _)| status.starts_with('2'))
            .any(|(_, answer)| answer["content"].get("application/json").is_some())
    }

    /// The statuses that it answers, ascending.
    pub(super) fn statuses(&self) -> Vec<String> {
        self.value["responses"].as_object().into_iter().flat_map(Map::keys).cloned().collect()
    }
}

/// Calls `each` with every operation of `document`.
pub(super) fn operations(document: &mut Value, mut each: impl FnMut(Operation<'_>)) {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths {
        for (method, value) in item.as_object_mut().into_iter().flatten() {
            each(Operation { path, method, value });
        }
    }
}

/// Calls `each` with the name of every component and each of its fields, those of its parts included.
pub(super) fn fields(schemas: &mut Map<String, Value>, mut each: impl FnMut(&str, &str, &mut Value)) {
    for (name, schema) in schemas {
        fields_of(schema, &mut |field, value| each(name, field, value));
    }
}

fn fields_of(schema: &mut Value, each: &mut impl FnMut(&str, &mut Value)) {
    for (field, value) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        each(field, value);
    }
    for part in schema.get_mut("allOf").and_then(Value::as_array_mut).into_iter().flatten() {
        fields_of(part, each);
    }
}
