//! Channels, which clients call events.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_domain::kernel::Rejection;
use signalbox_messaging::CommandReply;
use signalbox_projections::{
    compare,
    monitoring::{MonitoringProjection, series::rebuild_series},
};

use crate::harness::{Client, World, eventually, seconds};

const EVENTS: &str = "/api/v1/events";

fn sensor(name: &str) -> Value {
    json!({"name": name, "type": "sensor", "unit": "°C", "min_value": 0, "max_value": 90.5})
}

fn path(event: &Value) -> String {
    format!("{EVENTS}/{}", event["public_id"].as_str().unwrap())
}

async fn create(client: &Client, name: &str) -> Value {
    client.post(EVENTS, sensor(name)).await.expect(201)
}

#[tokio::test]
async fn an_event_is_made_shown_changed_and_deleted() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let answer = operator.post(EVENTS, sensor(" Kessel 1 ")).await;
    let made = answer.expect(201);
    assert_eq!((&made["status"], &made["name"]), (&json!("success"), &json!("Kessel 1")));
    assert_eq!(answer.header("location"), Some(path(&made).as_str()));
    let me = operator.get("/api/v1/auth/me").await.expect(200);
    assert_eq!(made["user_public_id"], me["public_id"]);
    let shown = world.admin.get(&path(&made)).await;
    assert_eq!(shown.header("etag"), Some("\"1\""));
    assert_eq!(shown.expect(200)["max_value"], 90.5);
    // Omitted fields keep their values, null clears.
    let changed = operator.put(&path(&made), json!({"unit": null, "min_value": -0.1})).await.expect(200);
    assert_eq!((&changed["unit"], &changed["min_value"]), (&json!(""), &json!(-0.1)));
    assert_eq!((&changed["name"], &changed["type"]), (&json!("Kessel 1"), &json!("sensor")));
    let stale = world.admin.request(Method::PUT, &path(&made)).header("if-match", "\"1\"");
    world.admin.send(stale.json(&json!({"name": "lost"}))).await.error(412);
    let gone = operator.delete(&path(&made)).await.expect(200);
    assert_eq!(gone["status"], "success");
    world.admin.get(&path(&made)).await.error(404);
    operator.delete(&path(&made)).await.error(404);
    operator.put(&path(&made), json!({"name": "x"})).await.error(404);
    assert_eq!(world.admin.get(EVENTS).await.expect(200)["total"], 0);
    // The name is free again.
    create(&operator, "Kessel 1").await;
    world.finish().await;
}

#[tokio::test]
async fn unit_and_bounds_may_be_left_out() {
    let world = World::start().await;
    let made = world.admin.post(EVENTS, json!({"name": "bare", "type": "cmd_opened"})).await.expect(201);
    // Existing controllers stop at a unit that is null.
    let nothing = (&json!(""), &Value::Null, &Value::Null);
    assert_eq!((&made["unit"], &made["min_value"], &made["max_value"]), nothing);
    assert_eq!(world.admin.get(EVENTS).await.expect(200)["data"][0]["unit"], "");
    assert_eq!(world.admin.get(&path(&made)).await.expect(200)["unit"], "");
    world.finish().await;
}

#[tokio::test]
async fn a_name_is_given_once() {
    let mut world = World::start().await;
    let other_gateway = world.another_gateway().await;
    let there = world.admin.at(&other_gateway);
    let (one, other) = (create(&world.admin, "one").await, create(&world.admin, "other").await);
    world.admin.post(EVENTS, sensor("one")).await.error(409);
    there.put(&path(&other), json!({"name": " one "})).await.error(409);
    world.admin.put(&path(&one), json!({"name": "one"})).await.expect(200);
    let made = join_all((0..8).map(|index| {
        let client = if index % 2 == 0 { &world.admin } else { &there };
        client.post(EVENTS, sensor("same"))
    }));
    let mut statuses: Vec<_> = made.await.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
    world.finish().await;
}

