//! Policies of routes against their description.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use signalbox_gateway::{Dialect, Policy, RateClass, Repetition, policies};

use crate::harness::description;

/// Sockets, which are not described.
const SOCKETS: [&str; 4] =
    ["/api/agent/ws", "/ws/agent", "/ws/controller/telemetry", "/ws/datapoints/stream"];

/// Functions of handlers that read what was written, or call one that does.
const READS: [&str; 9] = [
    "after_write(",
    "after_write_or(",
    "find_written::<",
    "changed::<",
    "created::<",
    "changed(&",
    "created(&",
    "delivered_again(",
    "write(change",
];

struct Operation {
    name: String,
    policy: Policy,
    value: Value,
}

impl Operation {
    /// Names of the credentials that it takes; an empty one if it needs none.
    fn credentials(&self) -> Vec<String> {
        match self.value["security"].as_array() {
            None => vec![String::new()],
            Some(all) => all.iter().map(|one| one.as_object().unwrap().keys().cloned().collect()).collect(),
        }
    }
}

/// Every described operation. Fails for one without a policy, or with two.
fn operations() -> Vec<Operation> {
    let mut known: HashMap<String, Vec<Policy>> = HashMap::new();
    for route in policies() {
        known.entry(format!("{} {}", route.method, route.path)).or_default().push(route.policy);
    }
    let mut found = Vec::new();
    for (path, item) in description()["paths"].as_object().unwrap() {
        for (method, value) in item.as_object().unwrap() {
            let name = format!("{} {path}", method.to_uppercase());
            let of_operation = known.remove(&name).unwrap_or_else(|| panic!("{name} has no policy"));
            let [policy] = of_operation[..] else { panic!("{name} has {} policies", of_operation.len()) };
            found.push(Operation { name, policy, value: value.clone() });
        }
    }
    let mut rest: Vec<_> = known.into_keys().collect();
    rest.sort_unstable();
    assert_eq!(rest, SOCKETS.map(|path| format!("GET {path}")));
    found
}

fn names(fits: impl Fn(&Operation) -> bool) -> Vec<String> {
    operations().into_iter().filter(fits).map(|operation| operation.name).collect()
}

#[test]
fn every_route_has_one_policy() {
    assert!(operations().len() > 100);
}

#[test]
fn errors_are_described_in_the_dialect_of_the_route() {
    for Operation { name, policy, value } in operations() {
        let refusals =
            value["responses"].as_object().unwrap().iter().filter(|(status, _)| status.as_str() >= "400");
        for (status, refusal) in refusals.filter(|_| !policy.is_probe()) {
            let expected = match policy.dialect {
                Dialect::Service1 | Dialect::Influx => "application/json",
                Dialect::Problem => "application/problem+json",
            };
            assert!(refusal["content"][expected].is_object(), "{name}: {status}");
        }
    }
}

#[test]
fn bodies_of_files_are_not_kept_to_recognise_repetitions() {
    let takes_files = |value: &Value| {
        value["requestBody"]["content"]
            .as_object()
            // Lines and samples are read into memory anyway.
            .is_some_and(|kinds| {
                let small = ["application/json", "application/x-protobuf", "text/plain"];
                !small.iter().any(|kind| kinds.contains_key(*kind))
            })
    };
    let found = names(|operation| {
        let by_body = operation.policy.repetition == Repetition::ByBody;
        operation.name.starts_with("POST ") && takes_files(&operation.value) && by_body
    });
    assert_eq!(found, [""; 0]);
    assert!(names(|operation| takes_files(&operation.value)).len() > 6);
}

#[test]
fn open_posts_are_those_without_a_credential() {
    let posts = |operation: &Operation| operation.name.starts_with("POST ");
    let found = names(|operation| posts(operation) && operation.policy.is_open);
    let described = names(|operation| posts(operation) && operation.credentials().contains(&String::new()));
    assert_eq!(found, described);
    assert!(found.contains(&"POST /api/auth/login".to_owned()));
}

#[test]
fn agents_and_probes_alone_are_not_counted() {
    let found = names(|operation| operation.policy.rate == RateClass::Uncounted);
    let expected = names(|operation| {
        operation.policy.is_probe() || operation.credentials().contains(&"agent".to_owned())
    });
    assert_eq!(found, expected);
    assert_eq!(
        names(|operation| operation.policy.is_probe()),
        ["GET /api/health", "GET /api/v1/health", "GET /health", "GET /livez", "GET /readyz"]
    );
}

#[test]
fn gets_and_named_posts_change_nothing() {
    let found = names(|operation| operation.policy.is_read && !operation.name.starts_with("GET "));
    assert_eq!(
        found,
        [
            "POST /api/v1/datapoints/series",
            "POST /api/v1/prometheus/read",
            "POST /api/v1/rules/backtest",
            "POST /api/v1/rules/{id}/backtest"
        ]
    );
    assert_eq!(names(|operation| operation.name.starts_with("GET ") && !operation.policy.is_read), [""; 0]);
}

/// The ids of operations whose handlers read what they have written.
fn reading() -> Vec<String> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway/src"), &mut files);
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        for handler in text.split("#[utoipa::path(").skip(1) {
            // Up to the end of the function, which follows.
            let handler = handler.split("\n}\n").next().unwrap();
            let after = |begin: &str, end: char| handler.split(begin).nth(1)?.split(end).next();
            // An operation is called as its function is, unless it has a name.
            let id = after("operation_id = \"", '"').or_else(|| after("async fn ", '(')).unwrap();
            if READS.iter().any(|call| handler.contains(call)) {
                found.push(id.to_owned());
            }
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.is_dir() {
            sources(&file, found);
        } else {
            found.push(file);
        }
    }
}

#[test]
fn operations_that_read_what_they_have_written_say_what_follows_if_they_cannot() {
    let reading = reading();
    assert!(reading.len() > 40, "{reading:?}");
    let is_silent = |operation: &Operation| {
        let id = operation.value["operationId"].as_str().unwrap();
        let text = operation.value["responses"]["500"]["description"].as_str().unwrap_or_default();
        reading.iter().any(|known| known == id) && !text.contains("was made, but cannot be shown now")
    };
    assert_eq!(names(is_silent), [""; 0], "they can answer change_not_shown");
}
