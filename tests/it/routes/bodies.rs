//! Bodies that cannot be read, or that say what is not allowed.

use serde_json::{Map, Value, json};

use super::{
    cases::{Route, Subject, routes},
    pointers::pointer,
    subjects::{Clients, Subjects},
};
use crate::harness::{Answer, Client, World, description};

/// A longest text that no field takes.
const TOO_LONG: usize = 20_000;

/// Fields of the body by name: their types, and whether they must be there.
fn fields(route: &Route) -> Vec<(String, Vec<String>, bool)> {
    let schema = &route.operation["requestBody"]["content"]["application/json"]["schema"];
    let Some(name) = schema["$ref"].as_str() else { return Vec::new() };
    let schema = component(name);
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
    let properties: &Map<String, Value> = schema["properties"].as_object().unwrap();
    properties
        .iter()
        .map(|(name, property)| {
            let is_required = required.iter().any(|required| *required == name);
            (name.clone(), types(property), is_required)
        })
        .collect()
}

/// The component that a reference leads to.
pub(super) fn component(reference: &str) -> &'static Value {
    &description()["components"]["schemas"][reference.rsplit('/').next().unwrap()]
}

/// JSON types that `property` takes; none when it takes any.
fn types(property: &Value) -> Vec<String> {
    let name = |value: &Value| value.as_str().unwrap().to_owned();
    match &property["type"] {
        Value::String(_) => vec![name(&property["type"])],
        Value::Array(types) => types.iter().map(name).collect(),
        _ => match (property["$ref"].as_str(), property["oneOf"].as_array()) {
            (Some(name), _) => types(component(name)),
            (None, Some(parts)) => parts.iter().flat_map(types).collect(),
            (None, None) => Vec::new(),
        },
    }
}

pub(super) async fn send(
    route: &Route,
    client: &Client,
    path: &str,
    body: impl Into<reqwest::Body>,
) -> Answer {
    let request =
        client.request(route.method.parse().unwrap(), path).header("content-type", "application/json");
    client.send(request.body(body)).await
}

/// Fails unless `changed` is refused as invalid, in words that do not repeat it, with a pointer that leads to a described
/// field.
pub(super) async fn refuse(route: &Route, client: &Client, path: &str, field: &str, changed: Value) {
    let mut body = route.body.clone().unwrap();
    let shown = changed.to_string().chars().take(40).collect::<String>();
    match changed {
        Value::Null => drop(body.as_object_mut().unwrap().remove(field)),
        changed => body[field] = changed,
    }
    let answer = send(route, client, path, body.to_string()).await;
    // Credentials that cannot be anybody's are refused like any wrong ones.
    let is_login = (route.template.ends_with("/login") && answer.status == 401)
        || (route.template.ends_with("/exchange") && answer.status == 400);
    let place = format!("{} with {field} = {shown}: {}", route.name(), answer.text());
    // An id of another user, or a malformed one, is not found.
    let names_nothing = ["job_id", "event_public_id", "plugin_id"].contains(&field) && answer.status == 404;
    assert!(is_login || names_nothing || answer.status == route.invalid(), "{}: {place}", answer.status);
    assert!(!answer.text().contains("geheim"), "{place}");
    if answer.status == 422 {
        let pointer = pointer(route, &answer);
        // Two fields that contradict each other may be named by either.
        let is_contradicted = ["min_value", "max_value", "from", "to"].contains(&field);
        let fits = |pointer: &str| pointer.split('/').nth(1) == Some(field);
        assert!(is_contradicted || pointer.as_deref().is_some_and(fits), "{pointer:?}: {place}");
    }
}

pub(super) fn routes_with_body() -> impl Iterator<Item = Route> {
    routes().into_iter().filter(|route| route.body.is_some())
}

