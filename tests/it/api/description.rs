//! Whether the description of the interface says all that a client's author needs, part by part.

use std::{collections::BTreeSet, path::Path, process::Stdio};

use serde_json::{Map, Value};
use tokio::process::Command;

use crate::harness::{description, validator};

/// Texts and numbers of requests whose limit is not a length: a parser reads them, or they are compared with stored ones.
const UNBOUNDED: &[&str] = &[
    "AckIn.message_ids",
    "ApiTokenIn.expires_at",
    "BacktestIn.from",
    "BacktestIn.to",
    "DatapointIn.timestamp",
    "DocumentIn.processors",
    "DraftBacktestIn.from",
    "DraftBacktestIn.to",
    "ExtractionJobIn.processors",
    "ExtractionJobsIn.processors",
    "JobChangesIn.schedule",
    "JobChangesIn.timezone",
    "JobIn.schedule",
    "JobIn.timezone",
    "LoginIn.email",
    "LoginIn.password",
    "MappingChangesIn.event_public_id",
    "MappingIn.event_public_id",
    "MessageInOut.type",
    "PasswordIn.old_password",
    "SeriesIn.from",
    "SeriesIn.to",
    "SsoCodeIn.code",
];
/// Words that stand for a closed set wherever they name a field, but where anything may stand.
const OPEN: &[&str] = &[
    "ApiTokenCreatedOut.token",
    "JobNotFoundOut.status",
    "JobNotFoundOut.type",
    "LogEventOut.actor",
    "MessageInOut.type",
    "ProblemOut.type",
    "VersionOut.actor",
    "VersionOut.type",
];

fn schemas() -> &'static Map<String, Value> {
    description()["components"]["schemas"].as_object().unwrap()
}

