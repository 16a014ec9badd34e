//! Dashboards and their widgets.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Client, World};

const PATH: &str = "/api/v1/dashboards";

async fn make(client: &Client, name: &str, is_global: bool) -> Value {
    client.post(PATH, json!({"name": name, "is_global": is_global})).await.expect(201)
}

fn path(dashboard: &Value) -> String {
    format!("{PATH}/{}", dashboard["public_id"].as_str().unwrap())
}

fn widget_path(dashboard: &Value, widget: &Value) -> String {
    format!("{}/widgets/{}", path(dashboard), widget["public_id"].as_str().unwrap())
}

async fn add(client: &Client, dashboard: &Value, widget: Value) -> Value {
    client.post(&format!("{}/widgets", path(dashboard)), widget).await.expect(201)
}

async fn event(world: &World, name: &str) -> Value {
    let event = json!({"name": name, "type": "sensor"});
    world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone()
}

#[tokio::test]
async fn a_dashboard_is_made_shown_with_its_widgets_changed_and_deleted() {
    let world = World::start().await;
    let owner = world.user("owner", "operator").await;
    let boiler = event(&world, "boiler").await;
    let answer = owner.post(PATH, json!({"name": " Hall "})).await;
    let made = answer.expect(201);
    assert_eq!(
        (&made["name"], &made["is_global"], &made["widgets"]),
        (&json!("Hall"), &json!(false), &json!([]))
    );
    assert_eq!(answer.header("location"), Some(path(&made).as_str()));
    let first = json!({"widget_type": "line_chart", "title": "Boiler", "event_public_id": boiler,
        "x": 1, "y": 2, "w": 12, "h": 1, "config_json": "{\"colour\":\"red\"}"});
    let first = add(&owner, &made, first).await;
    let second = add(&owner, &made, json!({"widget_type": "gauge", "title": "Empty"})).await;
    for (field, expected) in [("x", json!(0)), ("y", json!(0)), ("w", json!(4)), ("h", json!(3))] {
        assert_eq!(second[field], expected, "{field}");
    }
    assert_eq!((&second["event_public_id"], &second["config_json"]), (&Value::Null, &Value::Null));
    let shown = owner.get(&path(&made)).await;
    let widgets = &shown.expect(200)["widgets"];
    assert_eq!(
        (&widgets[0]["public_id"], &widgets[1]["public_id"]),
        (&first["public_id"], &second["public_id"])
    );
    assert_eq!(widgets[0]["config_json"], first["config_json"]);
    assert_eq!(shown.header("etag"), Some("\"3\""), "its widgets are part of it");
    let moved = owner
        .put(&widget_path(&made, &first), json!({"x": 5, "widget_type": "line_chart"}))
        .await
        .expect(200);
    assert_eq!((&moved["x"], &moved["y"], &moved["title"]), (&json!(5), &json!(2), &json!("Boiler")));
    assert_eq!(moved["widget_type"], "line_chart", "the type stays");
    assert_eq!(moved["event_public_id"], boiler);
    let cleared = json!({"event_public_id": null, "config_json": null});
    let cleared = owner.put(&widget_path(&made, &first), cleared).await.expect(200);
    assert_eq!((&cleared["event_public_id"], &cleared["config_json"]), (&Value::Null, &Value::Null));
    let linked = json!({ "event_public_id": boiler });
    let linked = owner.put(&widget_path(&made, &second), linked).await.expect(200);
    assert_eq!(linked["event_public_id"], boiler);
    owner.delete(&widget_path(&made, &first)).await.expect(200);
    owner.delete(&widget_path(&made, &first)).await.error(404);
    let stale = owner.request(Method::PUT, &path(&made)).header("if-match", "\"3\"");
    owner.send(stale.json(&json!({"name": "x"}))).await.error(412);
    let changed = owner.put(&path(&made), json!({"is_global": true})).await.expect(200);
    assert_eq!((&changed["name"], &changed["is_global"]), (&json!("Hall"), &json!(true)));
    assert_eq!(changed["widgets"][0]["public_id"], second["public_id"]);
    owner.delete(&path(&made)).await.expect(200);
    owner.get(&path(&made)).await.error(404);
    owner.put(&widget_path(&made, &second), json!({"x": 1})).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn others_see_what_is_global_and_change_nothing() {
    let world = World::start().await;
    let (owner, other) = (world.user("owner", "operator").await, world.user("other", "operator").await);
    let viewer = world.user("viewer", "viewer").await;
    let (private, global) = (make(&owner, "private", false).await, make(&owner, "global", true).await);
    let widget = json!({"widget_type": "gauge", "title": "t"});
    let (hidden, open) =
        (add(&owner, &private, widget.clone()).await, add(&owner, &global, widget.clone()).await);
    let before = world.count_all_events().await;
    let names = async |client: &Client, query: &str| -> Vec<String> {
        let page = client.get(&format!("{PATH}?{query}")).await.expect(200);
        assert_eq!(page["total"], page["data"].as_array().unwrap().len());
        page["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&owner, "").await, ["global", "private"]);
    assert_eq!(names(&owner, "is_global=false").await, ["private"]);
    assert_eq!(names(&owner, "name=PRIV").await, ["private"]);
    // Admins too.
    for client in [&other, &world.admin] {
        assert_eq!(names(client, "").await, ["global"]);
        client.get(&path(&private)).await.error(403);
        let seen = client.get(&path(&global)).await.expect(200);
        assert_eq!(seen["widgets"][0]["public_id"], open["public_id"]);
        for (dashboard, widget_of) in [(&private, &hidden), (&global, &open)] {
            client.put(&path(dashboard), json!({"name": "x"})).await.error(403);
            client.delete(&path(dashboard)).await.error(403);
            client.post(&format!("{}/widgets", path(dashboard)), widget.clone()).await.error(403);
            client.put(&widget_path(dashboard, widget_of), json!({"x": 1})).await.error(403);
            client.delete(&widget_path(dashboard, widget_of)).await.error(403);
        }
    }
    assert_eq!(names(&viewer, "").await, ["global"]);
    viewer.post(PATH, json!({"name": "x"})).await.error(403);
    assert_eq!(world.count_all_events().await, before);
    world.finish().await;
}

#[tokio::test]
async fn a_widget_outlives_its_event() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let there = world.admin.at(&elsewhere);
    let (gone, kept) = (event(&world, "gone").await, event(&world, "kept").await);
    let dashboard = make(&world.admin, "Hall", false).await;
    let show = |event: &Value| json!({"widget_type": "gauge", "title": "t", "event_public_id": event});
    let first = add(&world.admin, &dashboard, show(&gone)).await;
    add(&world.admin, &dashboard, show(&kept)).await;
    there.delete(&format!("/api/v1/events/{}", gone.as_str().unwrap())).await.expect(200);
    let links = async |client: &Client| -> Vec<Value> {
        let shown = client.get(&path(&dashboard)).await.expect(200);
        shown["widgets"].as_array().unwrap().iter().map(|widget| widget["event_public_id"].clone()).collect()
    };
    assert_eq!(links(&world.admin).await, [Value::Null, kept.clone()]);
    let renamed =
        world.admin.put(&widget_path(&dashboard, &first), json!({"title": "cold"})).await.expect(200);
    assert_eq!((&renamed["title"], &renamed["event_public_id"]), (&json!("cold"), &Value::Null));
    // A deleted channel is not linked again.
    let widgets = format!("{}/widgets", path(&dashboard));
    world.admin.post(&widgets, show(&gone)).await.error(404);
    let relink = json!({ "event_public_id": gone });
    world.admin.put(&widget_path(&dashboard, &first), relink).await.error(404);
    assert_eq!(links(&there).await, [Value::Null, kept]);
    world.finish().await;
}

#[tokio::test]
async fn a_link_and_the_deletion_of_its_event_at_once_leave_no_dead_link() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let there = world.admin.at(&elsewhere);
    let dashboard = make(&world.admin, "Hall", false).await;
    let widgets = format!("{}/widgets", path(&dashboard));
    for round in 0..6 {
        let event = event(&world, &format!("event {round}")).await;
        let widget = json!({"widget_type": "gauge", "title": "t", "event_public_id": event});
        let gone = format!("/api/v1/events/{}", event.as_str().unwrap());
        let (added, deleted) = tokio::join!(world.admin.post(&widgets, widget), there.delete(&gone));
        deleted.expect(200);
        assert!([201, 404].contains(&added.status), "{}", added.text());
    }
    let shown = world.admin.get(&path(&dashboard)).await.expect(200);
    let links = shown["widgets"].as_array().unwrap().iter().map(|widget| &widget["event_public_id"]);
    assert!(links.into_iter().all(Value::is_null), "{shown}");
    world.finish().await;
}

#[tokio::test]
async fn a_widget_is_found_on_its_own_dashboard_alone() {
    let world = World::start().await;
    let (one, other) = (make(&world.admin, "one", false).await, make(&world.admin, "other", false).await);
    let widget = add(&world.admin, &one, json!({"widget_type": "gauge", "title": "t"})).await;
    let elsewhere = widget_path(&other, &widget);
    for refused in [
        world.admin.put(&elsewhere, json!({"x": 1})).await.error(404),
        world.admin.delete(&elsewhere).await.error(404),
    ] {
        assert!(refused.contains("Widget not on this dashboard"), "{refused}");
    }
    for id in ["0", "abc", "018f0000-0000-7000-8000-000000000000", "%00", "%FF", "..%2f"] {
        let path = format!("{}/widgets/{id}", path(&one));
        world.admin.put(&path, json!({"x": 1})).await.error(404);
        world.admin.delete(&path).await.error(404);
    }
    world.finish().await;
}

#[tokio::test]
async fn changes_of_one_dashboard_over_two_gateways_are_all_kept() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let there = world.admin.at(&elsewhere);
    let dashboard = make(&world.admin, "Hall", false).await;
    let widgets = format!("{}/widgets", path(&dashboard));
    let adding = (0..12).map(|index| {
        let client = if index % 2 == 0 { &world.admin } else { &there };
        client.post(&widgets, json!({"widget_type": "gauge", "title": format!("{index}")}))
    });
    let added: Vec<_> = join_all(adding).await.iter().map(|answer| answer.expect(201)).collect();
    // Different fields of one widget at once.
    let widget = widget_path(&dashboard, &added[0]);
    let changes = [json!({"x": 7}), json!({"y": 8}), json!({"title": "new"}), json!({"w": 2})];
    let changing = changes.into_iter().enumerate().map(|(index, change)| {
        let client = if index % 2 == 0 { &world.admin } else { &there };
        client.put(&widget, change)
    });
    for answer in join_all(changing).await {
        answer.expect(200);
    }
    let shown = there.get(&path(&dashboard)).await.expect(200);
    let rows = shown["widgets"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    let changed = rows.iter().find(|row| row["public_id"] == added[0]["public_id"]).unwrap();
    assert_eq!(
        (&changed["x"], &changed["y"], &changed["title"], &changed["w"]),
        (&json!(7), &json!(8), &json!("new"), &json!(2))
    );
    world.finish().await;
}
