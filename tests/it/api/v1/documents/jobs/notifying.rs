//! Callbacks and subscribers are notified when a job finishes.

use serde_json::{Value, json};

use super::{JOBS, sample, send_form, until_status, world};
use crate::{
    api::v1::log::{correlation_of, until_delivered},
    harness::{Receiver, World, eventually, seconds},
};

async fn submit(world: &World, name: &str, bytes: &[u8], fields: &[(&str, &str)]) -> Value {
    let fields = fields.iter().map(|(name, value)| (*name, None, value.as_bytes()));
    let parts: Vec<_> = [("file", Some(name), bytes)].into_iter().chain(fields).collect();
    send_form(&world.admin, JOBS, &parts).await.expect(202)
}

#[tokio::test]
async fn a_callback_is_signed_and_names_the_job_and_not_its_text() {
    let world = world(|_| {}).await;
    let receiver = Receiver::signed("my secret").await;
    let url = receiver.url();
    let named = [("callback_url", url.as_str()), ("callback_secret", "my secret")];
    let submitted = submit(&world, "Bericht.txt", b"words of the document", &named).await;
    assert!(submitted.get("callback_secret").is_none(), "{submitted}");
    let got = receiver.until_got(1).await.remove(0);
    assert_eq!(got.refused, None, "{got:?}");
    let body = got.json();
    let id = submitted["job_id"].as_str().unwrap();
    for (field, expected) in [
        ("type", json!("extraction.completed")),
        ("job_id", json!(id)),
        ("status", json!("completed")),
        ("filename", json!("Bericht.txt")),
        ("mime_type", json!("text/plain")),
        ("result", json!(format!("/api/v1/jobs/{id}/result"))),
        ("error", Value::Null),
        ("id", json!(got.header("x-webhook-id"))),
    ] {
        assert_eq!(body[field], expected, "{field}");
    }
    assert!(!got.body.contains("words of"), "{}", got.body);
    let status: String = sqlx::query_scalar("SELECT status FROM read.deliveries WHERE is_callback")
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    assert!(["pending", "delivered"].contains(&status.as_str()), "{status}");
    world.finish().await;
}

#[tokio::test]
async fn a_secret_is_made_for_a_callback_that_names_none() {
    let world = world(|_| {}).await;
    let receiver = Receiver::start().await;
    let url = receiver.url();
    let submitted = submit(&world, "a.pdf", &sample("truncated.pdf"), &[("callback_url", &url)]).await;
    assert!(submitted["callback_secret"].as_str().unwrap().starts_with("whsec_"));
    let got = receiver.until_got(1).await.remove(0);
    let body = got.json();
    assert_eq!(
        (&body["type"], &body["status"], &body["error_code"], &body["result"]),
        (&json!("extraction.failed"), &json!("failed"), &json!("corrupt_file"), &Value::Null)
    );
    assert!(got.header("webhook-signature").starts_with("v1,"));
    world.finish().await;
}

/// A receiver that is away is called again, under the same id.
#[tokio::test]
async fn a_callback_is_repeated_until_it_is_taken() {
    let world = world(|_| {}).await;
    let receiver = Receiver::with(None, crate::harness::Behaviour::Answer(500)).await;
    let url = receiver.url();
    submit(&world, "a.txt", b"text", &[("callback_url", &url)]).await;
    receiver.until_got(1).await;
    receiver.behave(crate::harness::Behaviour::Accept);
    let got = receiver.until_got(2).await;
    assert_eq!(got[0].header("x-webhook-id"), got[1].header("x-webhook-id"));
    assert_eq!(got[1].header("x-webhook-attempt"), "2");
    let open = "SELECT count(*) FROM read.deliveries WHERE is_callback AND due_at IS NOT NULL";
    eventually(seconds(10), async || {
        let open: i64 = sqlx::query_scalar(open).fetch_one(&world.servers.pool).await.unwrap();
        open == 0
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn subscribers_are_notified_of_all_jobs() {
    let world = world(|_| {}).await;
    let receiver = Receiver::start().await;
    let events = ["extraction.completed", "extraction.failed"];
    let webhook = json!({"url": receiver.url(), "events": events});
    world.admin.post("/api/v1/webhooks", webhook).await.expect(201);
    let stranger = world.anonymous();
    let good = super::submit(&stranger, "a.txt", b"text").await;
    until_status(&stranger, &good, "completed").await;
    let bad = super::submit(&world.admin, "a.pdf", &sample("truncated.pdf")).await;
    until_status(&world.admin, &bad, "failed").await;
    let got = receiver.until_got(2).await;
    let delivered: Vec<_> =
        got.iter().map(|got| (got.json()["type"].clone(), got.json()["job_id"].clone())).collect();
    assert!(
        delivered.contains(&(json!(events[0]), json!(good)))
            && delivered.contains(&(json!(events[1]), json!(bad)))
    );
    world.finish().await;
}

#[tokio::test]
async fn an_upload_leads_to_its_text_and_that_to_a_callback() {
    let world = world(|_| {}).await;
    let receiver = Receiver::signed("my secret").await;
    let url = receiver.url();
    submit(&world, "a.txt", b"text", &[("callback_url", &url), ("callback_secret", "my secret")]).await;
    receiver.until_got(1).await;
    let events = until_delivered(&world, &correlation_of(&world, "extraction_submitted").await).await;
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!((&events[0]["type"], &events[0]["depth"]), (&json!("extraction_submitted"), &json!(0)));
    assert!(events[0]["actor"].as_str().unwrap().starts_with("user:"));
    let completed = of("extraction_completed");
    assert_eq!(
        (&completed["outcome"], &completed["deliveries"][0]["status"]),
        (&json!("succeeded"), &json!("delivered"))
    );
    assert_eq!(of("callback_queued")["causation"], completed["position"]);
    assert_eq!(of("attempts_ended")["outcome"], "succeeded");
    world.finish().await;
}
