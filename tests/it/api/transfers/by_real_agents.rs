//! Whole transfers between two agents as they are shipped.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    AgentAccount, Folder, Link, RealAgent, Transport, World, bytes, eventually, seconds, sha256,
};

/// Two agents with a folder each.
struct Pair {
    from: AgentAccount,
    to: AgentAccount,
    source: Folder,
    target: Folder,
}

impl Pair {
    async fn new(world: &World) -> Self {
        let (from, to) = (world.agent("source").await, world.agent("destination").await);
        Self { from, to, source: Folder::new(), target: Folder::new() }
    }

    fn start(&self, world: &World, transports: (Transport, Transport)) -> (RealAgent, RealAgent) {
        let url = world.anonymous().url("");
        (
            RealAgent::start(&url, &self.from.token, &self.source, transports.0),
            RealAgent::start(&url, &self.to.token, &self.target, transports.1),
        )
    }

    async fn transfer(&self, world: &World, from: &str, to: &str) -> i64 {
        world.transfer(&self.from, &self.to, &self.source.text(from), &self.target.text(to)).await
    }
}

async fn stop(agents: (RealAgent, RealAgent)) {
    agents.0.stop().await;
    agents.1.stop().await;
}

#[tokio::test]
async fn a_file_arrives_over_every_pair_of_transports() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let content = bytes(300_000);
    pair.source.write("a b/Bücher.bin", &content);
    for (index, transports) in [
        (Transport::Websocket, Transport::Polling),
        (Transport::Polling, Transport::Websocket),
        (Transport::Auto, Transport::Auto),
    ]
    .into_iter()
    .enumerate()
    {
        let agents = pair.start(&world, transports);
        let id = pair.transfer(&world, "a b/Bücher.bin", &format!("in/{index}.bin")).await;
        let done = world.until_ended(id).await;
        assert_eq!(done["status"], "completed", "{transports:?}: {done}");
        assert_eq!(
            (&done["progress"], &done["proven"], &done["attempts"]),
            (&json!(1.0), &json!(true), &json!(1))
        );
        assert_eq!(done["sha256"], sha256(&content));
        assert_eq!(
            done["files"],
            json!([{"name": "Bücher.bin", "size": 300_000, "sha256": sha256(&content)}])
        );
        assert_eq!(pair.target.read(&format!("in/{index}.bin")), content);
        stop(agents).await;
    }
    world.finish().await;
}
