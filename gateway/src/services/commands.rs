//! Commands of requests: sent once the bus is there, and answered when the read models show their effect.

use std::{sync::Arc, time::Duration};

use signalbox_database::SharedServerClock;
use signalbox_domain::kernel::{CommandOutcome, Decider, Metadata, Rejection};
use signalbox_messaging::Bus;
use signalbox_projections::register::At;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::consistency::ReadGate;
use crate::http::{answer::Written, extract::Versions};

/// How long a write waits for a bus that is away.
const BUS_TIMEOUT: Duration = Duration::from_secs(5);

/// A version that no resource has.
const NO_VERSION: i64 = -1;

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
        expected: Option<Versions>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<Written, Rejection> {
        self.write_versioned::<D>(id, expected, metadata, command).await.map(|(written, _)| written)
    }

    /// Like [`Self::write`]; also the aggregate's version after the command, which orders the commands of one aggregate
    /// as the database recorded them.
    pub(crate) async fn write_versioned<D: Decider>(
        &self,
        id: Uuid,
        expected: Option<Versions>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<(Written, Option<i64>), Rejection> {
        self.reach_bus().await?;
        let expected = match expected {
            Some(versions) => Some(self.expected(D::TYPE, id, &versions).await?),
            None => None,
        };
        let outcome = self.bus.send::<D>(id, expected, metadata, command).await?;
        let unseen = self.unseen(D::CONTEXT, D::TYPE, id, outcome).await;
        let written = Written { unseen, repeated: outcome.repeated, ..Written::default() };
        Ok((written, outcome.version))
    }

    /// The version of `versions` that a command insists on: the present one of the aggregate if it is among several.
    async fn expected(&self, aggregate_type: &str, id: Uuid, versions: &Versions) -> Result<i64, Rejection> {
        if let Some(version) = versions.single() {
            return Ok(version);
        }
        let present = self.gate.version(aggregate_type, id).await.map_err(|error| {
            tracing::warn!(%error, "the version of a resource is not known");
            Rejection::unavailable("The service cannot take changes now: try again in a moment.")
        })?;
        // A repeated command is recognised with any version.
        Ok(if versions.contains(present) { present } else { NO_VERSION })
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

    async fn unseen(
        &self,
        context: &str,
        aggregate_type: &str,
        id: Uuid,
        outcome: CommandOutcome,
    ) -> Option<At> {
        let position = outcome.position?;
        let is_seen = self.gate.wait_for(context, aggregate_type, id, position).await;
        (!is_seen).then(|| At { position, time: self.clock.now() })
    }
}