#[tokio::test]
async fn wrong_events_are_refused() {
    let world = World::start().await;
    let before = world.count_all_events().await;
    for (field, value) in [
        ("name", json!("x".repeat(256))),
        ("name", json!("")),
        ("type", json!("SENSOR")),
        ("unit", json!("x".repeat(256))),
        ("min_value", json!("twelve")),
        ("min_value", json!("NaN")),
        ("min_value", json!(91)),
        ("max_value", json!(true)),
        ("labels", json!({"1st": "x"})),
        ("labels", json!({"größe": "x"})),
        ("labels", json!({"k": "x".repeat(256)})),
        ("labels/k", json!({"k": 1})),
        (
            "labels",
            json!((0..21).map(|index| (format!("k{index}"), json!("v"))).collect::<serde_json::Map<_, _>>()),
        ),
        ("description", json!("x".repeat(2001))),
        ("retention_days", json!(36_501)),
        ("retention_days", json!(-1)),
    ] {
        let mut event = sensor("wrong");
        event[field.split('/').next().unwrap()] = value;
        let answer = world.admin.post(EVENTS, event).await;
        answer.error(422);
        let pointer = answer.expect(422)["errors"][0]["pointer"].as_str().unwrap().to_owned();
        assert_eq!(pointer, format!("/{field}"), "{}", answer.text());
    }
    for number in ["NaN", "Infinity", "-Infinity", "1e400"] {
        let body = format!(r#"{{"name": "n", "type": "sensor", "min_value": {number}}}"#);
        world.admin.send(world.admin.request(Method::POST, EVENTS).body(body)).await.error(422);
    }
    world.admin.post(EVENTS, json!({"name": "no type"})).await.error(422);
    let viewer = world.user("viewer", "viewer").await;
    let users = 2;
    viewer.post(EVENTS, sensor("v")).await.error(403);
    assert_eq!(world.count_all_events().await, before + users, "a user and a login");
    world.finish().await;
}

#[tokio::test]
async fn the_list_has_pages_and_filters() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        create(&world.admin, name).await;
    }
    world.admin.post(EVENTS, json!({"name": "valve a", "type": "actuator"})).await.expect(201);
    let names = async |query: &str| {
        let page = world.admin.get(&format!("{EVENTS}?{query}")).await.expect(200);
        let names: Vec<_> =
            page["data"].as_array().unwrap().iter().map(|event| event["name"].clone()).collect();
        (names, page["total"].as_i64().unwrap())
    };
    // Oldest first: controllers that read one page find the same events on it for ever.
    assert_eq!(names("page_size=2").await, (vec![json!("a"), json!("b")], 4));
    assert_eq!(names("page_size=2&page=2").await, (vec![json!("c"), json!("valve a")], 4));
    assert_eq!(names("page_size=2&sort=oldest").await, (vec![json!("a"), json!("b")], 4));
    assert_eq!(names("page_size=2&sort=newest").await, (vec![json!("valve a"), json!("c")], 4));
    assert_eq!(names("type=actuator").await, (vec![json!("valve a")], 1));
    assert_eq!(names("name=A&_t=1").await, (vec![json!("a"), json!("valve a")], 2));
    assert_eq!(names("page=9").await, (vec![], 4));
    for wrong in ["page=0", "page_size=0", "page_size=101", "sort=backwards"] {
        world.admin.get(&format!("{EVENTS}?{wrong}")).await.error(422);
    }
    world.finish().await;
}

