use serde_json::{Value, json};

use super::{LOG, causal_trace, correlation_of, until_delivered, words};
use crate::{
    api::v1::rules::{above_10, create, firings, send},
    harness::{Receiver, World, eventually_some, seconds},
};

async fn event(world: &World, name: &str) -> String {
    let made = world.admin.post("/api/v1/events", json!({"name": name, "type": "sensor"})).await.expect(201);
    made["public_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_datapoint_leads_to_a_rule_and_that_to_a_webhook() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let webhook = json!({"url": receiver.url(), "events": ["sensor.threshold_exceeded"]});
    let webhook = world.admin.post("/api/v1/webhooks", webhook).await.expect(201);
    let boiler = event(&world, "boiler").await;
    let mut rule = above_10("hot", &boiler);
    rule["action_type"] = json!("webhook");
    rule["webhook_event_type"] = json!("sensor.threshold_exceeded");
    create(&world, rule).await;
    let mut correlations = Vec::new();
    for round in 1..=2 {
        send(&world.admin, &boiler, [11.0]).await;
        receiver.until_got(round).await;
        let firing = firings(&world).await.pop().unwrap();
        world.read_models.show_all().await;
        let correlation = correlation_of(&world, "rule_triggered").await;
        let events = until_delivered(&world, &correlation).await;
        assert_eq!(
            words(&events),
            [
                (0, "rule_triggered", None),
                (1, "deliveries_queued", None),
                (2, "attempts_begun", None),
                (3, "attempts_ended", Some("succeeded"))
            ]
        );
        let (first, actors) = (&events[0], events.iter().map(|event| event["actor"].as_str().unwrap()));
        assert_eq!(first["data"]["datapoint_id"], firing["datapoint_id"]);
        assert_eq!(first["deliveries"][0]["status"], "delivered");
        assert_eq!(first["deliveries"][0]["webhook_public_id"], webhook["public_id"]);
        assert!(actors.clone().all(|actor| actor.starts_with("system:")), "{:?}", actors.collect::<Vec<_>>());
        correlations.push(correlation);
    }
    assert_ne!(correlations[0], correlations[1], "each datapoint has a causal trace of its own");
    world.finish().await;
}

#[tokio::test]
async fn a_rule_leads_to_an_entry_that_people_read() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    create(&world, above_10("hot", &boiler)).await;
    send(&world.admin, &boiler, [11.0]).await;
    firings(&world).await;
    let correlation = correlation_of(&world, "rule_triggered").await;
    let events = eventually_some(seconds(20), async || {
        let events = causal_trace(&world, &correlation).await;
        (events.len() > 1).then_some(events)
    })
    .await;
    let last = events.last().unwrap();
    assert_eq!((last["type"].as_str(), last["depth"].as_i64()), (Some("log_entry_written"), Some(1)));
    assert_eq!(last["causation"], events[0]["position"]);
    world.finish().await;
}

#[tokio::test]
async fn a_request_takes_no_part_in_the_cause_of_others() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let create = async |client: &crate::harness::Client, name: &str, id: &str| {
        let request = client.request(reqwest::Method::POST, "/api/v1/events").header("x-request-id", id);
        let answer = client.send(request.json(&serde_json::json!({"name": name, "type": "sensor"}))).await;
        answer.expect(201);
        answer.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(create(&world.admin, "a", "the-admins").await, "the-admins");
    assert_eq!(create(&world.admin, "b", "the-admins").await, "the-admins", "one's own may go on");
    let other = create(&operator, "c", "the-admins").await;
    assert_ne!(other, "the-admins");
    assert_eq!(correlation_of(&world, "channel_created").await, other);
    // Nor may a user pretend to be what the system did.
    let systems = correlation_of(&world, "user_created").await;
    assert_ne!(create(&operator, "d", &systems).await, systems);
    let events = causal_trace(&world, "the-admins").await;
    assert_eq!(events.len(), 2, "{events:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_long_causal_trace_is_paged() {
    let world = World::start().await;
    for number in 0..7 {
        let request =
            world.admin.request(reqwest::Method::POST, "/api/v1/events").header("x-request-id", "one-cause");
        let body = json!({"name": format!("event {number}"), "type": "sensor"});
        world.admin.send(request.json(&body)).await.expect(201);
    }
    let path = format!("{LOG}/correlations/one-cause");
    let whole = world.admin.get(&path).await.expect(200);
    assert_eq!((whole["events"].as_array().unwrap().len(), &whole["next"]), (7, &Value::Null));
    let first = world.admin.get(&format!("{path}?limit=4")).await.expect(200);
    let rest = world.admin.get(&format!("{path}?limit=4&cursor={}", first["next"])).await.expect(200);
    let both = [first["events"].as_array().unwrap().as_slice(), rest["events"].as_array().unwrap()].concat();
    assert_eq!((Value::Array(both), &rest["next"]), (whole["events"].clone(), &Value::Null));
    world.admin.get(&format!("{LOG}/correlations/nothing")).await.error(404);
    for wrong in ["limit=0", "limit=1001", "cursor=x"] {
        world.admin.get(&format!("{path}?{wrong}")).await.error(422);
    }
    world.finish().await;
}
