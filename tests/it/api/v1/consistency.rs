//! Reads after writes over two gateways: both show every write that was answered with 2xx at once, and nothing is lost.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Client, World};

async fn two_gateways() -> (World, [Client; 2]) {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let clients = [world.admin.clone(), world.admin.at(&other)];
    (world, clients)
}

/// The newest of the list at `path`.
async fn newest(client: &Client, path: &str) -> Value {
    client.get(&format!("{path}?page_size=1")).await.expect(200)["data"][0]["public_id"].clone()
}

#[tokio::test]
async fn what_one_gateway_makes_the_other_lists() {
    let (world, clients) = two_gateways().await;
    let mut late = 0;
    for round in 0..15 {
        let (writer, reader) = (&clients[round % 2], &clients[(round + 1) % 2]);
        for (path, body) in [
            ("/api/v1/tokens", json!({"name": "t"})),
            ("/api/v1/logging", json!({"content": "c"})),
            ("/api/v1/dashboards", json!({"name": "d"})),
            ("/api/v1/experiments", json!({"name": format!("e {round}")})),
        ] {
            let made = writer.post(path, body).await;
            late += usize::from(made.header("consistency").is_some());
            let made = made.expect(201)["public_id"].clone();
            assert_eq!(newest(reader, path).await, made, "{path}, round {round}");
            let one = format!("{path}/{}", made.as_str().unwrap());
            match path {
                "/api/v1/experiments" => {
                    drop(reader.put(&format!("{one}/stop"), json!({})).await.expect(200))
                }
                "/api/v1/tokens" => drop(reader.delete(&one).await.expect(200)),
                _ => {}
            }
        }
    }
    // A busy machine may take longer than an answer waits, but not again and again.
    assert!(late < 5, "{late} answers did not wait");
    world.finish().await;
}

#[tokio::test]
async fn what_one_gateway_changes_the_other_shows() {
    let (world, clients) = two_gateways().await;
    let dashboard = clients[0].post("/api/v1/dashboards", json!({"name": "d"})).await.expect(201);
    let entry = clients[0].post("/api/v1/logging", json!({"content": "c"})).await.expect(201);
    let id = |made: &Value| made["public_id"].as_str().unwrap().to_owned();
    let paths = [
        (format!("/api/v1/dashboards/{}", id(&dashboard)), "name"),
        (format!("/api/v1/logging/{}", id(&entry)), "content"),
    ];
    for round in 0..60 {
        let (writer, reader) = (&clients[round % 2], &clients[(round + 1) % 2]);
        for (path, field) in &paths {
            let value = format!("round {round}");
            writer.put(path, json!({ *field: value })).await.expect(200);
            assert_eq!(reader.get(path).await.expect(200)[field], json!(value), "{path}");
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn changes_of_different_fields_at_once_are_all_kept() {
    let (world, clients) = two_gateways().await;
    let dashboard = clients[0].post("/api/v1/dashboards", json!({"name": "d"})).await.expect(201);
    let entry = clients[0].post("/api/v1/logging", json!({"content": "c"})).await.expect(201);
    let id = |made: &Value| made["public_id"].as_str().unwrap().to_owned();
    let dashboard = format!("/api/v1/dashboards/{}", id(&dashboard));
    let entry = format!("/api/v1/logging/{}", id(&entry));
    for round in 0..20 {
        let (name, content) = (format!("name {round}"), format!("content {round}"));
        let (is_global, status) = (round % 2 == 0, if round % 2 == 0 { "read" } else { "unread" });
        let changes = [
            clients[0].put(&dashboard, json!({ "name": name })),
            clients[1].put(&dashboard, json!({ "is_global": is_global })),
            clients[0].put(&entry, json!({ "content": content })),
            clients[1].put(&entry, json!({ "status": status })),
        ];
        for answer in join_all(changes).await {
            answer.expect(200);
        }
        let shown = clients[round % 2].get(&dashboard).await.expect(200);
        assert_eq!((&shown["name"], &shown["is_global"]), (&json!(name), &json!(is_global)));
        let shown = clients[round % 2].get(&entry).await.expect(200);
        assert_eq!((&shown["content"], &shown["status"]), (&json!(content), &json!(status)));
    }
    world.finish().await;
}
