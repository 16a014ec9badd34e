//! Reads after writes: an answer to a write waits until the read models show it.

use std::{collections::HashMap, time::Duration};

use signalbox_domain::catalog::Context;
use signalbox_domain::kernel::{Decider, ErrorKind, Rejection};
use signalbox_event_store::{stream_position, stream_version};
use signalbox_projections::{is_set_aside, progress};
use sqlx::PgPool;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};
use uuid::Uuid;

use crate::http::{answer::Written, extract::Versions, problem::Problem};

/// How long an answer waits for read models before it reports eventual consistency.
const READ_MODEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Reads the checkpoint after this time without a wakeup.
const CHECKPOINT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often a partial change is written anew on a newer version.
const MAX_RETRIES: u32 = 5;

/// The applied positions of projections, as far as this gateway knows.
#[derive(Debug)]
pub(crate) struct ReadGate {
    pool: PgPool,
    reached: HashMap<&'static str, watch::Sender<Reached>>,
}

/// How far a projection is.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    position: i64,
    /// Whether it has set streams aside, so that the position does not hold for all events.
    has_set_aside: bool,
}

impl ReadGate {
    pub(crate) fn new(pool: PgPool) -> Self {
        let reached = Context::WORDS.iter().map(|name| (*name, watch::Sender::new(Reached::default())));
        Self { pool, reached: reached.collect() }
    }

    /// `projection` has applied `position`; not all events up to it, if it has set streams aside.
    pub(crate) fn advance(&self, projection: &str, position: i64, has_set_aside: bool) {
        if let Some(known) = self.reached.get(projection) {
            known.send_if_modified(|known| {
                let is_newer = position > known.position;
                if is_newer || position == known.position && has_set_aside {
                    *known = Reached { position, has_set_aside };
                }
                is_newer
            });
        }
    }

    /// The applied position of `projection`, as far as this gateway knows.
    pub(crate) fn known(&self, projection: &str) -> i64 {
        self.reached.get(projection).map_or(0, |known| known.borrow().position)
    }

    /// The version of an aggregate in the log; 0 for one that there is not.
    pub(crate) async fn version(&self, aggregate_type: &str, id: Uuid) -> Result<i64, sqlx::Error> {
        stream_version(&self.pool, aggregate_type, id).await
    }

    /// Whether the read models show all that the log holds now of one aggregate, for which it waits 2 s at most.
    pub(crate) async fn shows<D: Decider>(&self, id: Uuid) -> Result<bool, sqlx::Error> {
        match stream_position(&self.pool, D::TYPE, id).await? {
            Some(position) => Ok(self.wait(D::CONTEXT, position).await),
            None => Ok(true),
        }
    }

    /// Waits until the event of the aggregate `id` at `position` shows; false when it has not within 2 s, or was set aside.
    pub(crate) async fn wait_for(
        &self,
        context: &str,
        aggregate_type: &str,
        id: Uuid,
        position: i64,
    ) -> bool {
        let deadline = Instant::now() + READ_MODEL_TIMEOUT;
        if !self.wait(context, position).await {
            return false;
        }
        let has_set_aside = self.reached.get(context).is_some_and(|known| known.borrow().has_set_aside);
        if !has_set_aside {
            return true;
        }
        let id = id.to_string();
        let waits = is_set_aside(&self.pool, context, aggregate_type, &id, position);
        matches!(timeout_at(deadline, waits).await, Ok(Ok(false)))
    }

    /// Waits until `projection` shows `position`; false when it has not within 2 s.
    pub(crate) async fn wait(&self, projection: &str, position: i64) -> bool {
        self.wait_at_most(projection, position, READ_MODEL_TIMEOUT).await
    }

    /// Like [`Self::wait`], within `limit`.
    pub(crate) async fn wait_at_most(&self, projection: &str, position: i64, limit: Duration) -> bool {
        let Some(known) = self.reached.get(projection) else { return true };
        let mut known = known.subscribe();
        let shown = known.wait_for(|known| known.position >= position);
        tokio::select! {
            biased;
            shown = shown => shown.is_ok(),
            () = sleep(limit) => false,
            () = self.poll(projection) => false,
        }
    }

    /// Reads the checkpoint of `projection` again and again: wakeups may be lost.
    async fn poll(&self, projection: &str) {
        loop {
            sleep(CHECKPOINT_POLL_INTERVAL).await;
            if let Ok(stored) = progress(&self.pool, projection).await {
                self.advance(projection, stored.position, stored.has_set_aside);
            }
        }
    }
}

/// A change that leaves out fields: these keep the values that were read, so the write insists on the version
/// read, and is made anew when another one came first. Versions given by the caller must contain it.
pub(crate) struct Newest {
    given: Option<Versions>,
    /// Whether the read models have shown all that the log held.
    is_caught_up: bool,
    tries: u32,
}

impl Newest {
    pub(crate) fn new(given: Option<Versions>) -> Self {
        Self { given, is_caught_up: false, tries: 0 }
    }

    /// The version to insist on, after `read` was read of the aggregate `id`, or `None` if it has to be read again: the read models may
    /// have shown an older one than the caller has seen.
    pub(crate) async fn version<D: Decider>(
        &mut self,
        gate: &ReadGate,
        id: Uuid,
        read: i64,
    ) -> Result<Option<Versions>, Problem> {
        match &self.given {
            Some(given) if !given.contains(read) && self.is_caught_up => Err(Problem::version_mismatch()),
            Some(given) if !given.contains(read) => {
                self.catch_up::<D>(gate, id).await?;
                Ok(None)
            }
            _ => Ok(Some(read.into())),
        }
    }

    /// The outcome of the write, or `None` if it has to be decided again. The read models show the conflicting write
    /// by then: read any earlier, the old version would use up all tries.
    pub(crate) async fn judge<D: Decider>(
        &mut self,
        gate: &ReadGate,
        id: Uuid,
        written: Result<Written, Rejection>,
    ) -> Result<Option<Written>, Problem> {
        match written {
            Ok(written) => Ok(Some(written)),
            Err(rejection) if rejection.kind == ErrorKind::PreconditionFailed => {
                self.tries += 1;
                if self.tries >= MAX_RETRIES {
                    return Err(busy());
                }
                self.catch_up::<D>(gate, id).await?;
                Ok(None)
            }
            Err(rejection) => Err(rejection.into()),
        }
    }

    async fn catch_up<D: Decider>(&mut self, gate: &ReadGate, id: Uuid) -> Result<(), Problem> {
        self.is_caught_up = gate.shows::<D>(id).await?;
        if self.given.is_some() && !self.is_caught_up {
            let detail =
                "The service does not show yet how this resource was changed last: try again in a moment.";
            return Err(Problem::unavailable(detail));
        }
        Ok(())
    }
}

fn busy() -> Problem {
    Problem::conflict("concurrent_changes", "the resource is being changed by others: try again")
}
