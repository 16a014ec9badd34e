//! Keeps the live tables of one projection up to date.
//!
//! Reads the log in position order from its checkpoint; writes rows and checkpoint in one transaction. The
//! checkpoint moves by compare-and-set: a second runner that was faster makes this one start over from the stored
//! position. Wake-ups make it quick, polling makes it sure. If it dies, the next one goes on from the checkpoint.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use signalbox_event_store::{RecordedEvent, read_after};
use signalbox_messaging::{Bus, Wakeup};
use sqlx::PgPool;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{ApplyError, Lease, Poison, Projection};

/// Events folded in one transaction.
const BATCH: i64 = 1000;
/// How long it waits for a wake-up before it looks by itself.
const POLL: Duration = Duration::from_millis(250);
/// Positions it may be ahead of its stored checkpoint while events are none of its business.
const UNSTORED: i64 = 1000;

/// Why a step did not succeed; the next one may.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The rows cannot be written.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Another runner has moved the checkpoint.
    #[error("another runner has moved the checkpoint of {0}")]
    Overtaken(&'static str),
    /// The log skips a position, which it never does by itself.
    #[error("the log has a gap: after position {after} comes {found}")]
    Gap {
        /// Position read last.
        after: i64,
        /// Position found next.
        found: i64,
    },
}

impl From<sqlx::Error> for StepError {
    fn from(error: sqlx::Error) -> Self {
        Self::Apply(error.into())
    }
}

/// The live runner of projection `P`.
pub struct Runner<P> {
    pool: PgPool,
    bus: Bus,
    /// Applied; in memory it may be ahead of `stored` by events that this projection ignores.
    position: i64,
    stored: i64,
    projection: std::marker::PhantomData<P>,
}

impl<P: Projection> Runner<P> {
    /// A runner that goes on from the stored checkpoint.
    ///
    /// # Errors
    /// The database's error.
    pub async fn start(pool: PgPool, bus: Bus) -> Result<Self, sqlx::Error> {
        ensure_checkpoint(&pool, P::NAME).await?;
        let stored = checkpoint(&pool, P::NAME).await?;
        Ok(Self { pool, bus, position: stored, stored, projection: std::marker::PhantomData })
    }

    /// Runs until `stop`, as long as this process holds the projection's lease.
    pub async fn run(pool: PgPool, bus: Bus, stop: CancellationToken) {
        let work = async {
            loop {
                let mut lease = Lease::acquire(&pool, &format!("projection.{}", P::NAME)).await;
                if let Err(error) = Self::follow(&pool, &bus, &mut lease).await {
                    tracing::error!(%error, projection = P::NAME, "the projection starts over from its checkpoint");
                    sleep(POLL).await;
                }
            }
        };
        tokio::select! { () = work => {}, () = stop.cancelled() => {} }
    }

    async fn follow(pool: &PgPool, bus: &Bus, lease: &mut Lease) -> Result<(), StepError> {
        let mut runner = Self::start(pool.clone(), bus.clone()).await?;
        let mut wakeups = listen(bus).await;
        loop {
            if runner.step().await? == 0 {
                let woken = timeout(POLL, next_append(&mut wakeups)).await;
                if woken.is_err() && !lease.holds().await {
                    return Ok(());
                }
            }
        }
    }

    /// Applies the next batch; gives back how many events it read. Without any, the checkpoint is stored.
    ///
    /// # Errors
    /// [`StepError`]; nothing has changed then.
    pub async fn step(&mut self) -> Result<usize, StepError> {
        let events = read_after(&self.pool, self.position, BATCH).await?;
        let Some(last) = events.last() else {
            self.store_idle().await?;
            return Ok(0);
        };
        check_gapless(self.position, &events)?;
        let position = last.position;
        let wanted: Vec<_> =
            events.iter().filter(|event| P::AGGREGATES.contains(&event.aggregate_type.as_str())).collect();
        if !wanted.is_empty() || position - self.stored >= UNSTORED {
            self.apply(&wanted, position).await?;
        }
        self.position = position;
        self.announce().await;
        Ok(events.len())
    }

