//! Transfers whose agents fail, crash, or are cut off.

use serde_json::json;

use super::pair::Pair;
use crate::api::agent::acknowledge;
use crate::harness::{
    Link,
    Transport::{Auto, Polling, Websocket},
    World, bytes, eventually, eventually_some, seconds,
};

#[tokio::test]
async fn a_missing_source_file_fails_the_transfer_with_the_reason() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let agents = pair.start(&world, Websocket, Polling);
    let retry = json!({"retry": {"max_attempts": 2, "backoff_seconds": 0}});
    let job = pair.job(&world, "missing", "g", retry).await;
    let id = pair.run(&world, job).await;
    let failed = world.until_ended(id).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("missing"), "{failed}");
    assert!(failed["finished_at"].is_string());
    agents.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn an_error_is_tried_again_until_max_attempts() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let retry = json!({"retry": {"max_attempts": 3, "backoff_seconds": 0}});
    let job = pair.job(&world, "f", "g", retry).await;
    let id = pair.run(&world, job).await;
    let agent = world.as_agent(&pair.from);
    agent.post("/api/agent/connect", json!({})).await.expect(200);
    for attempt in 1..=3 {
        world
            .until_transfer(id, |transfer| {
                transfer["attempts"] == attempt && transfer["phase"] == "dispatched"
            })
            .await;
        // A poll that ends before the mail is there is followed by another one.
        let mail = eventually_some(seconds(30), async || {
            let poll = agent.get("/api/agent/poll?timeout=10").await;
            (poll.status == 200).then(|| poll.expect(200))
        })
        .await;
        assert_eq!(mail.as_array().unwrap().len(), 1, "{mail}");
        acknowledge(&agent, &json!([mail[0]["id"]])).await;
        let data = json!({"transfer_id": id.to_string(), "error": format!("disk trouble {attempt}")});
        agent.post("/api/agent/messages", json!({"type": "transfer_error", "data": data})).await.expect(200);
    }
    let failed = world.until_ended(id).await;
    assert_eq!(
        (&failed["status"], &failed["error"]),
        (&json!("failed"), &json!("Agent 'source': disk trouble 3"))
    );
    assert_eq!((failed["attempts"].as_i64(), world.count_events("transfer_requeued").await), (Some(3), 2));
    world.finish().await;
}

#[tokio::test]
async fn an_agent_killed_in_the_middle_finishes_in_the_second_attempt() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let content = bytes(6_000_000);
    pair.source.write("big", &content);
    let url = world.anonymous().url("");
    let retry = json!({"retry": {"max_attempts": 2, "backoff_seconds": 0}});
    let job = pair.job(&world, "big", "copy", retry).await;
    let link = Link::to(world.address).await;
    let from = pair.start_source(&link.url(), Websocket);
    world.until_agent(&pair.from, "online").await;
    link.hold_uploads_after(2_000_000);
    let to = pair.start_target(&url, Auto);
    let id = pair.run(&world, job).await;
    world.until_transfer(id, |transfer| transfer["bytes_transferred"].as_i64() > Some(0)).await;
    from.kill();
    world.until_agent(&pair.from, "offline").await;
    let from = pair.start_source(&url, Polling);
    let done = world.until_ended(id).await;
    assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(2)), "{done}");
    assert_eq!(pair.target.read("copy"), content);
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_destination_killed_in_the_middle_leaves_no_half_file_under_the_final_name() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let content = bytes(8_000_000);
    pair.source.write("big", &content);
    let url = world.anonymous().url("");
    let retry = json!({"retry": {"max_attempts": 2, "backoff_seconds": 0}});
    let job = pair.job(&world, "big", "copy", retry).await;
    let link = Link::to(world.address).await;
    let from = pair.start_source(&url, Auto);
    let to = pair.start_target(&link.url(), Websocket);
    world.until_agent(&pair.to, "online").await;
    link.hold_downloads_after(1_000_000);
    let id = pair.run(&world, job).await;
    world.until_phase(id, "downloading").await;
    eventually(seconds(10), async || !pair.target.list("").is_empty()).await;
    to.kill();
    world.until_agent(&pair.to, "offline").await;
    assert!(!pair.target.path("copy").exists());
    let to = pair.start_target(&url, Websocket);
    let done = world.until_ended(id).await;
    assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(2)), "{done}");
    assert_eq!(pair.target.read("copy"), content);
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn an_agent_that_stays_away_in_the_middle_is_given_up() {
    let world = World::with(|config| config.transfer.stall_seconds = 1).await;
    let pair = Pair::new(&world).await;
    pair.source.write("big", bytes(6_000_000));
    let job = pair.job(&world, "big", "copy", json!({})).await;
    let link = Link::to(world.address).await;
    let from = pair.start_source(&link.url(), Websocket);
    world.until_agent(&pair.from, "online").await;
    link.hold_uploads_after(2_000_000);
    let id = pair.run(&world, job).await;
    world.until_transfer(id, |transfer| transfer["bytes_transferred"].as_i64() > Some(0)).await;
    from.kill();
    let failed = world.until_ended(id).await;
    assert_eq!((&failed["status"], &failed["attempts"]), (&json!("failed"), &json!(1)), "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("is away"), "{failed}");
    world.finish().await;
}
