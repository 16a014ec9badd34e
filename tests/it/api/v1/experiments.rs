//! Experiments: named spans of time, one at a time.

use chrono::TimeDelta;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::datapoints::{DATAPOINTS, event, listed, record_ago};
use crate::harness::{Client, World};

const PATH: &str = "/api/v1/experiments";

async fn start(client: &Client, name: &str) -> Value {
    client.post(PATH, json!({ "name": name })).await.expect(201)
}

fn path(experiment: &Value) -> String {
    format!("{PATH}/{}", experiment["public_id"].as_str().unwrap())
}

async fn stop(client: &Client, experiment: &Value) -> Value {
    client.put(&format!("{}/stop", path(experiment)), json!({})).await.expect(200)
}

#[tokio::test]
async fn an_experiment_is_started_renamed_stopped_once_and_deleted() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let answer = operator.post(PATH, json!({"name": " burn-in "})).await;
    let started = answer.expect(201);
    assert_eq!((&started["name"], &started["status"]), (&json!("burn-in"), &json!("running")));
    assert_eq!(started["stopped_on"], Value::Null);
    let me = operator.get("/api/v1/auth/me").await.expect(200);
    assert_eq!(started["user_public_id"], me["public_id"]);
    assert_eq!(answer.header("location"), Some(path(&started).as_str()));
    let shown = world.admin.get(&path(&started)).await;
    assert_eq!((shown.expect(200), shown.header("etag")), (started.clone(), Some("\"1\"")));
    let renamed = operator.put(&path(&started), json!({"name": "second"})).await.expect(200);
    assert_eq!((&renamed["name"], &renamed["status"]), (&json!("second"), &json!("running")));
    assert_eq!(operator.put(&path(&started), json!({})).await.expect(200), renamed);
    operator.put(&path(&started), json!({"name": null})).await.error(422);
    let stopped = stop(&operator, &started).await;
    assert_eq!(stopped["status"], "stopped");
    assert!(stopped["stopped_on"].as_str().unwrap() >= stopped["started_on"].as_str().unwrap());
    let twice = operator.put(&format!("{}/stop", path(&started)), json!({})).await.error(409);
    assert!(twice.contains("already"), "{twice}");
    assert_eq!(world.admin.get(&path(&started)).await.expect(200), stopped, "the end stays where it was");
    let stale = operator.request(Method::DELETE, &path(&started)).header("if-match", "\"1\"");
    operator.send(stale).await.error(412);
    operator.delete(&path(&started)).await.expect(200);
    operator.get(&path(&started)).await.error(404);
    operator.delete(&path(&started)).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn one_experiment_runs_at_a_time_over_all_gateways() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let there = world.admin.at(&elsewhere);
    for round in 0..3 {
        let names: Vec<_> = (0..8).map(|index| json!({"name": format!("{round} {index}")})).collect();
        let asked = names.iter().enumerate().map(|(index, name)| {
            let client = if index % 2 == 0 { &world.admin } else { &there };
            client.post(PATH, name.clone())
        });
        let answers = join_all(asked).await;
        let started: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(started.len(), 1, "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
        assert!(answers.iter().all(|answer| answer.status == 201 || answer.status == 409));
        let running = there.get(&format!("{PATH}?status=running")).await.expect(200);
        assert_eq!((&running["total"], &running["data"][0]), (&json!(1), &started[0].expect(201)));
        // Stopping and deleting both make room.
        match round {
            0 => drop(stop(&there, &started[0].expect(201)).await),
            _ => drop(there.delete(&path(&started[0].expect(201))).await.expect(200)),
        }
    }
    let next = start(&world.admin, "next").await;
    // Of two who stop it at once, one did.
    let stop = format!("{}/stop", path(&next));
    let (one, other) = tokio::join!(world.admin.put(&stop, json!({})), there.put(&stop, json!({})));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    assert_eq!(world.count_events("experiment_stopped").await, 4);
    world.finish().await;
}

#[tokio::test]
async fn the_deletion_of_what_is_stopped_leaves_the_running_one_alone() {
    let world = World::start().await;
    let old = start(&world.admin, "old").await;
    stop(&world.admin, &old).await;
    let running = start(&world.admin, "running").await;
    world.admin.delete(&path(&old)).await.expect(200);
    let refused = world.admin.post(PATH, json!({"name": "second"})).await.error(409);
    assert!(refused.contains("running"), "{refused}");
    assert_eq!(world.admin.get(&path(&running)).await.expect(200)["status"], "running");
    world.finish().await;
}