#[tokio::test]
async fn labels_and_description_are_kept_shown_and_filtered_by() {
    let world = World::start().await;
    let plain = create(&world.admin, "plain").await;
    assert_eq!((&plain["labels"], &plain["description"]), (&json!({}), &Value::Null));
    let labelled = |name: &str, labels: Value| {
        let mut event = sensor(name);
        (event["labels"], event["description"]) = (labels, json!(" in the cellar "));
        event
    };
    let pump = labelled("pump", json!({"line": "2", "room": " Süd: 1"}));
    let pump = world.admin.post(EVENTS, pump).await.expect(201);
    assert_eq!(pump["labels"], json!({"line": "2", "room": " Süd: 1"}), "a value stays as it was written");
    assert_eq!(pump["description"], "in the cellar");
    world.admin.post(EVENTS, labelled("valve", json!({"line": "2"}))).await.expect(201);
    let names = async |query: &str| {
        let page = world.admin.get(&format!("{EVENTS}?{query}")).await.expect(200);
        let data = page["data"].as_array().unwrap();
        assert_eq!(page["total"], data.len());
        data.iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("label=line:2").await, ["pump", "valve"]);
    assert_eq!(names("label=line:2&label=room:%20S%C3%BCd:%201").await, ["pump"]);
    assert_eq!(names("label=line:2&name=VAL&type=sensor").await, ["valve"]);
    assert_eq!(names("label=line:1").await, [""; 0]);
    for wrong in ["label=line", "label=:2", "label=1a:2", "label=line:1&label=line:2", "label=line:%00"] {
        world.admin.get(&format!("{EVENTS}?{wrong}")).await.error(422);
    }
    // Omitted fields stay; labels are replaced as a whole.
    let changed = world.admin.put(&path(&pump), json!({"unit": "bar"})).await.expect(200);
    assert_eq!((&changed["labels"], &changed["description"]), (&pump["labels"], &pump["description"]));
    let changed = world.admin.put(&path(&pump), json!({"labels": {"line": "3"}})).await.expect(200);
    assert_eq!(changed["labels"], json!({"line": "3"}));
    let then = changed["updated_on"].as_str().unwrap().to_owned();
    assert_eq!(names("label=line:2").await, ["valve"]);
    let cleared = world.admin.put(&path(&pump), json!({"labels": null, "description": null})).await;
    let cleared = cleared.expect(200);
    assert_eq!((&cleared["labels"], &cleared["description"]), (&json!({}), &Value::Null));
    let before = world.admin.get(&format!("{}?at={then}", path(&pump))).await.expect(200);
    assert_eq!(before["labels"], json!({"line": "3"}), "as it was");
    world.finish().await;
}

#[tokio::test]
async fn partial_changes_at_once_lose_nothing() {
    let mut world = World::start().await;
    let other_gateway = world.another_gateway().await;
    let there = world.admin.at(&other_gateway);
    let path = &path(&create(&world.admin, "shared").await);
    for round in 0..5 {
        let changes = [
            json!({"unit": format!("u{round}")}),
            json!({"min_value": -round}),
            json!({"max_value": 100 + round}),
        ];
        let clients = [&world.admin, &there];
        let puts =
            changes.iter().enumerate().map(|(index, change)| clients[index % 2].put(path, change.clone()));
        for answer in join_all(puts).await {
            answer.expect(200);
        }
        for client in clients {
            let shown = client.get(path).await.expect(200);
            assert_eq!(shown["unit"], format!("u{round}"));
            assert_eq!(
                (&shown["min_value"], &shown["max_value"]),
                (&json!(-round as f64), &json!((100 + round) as f64))
            );
        }
    }
    world.finish().await;
}

