//! The log as admins read it.

mod correlations;
mod follow;
mod past;
mod restoring;
mod secrets;
mod streams;
mod versions;

use serde_json::{Value, json};

use crate::harness::{Client, World, eventually_some, seconds};

pub const LOG: &str = "/api/v1/log";

/// The events of a piece, by their position.
fn positions(piece: &Value) -> Vec<i64> {
    piece["data"].as_array().unwrap().iter().map(|event| event["position"].as_i64().unwrap()).collect()
}

/// All events that `query` wants, piece by piece.
async fn all(client: &Client, query: &str) -> Vec<Value> {
    let (mut events, mut cursor) = (Vec::new(), String::new());
    loop {
        let piece = client.get(&format!("{LOG}?limit=7&{query}{cursor}")).await.expect(200);
        events.extend(piece["data"].as_array().unwrap().iter().cloned());
        match piece["next"].as_i64() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return events,
        }
    }
}

/// The correlation of the newest event of this kind.
pub async fn correlation_of(world: &World, event_type: &str) -> String {
    let newest = world.admin.get(&format!("{LOG}?event_type={event_type}&limit=1")).await.expect(200);
    newest["data"][0]["correlation"].as_str().unwrap().to_owned()
}

/// The events of a causal trace; fails the test if an event does not follow its cause.
pub async fn causal_trace(world: &World, correlation: &str) -> Vec<Value> {
    let trace = world.admin.get(&format!("{LOG}/correlations/{correlation}")).await.expect(200);
    let events = trace["events"].as_array().unwrap();
    for (index, event) in events.iter().enumerate() {
        let cause = events[..index].iter().find(|cause| cause["position"] == event["causation"]);
        let expected = cause.map_or(0, |cause| cause["depth"].as_i64().unwrap() + 1);
        assert_eq!(event["depth"].as_i64(), Some(expected), "{event}");
    }
    events.clone()
}

/// [`causal_trace`], once all deliveries are done.
pub async fn until_delivered(world: &World, correlation: &str) -> Vec<Value> {
    eventually_some(seconds(30), async || {
        let events = causal_trace(world, correlation).await;
        let is_delivered = events.iter().any(|event| event["type"] == "attempts_ended")
            && events
                .iter()
                .flat_map(|event| event["deliveries"].as_array().unwrap())
                .all(|delivery| delivery["status"] == "delivered");
        if !is_delivered {
            // Printed if the deliveries never finish.
            println!("{:?}", words(&events));
        }
        is_delivered.then_some(events)
    })
    .await
}

/// Depth, kind and outcome of each event.
pub fn words(events: &[Value]) -> Vec<(i64, &str, Option<&str>)> {
    let word = |event| -> (i64, &str, Option<&str>) {
        let event: &Value = event;
        (event["depth"].as_i64().unwrap(), event["type"].as_str().unwrap(), event["outcome"].as_str())
    };
    events.iter().map(word).collect()
}

async fn make_events(world: &World, count: usize) {
    for number in 0..count {
        let event = json!({"name": format!("event {number} {}", world.clock.new_id()), "type": "sensor"});
        world.admin.post("/api/v1/events", event).await.expect(201);
    }
}

#[tokio::test]
async fn pieces_make_up_the_whole_log_in_both_orders_while_it_grows() {
    let world = World::start().await;
    make_events(&world, 20).await;
    let newest = world.admin.get(&format!("{LOG}?limit=5")).await.expect(200);
    let head = newest["head"].as_i64().unwrap();
    // A log has a head instead of a total.
    let mut fields: Vec<_> = newest.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["data", "head", "next"]);
    assert_eq!(positions(&newest), (head - 4..=head).rev().collect::<Vec<_>>());
    make_events(&world, 3).await;
    let next = newest["next"].as_i64().unwrap();
    let older = world.admin.get(&format!("{LOG}?limit=5&cursor={next}")).await.expect(200);
    assert_eq!(positions(&older), (head - 9..=head - 5).rev().collect::<Vec<_>>());
    let oldest = all(&world.admin, &format!("order=oldest&to_position={head}")).await;
    let found: Vec<_> = oldest.iter().map(|event| event["position"].as_i64().unwrap()).collect();
    assert_eq!(found, (1..=head).collect::<Vec<_>>());
    let mut back = all(&world.admin, &format!("to_position={head}")).await;
    back.reverse();
    assert_eq!(back, oldest);
    for event in oldest.iter().step_by(5) {
        let one = world.admin.get(&format!("{LOG}/{}", event["position"])).await.expect(200);
        assert_eq!(&one, event);
    }
    world.finish().await;
}

#[tokio::test]
async fn each_filter_finds_its_events_and_no_others() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    make_events(&world, 3).await;
    let request =
        operator.request(reqwest::Method::POST, "/api/v1/events").header("x-request-id", "my-request");
    let mine = operator.send(request.json(&json!({"name": "mine", "type": "sensor"}))).await.expect(201);
    let id = mine["public_id"].as_str().unwrap();
    operator.put(&format!("/api/v1/events/{id}"), json!({"unit": "V"})).await.expect(200);
    let of = async |query: &str| -> Vec<String> {
        let events = all(&world.admin, query).await;
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of("event_type=channel_created").await.len(), 4);
    assert_eq!(of("stream_type=channel").await.len(), 5);
    assert_eq!(
        of(&format!("stream_type=channel&stream_id={id}")).await,
        ["channel_updated", "channel_created"]
    );
    assert_eq!(of("correlation=my-request").await, ["channel_created"]);
    let created = &all(&world.admin, "correlation=my-request").await[0];
    let (actor, time) = (created["actor"].as_str().unwrap(), created["time"].as_str().unwrap());
    assert!(actor.starts_with("user:") && created["causation"].is_null(), "{created}");
    assert_eq!((created["version"].as_i64(), created["stream_id"].as_str()), (Some(1), Some(id)));
    assert_eq!(created["data"]["name"], "mine");
    let by_actor = of(&format!("actor={actor}&stream_type=channel")).await;
    assert_eq!(by_actor, ["channel_updated", "channel_created"]);
    assert_eq!(of(&format!("from={time}&stream_type=channel")).await.len(), 2);
    assert_eq!(of(&format!("to={time}&stream_type=channel")).await.len(), 3);
    assert_eq!(of("event_type=nothing").await.len(), 0);
    for wrong in ["limit=0", "limit=501", "order=random", "from=yesterday", "cursor=a", "stream_id=x"] {
        world.admin.get(&format!("{LOG}?{wrong}")).await.error(422);
    }
    world.admin.get(&format!("{LOG}/999999")).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn the_chain_reaches_the_end_of_the_log() {
    let world = World::start().await;
    make_events(&world, 3).await;
    let chained = eventually_some(seconds(20), async || {
        let chain = world.admin.get(&format!("{LOG}/chain")).await.expect(200);
        (chain["position"] == chain["head"]).then_some(chain)
    })
    .await;
    assert_eq!(chained["hash"].as_str().unwrap().len(), 64);
    world.finish().await;
}
