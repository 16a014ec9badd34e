//! Two agents with a folder each.

use serde_json::json;

use crate::harness::{AgentAccount, Folder, RealAgent, Transport, World};

pub struct Pair {
    pub from: AgentAccount,
    pub to: AgentAccount,
    pub source: Folder,
    pub target: Folder,
}

/// The two agents as programs.
pub struct Running {
    pub from: RealAgent,
    pub to: RealAgent,
}

impl Pair {
    pub async fn new(world: &World) -> Self {
        let (from, to) = (world.agent("source").await, world.agent("destination").await);
        Self { from, to, source: Folder::new(), target: Folder::new() }
    }

    pub fn start_source(&self, url: &str, transport: Transport) -> RealAgent {
        RealAgent::start(url, &self.from.token, &self.source, transport)
    }

    pub fn start_target(&self, url: &str, transport: Transport) -> RealAgent {
        RealAgent::start(url, &self.to.token, &self.target, transport)
    }

    pub fn start(&self, world: &World, from: Transport, to: Transport) -> Running {
        let url = world.anonymous().url("");
        Running { from: self.start_source(&url, from), to: self.start_target(&url, to) }
    }

    /// Makes a transfer between paths in the two folders.
    pub async fn transfer(&self, world: &World, from: &str, to: &str) -> i64 {
        world.transfer(&self.from, &self.to, &self.source.text(from), &self.target.text(to)).await
    }

    /// Makes a job with a single attempt unless `more` says otherwise.
    pub async fn job(&self, world: &World, from: &str, to: &str, more: serde_json::Value) -> i64 {
        let mut job = json!({"name": "nightly", "source_agent_id": self.from.id, "destination_agent_id": self.to.id,
            "source_path": self.source.text(from), "destination_path": self.target.text(to),
            "retry": {"max_attempts": 1, "backoff_seconds": 0}});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.admin.post("/api/jobs", job).await.id()
    }

    /// Runs a job; returns the transfer's integer.
    pub async fn run(&self, world: &World, job: i64) -> i64 {
        world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await.id()
    }
}

impl Running {
    pub async fn stop(self) {
        self.from.stop().await;
        self.to.stop().await;
    }
}
