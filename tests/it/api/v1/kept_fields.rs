//! Fields that a resource keeps as long as it exists: another value is refused, not ignored.

use serde_json::json;

use crate::harness::World;

#[tokio::test]
async fn a_field_that_stays_takes_its_own_value_alone() {
    let world = World::start().await;
    let make = async |path: &str, body: serde_json::Value| {
        let made = world.admin.post(path, body).await.expect(201);
        (format!("{path}/{}", made["public_id"].as_str().unwrap()), made)
    };
    let contact = json!({"name": "day", "kind": "email", "address": "day@example.org"});
    let (contact, _) = make("/api/v1/contacts", contact).await;
    let instance = json!({"plugin_id": "simulated", "instance_name": "Plant"});
    let (instance, made) = make("/api/v1/plugins", instance).await;
    let mapped = &made["channel_mappings"][0];
    let mapping = format!("{instance}/channels/{}", mapped["public_id"].as_str().unwrap());
    let (dashboard, _) = make("/api/v1/dashboards", json!({"name": "hall"})).await;
    let (widget, _) =
        make(&format!("{dashboard}/widgets"), json!({"widget_type": "gauge", "title": "t"})).await;
    let (entry, _) = make("/api/v1/logging", json!({"content": "c", "type": "info", "source": "me"})).await;
    for (path, field, own, other) in [
        (&contact, "kind", json!("email"), json!("chat")),
        (&instance, "plugin_id", json!("simulated"), json!("system")),
        (&mapping, "channel_id", mapped["channel_id"].clone(), json!("another")),
        (&widget, "widget_type", json!("gauge"), json!("stat_card")),
        (&entry, "type", json!("info"), json!("error")),
        (&entry, "logging_type", json!("info"), json!("error")),
        (&entry, "source", json!("me"), json!("you")),
    ] {
        world.admin.put(path, json!({ field: own })).await.expect(200);
        let refused = world.admin.put(path, json!({ field: other })).await.expect(422);
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"), "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains("stays as it is"), "{refused}");
    }
    world.finish().await;
}
