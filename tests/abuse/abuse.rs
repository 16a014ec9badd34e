use std::time::Duration;

use crate::{
    connections, documents, floods, reads,
    scene::{Scene, Target},
    tally::Tally,
};

/// One way to abuse the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abuse {
    HalfOpenRequests,
    SlowBodies,
    SlowUploads,
    Pictures,
    Reads,
    Exports,
    AgentInfo,
    Subscriptions,
    Logins,
}

impl Abuse {
    pub const ALL: [Self; 9] = [
        Self::HalfOpenRequests,
        Self::SlowBodies,
        Self::SlowUploads,
        Self::Pictures,
        Self::Reads,
        Self::Exports,
        Self::AgentInfo,
        Self::Subscriptions,
        Self::Logins,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::HalfOpenRequests => "half-open",
            Self::SlowBodies => "slow-bodies",
            Self::SlowUploads => "slow-uploads",
            Self::Pictures => "pictures",
            Self::Reads => "reads",
            Self::Exports => "exports",
            Self::AgentInfo => "agent-info",
            Self::Subscriptions => "subscriptions",
            Self::Logins => "logins",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::HalfOpenRequests => "1,000 connections with half a head of a request",
            Self::SlowBodies => "1,000 requests with a byte of their body every 2 s",
            Self::SlowUploads => "64 anonymous uploads of documents at 1 kB/s",
            Self::Pictures => "16 anonymous pictures of noise at a time",
            Self::Reads => "40 expensive reads of datapoints at a time by one viewer",
            Self::Exports => "4 exports at a time that one viewer reads slowly",
            Self::AgentInfo => "descriptions of 8 kB by 4 agents, as fast as their sockets take them",
            Self::Subscriptions => "subscriptions at 50 sockets of one viewer, as fast as they take them",
            Self::Logins => "failed logins from 8 addresses, 200 a second of each at most",
        }
    }

    /// Runs until dropped.
    pub async fn commit(self, target: &Target, tally: &Tally) -> anyhow::Result<()> {
        match self {
            Self::HalfOpenRequests => connections::half_open(target, tally).await,
            Self::SlowBodies => connections::slow_bodies(target, tally).await,
            Self::SlowUploads => documents::slow_uploads(target, tally).await,
            Self::Pictures => documents::pictures(target, tally).await,
            Self::Reads => reads::expensive(target, tally).await,
            Self::Exports => reads::slow_exports(target, tally).await,
            Self::AgentInfo => floods::agent_info(target, tally).await,
            Self::Subscriptions => floods::subscriptions(target, tally).await,
            Self::Logins => floods::logins(target, tally).await,
        }
    }

    /// A sentence for each limit that the abusers should have met.
    pub async fn unlimited(
        self,
        scene: &Scene,
        seen: &Tally,
        elapsed: Duration,
        most_queries: i64,
    ) -> anyhow::Result<Vec<String>> {
        let (expected, least): (&[&str], u64) = match self {
            Self::HalfOpenRequests => (&["closed", "408"], 1000),
            Self::SlowBodies => (&["408", "closed", "503"], 1000),
            Self::SlowUploads => (&["408", "503", "429"], 32),
            Self::Pictures | Self::Exports => (&["503", "504", "429"], 1),
            Self::Logins => (&["429", "503"], 20),
            Self::Reads => return Ok(reads::excess(seen, most_queries)),
            Self::AgentInfo => return floods::recorded_descriptions(scene, elapsed).await,
            Self::Subscriptions => return Ok(floods::excess_messages(seen, elapsed)),
        };
        let met: u64 = expected.iter().map(|outcome| seen.of(outcome)).sum();
        let fault = format!("{}: limits were met {met} times only", self.title());
        Ok(if met < least { vec![fault] } else { Vec::new() })
    }
}
