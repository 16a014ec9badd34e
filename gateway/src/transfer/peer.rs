use std::net::IpAddr;

use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::{Actor, Metadata},
    transfer::TransportMode,
};

use crate::auth::AgentAuth;

/// The agent at the other end.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) auth: AgentAuth,
    pub(super) address: IpAddr,
    pub(super) transport: TransportMode,
}

/// Metadata of a command that an agent's message leads to.
pub(super) fn metadata(clock: &Clock, peer: &Peer) -> Metadata {
    metadata_of(clock, peer.auth.actor())
}

/// Metadata of a command of `actor` that has no request of its own.
pub(crate) fn metadata_of(clock: &Clock, actor: Actor) -> Metadata {
    Metadata {
        command_id: clock.new_id(),
        actor,
        causation: None,
        // Reports of an agent belong to the transfer's causal trace.
        correlation: String::new(),
        traceparent: None,
        restored_version: None,
    }
}
