//! The service itself: its health and faults, and what is derived from its log.

mod faults;
mod hash_chain_writer;
mod health;
mod housekeeping;
mod indexer;
mod relay;

pub use self::{
    faults::FaultReporter,
    hash_chain_writer::HashChainWriter,
    health::{HealthReporter, HealthWatch},
    housekeeping::Housekeeping,
    indexer::Indexer,
    relay::Relay,
};