/// Every operation with its name.
fn operations() -> impl Iterator<Item = (String, &'static Value)> {
    description()["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

/// Every field of every schema as `schema.field`.
fn fields() -> Vec<(String, &'static Value)> {
    let mut found = Vec::new();
    for (name, schema) in schemas() {
        let parts = schema["allOf"].as_array().into_iter().flatten();
        for part in parts.chain([schema]) {
            let properties = part["properties"].as_object().into_iter().flatten();
            found.extend(properties.map(|(field, value)| (format!("{name}.{field}"), value)));
        }
    }
    found
}

fn is_of(value: &Value, name: &str) -> bool {
    let types = &value["type"];
    types == name || types.as_array().is_some_and(|types| types.iter().any(|known| known == name))
}

fn has_text(value: &Value) -> bool {
    value["description"].as_str().is_some_and(|text| text.len() > 5)
}

#[test]
fn every_answer_field_and_parameter_is_described() {
    let mut missing = Vec::new();
    for (name, operation) in operations() {
        for (status, answer) in operation["responses"].as_object().unwrap() {
            if !has_text(answer) {
                missing.push(format!("{name} -> {status}"));
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if !has_text(parameter) {
                missing.push(format!("{name} {}", parameter["name"]));
            }
        }
    }
    missing.extend(fields().into_iter().filter(|(_, value)| !has_text(value)).map(|(name, _)| name));
    missing.extend(schemas().iter().filter(|(_, schema)| !has_text(schema)).map(|(name, _)| name.clone()));
    assert!(missing.is_empty(), "{} parts have no description: {missing:#?}", missing.len());
}

#[test]
fn every_error_names_its_causes() {
    let mut missing = Vec::new();
    for (name, operation) in operations() {
        for (status, answer) in operation["responses"].as_object().unwrap() {
            let is_problem = answer["content"]["application/problem+json"].is_object();
            let names_code = answer["description"].as_str().is_some_and(|text| text.starts_with('`'));
            if is_problem && !names_code {
                missing.push(format!("{name} -> {status}: {}", answer["description"]));
            }
        }
    }
    assert!(missing.is_empty(), "{} errors name no code: {missing:#?}", missing.len());
}

#[test]
fn every_closed_set_of_words_is_an_enum() {
    let names = ["status", "type", "role", "direction", "operator", "phase", "overlap", "op", "outcome"];
    let lists_words = |text: &str| text.matches('`').count() >= 4 && text.contains("` or `");
    let mut missing = Vec::new();
    for (place, value) in fields() {
        let field = place.split('.').nth(1).unwrap();
        let suspicious =
            names.contains(&field) || lists_words(value["description"].as_str().unwrap_or_default());
        if is_of(value, "string") && value["enum"].is_null() && suspicious && !OPEN.contains(&&*place) {
            missing.push(place);
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    let sets = schemas().values().filter(|schema| schema["enum"].is_array());
    assert!(sets.count() > 30);
}

/// Names of the schemas that requests consist of.
fn of_requests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Value> = operations().map(|(_, operation)| &operation["requestBody"]).collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                let name =
                    fields.get("$ref").and_then(Value::as_str).and_then(|text| text.rsplit('/').next());
                if let Some(name) = name.filter(|name| found.insert((*name).to_owned())) {
                    open.push(&schemas()[name]);
                }
                open.extend(fields.values());
            }
            Value::Array(entries) => open.extend(entries),
            _ => {}
        }
    }
    found
}

#[test]
fn parameters_have_the_bounds_and_words_that_their_texts_name() {
    let names_range = |text: &str| {
        let words: Vec<_> = text.split([' ', ',', ';', '.']).filter(|word| !word.is_empty()).collect();
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        words
            .windows(3)
            .any(|w| is_number(w[2]) && (is_number(w[0]) && w[1] == "to" || w[..2] == ["at", "most"]))
    };
    let names_words = |text: &str| {
        let words: Vec<_> = text.split('`').skip(1).step_by(2).collect();
        let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        text.contains("` or `") && words.len() > 1 && words.iter().all(is_word)
    };
    let mut missing = Vec::new();
    for (name, operation) in operations() {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let (text, schema) =
                (parameter["description"].as_str().unwrap_or_default(), &parameter["schema"]);
            let has = |keys: &[&str]| keys.iter().any(|key| !schema[key].is_null());
            let is_range = is_of(schema, "integer") && names_range(text) && !has(&["minimum", "maximum"]);
            let is_set = is_of(schema, "string") && names_words(text) && !has(&["enum"]);
            if is_range || is_set {
                missing.push(format!("{name} {}: {text}", parameter["name"]));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_limit_of_a_request_is_described() {
    let requests = of_requests();
    let mut missing = Vec::new();
    for (place, value) in fields() {
        let has = |keys: &[&str]| keys.iter().any(|key| !value[key].is_null());
        let is_bounded = match value {
            _ if !requests.contains(place.split('.').next().unwrap()) || UNBOUNDED.contains(&&*place) => true,
            _ if is_of(value, "string") => has(&["maxLength", "pattern", "enum", "format"]),
            _ if is_of(value, "array") => has(&["maxItems"]) || value["items"]["$ref"].is_string(),
            _ if is_of(value, "integer") => has(&["minimum", "maximum"]),
            _ => true,
        };
        if !is_bounded {
            missing.push(place);
        }
    }
    assert!(missing.is_empty(), "{} fields have no limit: {missing:#?}", missing.len());
}

/// The schema and the example of each body of `operation`.
fn bodies(operation: &'static Value) -> Vec<(String, &'static Value)> {
    let request = operation["requestBody"]["content"].as_object().into_iter().flatten();
    let request = request.map(|(media, body)| (format!("request {media}"), body));
    let answers = operation["responses"].as_object().into_iter().flatten();
    let answers = answers.filter(|(status, _)| status.as_str() < "300").flat_map(|(status, answer)| {
        let content = answer["content"].as_object().into_iter().flatten();
        content.map(move |(media, body)| (format!("answer {status} {media}"), body))
    });
    request.chain(answers).collect()
}

fn is_binary(body: &Value) -> bool {
    body["schema"]["format"] == "binary" || !body["schema"].is_object()
}

#[test]
fn every_operation_shows_an_example() {
    let mut missing = Vec::new();
    for (name, operation) in operations() {
        let bodies: Vec<_> = bodies(operation).into_iter().filter(|(_, body)| !is_binary(body)).collect();
        let (requests, answers): (Vec<_>, Vec<_>) =
            bodies.iter().partition(|(kind, _)| kind.starts_with("request"));
        for kind in [requests, answers] {
            if !kind.is_empty() && kind.iter().all(|(_, body)| body.get("example").is_none()) {
                missing.push(format!("{} of {name}: {}", kind[0].0, operation["operationId"]));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "{} examples are missing; run make examples, or write them: {missing:#?}",
        missing.len()
    );
}

#[test]
fn every_example_fits_its_schema() {
    let mut wrong = Vec::new();
    for (name, operation) in operations() {
        for (kind, body) in bodies(operation) {
            let Some(example) = body.get("example") else { continue };
            let errors: Vec<_> =
                validator(&body["schema"]).iter_errors(example).map(|error| error.to_string()).collect();
            if !errors.is_empty() {
                wrong.push(format!("{kind} of {name}: {errors:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "delete these from examples.json and run make examples: {wrong:#?}");
}

#[test]
fn every_operation_has_a_readable_name_and_a_tag() {
    for (name, operation) in operations() {
        let id = operation["operationId"].as_str().unwrap();
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(id.chars().all(is_word) && id.starts_with(|c: char| c.is_ascii_lowercase()), "{name}: {id}");
        assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{name}");
    }
}

#[tokio::test]
async fn a_validator_of_openapi_3_1_finds_nothing() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crate::harness::Folder::new();
    std::fs::write(folder.path("openapi.json"), description().to_string()).unwrap();
    let mut command = Command::new(top.join(".tools/node/bin/node"));
    command.arg(top.join("tests/clients/validate.mjs")).arg(folder.path("openapi.json"));
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.trim().is_empty(), "{text}");
}
