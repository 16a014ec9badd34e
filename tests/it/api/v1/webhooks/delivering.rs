//! Events reach strict receivers: signed, retried, on record.

use std::time::Duration;

use serde_json::json;

use super::{WEBHOOKS, deliveries, path, start_experiment, stop_experiment, subscribe, until_newest};
use crate::harness::{Behaviour, Receiver, World};

const EXPERIMENTS: [&str; 2] = ["experiment.started", "experiment.stopped"];

#[tokio::test]
async fn an_experiment_is_delivered_to_a_receiver_checking_signatures() {
    let world = World::start().await;
    let receiver = Receiver::signed("a shared sécret").await;
    let body = json!({"url": receiver.url(), "secret": "a shared sécret", "events": EXPERIMENTS});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    let experiment = start_experiment(&world, "Ünï \"one\"").await;
    stop_experiment(&world, &experiment).await;
    let mut got = receiver.until_got(2).await;
    got.sort_by_key(|got| got.json()["time"].as_str().unwrap().to_owned());
    for (got, expected) in got.iter().zip(EXPERIMENTS) {
        assert_eq!(got.refused, None, "{got:?}");
        let body = got.json();
        assert_eq!(body["type"], expected);
        assert_eq!(
            (&body["experiment_name"], &body["experiment_id"]),
            (&json!("Ünï \"one\""), &json!(experiment))
        );
        assert!(body["time"].as_str().unwrap().ends_with("+00:00"), "{body}");
        assert_eq!(body["id"], got.header("x-webhook-id"));
        assert_eq!(got.header("webhook-id"), got.header("x-webhook-id"));
        assert_eq!(got.header("x-webhook-event"), expected);
        assert_eq!(got.header("x-webhook-attempt"), "1");
        assert!(got.header("webhook-signature").starts_with("v1,"));
        assert!(got.header("user-agent").starts_with("Signalbox/"));
        assert!(!got.body.contains(": ") && !got.body.contains(", \""), "compact: {}", got.body);
    }
    until_newest(&world, &webhook, "delivered").await;
    let records = deliveries(&world, &webhook, "status=delivered").await;
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!((&record["attempts"], &record["response_code"]), (&json!(1), &json!(200)));
        assert!(record["last_error"].is_null() && record["delivered_on"].is_string());
    }
    assert_eq!(receiver.got().len(), 2, "each once");
    world.finish().await;
}

#[tokio::test]
async fn every_subscriber_of_a_type_gets_the_event_under_one_id() {
    let world = World::start().await;
    let [one, two, disabled, other] =
        [Receiver::start().await, Receiver::start().await, Receiver::start().await, Receiver::start().await];
    subscribe(&world, &one, &["experiment.started"]).await;
    subscribe(&world, &two, &EXPERIMENTS).await;
    let off = json!({"url": disabled.url(), "events": EXPERIMENTS, "enabled": false});
    world.admin.post(WEBHOOKS, off).await.expect(201);
    subscribe(&world, &other, &["system.health_changed"]).await;
    let experiment = start_experiment(&world, "one").await;
    stop_experiment(&world, &experiment).await;
    let (first, both) = (one.until_got(1).await, two.until_got(2).await);
    let started = both.iter().find(|got| got.json()["type"] == "experiment.started").unwrap();
    assert_eq!(first[0].body, started.body, "the same id, the same body");
    // Unsigned, as there is no secret.
    assert!(both.iter().all(|got| got.refused.is_none()));
    assert_eq!((one.got().len(), disabled.got().len(), other.got().len()), (1, 0, 0));
    world.finish().await;
}

