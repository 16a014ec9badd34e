use serde_json::{Value, json};

use super::{LOG, positions};
use crate::harness::World;

#[tokio::test]
async fn a_stream_is_shown_as_it_was() {
    let world = World::start().await;
    let event = json!({"name": "first", "type": "sensor"});
    let made = world.admin.post("/api/v1/events", event).await.expect(201);
    let id = made["public_id"].as_str().unwrap();
    let path = format!("{LOG}/streams/channel/{id}");
    let at = async |query: &str| world.admin.get(&format!("{path}{query}")).await.expect(200);
    let mut shown: Vec<Value> = vec![at("").await];
    for name in ["second", "third"] {
        world.admin.put(&format!("/api/v1/events/{id}"), json!({ "name": name })).await.expect(200);
        shown.push(at("").await);
    }
    for (index, name) in ["first", "second", "third"].iter().enumerate() {
        let (then, version) = (&shown[index], index as i64 + 1);
        assert!(then["state"].to_string().contains(name), "{then}");
        assert_eq!(
            (then["version"].as_i64(), then["stream_type"].as_str()),
            (Some(version), Some("channel"))
        );
        assert_eq!(positions(&then["events"]).len(), index + 1);
        let (position, time) = (&then["position"], then["time"].as_str().unwrap());
        for at_then in [at(&format!("?at={position}")).await, at(&format!("?at={time}")).await] {
            for field in ["state", "version", "position", "time"] {
                assert_eq!(at_then[field], then[field]);
            }
            assert_eq!(at_then["events"]["data"], then["events"]["data"]);
        }
    }
    let piece = at("?limit=1&order=oldest").await;
    assert_eq!(piece["events"]["next"], shown[0]["position"]);
    let before = shown[0]["position"].as_i64().unwrap() - 1;
    for nothing in [format!("{path}?at={before}"), format!("{path}?at=2001-01-01T00:00:00Z")] {
        world.admin.get(&nothing).await.error(404);
    }
    world.admin.get(&format!("{LOG}/streams/nothing/{id}")).await.error(404);
    world.admin.get(&format!("{LOG}/streams/channel/none")).await.error(404);
    world.admin.get(&format!("{path}?at=yesterday")).await.error(422);
    world.finish().await;
}

/// Every kind of stream that a system with one resource of each kind has can be shown.
#[tokio::test]
async fn every_kind_of_stream_has_a_state() {
    let world = World::start().await;
    let _ = crate::routes::subjects(&world).await;
    let kinds: Vec<(String, String)> =
        sqlx::query_as("SELECT DISTINCT ON (aggregate_type) aggregate_type, aggregate_id FROM events")
            .fetch_all(&world.servers.pool)
            .await
            .unwrap();
    assert!(kinds.len() >= 14, "{kinds:?}");
    for (kind, id) in kinds {
        let shown = world.admin.get(&format!("{LOG}/streams/{kind}/{id}")).await.expect(200);
        assert!(!shown["state"].is_null(), "{kind}");
    }
    world.finish_with_mail().await;
}