/// Existing clients write numbers as texts in any field of service 2.
#[tokio::test]
async fn numbers_may_be_written_as_texts() {
    let world = World::start().await;
    let event = json!({"name": "n", "type": "range", "min_value": "-1.5", "max_value": " 9 "});
    let made = world.admin.post(EVENTS, event).await.expect(201);
    assert_eq!((&made["min_value"], &made["max_value"]), (&json!(-1.5), &json!(9.0)));
    let changed = world.admin.put(&path(&made), json!({"max_value": "10"})).await.expect(200);
    assert_eq!(changed["max_value"], json!(10.0));
    let id = &made["public_id"];
    let point = json!({"value": "2.5", "event_public_id": id});
    assert_eq!(world.admin.post("/api/v1/datapoints", point.clone()).await.expect(201)["value"], json!(2.5));
    let batch = json!({"datapoints": [&point, {"value": 3, "event_public_id": id}]});
    assert_eq!(world.admin.post("/api/v1/datapoints/batch", batch).await.expect(201)["accepted"], 2);
    let series = json!({"event_public_ids": [id], "minutes": "60", "max_points": "10"});
    let series = world.admin.post("/api/v1/datapoints/series", series).await.expect(200);
    assert_eq!(series[id.as_str().unwrap()].as_array().unwrap().len(), 3);
    let rule = json!({"name": "r", "event_public_id": id, "operator": "between", "threshold": "1",
        "threshold_high": "2", "action_type": "log", "cooldown_seconds": "5"});
    let rule = world.admin.post("/api/v1/rules", rule).await.expect(201);
    assert_eq!((&rule["threshold_high"], &rule["cooldown_seconds"]), (&json!(2.0), &json!(5)));
    let board = world.admin.post("/api/v1/dashboards", json!({"name": "d"})).await.expect(201);
    let widgets = format!("/api/v1/dashboards/{}/widgets", board["public_id"].as_str().unwrap());
    let widget = json!({"widget_type": "gauge", "title": "t", "x": "2", "w": "6"});
    let widget = world.admin.post(&widgets, widget).await.expect(201);
    assert_eq!((&widget["x"], &widget["w"]), (&json!(2), &json!(6)));
    // Service 1 takes numbers only.
    let job = json!({"name": "j", "source_agent_id": "1", "source_path": "a", "destination_agent_id": "2",
        "destination_path": "b", "schedule": "0 0 * * *"});
    world.admin.post("/api/jobs", job).await.error(400);
    world.finish().await;
}

#[tokio::test]
async fn the_values_of_an_event_may_be_deleted_with_it() {
    let world = World::start().await;
    let [gone, kept, other] =
        [create(&world.admin, "gone"), create(&world.admin, "kept"), create(&world.admin, "other")];
    let [gone, kept, other] = [gone.await, kept.await, other.await];
    let point = |event: &Value, time: &str| json!({"event_public_id": event["public_id"], "value": 1, "timestamp": time});
    let times = ["2026-01-05T10:00:00Z", "2026-01-05T11:30:00Z", "2026-03-01T10:00:00Z"];
    let points: Vec<_> =
        [&gone, &kept, &other].iter().flat_map(|event| times.map(|time| point(event, time))).collect();
    world.admin.post("/api/v1/datapoints/batch", json!({"datapoints": points})).await.expect(201);
    world.admin.delete(&path(&kept)).await.expect(200);
    let with_values = format!("{}?values=true", path(&gone));
    world.user("viewer", "viewer").await.delete(&with_values).await.error(403);
    world.admin.delete(&format!("{}?values=perhaps", path(&gone))).await.error(422);
    let stale = world.admin.request(Method::DELETE, &with_values).header("if-match", "\"9\"");
    world.admin.send(stale).await.error(412);
    // Values arrive until the last gateway knows that it is gone.
    let (client, late) = (world.admin.clone(), point(&gone, "2026-01-05T12:00:00Z"));
    let sending = tokio::spawn(async move {
        let mut accepted = 0;
        while client.post("/api/v1/datapoints", late.clone()).await.status == 201 {
            accepted += 1;
        }
        accepted
    });
    let all = async || world.admin.get("/api/v1/datapoints").await.expect(200)["total"].as_i64().unwrap();
    eventually(seconds(10), async || all().await > 9).await;
    let deleted = world.admin.delete(&with_values).await.expect(200);
    assert_eq!(deleted["status"], "success");
    assert!(sending.await.unwrap() > 0);
    // It may have been deleted without them before.
    world.admin.delete(&with_values).await.expect(200);
    world.admin.delete(&path(&gone)).await.error(404);
    eventually(seconds(30), async || all().await == 6).await;
    for (event, count) in [(&gone, 0), (&kept, 3), (&other, 3)] {
        let id = event["public_id"].as_str().unwrap();
        let list = format!("/api/v1/datapoints?event_public_id={id}");
        let found = world.admin.get(&list).await;
        assert!(found.status == 404 || found.expect(200)["total"] == count, "{id}");
    }
    let series = json!({"event_public_ids": [other["public_id"]], "from": "2026-01-01T00:00:00Z", "to": "2026-04-01T00:00:00Z",
        "aggregate": "count"});
    world.admin.post("/api/v1/datapoints/series", series).await.expect(200);
    let pool = &world.servers.pool;
    eventually(seconds(30), async || {
        let left = "SELECT (SELECT count(*) FROM ops.value_removals) + (SELECT count(*) FROM ops.kept_rollups)
                         + (SELECT count(*) FROM series.chunks k JOIN read.channels c ON c.number = k.channel WHERE c.values_deleted)
                         + (SELECT count(*) FROM series.rollups k JOIN read.channels c ON c.number = k.channel WHERE c.values_deleted)";
        sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await.unwrap() == 0
    })
    .await;
    let report = rebuild_series(pool).await.unwrap();
    assert_eq!(report.differences, 0, "{report:?}");
    assert_eq!(all().await, 6);
    world.finish().await;
}

