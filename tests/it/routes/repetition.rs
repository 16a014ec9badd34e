//! POSTs that are repeated with their key because their answer was lost.

use serde_json::Value;

use super::{
    cases::{Access, Route, routes},
    subjects::{Clients, Subjects},
};
use crate::harness::{ADMIN, Answer, Client, PASSWORD, Receiver, World};

/// Routes that are not tried here: those that end the login that repeats them, need a provider of logins, a server of
/// releases or a bundle in force, and forms with files and line protocol, which have tests of their own.
const ELSEWHERE: [&str; 21] = [
    "apply_firmware",
    "change_password",
    "check_firmware",
    "extract",
    "extract_document",
    "extract_raw",
    "logout",
    "make_searchable_pdf",
    "prometheus_read",
    "prometheus_write",
    "query_databases_by_form",
    "rollback_firmware",
    "sso_exchange",
    "submit_document",
    "submit_extraction_job",
    "submit_extraction_jobs",
    "test_agent",
    "upload_firmware",
    "upload_plugin_package",
    "write_lines",
    "write_lines_v1",
];

fn posts() -> impl Iterator<Item = Route> {
    routes().into_iter().filter(|route| {
        // Agents have ways of their own to say things twice.
        let is_tried = route.method == "POST" && route.access != Access::Agent;
        is_tried && !ELSEWHERE.contains(&route.id())
    })
}

/// The body of the table, made to name what is there.
fn body(route: &Route, subjects: &Subjects, receiver: &Receiver) -> Option<Value> {
    let text = route.body.as_ref()?.to_string();
    let text = text.replace("\"unknown\"", &format!("\"{}\"", subjects.event));
    let text = text.replace("agent_id\":1", &format!("agent_id\":{}", subjects.agent.id));
    let text = text.replace("nobody@example.org", ADMIN).replace("not the password", PASSWORD);
    let text = text.replace("https://example.org", &receiver.url());
    Some(serde_json::from_str(&text).unwrap())
}

async fn send(client: &Client, route: &Route, path: &str, body: Option<&Value>, attempt: &str) -> Answer {
    let request = client.request(route.method.parse().unwrap(), path);
    let request = request.header("idempotency-key", route.name().replace(' ', "-"));
    let request = request.header("x-request-id", attempt);
    client.send(body.iter().fold(request, |request, body| request.json(body))).await
}

/// The names in an answer: its place and all keys and secrets in it. States and times change, and logins contain
/// their time.
fn named(answer: &Answer) -> (Option<String>, Vec<String>) {
    let mut keys = Vec::new();
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let one = ["id", "public_id", "token", "value"].iter().map(|name| &body[name]);
    let many = body["data"].as_array().into_iter().flatten().map(|one| &one["public_id"]);
    let is_login = |key: &Value| key.as_str().is_some_and(|key| key.starts_with("eyJ"));
    keys.extend(one.chain(many).filter(|key| !key.is_null() && !is_login(key)).map(Value::to_string));
    (answer.header("location").map(str::to_owned), keys)
}

#[tokio::test]
async fn no_post_is_done_twice_when_its_answer_is_lost() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let subjects = Subjects::new(&world).await;
    let clients = Clients::new(&world, &subjects).await;
    // So that there is something to go back to, and to try again.
    for route in routes().iter().filter(|route| route.method == "PUT" && route.subject.has_history()) {
        let body = body(route, &subjects, &receiver).unwrap();
        world.admin.put(&route.path(&subjects), body).await.expect(200);
    }
    world.admin.delete(&format!("/api/v1/jobs/{}", subjects.extraction)).await.expect(200);
    // So that another one can begin.
    world.admin.delete(&format!("/api/v1/experiments/{}", subjects.experiment)).await.expect(200);
    let known = routes();
    assert!(ELSEWHERE.iter().all(|name| known.iter().any(|route| route.id() == *name)));
    let mut tried = 0;
    for route in posts() {
        let path = route.path(&subjects);
        let client = match route.template.as_str() {
            "/api/auth/refresh" => world.anonymous().log_in(ADMIN, PASSWORD).await,
            _ => route.least(&clients).clone(),
        };
        let body = body(&route, &subjects, &receiver);
        let first = send(&client, &route, &path, body.as_ref(), "first").await;
        let is_done = (200..300).contains(&first.status);
        assert!(is_done, "{}: {} {}", route.name(), first.status, first.text());
        world.lose_kept_answers().await;
        let again = send(&client, &route, &path, body.as_ref(), "again").await;
        let place = format!("{}: {}", route.name(), again.text());
        assert_eq!((again.status, named(&again)), (first.status, named(&first)), "{place}");
        let written = "SELECT count(*) FROM events WHERE metadata->>'correlation' = 'again'";
        let written: i64 = sqlx::query_scalar(written).fetch_one(&world.servers.pool).await.unwrap();
        assert_eq!(written, 0, "{place}");
        tried += 1;
    }
    assert!(tried >= 30, "{tried}");
    world.finish_with_mail().await;
}