#[tokio::test]
async fn no_route_takes_a_body_that_cannot_be_read() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    for route in routes_with_body() {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        for broken in ["{", "{\"a\":", "nonsense", "{\"a\": 1e}", "\u{feff}{}", "{'a': 1}"] {
            send(&route, client, &path, broken).await.error(400);
        }
        send(&route, client, &path, vec![b'{', b'"', 0xff, b'"', b':', b'1', b'}']).await.error(400);
        for other in ["[]", "1", "\"text\"", "null", "true"] {
            let answer = send(&route, client, &path, other).await;
            assert_eq!(answer.status, route.invalid(), "{} with {other}: {}", route.name(), answer.text());
        }
        let deep = "[".repeat(100_000);
        send(&route, client, &path, deep).await.error(400);
        if route.operation["requestBody"]["required"] == true {
            send(&route, client, &path, "").await.error(400);
        }
        let most = if route.template.ends_with("/datapoints/batch") { 4 << 20 } else { 1 << 20 };
        let large = format!("{{\"x\": \"{}\"}}", "x".repeat(most));
        send(&route, client, &path, large.clone()).await.error(413);
        let unannounced = futures::stream::iter([Ok::<_, std::io::Error>(large)]);
        send(&route, client, &path, reqwest::Body::wrap_stream(unannounced)).await.error(413);
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn no_route_takes_a_field_of_a_wrong_type_or_length() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    for route in routes_with_body() {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        let fields = fields(&route);
        assert!(!fields.is_empty(), "{} has no described fields", route.name());
        // An agent's description of itself is read as far as possible.
        let lenient = ["/api/agent/connect", "/api/agent/messages"].contains(&route.template.as_str());
        for (field, types, is_required) in fields {
            if is_required {
                refuse(&route, client, &path, &field, Value::Null).await;
            }
            let is = |expected: &str| types.iter().any(|known| known == expected);
            if types.is_empty() || (lenient && field != "type") {
                continue;
            }
            if !is("string") {
                refuse(&route, client, &path, &field, json!("geheim")).await;
            } else {
                refuse(&route, client, &path, &field, json!(5)).await;
                // Unknown kinds of messages are ignored.
                if !lenient {
                    refuse(&route, client, &path, &field, json!("geheim\0")).await;
                    refuse(&route, client, &path, &field, json!("geheim".repeat(TOO_LONG / 6))).await;
                }
            }
            refuse(&route, client, &path, &field, json!([["geheim"]])).await;
            if !is("object") {
                refuse(&route, client, &path, &field, json!({"geheim": "geheim"})).await;
            }
            if is("integer") {
                for wrong in [json!(1.5), json!(-1), json!(1e300), json!(u64::MAX)] {
                    // A token that expires in no days does not expire.
                    if !(field == "expires_in" && wrong == json!(-1)) {
                        refuse(&route, client, &path, &field, wrong).await;
                    }
                }
            }
        }
    }
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

/// An id as the route takes them, which names nothing.
fn missing_id(route: &Route) -> &'static str {
    if route.is_v1() { "018f0000-0000-7000-8000-000000000000" } else { "999999" }
}

/// Values that the rules of their fields forbid.
fn forbidden() -> Vec<(&'static str, Value)> {
    vec![
        ("name", json!("  ")),
        ("version", json!(0)),
        ("type", json!("geheim")),
        ("overlap", json!("geheim")),
        ("role", json!("geheim")),
        ("source_agent_id", json!(999_999)),
        ("destination_agent_id", json!(0)),
        ("agent_id", json!(999_999)),
        ("source_path", json!("")),
        ("destination_path", json!(" ")),
        ("schedule", json!("geheim")),
        ("schedule", json!("* * * * * * * *")),
        ("schedule", json!("61 * * * * *")),
        ("schedule", json!("0 0 0 1 1 * 2030")),
        ("schedule", json!("@daily")),
        ("schedule", json!("0 0 0 31 2 *")),
        ("timezone", json!("Mars/Geheim")),
        ("retry", json!({"max_attempts": 0})),
        ("retry", json!({"max_attempts": 11})),
        ("retry", json!({"backoff_seconds": 86_401})),
        ("expires_in", json!(36_501)),
        ("filename", json!("")),
        ("email", json!("no address")),
        ("username", json!("x")),
        ("password", json!("short")),
        ("password", json!("x".repeat(257))),
        ("new_password", json!("short")),
        ("old_password", json!("")),
        ("expires_at", json!("soon")),
        ("content", json!(" ")),
        ("source", json!(" ")),
        ("logging_type", json!("geheim")),
        ("status_type", json!("geheim")),
        ("status", json!("geheim")),
        ("widget_type", json!("geheim")),
        ("title", json!(" ")),
        ("x", json!(10_001)),
        ("y", json!(-1)),
        ("w", json!(0)),
        ("h", json!(13)),
        ("event_public_id", json!("018f0000-0000-7000-8000-000000000000")),
        ("min_value", json!(10)),
        ("max_value", json!(-1)),
        ("timestamp", json!("2099-01-01T00:00:00")),
        ("timestamp", json!("1969-12-31T23:59:59Z")),
        ("datapoints", json!([])),
        ("datapoints", json!([{"value": "one", "event_public_id": "geheim"}])),
        ("event_public_ids", json!([])),
        ("minutes", json!(0)),
        ("minutes", json!(14_401)),
        ("max_points", json!(9)),
        ("max_points", json!(2001)),
        ("aggregate", json!("geheim")),
        ("operator", json!("geheim")),
        ("threshold_high", json!(0.25)),
        ("action_type", json!("geheim")),
        ("webhook_event_type", json!("sensor.geheim")),
        ("cooldown_seconds", json!(31_622_401)),
        ("for_seconds", json!(31_622_401)),
        ("keep_firing_seconds", json!(31_622_401)),
        ("clear_threshold", json!(0.25)),
        ("no_data_seconds", json!(0)),
        ("rate_window_seconds", json!(86_401)),
        ("severity", json!("geheim")),
        ("until", json!("2001-01-01T00:00:00Z")),
        ("comment", json!(" ")),
        ("url", json!("ftp://geheim")),
        ("url", json!("http://geheim:geheim@example.org/")),
        ("events", json!([])),
        ("events", json!(["sensor.geheim"])),
        ("secret", json!("x".repeat(256))),
        ("instance_name", json!(" ")),
        ("channel_id", json!(" ")),
        ("channel_name", json!(" ")),
        ("direction", json!("geheim")),
        ("unit", json!("x".repeat(256))),
        ("since", json!("geheim")),
        ("from", json!("geheim")),
        ("to", json!("2026-03-01T09:00:00Z")),
    ]
}

