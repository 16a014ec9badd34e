//! Whole transfers between two agents as they are shipped.

use serde_json::json;

use super::pair::Pair;
use crate::harness::{
    RealAgent,
    Transport::{Auto, Polling, Websocket},
    World, bytes, sha256,
};

#[tokio::test]
async fn a_file_arrives_over_every_pair_of_transports() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let content = bytes(300_000);
    pair.source.write("a b/Bücher.bin", &content);
    for (from, to) in [(Websocket, Polling), (Polling, Websocket), (Auto, Auto)] {
        let agents = pair.start(&world, from, to);
        let target = format!("in/{from:?}.bin");
        let id = pair.transfer(&world, "a b/Bücher.bin", &target).await;
        let done = world.until_ended(id).await;
        assert_eq!(done["status"], "completed", "{from:?} {to:?}: {done}");
        assert_eq!(
            (&done["progress"], &done["proven"], &done["attempts"]),
            (&json!(1.0), &json!(true), &json!(1))
        );
        assert_eq!(done["sha256"], sha256(&content));
        assert_eq!(
            done["files"],
            json!([{"name": "Bücher.bin", "size": 300_000, "sha256": sha256(&content)}])
        );
        assert_eq!(pair.target.read(&target), content);
        agents.stop().await;
    }
    world.finish().await;
}

#[tokio::test]
async fn an_empty_file_and_a_tree_with_odd_names_arrive_as_they_are() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("empty", b"");
    for index in 0..40 {
        pair.source.write(&format!("tree/Straße {index}/ü {index}.txt"), bytes(index * 100));
    }
    pair.source.make("tree/leer/noch leerer");
    pair.source.make("tree/日本");
    let agents = pair.start(&world, Websocket, Polling);
    let single = pair.transfer(&world, "empty", "out/").await;
    let tree = pair.transfer(&world, "tree/", "copy").await;
    let nothing = pair.transfer(&world, "tree/日本/", "nothing").await;
    for id in [single, tree, nothing] {
        let done = world.until_ended(id).await;
        assert_eq!((&done["status"], &done["proven"]), (&json!("completed"), &json!(true)), "{done}");
    }
    assert_eq!(pair.target.read("out/empty"), b"");
    assert_eq!(pair.target.list("copy"), pair.source.list("tree"));
    for index in 0..40 {
        assert_eq!(pair.target.read(&format!("copy/Straße {index}/ü {index}.txt")), bytes(index * 100));
    }
    assert!(pair.target.path("nothing").is_dir() && pair.target.list("nothing").is_empty());
    agents.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn one_agent_may_be_source_and_destination() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("in/a.txt", b"same machine");
    pair.source.write("in/deep/b.txt", b"deeper");
    let agent = pair.start_source(&world.anonymous().url(""), Auto);
    let text = |path| pair.source.text(path);
    let single = world.transfer(&pair.from, &pair.from, &text("in/a.txt"), &text("out/b.txt")).await;
    let tree = world.transfer(&pair.from, &pair.from, &text("in/"), &text("copy")).await;
    for id in [single, tree] {
        let done = world.until_ended(id).await;
        assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(1)), "{done}");
    }
    assert_eq!(pair.source.read("out/b.txt"), b"same machine");
    assert_eq!(pair.source.list("copy"), pair.source.list("in"));
    agent.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_transfer_waits_for_agents_that_are_away() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", b"late");
    let job = pair.job(&world, "f", "g", json!({})).await;
    let answer = world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await;
    let transfer = answer.expect(201);
    assert_eq!((&transfer["status"], &transfer["job_id"]), (&json!("pending"), &json!(job)));
    let id = transfer["id"].as_i64().unwrap();
    assert_eq!(answer.header("location"), Some(format!("/api/transfers/{id}").as_str()));
    let waiting = world.until_phase(id, "dispatched").await;
    assert_eq!(waiting["status"], "pending");
    let url = world.anonymous().url("");
    let from = pair.start_source(&url, Auto);
    let staged = world.until_phase(id, "staged").await;
    assert_eq!((&staged["status"], &staged["progress"]), (&json!("running"), &json!(0.5)), "{staged}");
    let to = pair.start_target(&url, Polling);
    assert_eq!(world.until_ended(id).await["status"], "completed");
    assert_eq!(pair.target.read("g"), b"late");
    let shown = world.admin.get(&format!("/api/jobs/{job}")).await.expect(200);
    assert_eq!(shown["last_transfer_id"], id);
    assert!(shown["last_run"].is_string() && shown["next_run"].is_null(), "{shown}");
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn agents_on_different_gateways_serve_one_transfer() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(1000));
    let from = pair.start_source(&world.anonymous().url(""), Websocket);
    let to = pair.start_target(&other.url(""), Websocket);
    let id = pair.transfer(&world, "f", "g").await;
    assert_eq!(world.until_ended(id).await["status"], "completed");
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn an_agent_that_changes_its_gateway_and_transport_loses_nothing() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(1000));
    let (here, there) = (world.anonymous().url(""), other.url(""));
    let mut to = pair.start_target(&here, Websocket);
    let from = pair.start_source(&here, Polling);
    for (index, (url, transport)) in
        [(&there, Polling), (&here, Websocket), (&there, Websocket)].into_iter().enumerate()
    {
        let id = pair.transfer(&world, "f", &format!("g{index}")).await;
        // The change falls into the middle of the transfer, wherever it stands.
        to.stop().await;
        to = RealAgent::start(url, &pair.to.token, &pair.target, transport);
        let done = world.until_ended(id).await;
        assert_eq!(done["status"], "completed", "{done}");
        assert_eq!(pair.target.read(&format!("g{index}")), bytes(1000));
    }
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_tree_that_waits_for_agents_seen_for_the_first_time_arrives_whole() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    for index in 0..5 {
        pair.source.write(&format!("tree/{index}/f"), bytes(index));
    }
    let job = pair.job(&world, "tree/", "copy", json!({})).await;
    let id = pair.run(&world, job).await;
    // Its request is written before anybody knows what the agent can do.
    world.until_phase(id, "dispatched").await;
    let agents = pair.start(&world, Polling, Websocket);
    let done = world.until_ended(id).await;
    assert_eq!((&done["status"], &done["proven"]), (&json!("completed"), &json!(true)), "{done}");
    assert_eq!(pair.target.list("copy"), pair.source.list("tree"));
    agents.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_pull_waits_for_its_destination() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(10));
    let url = world.anonymous().url("");
    let from = pair.start_source(&url, Websocket);
    world.until_agent(&pair.from, "online").await;
    let pull = pair.job(&world, "f", "pulled", json!({"type": "pull"})).await;
    let pulled = pair.run(&world, pull).await;
    // A later push overtakes it: the dispatcher has looked at both.
    let push = pair.job(&world, "f", "pushed", json!({})).await;
    let pushed = pair.run(&world, push).await;
    world.until_phase(pushed, "staged").await;
    let waiting = world.admin.get(&format!("/api/transfers/{pulled}")).await.expect(200);
    assert_eq!((&waiting["phase"], &waiting["attempts"]), (&json!("queued"), &json!(0)));
    let to = pair.start_target(&url, Polling);
    for id in [pulled, pushed] {
        let ended = world.until_ended(id).await;
        assert_eq!(ended["status"], "completed", "{ended} after\n{}", world.events_of("transfer").await);
    }
    assert_eq!(pair.target.read("pulled"), bytes(10));
    from.stop().await;
    to.stop().await;
    world.finish().await;
}
