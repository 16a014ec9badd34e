use reqwest::Method;
use serde_json::{Value, json};

use super::{DATAPOINTS, event, listed, value};
use crate::harness::World;

#[tokio::test]
async fn a_datapoint_is_recorded_shown_and_deleted() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let event = event(&world, "boiler").await;
    let answer = operator.post(DATAPOINTS, value(&event, 21.37)).await;
    let made = answer.expect(201);
    assert_eq!((&made["status"], &made["value"]), (&json!("success"), &json!(21.37)));
    assert!(made["message"].as_str().unwrap().starts_with("1 datapoint"));
    assert_eq!((&made["event_public_id"], &made["experiment_public_id"]), (&json!(event), &Value::Null));
    let path = format!("{DATAPOINTS}/{}", made["public_id"].as_str().unwrap());
    assert_eq!(answer.header("location"), Some(path.as_str()));
    let shown = world.admin.get(&path).await.expect(200);
    for field in ["public_id", "value", "timestamp", "event_public_id"] {
        assert_eq!(shown[field], made[field], "{field}");
    }
    let stale = operator.request(Method::DELETE, &path).header("if-match", "\"9\"");
    operator.send(stale).await.error(412);
    let tag = world.admin.get(&path).await.header("etag").unwrap().to_owned();
    let one_of = operator.request(Method::DELETE, &path).header("if-match", format!("\"9\", {tag}"));
    operator.send(one_of).await.expect(200);
    operator.delete(&path).await.error(404);
    world.admin.get(&path).await.error(404);
    assert_eq!(listed(&world.admin, "").await, (vec![], 0));
    assert_eq!(world.admin.get(&format!("{DATAPOINTS}/latest")).await.expect(200), json!([]));
    world.finish().await;
}

#[tokio::test]
async fn every_float_is_returned_unchanged() {
    let world = World::start().await;
    let event = event(&world, "odd").await;
    for text in [
        "0.1",
        "-0.0",
        "1e22",
        "5e-324",
        "1.7976931348623157e308",
        "123456789.123456",
        "9007199254740993",
        "0.30000000000000004",
    ] {
        let body = format!(r#"{{"value": {text}, "event_public_id": "{event}"}}"#);
        let made =
            world.admin.send(world.admin.request(Method::POST, DATAPOINTS).body(body)).await.expect(201);
        let path = format!("{DATAPOINTS}/{}", made["public_id"].as_str().unwrap());
        let shown = world.admin.get(&path).await.expect(200)["value"].as_f64().unwrap();
        assert_eq!(shown.to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
    }
    world.finish().await;
}

#[tokio::test]
async fn wrong_datapoints_are_refused_and_nothing_is_kept() {
    let world = World::start().await;
    let event = event(&world, "strict").await;
    for (number, status) in [
        ("NaN", 422),
        ("Infinity", 422),
        ("-Infinity", 422),
        ("1e400", 422),
        ("\"x\"", 422),
        ("\"NaN\"", 422),
        ("true", 422),
        ("null", 422),
        ("nan", 400),
    ] {
        let body = format!(r#"{{"value": {number}, "event_public_id": "{event}"}}"#);
        let answer = world.admin.send(world.admin.request(Method::POST, DATAPOINTS).body(body)).await;
        assert_eq!(answer.status, status, "{number}: {}", answer.text());
    }
    for time in [
        "2099-01-01T00:00:00Z",
        "1960-01-01T00:00:00Z",
        "+12345-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "x",
    ] {
        let item = json!({"value": 1, "event_public_id": event, "timestamp": time});
        world.admin.post(DATAPOINTS, item).await.error(422);
    }
    world.admin.post(DATAPOINTS, value("018f0000-0000-7000-8000-000000000000", 1.0)).await.error(404);
    world.admin.post(DATAPOINTS, value("no id", 1.0)).await.error(404);
    let viewer = world.user("viewer", "viewer").await;
    viewer.post(DATAPOINTS, value(&event, 1.0)).await.error(403);
    assert_eq!(listed(&world.admin, "").await.1, 0);
    world.finish().await;
}

#[tokio::test]
async fn an_event_takes_values_at_once_on_every_gateway_until_it_is_deleted() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    for round in 0..20 {
        let event = event(&world, &format!("event {round}")).await;
        there.post(DATAPOINTS, value(&event, f64::from(round))).await.expect(201);
        assert_eq!(
            listed(&world.admin, &format!("event_public_id={event}")).await,
            (vec![f64::from(round)], 1)
        );
    }
    let event = event(&world, "gone").await;
    let made = there.post(DATAPOINTS, value(&event, 5.0)).await.expect(201);
    world.admin.delete(&format!("/api/v1/events/{event}")).await.expect(200);
    world.admin.post(DATAPOINTS, value(&event, 6.0)).await.error(404);
    there.post(DATAPOINTS, value(&event, 6.0)).await.error(404);
    // Its datapoints stay.
    let path = format!("{DATAPOINTS}/{}", made["public_id"].as_str().unwrap());
    let shown = there.get(&path).await.expect(200);
    assert_eq!((&shown["value"], &shown["event_public_id"]), (&json!(5.0), &json!(event)));
    let (values, _) = listed(&there, &format!("event_public_id={event}")).await;
    assert_eq!(values.last(), Some(&5.0));
    world.finish().await;
}

#[tokio::test]
async fn a_repeated_request_records_once() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let event = event(&world, "once").await;
    let mut answers = Vec::new();
    for client in [&world.admin, &world.admin.at(&other), &world.admin] {
        let request = client.request(Method::POST, DATAPOINTS).header("idempotency-key", "the-same");
        answers.push(client.send(request.json(&value(&event, 1.5))).await.expect(201));
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    world.lose_kept_answers().await;
    let request = world.admin.request(Method::POST, DATAPOINTS).header("idempotency-key", "the-same");
    let again = world.admin.send(request.json(&value(&event, 1.5))).await.expect(201);
    assert_eq!(again, answers[0]);
    assert_eq!(listed(&world.admin, "").await, (vec![1.5], 1));
    world.finish().await;
}

/// However far the read models of the other gateway are behind.
#[tokio::test]
async fn event_deleted_at_one_gateway_takes_no_value_at_another() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let (gone, kept) = (event(&world, "gone").await, event(&world, "kept").await);
    for event in [&gone, &kept] {
        world.admin.post(DATAPOINTS, value(event, 1.0)).await.expect(201);
    }
    let mut locked = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE read.channels IN EXCLUSIVE MODE").execute(&mut *locked).await.unwrap();
    let deleted = there.delete(&format!("/api/v1/events/{gone}")).await;
    assert_eq!((deleted.status, deleted.header("consistency")), (200, Some("eventual")));
    for client in [&world.admin, &there] {
        client.post(DATAPOINTS, value(&gone, 2.0)).await.error(404);
        let batch = json!({"datapoints": [value(&gone, 3.0), value(&kept, 4.0)]});
        let taken = client.post(&format!("{DATAPOINTS}/batch"), batch).await.expect(201);
        assert_eq!(taken["rejected"], json!([{"index": 0, "reason": "unknown event"}]));
    }
    locked.rollback().await.unwrap();
    let (values, _) = listed(&world.admin, &format!("event_public_id={gone}")).await;
    assert_eq!(values, [1.0]);
    world.finish().await;
}