#[tokio::test]
async fn what_fails_is_tried_three_times_and_then_given_up_and_noted() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::Answer(503)).await;
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    start_experiment(&world, "one").await;
    let dead = until_newest(&world, &webhook, "dead_letter").await;
    let got = receiver.got();
    let attempts: Vec<_> = got.iter().map(|got| got.header("x-webhook-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    assert!(
        got[1].at - got[0].at >= Duration::from_secs(2) && got[2].at - got[1].at >= Duration::from_secs(4)
    );
    assert!(got.iter().all(|other| other.body == got[0].body), "the body never changes");
    let expected = (json!(3), json!(503), json!("HTTP 503"));
    assert_eq!(
        (dead["attempts"].clone(), dead["response_code"].clone(), dead["last_error"].clone()),
        expected
    );
    let detail = format!("{}/deliveries/{}", path(&webhook), dead["public_id"].as_str().unwrap());
    let detail = world.admin.get(&detail).await.expect(200);
    let log = detail["attempt_log"].as_array().unwrap();
    let numbers: Vec<_> = log.iter().map(|attempt| attempt["attempt"].as_i64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert!(log.iter().all(|attempt| attempt["error"] == "HTTP 503" && attempt["duration_ms"].is_number()));
    assert_eq!(detail["body"], got[0].body);
    let failing = world.admin.get(&path(&webhook)).await.expect(200);
    assert!(failing["failing_since"].is_string() && failing["enabled"] == true, "{failing}");
    let entries = crate::harness::eventually_some(crate::harness::seconds(10), async || {
        let page = world.admin.get("/api/v1/logging?source=webhooks").await.expect(200);
        (page["total"] == 1).then(|| page["data"][0].clone())
    });
    let entry = entries.await;
    assert_eq!(entry["type"], "error");
    let content = entry["content"].as_str().unwrap();
    assert!(content.contains("answered 503") && !content.contains("http:"), "everybody reads it: {entry}");
    // A success, and it is well again.
    receiver.behave(Behaviour::Accept);
    world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await.expect(201);
    until_newest(&world, &webhook, "delivered").await;
    assert!(world.admin.get(&path(&webhook)).await.expect(200)["failing_since"].is_null());
    world.finish().await;
}

#[tokio::test]
async fn an_attempt_that_fails_is_followed_by_one_that_succeeds() {
    let world = World::start().await;
    for (behaviour, error) in [
        (Behaviour::Answer(404), "HTTP 404"),
        (Behaviour::Reset, "Transport error: "),
        (Behaviour::Redirect("http://127.0.0.1:9/".to_owned()), "HTTP 307"),
    ] {
        let receiver = Receiver::with(None, behaviour.clone()).await;
        let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
        world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await.expect(201);
        let failed = until_newest(&world, &webhook, "failed").await;
        assert!(failed["last_error"].as_str().unwrap().starts_with(error), "{behaviour:?}: {failed}");
        assert!(failed["next_attempt_on"].is_string());
        receiver.behave(Behaviour::Accept);
        let delivered = until_newest(&world, &webhook, "delivered").await;
        let got = receiver.got();
        assert!(got.len() > 1, "{behaviour:?}: {delivered}");
        assert_eq!((&delivered["attempts"], &delivered["response_code"]), (&json!(got.len()), &json!(200)));
        assert!(delivered["last_error"].is_null());
        assert_eq!(got[0].header("x-webhook-id"), got[1].header("x-webhook-id"));
    }
    world.finish().await;
}

#[tokio::test]
async fn a_body_without_end_is_a_success_and_is_not_read() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::Flood).await;
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await.expect(201);
    until_newest(&world, &webhook, "delivered").await;
    world.finish().await;
}

#[tokio::test]
async fn an_address_that_may_not_be_reached_is_refused_whatever_its_name() {
    let world = World::with(|config| config.egress.allowed_networks.clear()).await;
    let receiver = Receiver::start().await;
    let port = receiver.address.port();
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "169.254.169.254"] {
        let body = json!({"url": format!("http://{host}:{port}/"), "events": ["experiment.started"]});
        let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
        world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await.expect(201);
        let failed = until_newest(&world, &webhook, "failed").await;
        assert!(failed["last_error"].as_str().unwrap().contains("may not be reached"), "{host}: {failed}");
        world.admin.delete(&path(&webhook)).await.expect(200);
    }
    assert_eq!(receiver.got().len(), 0);
    world.finish().await;
}

#[tokio::test]
async fn a_firing_rule_publishes_its_value() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["sensor.threshold_exceeded"]).await;
    let event = json!({"name": "boiler", "type": "sensor"});
    let event = world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    let rule = json!({"name": "too hot", "event_public_id": event, "operator": "between", "threshold": 80,
        "threshold_high": 90.5, "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded"});
    world.admin.post("/api/v1/rules", rule).await.expect(201);
    let datapoint = json!({"value": 81.25, "event_public_id": event});
    world.admin.post("/api/v1/datapoints", datapoint).await.expect(201);
    let body = receiver.until_got(1).await[0].json();
    for (key, expected) in [
        ("type", json!("sensor.threshold_exceeded")),
        ("sensor", json!("boiler")),
        ("sensor_id", event.clone()),
        ("value", json!(81.25)),
        ("rule", json!("too hot")),
        ("operator", json!("between")),
        ("threshold", json!(80.0)),
        ("threshold_high", json!(90.5)),
    ] {
        assert_eq!(body[key], expected, "{key} of {body}");
    }
    assert!(body["device"].is_string());
    world.finish().await;
}
