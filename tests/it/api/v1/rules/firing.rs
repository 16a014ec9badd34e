use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{above_10, create, fired, firings, path, send};
use crate::{
    api::v1::datapoints::{DATAPOINTS, event, value},
    harness::{World, eventually_some, seconds},
};

#[tokio::test]
async fn a_rule_that_fires_writes_an_entry_and_remembers_when() {
    let world = World::start().await;
    let event = event(&world, "boiler").await;
    let rule = create(&world, above_10("too hot", &event)).await;
    let token = world.admin.post("/api/v1/tokens", json!({"name": "press"})).await.expect(201);
    let press = world.admin.with_token(token["token"].as_str().unwrap());
    let sent = press.post(DATAPOINTS, value(&event, 10.5)).await.expect(201);
    let firing = firings(&world).await.remove(0);
    for (field, expected) in [
        ("datapoint_id", &sent["public_id"]),
        ("channel_id", &json!(event)),
        ("channel_name", &json!("boiler")),
        ("value", &json!(10.5)),
        ("device", &json!("press")),
        ("rule_name", &json!("too hot")),
        ("operator", &json!("gt")),
        ("threshold", &json!(10.0)),
        ("action", &json!("log")),
    ] {
        assert_eq!(&firing[field], expected, "{field}");
    }
    let shown = eventually_some(seconds(10), async || {
        let rule = world.admin.get(&path(&rule)).await.expect(200);
        (rule["last_triggered_at"] == firing["occurred_at"]).then_some(rule)
    });
    assert_eq!(shown.await["updated_on"], rule["updated_on"], "a firing is not a change");
    let entry = eventually_some(seconds(10), async || {
        let page = world.admin.get("/api/v1/logging?source=rules").await.expect(200);
        page["data"].get(0).cloned()
    });
    let entry = entry.await;
    assert_eq!(entry["content"], "boiler = 10.5 is greater than 10: too hot");
    assert_eq!((&entry["type"], &entry["status"]), (&json!("warning"), &json!("unread")));
    world.finish().await;
}

#[tokio::test]
async fn every_value_of_a_batch_is_judged_in_order() {
    let world = World::start().await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    create(&world, above_10("too hot", &boiler)).await;
    let items: Vec<_> = [(&boiler, 11.0), (&vat, 99.0), (&boiler, 9.0), (&boiler, 13.0), (&boiler, 12.0)]
        .map(|(event, number)| value(event, number))
        .to_vec();
    world.admin.post("/api/v1/datapoints/batch", json!({ "datapoints": items })).await.expect(201);
    send(&world.admin, &boiler, [10.0, 14.0]).await;
    assert_eq!(fired(&world).await, [11.0, 13.0, 12.0, 14.0]);
    // More than fits into one command.
    send(&world.admin, &boiler, (0..1000).map(|number| 1000.0 + f64::from(number))).await;
    let all = fired(&world).await;
    assert!(all[4..].iter().copied().eq((0..1000).map(|number| 1000.0 + f64::from(number))));
    let events = format!(
        "SELECT count(DISTINCT payload->>'datapoint_id') FROM events WHERE event_type = '{}'",
        "rule_triggered"
    );
    let distinct: i64 = sqlx::query_scalar(&events).fetch_one(&world.servers.pool).await.unwrap();
    assert_eq!(distinct, 1004);
    let entries = eventually_some(seconds(20), async || {
        let page = world.admin.get("/api/v1/logging?source=rules&page_size=1").await.expect(200);
        (page["total"] == 1004).then_some(())
    });
    entries.await;
    world.finish().await;
}

/// Sends one value now and lets `seconds` pass.
async fn send_and_wait(world: &World, event: &str, number: f64, seconds: i64) {
    send(&world.admin, event, [number]).await;
    fired(world).await;
    world.clock.advance(TimeDelta::seconds(seconds));
}

