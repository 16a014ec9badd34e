//! Keeps the live tables of one projection up to date.
//!
//! Reads the log in position order from its checkpoint; writes rows and checkpoint in one transaction. The
//! checkpoint moves by compare-and-set: a second runner that was faster makes this one start over from the stored
//! position. Wake-ups make it quick, polling makes it sure. If it dies, the next one goes on from the checkpoint.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use futures::{StreamExt, stream::BoxStream};
use signalbox_database::{BY_KEY, OwnConnection};
use signalbox_event_store::{RecordedEvent, read_all_for, traces_between};
use signalbox_messaging::{Bus, Wakeup};
use signalbox_telemetry::{Kind, Span, is_recorded, is_tracing};
use sqlx::{Executor, PgConnection, PgExecutor, PgPool};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{ApplyError, Lease, Leases, Poison, Projection, Rows};

/// Events folded in one transaction.
const BATCH: i64 = 1000;
/// How long it waits for a wake-up before it looks by itself.
const POLL: Duration = Duration::from_millis(250);
/// Positions it may be ahead of its stored checkpoint while events are none of its business.
const UNSTORED: i64 = 1000;

/// Derived data: a crash of the server takes rows and checkpoint back together, and they are folded again.
const NOT_SYNCHRONOUS: (&str, &str) = ("synchronous_commit", "off");
/// A runner that hangs in the middle of a fold would keep the next one from the rows that it has locked.
pub(crate) const END_HUNG: (&str, &str) = ("idle_in_transaction_session_timeout", "3s");

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
    own: OwnConnection,
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
        let own = OwnConnection::new(&pool, &[NOT_SYNCHRONOUS, END_HUNG, BY_KEY[0], BY_KEY[1]]);
        Ok(Self { own, bus, position: stored, stored, projection: std::marker::PhantomData })
    }

    /// Runs until `stop`, as long as this process holds the projection's lease.
    pub async fn run(pool: PgPool, leases: Leases, bus: Bus, stop: CancellationToken) {
        let work = async {
            loop {
                let lease = leases.acquire(&format!("projection.{}", P::NAME)).await;
                if let Err(error) = Self::follow(&pool, &bus, &lease).await {
                    tracing::error!(%error, projection = P::NAME, "the projection starts over from its checkpoint");
                    sleep(POLL).await;
                }
            }
        };
        tokio::select! { () = work => {}, () = stop.cancelled() => {} }
    }

    async fn follow(pool: &PgPool, bus: &Bus, lease: &Lease) -> Result<(), StepError> {
        let mut runner = Self::start(pool.clone(), bus.clone()).await?;
        let mut wakeups = listen(bus).await;
        loop {
            if (runner.step().await? as i64) < BATCH {
                let woken = timeout(POLL, next_append::<P>(&mut wakeups)).await;
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
        let mut connection = self.own.take().await?;
        let count = self.step_on(&mut connection).await?;
        self.own.keep(connection);
        Ok(count)
    }

    async fn step_on(&mut self, connection: &mut PgConnection) -> Result<usize, StepError> {
        let events = read_all_for(&mut *connection, self.position, BATCH, P::AGGREGATES).await?;
        let Some(last) = events.last() else {
            self.store_idle(connection).await?;
            return Ok(0);
        };
        check_gapless(self.position, &events)?;
        let (position, begun) = (last.position, SystemTime::now());
        let wanted: Vec<_> =
            events.iter().filter(|event| P::AGGREGATES.contains(&event.aggregate_type.as_str())).collect();
        if !wanted.is_empty() || position - self.stored >= UNSTORED {
            self.apply(connection, &wanted, position).await?;
        }
        let (before, applied) = (std::mem::replace(&mut self.position, position), SystemTime::now());
        self.announce(&wanted).await;
        // Who has more to read catches up, and no trace waits for that.
        if is_tracing() && !wanted.is_empty() && (events.len() as i64) < BATCH {
            // The rows are there: what is told of them must not undo it.
            let told = self.trace(connection, (before, position), (begun, applied)).await;
            if let Err(error) = told {
                tracing::debug!(%error, projection = P::NAME, "traces were not told of their read model");
            }
        }
        Ok(events.len())
    }

    async fn apply(
        &mut self,
        connection: &mut PgConnection,
        events: &[&RecordedEvent],
        position: i64,
    ) -> Result<(), StepError> {
        // One message instead of two; when anything fails from here on, the connection is given up.
        // The checkpoint first: a rebuild that swaps the tables locks in the same order, see
        // `a_rebuild_equals_the_live_tables_while_events_keep_coming`.
        let (name, stored) = (P::NAME, self.stored);
        let begin = format!(
            "BEGIN; UPDATE read.checkpoints SET position = {position} WHERE projection = '{name}' AND position = {stored}"
        );
        if connection.execute(begin.as_str()).await?.rows_affected() == 0 {
            return Err(StepError::Overtaken(P::NAME));
        }
        let mut rows = P::Rows::default();
        let poisons = rows.fold(connection, "read", events).await?;
        rows.write(connection, "read", 0).await?;
        for poison in &poisons {
            set_aside::<P>(connection, poison).await?;
        }
        connection.execute("COMMIT").await?;
        self.stored = position;
        Ok(())
    }

    /// Tells the traces of the events after `positions.0` that they came into the read model meanwhile.
    async fn trace(
        &self,
        connection: &mut PgConnection,
        positions: (i64, i64),
        times: (SystemTime, SystemTime),
    ) -> Result<(), sqlx::Error> {
        let traces = traces_between(connection, positions, P::AGGREGATES).await?;
        for traceparent in traces.iter().filter(|traceparent| is_recorded(traceparent)) {
            let name = || format!("project {}", P::NAME);
            let mut span = Span::begun_at(times.0, Kind::Consumer, Some(traceparent), name);
            span.set("signalbox.projection", P::NAME);
            span.set("signalbox.log.position", positions.1);
            span.end_at(times.1);
        }
        Ok(())
    }

    /// Stores the checkpoint, for readers that poll it.
    async fn store_idle(&mut self, connection: &mut PgConnection) -> Result<(), StepError> {
        if self.stored < self.position { self.apply(connection, &[], self.position).await } else { Ok(()) }
    }

    async fn announce(&self, events: &[&RecordedEvent]) {
        let aggregates: BTreeSet<_> = events.iter().map(|event| event.aggregate_type.clone()).collect();
        let advanced = Wakeup::ReadAdvanced {
            projection: P::NAME.to_owned(),
            position: self.position,
            aggregates: aggregates.into_iter().collect(),
        };
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
pub async fn checkpoint(executor: impl PgExecutor<'_>, name: &str) -> Result<i64, sqlx::Error> {
    let position: Option<i64> =
        sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1")
            .bind(name)
            .fetch_optional(executor)
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

/// Waits until there is something for `P`. What is for others it passes over when it polls.
async fn next_append<P: Projection>(wakeups: &mut BoxStream<'static, Wakeup>) {
    while let Some(wakeup) = wakeups.next().await {
        if let Wakeup::LogAppended { aggregates, .. } = wakeup
            && (aggregates.is_empty() || aggregates.iter().any(|word| P::AGGREGATES.contains(&word.as_str())))
        {
            return;
        }
    }
    std::future::pending().await
}
