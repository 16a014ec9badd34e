//! Services that handlers of transfers and of agents share.

use std::sync::Arc;

use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_messaging::{Bus, Mailbox, Wakeup};
use signalbox_projections::{
    Lookup,
    transfer::{JobRow, TransferRow},
};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::{
    context_services::services,
    services::{
        agent_keys::AgentKeys, agent_work::AgentWork, commands::Commands, consistency::ReadGate,
        limits::Limiter, live_agents::LiveAgents, replica::Database,
    },
};

services! {
    /// Services for connected agents, their messages and their files.
    TransferServices {
        agent_keys: Arc<AgentKeys>,
        agent_work: AgentWork,
        blobs: BlobStore,
        bus: Bus,
        clock: Clock,
        commands: Commands,
        config: Arc<Config>,
        database: Database,
        gate: Arc<ReadGate>,
        jobs: Lookup<JobRow>,
        limiter: Arc<Limiter>,
        live_agents: Arc<LiveAgents>,
        mailbox: Mailbox,
        stop: CancellationToken,
        transfers: Lookup<TransferRow>,
        wakeups: broadcast::Sender<Wakeup>,
    }
}
