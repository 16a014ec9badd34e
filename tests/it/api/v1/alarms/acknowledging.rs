//! Users who have seen alarms.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::json;

use super::{EVENTS, path, rule, standing, until};
use crate::{
    api::v1::{datapoints::event, rules::send, webhooks::subscribe},
    harness::Receiver,
};

#[tokio::test]
async fn an_alarm_is_acknowledged_until_it_is_cleared() {
    let world = standing().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &EVENTS).await;
    let boiler = event(&world, "boiler").await;
    rule(&world, &boiler, json!({})).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    let (acknowledge, back) =
        (format!("{}/acknowledge", path(&alarm)), format!("{}/unacknowledge", path(&alarm)));
    let viewer = world.user("viewer", "viewer").await;
    assert_eq!(viewer.get(&path(&alarm)).await.expect(200), alarm);
    viewer.post(&acknowledge, json!({})).await.error(403);
    viewer.post(&back, json!({})).await.error(403);
    let operator = world.user("operator", "operator").await;
    let seen = operator.post(&acknowledge, json!({"comment": " on my way "})).await.expect(200);
    assert_eq!(seen["comment"], "on my way");
    assert!(!seen["acknowledged_on"].is_null());
    let undone = operator.post(&back, json!({})).await.expect(200);
    assert_eq!(undone, alarm);
    // The body is optional.
    let without = world.admin.request(Method::POST, &acknowledge);
    let by_admin = world.admin.send(without).await.expect(200);
    assert_ne!(by_admin["acknowledged_by"], seen["acknowledged_by"]);
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &boiler, [9.0]).await;
    let cleared = until(&world, "cleared").await;
    assert_eq!(cleared["acknowledged_by"], by_admin["acknowledged_by"]);
    for path in [&acknowledge, &back] {
        let refused = operator.post(path, json!({})).await;
        assert!(refused.error(409).contains("cleared"));
    }
    assert_eq!(world.admin.get(&path(&alarm)).await.expect(200), cleared);
    operator.post(&acknowledge, json!({"comment": ""})).await.error(422);
    operator.post("/api/v1/alarms/unknown/acknowledge", json!({})).await.error(404);
    let got = receiver.until_got(4).await;
    let bodies: Vec<_> = got.iter().map(|got| got.json()).collect();
    let types: Vec<_> = bodies.iter().map(|body| body["type"].as_str().unwrap()).collect();
    assert_eq!(types.iter().filter(|word| **word == "alarm.acknowledged").count(), 2);
    let firing = bodies.iter().find(|body| body["type"] == "alarm.firing").unwrap();
    for (field, expected) in [
        ("alarm_id", &alarm["public_id"]),
        ("state", &json!("firing")),
        ("reason", &json!("condition")),
        ("severity", &json!("warning")),
        ("sensor", &json!("boiler")),
        ("value", &json!(11.0)),
        ("rule", &json!("too hot")),
        ("operator", &json!("gt")),
        ("threshold", &json!(10.0)),
        ("cleared_on", &json!(null)),
    ] {
        assert_eq!(&firing[field], expected, "{field}");
    }
    let end = bodies.iter().find(|body| body["type"] == "alarm.cleared").unwrap();
    assert_eq!((&end["state"], &end["value"]), (&json!("cleared"), &json!(9.0)));
    world.finish().await;
}
