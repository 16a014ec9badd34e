use std::net::IpAddr;

use signalbox_domain::{
    kernel::{Actor, Metadata},
    transfer::TransportMode,
};

use crate::{auth::AgentAuth, state::Services};

/// The agent at the other end.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) auth: AgentAuth,
    pub(super) address: IpAddr,
    pub(super) transport: TransportMode,
}

/// Metadata of a command that an agent's message leads to.
pub(super) fn metadata(state: &Services, peer: &Peer) -> Metadata {
    metadata_of(state, peer.auth.actor())
}

/// Metadata of a command of `actor` that has no request of its own.
pub(crate) fn metadata_of(state: &Services, actor: Actor) -> Metadata {
    Metadata {
        command_id: state.clock.new_id(),
        actor,
        causation: None,
        // Reports of an agent belong to the transfer's causal trace.
        correlation: String::new(),
        traceparent: None,
        restored_version: None,
    }
}