#[tokio::test]
async fn a_name_is_given_once() {
    let world = World::start().await;
    let first = start(&world.admin, "same").await;
    stop(&world.admin, &first).await;
    let refused = world.admin.post(PATH, json!({"name": "same"})).await.error(409);
    assert!(refused.contains("name"), "{refused}");
    let other = start(&world.admin, "other").await;
    world.admin.put(&path(&other), json!({"name": "same"})).await.error(409);
    assert_eq!(world.admin.get(&path(&other)).await.expect(200)["name"], "other");
    world.admin.put(&path(&other), json!({"name": "free"})).await.expect(200);
    world.admin.put(&path(&first), json!({"name": "other"})).await.expect(200);
    world.admin.delete(&path(&first)).await.expect(200);
    world.admin.put(&path(&other), json!({"name": "other"})).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn the_list_is_filtered_and_newest_first() {
    let world = World::start().await;
    for name in ["cold start", "burn-in", "warm start"] {
        let made = start(&world.admin, name).await;
        if name != "warm start" {
            stop(&world.admin, &made).await;
        }
    }
    let viewer = world.user("viewer", "viewer").await;
    let names = async |query: &str| -> Vec<String> {
        let page = viewer.get(&format!("{PATH}?{query}")).await.expect(200);
        page["data"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("").await, ["warm start", "burn-in", "cold start"]);
    assert_eq!(names("name=START").await, ["warm start", "cold start"]);
    assert_eq!(names("status=stopped").await, ["burn-in", "cold start"]);
    assert_eq!(names("page=2&page_size=2").await, ["cold start"]);
    let all = viewer.get(PATH).await.expect(200);
    let second = all["data"][1]["started_on"].as_str().unwrap();
    assert_eq!(names(&format!("from={second}")).await, ["warm start", "burn-in"]);
    assert_eq!(names(&format!("to={second}")).await, ["cold start"]);
    viewer.get(&format!("{PATH}?status=paused")).await.error(422);
    viewer.get(&format!("{PATH}?page_size=101")).await.error(422);
    viewer.post(PATH, json!({"name": "x"})).await.error(403);
    world.finish().await;
}

/// By device time, as it is at the moment of asking.
#[tokio::test]
async fn running_experiment_contains_what_was_measured_until_now() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let event = event(&world, "boiler").await;
    world.clock.advance(TimeDelta::seconds(100));
    let running = start(&world.admin, "burn-in").await;
    world.clock.advance(TimeDelta::seconds(50));
    let before = record_ago(&world, &event, 1.0, 60).await;
    let late = record_ago(&world, &event, 2.0, 40).await;
    let ahead = record_ago(&world, &event, 3.0, -300).await;
    let id = running["public_id"].as_str().unwrap();
    let of = format!("experiment_public_id={id}");
    let tag = async |point: &Value| {
        let path = format!("{DATAPOINTS}/{}", point["public_id"].as_str().unwrap());
        world.admin.get(&path).await.expect(200)["experiment_public_id"].clone()
    };
    let csv = format!("{}/export/csv", path(&running));
    assert_eq!(listed(&world.admin, &of).await, (vec![2.0], 1));
    assert_eq!(
        (tag(&before).await, tag(&late).await, tag(&ahead).await),
        (Value::Null, json!(id), Value::Null)
    );
    assert_eq!(world.admin.get(&csv).await.text().lines().count(), 2);
    // When that time has come, it contains it.
    world.clock.advance(TimeDelta::seconds(300));
    assert_eq!(listed(&world.admin, &of).await, (vec![3.0, 2.0], 2));
    assert_eq!(tag(&ahead).await, json!(id));
    assert_eq!(world.admin.get(&csv).await.text().lines().count(), 3);
    // A value that arrived before the end of the experiment, but was measured after it, does not belong to it.
    world.clock.advance(TimeDelta::seconds(1));
    let after = record_ago(&world, &event, 4.0, -60).await;
    stop(&world.admin, &running).await;
    world.clock.advance(TimeDelta::seconds(300));
    assert_eq!(tag(&after).await, Value::Null);
    assert_eq!(listed(&world.admin, &of).await, (vec![3.0, 2.0], 2));
    world.finish().await;
}
