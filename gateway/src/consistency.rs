//! Reads after writes: an answer to a write waits until the read models show it.

use std::{collections::HashMap, time::Duration};

use signalbox_domain::kernel::{Decider, ErrorKind, Rejection};
use signalbox_event_store::stream_position;
use signalbox_projections::{
    Projection, automation::AutomationProjection, checkpoint, extraction::ExtractionProjection,
    fleet::FleetProjection, identity::IdentityProjection, monitoring::MonitoringProjection,
    transfer::TransferProjection,
};
use sqlx::PgPool;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use uuid::Uuid;

use crate::{problem::Problem, state::Written};

/// How long an answer waits at most; then it says that it is only eventually consistent.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a wake-up may be missing before the checkpoint is read.
const DOUBT: Duration = Duration::from_millis(100);

/// How often a partial change is written anew on a newer version.
const MAX_RETRIES: u32 = 5;

/// What each projection has applied, as far as this gateway knows.
#[derive(Debug)]
pub(crate) struct ReadGate {
    pool: PgPool,
    positions: HashMap<&'static str, watch::Sender<i64>>,
}

impl ReadGate {
    pub(crate) fn new(pool: PgPool) -> Self {
        let names = [
            AutomationProjection::NAME,
            ExtractionProjection::NAME,
            FleetProjection::NAME,
            IdentityProjection::NAME,
            MonitoringProjection::NAME,
            TransferProjection::NAME,
        ];
        Self { pool, positions: names.map(|name| (name, watch::Sender::new(0))).into() }
    }

    /// `projection` has applied `position`.
    pub(crate) fn advance(&self, projection: &str, position: i64) {
        if let Some(known) = self.positions.get(projection) {
            known.send_if_modified(|known| {
                let newer = position > *known;
                *known = position.max(*known);
                newer
            });
        }
    }

    /// What `projection` has applied, as far as this gateway has heard.
    pub(crate) fn known(&self, projection: &str) -> i64 {
        self.positions.get(projection).map_or(0, |known| *known.borrow())
    }

    /// Waits until the read models show all that the log holds now of one aggregate.
    async fn catch_up<D: Decider>(&self, id: Uuid) -> Result<(), sqlx::Error> {
        if let Some(position) = stream_position(&self.pool, D::TYPE, id).await? {
            self.wait(D::CONTEXT, position).await;
        }
        Ok(())
    }

    /// Waits until `projection` shows `position`; false when it has not within 2 s.
    pub(crate) async fn wait(&self, projection: &str, position: i64) -> bool {
        let Some(known) = self.positions.get(projection) else { return true };
        let mut known = known.subscribe();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let reached =
                matches!(timeout(DOUBT, known.wait_for(|known| *known >= position)).await, Ok(Ok(_)));
            if reached {
                return true;
            }
            if let Ok(stored) = checkpoint(&self.pool, projection).await {
                self.advance(projection, stored);
            }
        }
        self.known(projection) >= position
    }
}

/// A change that leaves out fields: what is left out keeps the value that was read, so the write insists on the version
/// read, and is made anew when another one came first. A version given by the caller is insisted on instead.
pub(crate) struct Newest {
    given: Option<i64>,
    tries: u32,
}

impl Newest {
    pub(crate) fn new(given: Option<i64>) -> Self {
        Self { given, tries: 0 }
    }

    /// The version to insist on, after `read` was read.
    pub(crate) fn version(&self, read: i64) -> Option<i64> {
        Some(self.given.unwrap_or(read))
    }

    /// What was written, or `None` when it has to be made anew. Then the read models show what came first: read any
    /// earlier, the old version would use up all tries.
    pub(crate) async fn judge<D: Decider>(
        &mut self,
        gate: &ReadGate,
        id: Uuid,
        written: Result<Written, Rejection>,
    ) -> Result<Option<Written>, Problem> {
        match written {
            Ok(written) => Ok(Some(written)),
            Err(rejection) if self.given.is_none() && rejection.kind == ErrorKind::PreconditionFailed => {
                self.tries += 1;
                if self.tries >= MAX_RETRIES {
                    return Err(busy());
                }
                gate.catch_up::<D>(id).await?;
                Ok(None)
            }
            Err(rejection) => Err(rejection.into()),
        }
    }
}

fn busy() -> Problem {
    Problem::conflict("concurrent_changes", "the resource is being changed by others: try again")
}
