//! Whether an answer is what the description of the interface promises.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex},
};

use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Value, json};

use super::Answer;

/// The description, as clients get it.
pub fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(signalbox_gateway::openapi);
    &DESCRIPTION
}

/// Fails the test when `answer` is not as described: status, media type, body, error shape, and the headers that
/// every answer has.
pub fn check(answer: &Answer) {
    let place = format!("{} {} -> {}: {}", answer.method, answer.path, answer.status, answer.text());
    assert!(answer.header("x-request-id").is_some_and(|id| !id.is_empty()), "no X-Request-ID: {place}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{place}");
    // The one failure that is a client's to see: of what it uploaded.
    assert!(answer.status != 500 || answer.text().contains("installation_failed"), "{place}");
    let path = plain(&answer.path);
    if path.starts_with("/api/docs") || path.ends_with("/openapi.json") {
        return;
    }
    if answer.status >= 400 && answer.method != Method::HEAD {
        check_error_shape(answer, &path, &place);
    }
    let Some((template, methods)) = find(&path) else {
        let is_socket = path.starts_with("/ws/") || path == "/api/agent/ws";
        assert!(is_socket || answer.status == 404, "not described: {place}");
        return;
    };
    let method = if answer.method == Method::HEAD { "get" } else { &answer.method.as_str().to_lowercase() };
    match methods.get(method) {
        Some(operation) => check_described(answer, operation, &format!("{method} {template}"), &place),
        None => assert!(matches!(answer.status, 405 | 429), "not described: {place}"),
    }
}

fn check_described(answer: &Answer, operation: &Value, name: &str, place: &str) {
    let described = &operation["responses"][answer.status.to_string()];
    assert!(described.is_object(), "the status is not described: {place}");
    if answer.method == Method::HEAD || !answer.is_whole {
        return;
    }
    let Some(content) = described["content"].as_object() else {
        let free = matches!(answer.path.as_str(), "/livez" | "/readyz");
        assert!(free || answer.body.is_empty(), "no body is described: {place}");
        return;
    };
    let given = answer.header("content-type").unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default();
    let media =
        content.get(given).unwrap_or_else(|| panic!("the media type {given} is not described: {place}"));
    if given == "application/json" || given.ends_with("+json") {
        let body: Value = serde_json::from_slice(&answer.body).expect(place);
        validate(&format!("{name} {}", answer.status), &media["schema"], &body, place);
    }
}

/// Service 1: `{"error": string}` and nothing else. Line protocol: as InfluxDB. Services 2 and 3: RFC 9457 with the id of the request.
fn check_error_shape(answer: &Answer, path: &str, place: &str) {
    if matches!(path, "/health" | "/api/health" | "/api/v1/health" | "/readyz") {
        return;
    }
    let body: Value = serde_json::from_slice(&answer.body).expect(place);
    if matches!(path, "/api/v2/write" | "/write" | "/query" | "/ping") {
        assert_eq!(answer.header("content-type"), Some("application/json"), "{place}");
        for field in ["code", "message", "error"] {
            assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{field} is missing: {place}");
        }
        return;
    }
    if path.starts_with("/api/v1") || !(path.starts_with("/api") || path.starts_with("/ws/agent")) {
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{place}");
        let is_job = answer.status == 404 && path.starts_with("/api/v1/jobs/");
        let status = if is_job { json!("not_found") } else { json!(answer.status) };
        assert_eq!(body["status"], status, "{place}");
        assert_eq!(body["request_id"].as_str(), answer.header("x-request-id"), "{place}");
        for field in ["type", "title", "detail", "code"] {
            assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{field} is missing: {place}");
        }
        check_code(answer, body["code"].as_str().unwrap(), place);
        let is_snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(body["code"].as_str().unwrap().chars().all(is_snake), "{place}");
        let has_errors = body["errors"].as_array().is_some_and(|errors| !errors.is_empty());
        // A 404 has them when the body names what does not exist.
        assert!(has_errors == (answer.status == 422) || (has_errors && answer.status == 404), "{place}");
    } else {
        let fields = body.as_object().expect(place);
        assert_eq!(fields.len(), 1, "{place}");
        assert!(fields["error"].as_str().is_some_and(|text| !text.is_empty()), "{place}");
    }
}

/// Fails unless the description of the answer names its `code`. Paths and methods that are none are not described.
fn check_code(answer: &Answer, code: &str, place: &str) {
    let Some((_, operation)) = operation(answer) else { return };
    let described = operation["responses"][answer.status.to_string()]["description"].as_str().expect(place);
    assert!(described.contains(&format!("`{code}`")), "the description does not name {code}: {place}");
}

fn validate(name: &str, schema: &Value, body: &Value, place: &str) {
    static VALIDATORS: LazyLock<Mutex<HashMap<String, Validator>>> = LazyLock::new(Mutex::default);
    let problems: Vec<String> = {
        let mut validators = VALIDATORS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let validator = validators.entry(name.to_owned()).or_insert_with(|| validator(schema));
        validator.iter_errors(body).map(|error| format!("{}: {error}", error.instance_path())).collect()
    };
    assert!(problems.is_empty(), "{problems:?}: {place}");
}

/// Checks values against `schema`, which may refer to the components of the description.
pub fn validator(schema: &Value) -> Validator {
    let whole = json!({"allOf": [schema], "components": description()["components"]});
    let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012);
    options.should_validate_formats(true).build(&whole).unwrap()
}

/// The operation that gave `answer`, and its id.
pub fn operation(answer: &Answer) -> Option<(&'static str, &'static Value)> {
    let (_, methods) = find(&plain(&answer.path))?;
    let operation = methods.get(answer.method.as_str().to_lowercase())?;
    Some((operation["operationId"].as_str()?, operation))
}

/// The described path that `path` is one of.
fn find(path: &str) -> Option<(&'static str, &'static Value)> {
    let parts: Vec<_> = path.split('/').collect();
    let fits = |template: &str| {
        let pattern: Vec<_> = template.split('/').collect();
        pattern.len() == parts.len()
            && pattern.iter().zip(&parts).all(|(pattern, part)| pattern == part || pattern.starts_with('{'))
    };
    let paths = description()["paths"].as_object().unwrap();
    let exact = paths.get_key_value(path).or_else(|| paths.iter().find(|(template, _)| fits(template)));
    exact.map(|(template, methods)| (template.as_str(), methods))
}

/// `path` as the gateway reads it.
fn plain(path: &str) -> String {
    let path = path.strip_prefix("/api/api/").map_or_else(|| path.to_owned(), |rest| format!("/api/{rest}"));
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}