#[tokio::test]
async fn no_route_takes_a_value_that_its_rules_forbid() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let before = world.count_all_events().await;
    let forbidden = forbidden();
    let mut tried = 0;
    for route in routes_with_body() {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        let is_message = route.template.starts_with("/api/agent/") || route.template.ends_with("/login");
        for (field, value) in &forbidden {
            if !is_message && route.body.as_ref().unwrap().get(field).is_some() {
                refuse(&route, client, &path, field, value.clone()).await;
                tried += 1;
            }
        }
    }
    assert!(tried > 40, "{tried}");
    assert_eq!(world.count_all_events().await, before);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn values_are_judged_before_existence() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    // Whether these exist is judged together with the resource itself.
    let names = ["source_agent_id", "destination_agent_id", "agent_id", "event_public_id"];
    let mut found = Vec::new();
    for route in routes_with_body().filter(|route| route.subject != Subject::Nothing) {
        let client = route.least(&clients);
        for (field, value) in forbidden() {
            if names.contains(&field) || route.body.as_ref().unwrap().get(field).is_none() {
                continue;
            }
            let mut body = route.body.clone().unwrap();
            body[field] = value.clone();
            let answer = send(&route, client, &route.path_with(missing_id(&route)), body.to_string()).await;
            if answer.status != route.invalid() {
                found.push(format!("{} with {field} = {value}: {}", route.name(), answer.status));
            }
        }
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
    world.finish_with_mail().await;
}

#[tokio::test]
async fn ranges_of_parameters_are_judged_before_existence() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let mut found = Vec::new();
    for route in routes().iter().filter(|route| route.subject != Subject::Nothing) {
        let client = route.least(&clients);
        let parameters = route.operation["parameters"].as_array().into_iter().flatten();
        for name in
            parameters.filter(|known| known["in"] == "query").map(|known| known["name"].as_str().unwrap())
        {
            let wrong = match name {
                "limit" | "page" | "page_size" => "0",
                "offset" => "-1",
                "at" | "from" | "to" | "until" => "yesterday",
                _ => continue,
            };
            let path = format!("{}?{name}={wrong}", route.path_with(missing_id(route)));
            let answer = client.send(route.request(client, &path)).await;
            if answer.status != route.invalid() {
                found.push(format!("{} ?{name}={wrong}: {}", route.name(), answer.status));
            }
        }
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
    world.finish_with_mail().await;
}

#[tokio::test]
async fn null_is_refused_where_a_field_cannot_be_empty() {
    let world = World::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    let (mut found, mut tried) = (Vec::new(), 0);
    let changes =
        routes_with_body().filter(|route| route.method == "PUT" && route.template != "/api/v1/users/{id}");
    for route in changes {
        let (client, path) = (route.least(&clients), route.path(&subjects));
        for (field, types, _) in fields(&route) {
            if types.iter().any(|known| known == "null") {
                continue;
            }
            let answer = send(&route, client, &path, json!({ field.as_str(): null }).to_string()).await;
            if answer.status != route.invalid() {
                found.push(format!(
                    "{} with {field} = null: {} {}",
                    route.name(),
                    answer.status,
                    answer.text()
                ));
            }
            tried += 1;
        }
    }
    assert!(found.is_empty(), "{}: {found:#?}", found.len());
    assert!(tried > 30, "{tried}");
    // Existing clients send null for what stays as it is.
    let path = format!("/api/v1/users/{}", subjects.user);
    let user = world.admin.get(&path).await.expect(200);
    world.admin.put(&path, json!({"email": null, "username": null, "role": null})).await.expect(200);
    let same = world.admin.get(&path).await.expect(200);
    assert_eq!((&user["email"], &user["username"]), (&same["email"], &same["username"]));
    world.finish_with_mail().await;
}
