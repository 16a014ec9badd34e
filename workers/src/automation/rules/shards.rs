use std::time::{Duration, Instant};

use signalbox_projections::automation::rule_shards::{Mark, SHARDS, Shard, advance_shards, claim_shards};
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use crate::{Context, WorkerError};

/// How often the claim on shards is renewed.
const RENEWAL: Duration = Duration::from_secs(1);
/// How long a claim lasts without being renewed: the longest interruption after a crash of its process.
const LEASE: PgInterval = PgInterval { months: 0, days: 0, microseconds: 3_000_000 };
/// The shards that this process holds, and how far they are.
#[derive(Debug, Default)]
pub(super) struct Shards {
    me: Option<Uuid>,
    renewed: Option<Instant>,
    held: Vec<Shard>,
}

/// Shards that are equally far.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    shards: Vec<i32>,
    /// How far.
    pub(super) mark: Mark,
    /// The last evaluated row of the next shards.
    pub(super) next: Option<i64>,
}

impl Reach {
    /// Whether the channel with this integer is in one of the shards.
    pub(super) fn holds(&self, channel: i32) -> bool {
        self.shards.contains(&channel.rem_euclid(SHARDS))
    }
}

impl Shards {
    /// Renews the claim, if it is time; returns whether other shards are held now.
    pub(super) async fn renew(&mut self, context: &Context) -> Result<bool, WorkerError> {
        if self.renewed.is_some_and(|renewed| renewed.elapsed() < RENEWAL) {
            return Ok(false);
        }
        let me = *self.me.get_or_insert_with(|| context.clock.new_id());
        let held = claim_shards(&context.pool, me, LEASE).await?;
        let numbers = |held: &[Shard]| held.iter().map(|shard| shard.shard).collect::<Vec<_>>();
        let is_other = numbers(&held) != numbers(&self.held);
        if is_other {
            tracing::info!(shards = held.len(), "this process evaluates the rules of so many shards");
        }
        (self.held, self.renewed) = (held, Some(Instant::now()));
        Ok(is_other)
    }

    /// Those that are least far.
    pub(super) fn hindmost(&self) -> Option<Reach> {
        let first = self.held.iter().min_by_key(|shard| (shard.position, shard.day))?;
        let (equal, ahead): (Vec<_>, Vec<_>) =
            self.held.iter().partition(|shard| shard.position == first.position);
        Some(Reach {
            shards: equal.iter().map(|shard| shard.shard).collect(),
            mark: Mark { position: first.position, day: first.day, total: first.total },
            next: ahead.iter().map(|shard| shard.position).min(),
        })
    }

    /// Moves the shards of `from` to `to`, unless another process has moved them; then they are claimed again.
    pub(super) async fn advance(
        &mut self,
        context: &Context,
        from: &Reach,
        to: Mark,
    ) -> Result<(), WorkerError> {
        let moved = advance_shards(&context.pool, &from.shards, from.mark.position, to).await?;
        if moved < from.shards.len() as u64 {
            self.renewed = None;
        }
        for shard in self.held.iter_mut().filter(|shard| from.shards.contains(&shard.shard)) {
            (shard.position, shard.day, shard.total) = (to.position, to.day, to.total);
        }
        Ok(())
    }
}
