use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::{RULES, above_10, create, path};
use crate::{api::v1::datapoints::event, harness::World};

#[tokio::test]
async fn a_rule_is_made_shown_changed_and_deleted() {
    let world = World::start().await;
    let event = event(&world, "boiler").await;
    let new = json!({"name": " too hot ", "event_public_id": event, "operator": "between", "threshold": 80.5,
        "threshold_high": 90, "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded"});
    let answer = world.admin.post(RULES, new).await;
    let made = answer.expect(201);
    assert_eq!((&made["status"], &made["name"]), (&json!("success"), &json!("too hot")));
    assert_eq!((&made["cooldown_seconds"], &made["enabled"]), (&json!(60), &json!(true)));
    assert_eq!(made["last_triggered_at"], Value::Null);
    assert_eq!(answer.header("location"), Some(path(&made).as_str()));
    let shown = world.admin.get(&path(&made)).await;
    assert_eq!(shown.header("etag"), Some("\"1\""));
    let shown = shown.expect(200);
    assert_eq!((&shown["threshold_high"], &shown["event_public_id"]), (&json!(90.0), &json!(event)));
    // Omitted fields keep their values, null clears optional ones.
    let to_log =
        json!({"operator": "gte", "threshold_high": null, "action_type": "log", "webhook_event_type": null});
    let changed = world.admin.put(&path(&made), to_log).await.expect(200);
    assert_eq!((&changed["threshold"], &changed["threshold_high"]), (&json!(80.5), &Value::Null));
    assert_eq!((&changed["action_type"], &changed["webhook_event_type"]), (&json!("log"), &Value::Null));
    let stale = world.admin.request(Method::PUT, &path(&made)).header("if-match", "\"1\"");
    world.admin.send(stale.json(&json!({"name": "lost"}))).await.error(412);
    assert_eq!(world.admin.delete(&path(&made)).await.expect(200)["status"], "success");
    world.admin.get(&path(&made)).await.error(404);
    world.admin.put(&path(&made), json!({"name": "x"})).await.error(404);
    world.admin.delete(&path(&made)).await.error(404);
    assert_eq!(world.admin.get(RULES).await.expect(200)["total"], 0);
    // The name is free again.
    create(&world, above_10("too hot", &event)).await;
    world.finish().await;
}

#[tokio::test]
async fn what_a_rule_lacks_is_said() {
    let world = World::start().await;
    let event = event(&world, "boiler").await;
    let with = |changes: Value| {
        let mut rule = above_10("wrong", &event);
        rule.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        rule
    };
    for (changes, pointer) in [
        (json!({"operator": "between"}), "/threshold_high"),
        (json!({"operator": "not_between", "threshold_high": 9.5}), "/threshold_high"),
        (json!({"threshold_high": 9.5}), "/threshold_high"),
        (json!({"action_type": "webhook"}), "/webhook_event_type"),
        (json!({"action_type": "webhook", "webhook_event_type": null}), "/webhook_event_type"),
        (json!({"operator": "=="}), "/operator"),
        (json!({"cooldown_seconds": -1}), "/cooldown_seconds"),
        (json!({"name": ""}), "/name"),
    ] {
        let answer = world.admin.post(RULES, with(changes)).await;
        answer.error(422);
        assert_eq!(answer.expect(422)["errors"][0]["pointer"], pointer, "{}", answer.text());
    }
    for unknown in ["unknown", "018f0000-0000-7000-8000-000000000000"] {
        world.admin.post(RULES, with(json!({"event_public_id": unknown}))).await.error(404);
    }
    let made = create(&world, above_10("right", &event)).await;
    for (changes, status) in [
        (json!({"operator": "between"}), 422),
        (json!({"action_type": "webhook"}), 422),
        (json!({"threshold": null, "threshold_high": 9}), 422),
        (json!({"event_public_id": "unknown"}), 404),
    ] {
        world.admin.put(&path(&made), changes).await.error(status);
    }
    world.admin.delete(&format!("/api/v1/events/{event}")).await.expect(200);
    world.admin.post(RULES, with(json!({}))).await.error(404);
    // It stays, and may be changed; there is just nothing left to watch.
    world.admin.put(&path(&made), json!({"threshold": 11})).await.expect(200);
    // It could fire for ever.
    let refused = world.admin.put(&path(&made), json!({"enabled": true})).await;
    assert_eq!(refused.expect(404)["code"], "event_deleted");
    let expected = "Rule 'right' watches the event 'boiler', which was deleted: name another one in event_public_id, or leave the \
                    rule disabled.";
    assert_eq!(refused.error(404), expected);
    world.finish().await;
}

#[tokio::test]
async fn a_name_is_given_once() {
    let mut world = World::start().await;
    let event = event(&world, "boiler").await;
    let other_gateway = world.another_gateway().await;
    let there = world.admin.at(&other_gateway);
    let one = create(&world, above_10("one", &event)).await;
    create(&world, above_10("other", &event)).await;
    there.post(RULES, above_10("one", &event)).await.error(409);
    there.put(&path(&one), json!({"name": " other "})).await.error(409);
    let made = join_all((0..8).map(|index| {
        let client = if index % 2 == 0 { &world.admin } else { &there };
        client.post(RULES, above_10("same", &event))
    }));
    let mut statuses: Vec<_> = made.await.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
    world.finish().await;
}

#[tokio::test]
async fn the_list_has_pages_and_filters() {
    let world = World::start().await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    for name in ["a", "b"] {
        create(&world, above_10(name, &boiler)).await;
    }
    let mut last = above_10("last a", &vat);
    last["enabled"] = json!(false);
    create(&world, last).await;
    let names = async |query: &str| {
        let page = world.admin.get(&format!("{RULES}?{query}")).await.expect(200);
        let names: Vec<_> =
            page["data"].as_array().unwrap().iter().map(|rule| rule["name"].clone()).collect();
        (names, page["total"].as_i64().unwrap())
    };
    assert_eq!(names("page_size=2").await, (vec![json!("last a"), json!("b")], 3));
    assert_eq!(names("page_size=2&page=2").await, (vec![json!("a")], 3));
    assert_eq!(names("name=A&enabled=true").await, (vec![json!("a")], 1));
    assert_eq!(names(&format!("event_public_id={vat}")).await, (vec![json!("last a")], 1));
    assert_eq!(names("action_type=webhook").await, (vec![], 0));
    assert_eq!(names("event_public_id=unknown").await, (vec![], 0));
    world.finish().await;
}

#[tokio::test]
async fn partial_changes_at_once_lose_nothing() {
    let mut world = World::start().await;
    let event = event(&world, "boiler").await;
    let other_gateway = world.another_gateway().await;
    let there = world.admin.at(&other_gateway);
    let path = &path(&create(&world, above_10("shared", &event)).await);
    for round in 0..5 {
        let changes = [
            json!({"threshold": round}),
            json!({"cooldown_seconds": round}),
            json!({"enabled": round % 2 == 0}),
        ];
        let clients = [&world.admin, &there];
        let puts =
            changes.iter().enumerate().map(|(index, change)| clients[index % 2].put(path, change.clone()));
        for answer in join_all(puts).await {
            answer.expect(200);
        }
        for client in clients {
            let shown = client.get(path).await.expect(200);
            assert_eq!(
                (&shown["threshold"], &shown["cooldown_seconds"]),
                (&json!(f64::from(round)), &json!(round))
            );
            assert_eq!(shown["enabled"], round % 2 == 0);
        }
    }
    world.finish().await;
}