#[tokio::test]
async fn the_values_of_an_event_may_be_deleted_after_it() {
    let world = World::start().await;
    let (gone, other) = (create(&world.admin, "gone").await, create(&world.admin, "other").await);
    let points: Vec<_> = [&gone, &gone, &other]
        .map(|event| json!({"event_public_id": event["public_id"], "value": 1}))
        .into_iter()
        .collect();
    world.admin.post("/api/v1/datapoints/batch", json!({"datapoints": points})).await.expect(201);
    world.admin.delete(&path(&gone)).await.expect(200);
    let all = async || world.admin.get("/api/v1/datapoints").await.expect(200)["total"].as_i64().unwrap();
    assert_eq!(all().await, 3);
    let with_values = format!("{}?values=true", path(&gone));
    world.user("viewer", "viewer").await.delete(&with_values).await.error(403);
    let unknown = format!("{EVENTS}/018f0000-0000-7000-8000-000000000000?values=true");
    world.admin.delete(&unknown).await.error(404);
    let stale = world.admin.request(Method::DELETE, &with_values).header("if-match", "\"1\"");
    world.admin.send(stale).await.error(412);
    let operator = world.user("operator", "operator").await;
    for _ in 0..2 {
        operator.delete(&with_values).await.expect(200);
    }
    assert_eq!(world.count_events("channel_values_deleted").await, 1);
    eventually(seconds(30), async || all().await == 1).await;
    let report = compare::<MonitoringProjection>(&world.servers.pool).await.unwrap();
    assert_eq!((report.differences, report.set_aside.len()), (0, 0));
    world.finish().await;
}

/// While processes are replaced, some command handlers do not know the deletion of values. They must not delete half.
#[tokio::test]
async fn values_are_deleted_although_a_handler_of_another_release_answers() {
    let world = World::start().await;
    let bus = world.servers.another_bus().await;
    let serving = tokio::spawn(async move {
        let refuse = |_| async { CommandReply::Rejected(Rejection::unreadable_command()) };
        bus.serve("monitoring", refuse).await
    });
    for number in 0..8 {
        let event = create(&world.admin, &number.to_string()).await;
        world.admin.delete(&format!("{}?values=true", path(&event))).await.expect(200);
    }
    assert_eq!(world.count_events("channel_values_deleted").await, 8);
    serving.abort();
    world.finish().await;
}
