//! Progress of legs, as the gateway counts the bytes of their bodies. It is for people and for the sweep of stalled attempts;
//! nothing depends on a single note.

use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::{Actor, TransferId},
    transfer::{Leg, Transfer, TransferCommand},
};
use signalbox_messaging::Bus;
use signalbox_projections::transfer::TransferRow;

use super::peer::metadata_of;

/// The leg of a transfer whose bytes are counted.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    transfer: TransferId,
    /// Of which the body is: it may outlive it.
    attempt: u32,
    leg: Leg,
    total: Option<u64>,
    /// Bytes that had moved before, by the read model.
    before: u64,
}

impl Counted {
    pub(super) fn new(row: &TransferRow, leg: Leg, total: Option<u64>) -> Self {
        let before = match leg {
            Leg::Upload => row.uploaded,
            Leg::Download => row.downloaded,
        };
        let attempt = row.attempts.unsigned_abs();
        Self { transfer: row.id, attempt, leg, total, before: before.unsigned_abs() }
    }

    /// Notes that a body starts at `offset`. A restart from zero has to be recorded: else its bytes would not count
    /// as progress until they have passed the old count, and a long file would seem to stand still.
    pub(super) async fn begin(&self, clock: &Clock, bus: &Bus, actor: &Actor, offset: u64) {
        if offset == 0 && self.before > 0 {
            self.note(clock, bus, actor, 0).await;
        }
    }

    /// Notes that `bytes` have moved.
    pub(super) async fn note(&self, clock: &Clock, bus: &Bus, actor: &Actor, bytes: u64) {
        let Self { leg, total, .. } = *self;
        let command = TransferCommand::Progress { leg, bytes, total, attempt: Some(self.attempt) };
        let metadata = metadata_of(clock, actor.clone());
        if let Err(error) = bus.send::<Transfer>(self.transfer.0, None, &metadata, &command).await {
            tracing::debug!(%error, transfer = %self.transfer, "progress was not noted");
        }
    }
}
