//! The bytes that are kept for callers without a login: documents of jobs, results and remembered texts together. Documents
//! count from before they are read.

use std::time::Duration;

use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_domain::kernel::ExtractionJobId;
use signalbox_projections::extraction::anonymous::{self, Kept};
use sqlx::PgPool;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use uuid::Uuid;

use crate::{
    network::Network,
    problem::{Problem, ProblemKind},
    services::replica::Database,
};

/// When results and remembered texts fill the quota, it takes hours until some of them expire.
const RETRY_AFTER_SECONDS: u64 = 3600;
/// How often the count of arriving documents is renewed; a count that is not renewed for an hour is removed.
const RENEWAL: Duration = Duration::from_secs(600);

/// Bytes on their way, which count against the quota of a network until they belong to jobs. Dropped, they count no longer.
pub(super) struct Coming {
    pool: PgPool,
    limits: Kept,
    network: String,
    id: Uuid,
    is_over: bool,
}

impl Coming {
    /// Counts `bytes` that `network` is about to send.
    ///
    /// # Errors
    /// 429 when they do not fit.
    pub(super) async fn expect(
        database: &Database,
        config: &Config,
        clock: &Clock,
        network: Network,
        bytes: u64,
    ) -> Result<Self, Problem> {
        let (pool, limits, id) = (database.primary.clone(), limits(config), clock.new_id());
        let coming = Self { pool, limits, network: network.to_string(), id, is_over: false };
        coming.count(None, &[(id.into(), bytes)]).await?;
        Ok(coming)
    }

    /// Waits for `arrival`, during which the bytes go on to count.
    pub(super) async fn until<T>(&self, arrival: impl Future<Output = T>) -> T {
        tokio::pin!(arrival);
        let mut renewal = interval_at(Instant::now() + RENEWAL, RENEWAL);
        renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                arrived = &mut arrival => return arrived,
                _ = renewal.tick() => {}
            }
            if let Err(error) = anonymous::renew(&self.pool, self.id).await {
                tracing::warn!(%error, "it was not noted that documents still come");
            }
        }
    }

    /// Counts the documents of jobs instead. Those that are noted already count once.
    ///
    /// # Errors
    /// 429 when they do not fit.
    pub(super) async fn note(mut self, jobs: &[(ExtractionJobId, u64)]) -> Result<(), Problem> {
        self.count(Some(self.id), jobs).await?;
        self.is_over = true;
        Ok(())
    }

    async fn count(&self, coming: Option<Uuid>, jobs: &[(ExtractionJobId, u64)]) -> Result<(), Problem> {
        let sizes: Vec<i64> = jobs.iter().map(|(_, size)| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
        let ids: Vec<_> = jobs.iter().map(|(id, _)| *id).collect();
        let fits = anonymous::note(&self.pool, &self.network, coming, &ids, &sizes, self.limits).await?;
        if fits { Ok(()) } else { Err(full()) }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (pool, id) = (self.pool.clone(), self.id);
        tokio::spawn(async move {
            if let Err(error) = anonymous::release(&pool, id).await {
                tracing::warn!(%error, "bytes that did not come count for another hour");
            }
        });
    }
}

/// Whether `bytes` more may be kept for `network`.
pub(super) async fn has_room(
    database: &Database,
    config: &Config,
    network: Network,
    bytes: usize,
) -> sqlx::Result<bool> {
    let kept = anonymous::kept(&database.primary, &network.to_string()).await?;
    Ok(kept.has_room(i64::try_from(bytes).unwrap_or(i64::MAX), limits(config)))
}

/// The bytes that may be kept for one network.
pub(super) fn most(config: &Config) -> u64 {
    limits(config).own.unsigned_abs()
}

fn limits(config: &Config) -> Kept {
    let config = &config.extraction;
    Kept::mebibytes(config.anonymous_mb, config.anonymous_mb_each)
}

fn full() -> Problem {
    let detail = "Too many documents and texts are kept for callers without a login: log in, or try again when some have expired.";
    Problem::new(ProblemKind::TooMany, "anonymous_storage_full", detail).retry_after(RETRY_AFTER_SECONDS)
}