#[tokio::test]
async fn the_cooldown_passes_between_two_firings() {
    let start: DateTime<Utc> = "2026-03-01T10:00:00Z".parse().unwrap();
    let world = World::at(Clock::manual(start), |_| {}).await;
    let event = event(&world, "boiler").await;
    let mut rule = above_10("too hot", &event);
    rule["cooldown_seconds"] = json!(60);
    let rule = create(&world, rule).await;
    for (number, after) in [(11.0, 59), (12.0, 1), (13.0, 30), (9.0, 29), (14.0, 1), (15.0, 0), (16.0, 0)] {
        send_and_wait(&world, &event, number, after).await;
    }
    assert_eq!(fired(&world).await, [11.0, 13.0, 15.0]);
    // A device whose clock is ahead silences nothing: the time of arrival counts.
    world.clock.advance(TimeDelta::seconds(60));
    let ahead = (world.clock.now() + TimeDelta::minutes(9)).to_rfc3339();
    let item = json!({"value": 20.0, "event_public_id": event, "timestamp": ahead});
    world.admin.post(DATAPOINTS, item).await.expect(201);
    world.clock.advance(TimeDelta::seconds(60));
    send(&world.admin, &event, [21.0]).await;
    assert_eq!(fired(&world).await, [11.0, 13.0, 15.0, 20.0, 21.0]);
    // With a shorter cooldown the time since the last firing counts at once.
    world.clock.advance(TimeDelta::seconds(5));
    world.admin.put(&path(&rule), json!({"cooldown_seconds": 5})).await.expect(200);
    send(&world.admin, &event, [22.0, 23.0]).await;
    assert_eq!(fired(&world).await, [11.0, 13.0, 15.0, 20.0, 21.0, 22.0]);
    world.finish().await;
}

#[tokio::test]
async fn a_rule_is_in_force_from_its_answer_on_at_every_gateway() {
    let mut world = World::start().await;
    let other_gateway = world.another_gateway().await;
    let there = world.admin.at(&other_gateway);
    let event = event(&world, "boiler").await;
    // Earlier values do not count.
    send(&there, &event, [50.0]).await;
    let rule = create(&world, above_10("too hot", &event)).await;
    let mut expected = Vec::new();
    for round in 0..25 {
        let number = 100.0 + f64::from(round);
        send(&there, &event, [number]).await;
        expected.push(number);
        // Off, and on again, with a threshold that the next value passes by little.
        world.admin.put(&path(&rule), json!({"enabled": false})).await.expect(200);
        send(&there, &event, [number]).await;
        let on = json!({"enabled": true, "threshold": number + 0.5});
        world.admin.put(&path(&rule), on).await.expect(200);
        send(&there, &event, [number]).await;
    }
    assert_eq!(fired(&world).await, expected);
    world.admin.delete(&path(&rule)).await.expect(200);
    send(&there, &event, [9999.0]).await;
    assert_eq!(fired(&world).await, expected);
    world.finish().await;
}

#[tokio::test]
async fn all_operators_work_from_outside() {
    let world = World::start().await;
    let event = event(&world, "boiler").await;
    let operators = ["gt", "lt", "gte", "lte", "eq", "between", "not_between"];
    for operator in operators {
        let rule = json!({"name": operator, "event_public_id": event, "operator": operator, "threshold": 1,
            "threshold_high": 2, "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded",
            "cooldown_seconds": 0});
        create(&world, rule).await;
    }
    send(&world.admin, &event, [0.5, 1.0, 1.0 + 5e-10, 1.5, 2.0, 2.5]).await;
    let firings = firings(&world).await;
    let values = |operator: &str| -> Vec<f64> {
        let of = firings.iter().filter(|firing| firing["rule_name"] == operator);
        of.map(|firing| firing["value"].as_f64().unwrap()).collect()
    };
    let just_above = 1.0 + 5e-10;
    assert_eq!(values("gt"), [just_above, 1.5, 2.0, 2.5]);
    assert_eq!(values("lt"), [0.5]);
    assert_eq!(values("gte"), [1.0, just_above, 1.5, 2.0, 2.5]);
    assert_eq!(values("lte"), [0.5, 1.0]);
    assert_eq!(values("eq"), [1.0, just_above]);
    assert_eq!(values("between"), [1.0, just_above, 1.5, 2.0]);
    assert_eq!(values("not_between"), [0.5, 2.5]);
    let actions: Vec<&Value> =
        firings.iter().map(|firing| &firing["action"]["webhook"]["event_type"]).collect();
    assert!(actions.iter().all(|event| *event == "sensor.threshold_exceeded"));
    world.finish().await;
}
