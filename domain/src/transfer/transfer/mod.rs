//! A transfer: one movement of a file or a tree from a source agent over the gateway to a destination agent.

mod decide;
mod events;
mod state;
#[cfg(test)]
mod tests;

pub use events::{
    Arrival, JobRef, Leg, NewTransfer, Phase, StagedFile, TransferCommand, TransferEvent, TransferEventKind,
    TransferStatus, base_name,
};
pub use state::{Transfer, digest_lines};
