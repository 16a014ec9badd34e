//! Commands of requests: sent once the bus is there, and answered when the read models show their effect.

use std::{sync::Arc, time::Duration};

use signalbox_database::SharedServerClock;
use signalbox_domain::kernel::{CommandOutcome, Decider, Metadata, Rejection};
use signalbox_messaging::Bus;
use signalbox_projections::register::At;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::consistency::ReadGate;
use crate::http::answer::Written;

/// How long a write waits for a bus that is away.
const BUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends commands. Clones share what they need.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    pub(crate) bus: Bus,
    pub(crate) gate: Arc<ReadGate>,
    pub(crate) clock: SharedServerClock,
}

impl Commands {
    /// Sends a command and waits until the read models show its effect.
    pub(crate) async fn write<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<Written, Rejection> {
        self.write_versioned::<D>(id, expected_version, metadata, command).await.map(|(written, _)| written)
    }

    /// Like [`Self::write`]; also the aggregate's version after the command, which orders the commands of one aggregate
    /// as the database recorded them.
    pub(crate) async fn write_versioned<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<(Written, Option<i64>), Rejection> {
        self.reach_bus().await?;
        let outcome = self.bus.send::<D>(id, expected_version, metadata, command).await?;
        let unseen = self.unseen::<D>(id, outcome).await;
        let written = Written { unseen, repeated: outcome.repeated, ..Written::default() };
        Ok((written, outcome.version))
    }

    /// Waits for the bus. A message sent without it would stay in the client until the bus is back, and be carried
    /// out long after its sender was asked to retry.
    pub(crate) async fn reach_bus(&self) -> Result<(), Rejection> {
        let mut connections = self.bus.connections();
        let deadline = Instant::now() + BUS_TIMEOUT;
        while !self.bus.is_connected() {
            if timeout_at(deadline, connections.changed()).await.is_err() {
                let message = "The service cannot take changes now: try again in a moment.";
                return Err(Rejection::unavailable(message));
            }
        }
        Ok(())
    }

    async fn unseen<D: Decider>(&self, id: Uuid, outcome: CommandOutcome) -> Option<At> {
        let position = outcome.position?;
        let is_seen = self.gate.wait_for::<D>(id, position).await;
        (!is_seen).then(|| At { position, time: self.clock.now() })
    }
}
