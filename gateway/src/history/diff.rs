use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{HIDDEN, SECRET};

/// A difference between two versions.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ChangeOut {
    /// `add`, `remove` or `replace`.
    #[schema(value_type = crate::words::ChangeOperation)]
    op: &'static str,
    /// JSON pointer of what is different; empty for the whole. Widgets are named by their ids.
    path: String,
    /// The old value; absent with `add`.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Value>,
    /// The new value; absent with `remove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Value>,
}

impl ChangeOut {
    /// Takes the secret away, that somebody sees that it changed, and not what it is.
    pub(super) fn hide_secret(&mut self) {
        for value in [&mut self.from, &mut self.to].into_iter().flatten() {
            let secret = if self.path.is_empty() {
                value.get_mut(SECRET)
            } else {
                Some(value).filter(|_| self.path == "/secret")
            };
            if let Some(secret) = secret.filter(|secret| !secret.is_null()) {
                *secret = HIDDEN.into();
            }
        }
    }
}

/// The changes from `before` to `after`. Lists are compared as a whole.
pub(super) fn diff(before: Option<Value>, after: Option<Value>) -> Vec<ChangeOut> {
    let mut changes = Vec::new();
    compare(String::new(), before, after, &mut changes);
    changes
}

fn compare(path: String, from: Option<Value>, to: Option<Value>, changes: &mut Vec<ChangeOut>) {
    match (from, to) {
        (Some(Value::Object(from)), Some(Value::Object(to))) => compare_fields(&path, from, to, changes),
        (from, to) if from == to => {}
        (from, to) => {
            let op = match (&from, &to) {
                (None, _) => "add",
                (_, None) => "remove",
                _ => "replace",
            };
            changes.push(ChangeOut { op, path, from, to });
        }
    }
}

fn compare_fields(
    path: &str,
    mut from: Map<String, Value>,
    to: Map<String, Value>,
    changes: &mut Vec<ChangeOut>,
) {
    let below = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
    for (name, to) in to {
        compare(below(&name), from.remove(&name), Some(to), changes);
    }
    for (name, from) in from {
        compare(below(&name), Some(from), None, changes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(before: Value, after: Value) -> Value {
        json!(diff(Some(before), Some(after)))
    }

    #[test]
    fn only_differences_are_shown_with_their_places() {
        let before =
            json!({"name": "a", "retry": {"max": 3, "pause": 5}, "events": ["x"], "gone": 1, "a/b~": null});
        let after = json!({"name": "a", "retry": {"max": 4, "pause": 5}, "events": ["x", "y"], "new": null, "a/b~": 2});
        let expected = json!([
            {"op": "replace", "path": "/a~1b~0", "from": null, "to": 2},
            {"op": "replace", "path": "/events", "from": ["x"], "to": ["x", "y"]},
            {"op": "add", "path": "/new", "to": null},
            {"op": "replace", "path": "/retry/max", "from": 3, "to": 4},
            {"op": "remove", "path": "/gone", "from": 1},
        ]);
        assert_eq!(shown(before.clone(), after), expected);
        assert_eq!(shown(before.clone(), before), json!([]));
    }

    #[test]
    fn additions_and_removals_are_shown_as_a_whole() {
        let whole = json!({"name": "a"});
        let made = json!([{"op": "add", "path": "", "to": {"name": "a"}}]);
        assert_eq!(json!(diff(None, Some(whole.clone()))), made);
        let gone = json!([{"op": "remove", "path": "", "from": {"name": "a"}}]);
        assert_eq!(json!(diff(Some(whole), None)), gone);
        assert_eq!(diff(None, None), []);
    }
}
