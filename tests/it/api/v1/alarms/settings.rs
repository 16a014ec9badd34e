//! Settings of rules that make alarms.

use serde_json::{Value, json};

use crate::{
    api::v1::{
        datapoints::event,
        rules::{RULES, above_10, create, fired, path, send},
    },
    harness::World,
};

#[tokio::test]
async fn a_given_setting_makes_an_alarm_and_null_makes_none() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let body = |name: &str, settings: Value| {
        let mut body = above_10(name, &boiler);
        for (name, value) in settings.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let plain = create(&world, body("plain", json!({"for_seconds": null, "severity": null}))).await;
    for field in ["for_seconds", "keep_firing_seconds", "clear_threshold", "no_data_seconds", "severity"] {
        assert_eq!((&plain["alarm"], &plain[field]), (&json!(false), &json!(null)), "{field}");
    }
    let held = create(&world, body("held", json!({"for_seconds": "5"}))).await;
    assert_eq!((&held["alarm"], &held["for_seconds"]), (&json!(true), &json!(5)));
    assert_eq!((&held["keep_firing_seconds"], &held["severity"]), (&json!(0), &json!("warning")));
    // A rule is taken back as it was shown.
    let again = world.admin.put(&path(&plain), plain.clone()).await.expect(200);
    assert_eq!(again, without_answer(&plain));
    let changed = json!({"for_seconds": null, "clear_threshold": 8, "severity": "critical"});
    let changed = world.admin.put(&path(&held), changed).await.expect(200);
    assert_eq!((&changed["for_seconds"], &changed["clear_threshold"]), (&json!(0), &json!(8.0)));
    let off = world.admin.put(&path(&held), json!({"alarm": false})).await.expect(200);
    assert_eq!((&off["alarm"], &off["severity"]), (&json!(false), &json!(null)));
    world.finish().await;
}

/// The rule as lists and `PUT` show it.
fn without_answer(created: &Value) -> Value {
    let mut rule = created.clone();
    rule.as_object_mut().unwrap().retain(|field, _| !["status", "message"].contains(&field.as_str()));
    rule
}

#[tokio::test]
async fn settings_that_break_a_rule_name_their_field() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    for (field, value) in [
        ("for_seconds", json!(40_000_000)),
        ("keep_firing_seconds", json!(40_000_000)),
        ("no_data_seconds", json!(0)),
        ("rate_window_seconds", json!(86_401)),
        ("clear_threshold", json!(11)),
        ("severity", json!("info")),
    ] {
        let mut body = above_10("too hot", &boiler);
        body[field] = value.clone();
        let message = world.admin.post(RULES, body).await.error(422);
        assert!(message.contains(field), "{field} {value}: {message}");
    }
    let mut body = above_10("too hot", &boiler);
    (body["action_type"], body["webhook_event_type"]) = (json!("webhook"), json!("alarm.firing"));
    let message = world.admin.post(RULES, body).await.error(422);
    assert!(message.starts_with("webhook_event_type "), "{message}");
    world.finish().await;
}

#[tokio::test]
async fn a_rule_without_an_alarm_fires_on_each_value_as_before() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    create(&world, above_10("too hot", &boiler)).await;
    send(&world.admin, &boiler, [11.0, 12.0, 9.0, 13.0]).await;
    assert_eq!(fired(&world).await, [11.0, 12.0, 13.0]);
    let page = world.admin.get(super::ALARMS).await.expect(200);
    assert_eq!(page["total"], 0);
    world.finish().await;
}