    async fn apply(&mut self, events: &[&RecordedEvent], position: i64) -> Result<(), StepError> {
        let mut transaction = self.pool.begin().await?;
        // Derived data: a crash of the server takes rows and checkpoint back together, and they are folded again.
        sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut *transaction).await?;
        // The checkpoint first: a rebuild that swaps the tables locks in the same order, see
        // `a_rebuild_equals_the_live_tables_while_events_keep_coming`.
        let moved =
            sqlx::query("UPDATE read.checkpoints SET position = $3 WHERE projection = $1 AND position = $2")
                .bind(P::NAME)
                .bind(self.stored)
                .bind(position)
                .execute(&mut *transaction)
                .await?;
        if moved.rows_affected() == 0 {
            transaction.rollback().await?;
            return Err(StepError::Overtaken(P::NAME));
        }
        let mut rows = P::Rows::default();
        let poisons = P::fold(&mut rows, &mut transaction, "read", events).await?;
        P::write(&mut rows, &mut transaction, "read", 0).await?;
        for poison in &poisons {
            set_aside::<P>(&mut transaction, poison).await?;
        }
        transaction.commit().await?;
        self.stored = position;
        Ok(())
    }

    /// Stores the checkpoint, for readers that poll it.
    async fn store_idle(&mut self) -> Result<(), StepError> {
        if self.stored < self.position { self.apply(&[], self.position).await } else { Ok(()) }
    }

    async fn announce(&self) {
        let advanced = Wakeup::ReadAdvanced { projection: P::NAME.to_owned(), position: self.position };
        if let Err(error) = self.bus.wake(&advanced).await {
            tracing::warn!(%error, projection = P::NAME, "readers were not woken; they poll");
        }
    }
}

pub(crate) async fn ensure_checkpoint(pool: &PgPool, name: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO read.checkpoints (projection, position) VALUES ($1, 0) ON CONFLICT DO NOTHING")
        .bind(name)
        .execute(pool)
        .await?;
    Ok(())
}

/// What projection `name` has applied and stored.
///
/// # Errors
/// The database's error.
pub async fn checkpoint(pool: &PgPool, name: &str) -> Result<i64, sqlx::Error> {
    let position: Option<i64> =
        sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1")
            .bind(name)
            .fetch_optional(pool)
            .await?;
    Ok(position.unwrap_or(0))
}

pub(crate) fn check_gapless(after: i64, events: &[RecordedEvent]) -> Result<(), StepError> {
    for (event, expected) in events.iter().zip(after + 1..) {
        if event.position != expected {
            return Err(StepError::Gap { after: expected - 1, found: event.position });
        }
    }
    Ok(())
}

async fn set_aside<P: Projection>(
    connection: &mut sqlx::PgConnection,
    poison: &Poison,
) -> Result<(), sqlx::Error> {
    tracing::error!(
        projection = P::NAME,
        position = poison.position,
        error = poison.error,
        "a poisonous event is set aside"
    );
    sqlx::query(
        "INSERT INTO read.poisonous_events (projection, position, error) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(P::NAME)
    .bind(poison.position)
    .bind(&poison.error)
    .execute(connection)
    .await?;
    Ok(())
}

async fn listen(bus: &Bus) -> BoxStream<'static, Wakeup> {
    match bus.wakeups().await {
        Ok(wakeups) => wakeups.boxed(),
        Err(error) => {
            tracing::warn!(%error, "no wake-ups: the projection polls");
            futures::stream::pending().boxed()
        }
    }
}

async fn next_append(wakeups: &mut BoxStream<'static, Wakeup>) {
    while let Some(wakeup) = wakeups.next().await {
        if matches!(wakeup, Wakeup::LogAppended { .. }) {
            return;
        }
    }
    std::future::pending().await
}
