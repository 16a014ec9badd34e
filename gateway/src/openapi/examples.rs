//! An example of each operation's request and answer: recorded from the tests by `make examples`, or written by hand where
//! no test shows a good one.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::walk::Operation;

/// By operation: `request`, and `answer` with its `status` and `media` type, each where there is one.
static EXAMPLES: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

/// Shows the example of `operation`, if there is one.
pub(super) fn show(operation: &mut Operation<'_>) {
    let Some(example) = EXAMPLES.get(operation.id()) else { return };
    if let Some(request) = example.get("request") {
        let media = operation.value.pointer_mut("/requestBody/content").and_then(Value::as_object_mut);
        for (_, media) in media.into_iter().flatten() {
            media["example"] = request.clone();
        }
    }
    let (Some(status), Some(media)) = (example["status"].as_str(), example["media"].as_str()) else { return };
    let answer = operation.value["responses"]
        .get_mut(status)
        .and_then(|answer| answer.get_mut("content")?.get_mut(media));
    if let (Some(answer), Some(shown)) = (answer, example.get("answer")) {
        answer["example"] = shown.clone();
    }
}
