//! Keeps the live tables of one projection up to date.
//!
//! Reads the log in position order from its checkpoint; writes rows and checkpoint in one transaction. The
//! checkpoint moves by compare-and-set: a second runner that was faster makes this one start over from the stored
//! position. Wake-ups make it quick, polling makes it sure. If it crashes, the next one continues from the checkpoint.
//!
//! A batch that cannot be applied is bisected, until one event is left that cannot: its stream is set aside
//! (`set_aside.rs`), the other streams continue. So is a batch whose statements exceed their time limit. Other failures of
//! the database set nothing aside.

use signalbox_boxed::boxed;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use futures::{StreamExt, stream::BoxStream};
use signalbox_database::{BY_KEY, OwnConnection, clear_fault, report_fault};
use signalbox_event_store::{EventKey, LogSlice, read_all_for, traces_between};
use signalbox_messaging::{Bus, Wakeup};
use signalbox_telemetry::{Kind, Span, is_recorded, is_tracing};
use sqlx::{Executor, PgConnection, PgPool};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    ApplyError, Lease, Leases, Poison, Projection, Retried, Rows,
    checkpoint::{checkpoint, ensure_checkpoint},
    projection::catch_panic,
    set_aside::{self, Held, due_retry, has_any, held_of, retry, sort_out, withdraw_all},
};

/// Events folded in one transaction.
const BATCH: i64 = 1000;
/// Interval of polls without a wakeup.
const POLL: Duration = Duration::from_millis(500);
/// Longest backoff after errors reported by the database itself, which rarely pass without intervention.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How often an event is refused before its stream is set aside: an internal error of the server may be transient.
const REFUSALS: u32 = 3;
const REFUSAL_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Statements that exceed their limit one after the other before that is reported: the read model makes no progress.
const TIMEOUTS: u32 = 3;
/// How often the streams that are set aside are retried after one that cannot be applied, and reported.
const RETRY: Duration = Duration::from_secs(30);
/// Positions by which it may be ahead of its stored checkpoint while no event concerns it.
const UNSTORED: i64 = 1000;
/// For how long it may: a checkpoint that stands is a fault, see the worker `fault-reporter`.
const UNSTORED_FOR: Duration = Duration::from_secs(1);

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
    /// The log skips a position, which appends never cause.
    #[error("the log has a gap: position {after} is followed by {found}")]
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

impl StepError {
    /// Whether a statement exceeded its limit.
    fn is_timeout(&self) -> bool {
        matches!(self, Self::Apply(error) if error.is_timeout())
    }

    /// Whether the server answered, and the same step will fail again.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Apply(ApplyError::Database(error)) => error.as_database_error().is_some_and(|error| {
                // Shutdown, lack of resources, conflicts and timeouts pass.
                const PASSING: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];
                error.code().is_none_or(|code| !PASSING.iter().any(|class| code.starts_with(class)))
            }),
            Self::Apply(_) | Self::Gap { .. } => true,
            Self::Overtaken(_) => false,
        }
    }
}

/// The live runner of projection `P`.
pub struct Runner<P> {
    pool: PgPool,
    own: OwnConnection,
    bus: Bus,
    /// Events of the next batch: fewer while an event is searched that cannot be applied.
    limit: i64,
    /// Whether the log may continue after the read position.
    is_behind: bool,
    /// Consecutive refusals of the next event.
    refusals: u32,
    has_set_aside: bool,
    /// When a stream was retried that could not be applied, or none was due.
    retried: Option<Instant>,
    /// Applied; in memory it may be ahead of `stored` by events that this projection ignores.
    position: i64,
    stored: i64,
    stored_at: Instant,
    projection: std::marker::PhantomData<P>,
}

impl<P: Projection> Runner<P> {
    /// A runner that continues from the stored checkpoint.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn start(pool: PgPool, bus: Bus) -> Result<Self, sqlx::Error> {
        ensure_checkpoint(&pool, P::NAME).await?;
        let stored = checkpoint(&pool, P::NAME).await?;
        let has_set_aside = has_any(&pool, P::NAME).await?;
        let own = OwnConnection::new(&pool, &[NOT_SYNCHRONOUS, END_HUNG, BY_KEY[0], BY_KEY[1]]);
        Ok(Self {
            pool,
            own,
            bus,
            limit: BATCH,
            is_behind: true,
            refusals: 0,
            has_set_aside,
            retried: None,
            position: stored,
            stored,
            stored_at: Instant::now(),
            projection: std::marker::PhantomData,
        })
    }

    /// Runs until `stop`, as long as this process holds the projection's lease.
    #[boxed]
    pub async fn run(pool: PgPool, leases: Leases, bus: Bus, stop: CancellationToken) {
        let work = async {
            let (mut backoff, mut timeouts) = (POLL, 0);
            loop {
                let lease = leases.acquire(&format!("projection.{}", P::NAME)).await;
                let Err(error) = Self::follow(&pool, &bus, &lease, &mut backoff).await else { continue };
                tracing::error!(%error, projection = P::NAME, "the projection starts over from its checkpoint");
                timeouts = if error.is_timeout() { timeouts + 1 } else { 0 };
                if timeouts >= TIMEOUTS {
                    let reason = format!(
                        "{error}, {timeouts} times in a row: if the database is not busy, an event takes longer than a statement \
                         may, and `signalbox projections rebuild {}` applies it",
                        P::NAME
                    );
                    report_stuck(&pool, P::NAME, &reason).await;
                }
                if error.is_lasting() {
                    report_stuck(&pool, P::NAME, &error.to_string()).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                sleep(backoff).await;
            }
        };
        tokio::select! { () = work => {}, () = stop.cancelled() => {} }
    }

    async fn follow(
        pool: &PgPool,
        bus: &Bus,
        lease: &Lease,
        backoff: &mut Duration,
    ) -> Result<(), StepError> {
        let mut runner = Self::start(pool.clone(), bus.clone()).await?;
        let mut wakeups = listen(bus).await;
        runner.step().await?;
        *backoff = POLL;
        clear_fault(pool, &format!("projection.{}", P::NAME)).await?;
        runner.report().await;
        loop {
            if !runner.is_behind {
                // Often an upgrade lets all of them be applied, one after the other.
                if !runner.retry_one().await? {
                    let woken = timeout(POLL, next_append::<P>(&mut wakeups)).await;
                    if woken.is_err() && !lease.holds().await {
                        return Ok(());
                    }
                }
            }
            runner.step().await?;
        }
    }

    /// Applies the next batch; returns how many events it read. Without any, the checkpoint is stored.
    ///
    /// # Errors
    /// [`StepError`]; nothing has changed then.
    #[boxed]
    pub async fn step(&mut self) -> Result<usize, StepError> {
        loop {
            let mut connection = self.own.take().await?;
            let slice = read_all_for(&mut connection, self.position, self.limit, P::AGGREGATES).await?;
            self.is_behind = slice.is_full;
            let Some(last) = slice.last() else {
                self.store_idle(&mut connection).await?;
                self.own.keep(connection);
                return Ok(0);
            };
            check_gapless(self.position, &slice)?;
            match self.step_on(&mut connection, &slice, last).await {
                Ok(()) => {
                    self.own.keep(connection);
                    self.limit = (self.limit * 2).min(BATCH);
                    self.refusals = 0;
                    return Ok(slice.count());
                }
                Err(StepError::Apply(error)) if error.is_refusal() || error.is_timeout() => {
                    // Ended here: the next transaction would wait for its locks until the server notices.
                    let is_clean = !matches!(error, ApplyError::Panic(_));
                    if is_clean && connection.execute("ROLLBACK").await.is_ok() {
                        self.own.keep(connection);
                    }
                    self.narrow(&slice, last, error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// After `error`, prepares for half of the events of `slice`; sets the stream of the last one aside.
    async fn narrow(&mut self, slice: &LogSlice, last: i64, error: ApplyError) -> Result<(), StepError> {
        let keys = relevant_keys::<P>(slice);
        match keys.as_slice() {
            [] => Err(error.into()),
            [_] if self.refusals + 1 < REFUSALS => {
                self.refusals += 1;
                sleep(REFUSAL_RETRY_DELAY).await;
                Ok(())
            }
            [key] => {
                self.refusals = 0;
                let poison = Poison { key: key.clone(), error: error.to_string() };
                let mut connection = self.own.take().await?;
                self.apply(&mut connection, slice, last, Some(&poison)).await?;
                self.own.keep(connection);
                self.position = last;
                self.announce(&keys).await;
                Ok(())
            }
            keys => {
                self.limit = keys[keys.len() / 2 - 1].position - self.position;
                Ok(())
            }
        }
    }

    async fn step_on(
        &mut self,
        connection: &mut PgConnection,
        slice: &LogSlice,
        position: i64,
    ) -> Result<(), StepError> {
        let begun = SystemTime::now();
        let keys = relevant_keys::<P>(slice);
        let is_due = position - self.stored >= UNSTORED || self.stored_at.elapsed() >= UNSTORED_FOR;
        if !keys.is_empty() || is_due {
            self.apply(connection, slice, position, None).await?;
        }
        let (before, applied) = (std::mem::replace(&mut self.position, position), SystemTime::now());
        self.announce(&keys).await;
        // A runner that lags catches up first; tracing must not delay it.
        if is_tracing() && !keys.is_empty() && !slice.is_full {
            // The rows are committed: an error in tracing must not undo that.
            let traced = self.trace(connection, (before, position), (begun, applied)).await;
            if let Err(error) = traced {
                tracing::debug!(%error, projection = P::NAME, "traces were not extended by their read model");
            }
        }
        Ok(())
    }

    /// Applies the events of `slice` up to `position`, except `refused` and those that wait for events that cannot be
    /// applied.
    async fn apply(
        &mut self,
        connection: &mut PgConnection,
        slice: &LogSlice,
        position: i64,
        refused: Option<&Poison>,
    ) -> Result<(), StepError> {
        self.begin(connection, position).await?;
        let mut held = if self.has_set_aside {
            let ids: BTreeSet<_> =
                relevant_keys::<P>(slice).into_iter().map(|key| key.aggregate_id).collect();
            held_of(connection, P::NAME, &Vec::from_iter(ids)).await?
        } else {
            Held::default()
        };
        let fold = async {
            let sorted = sort_out::<P>(slice, &mut held, refused);
            let mut rows = P::Rows::default();
            rows.fold(connection, "read", sorted.applicable).await?;
            rows.write(connection, "read", 0).await?;
            Ok((sorted.poisons, sorted.waiting))
        };
        let (poisons, waiting) = catch_panic(fold).await?;
        withdraw_all(connection, "read", &poisons, &waiting).await?;
        for poison in &poisons {
            set_aside::note(connection, P::NAME, poison).await?;
        }
        connection.execute("COMMIT").await?;
        self.note_stored(position);
        if !poisons.is_empty() {
            self.has_set_aside = true;
            self.report().await;
        }
        Ok(())
    }

    /// Starts a transaction that moves the checkpoint to `position`.
    async fn begin(&self, connection: &mut PgConnection, position: i64) -> Result<(), StepError> {
        // One message instead of two; when anything fails from here on, the transaction is given up.
        // The checkpoint first: a rebuild that swaps the tables locks in the same order, see
        // `a_rebuild_equals_the_live_tables_while_events_keep_coming`.
        let (name, stored) = (P::NAME, self.stored);
        let begin = format!(
            "BEGIN; UPDATE read.checkpoints SET position = {position} WHERE projection = '{name}' AND position = {stored}"
        );
        if connection.execute(begin.as_str()).await?.rows_affected() == 0 {
            return Err(StepError::Overtaken(P::NAME));
        }
        Ok(())
    }

    /// Retries one of the streams that are set aside, if it is time. Returns whether it was applied, so that the next one is retried
    /// at once.
    async fn retry_one(&mut self) -> Result<bool, StepError> {
        if !self.has_set_aside || self.retried.is_some_and(|at| at.elapsed() < RETRY) {
            return Ok(false);
        }
        let mut is_applied = false;
        if let Some(stream) = due_retry(&self.pool, P::NAME).await? {
            match retry::<P>(&self.pool, &stream).await {
                Ok(retried) => {
                    is_applied = matches!(retried, Retried::Applied(_));
                    tracing::info!(
                        projection = P::NAME,
                        position = stream.position,
                        ?retried,
                        "a stream was retried"
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, projection = P::NAME, position = stream.position, "a stream was not retried");
                }
            }
        }
        self.retried = (!is_applied).then(Instant::now);
        self.has_set_aside = has_any(&self.pool, P::NAME).await?;
        self.report().await;
        Ok(is_applied)
    }

    /// Reports the streams that are set aside.
    async fn report(&self) {
        if let Err(error) = set_aside::report(&self.pool, P::NAME).await {
            tracing::warn!(%error, projection = P::NAME, "what is set aside was not reported");
        }
    }

    /// Adds a span to the traces of the events in the range `positions`: the time in which the read model applied
    /// them.
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
        if self.stored < self.position {
            self.begin(connection, self.position).await?;
            connection.execute("COMMIT").await?;
            self.note_stored(self.position);
        }
        Ok(())
    }

    fn note_stored(&mut self, position: i64) {
        (self.stored, self.stored_at) = (position, Instant::now());
    }

    async fn announce(&self, keys: &[EventKey]) {
        let aggregates: BTreeSet<_> = keys.iter().map(|key| key.aggregate_type.clone()).collect();
        let advanced = Wakeup::ReadAdvanced {
            projection: P::NAME.to_owned(),
            position: self.position,
            aggregates: aggregates.into_iter().collect(),
            has_set_aside: self.has_set_aside,
        };
        if let Err(error) = self.bus.wake(&advanced).await {
            tracing::warn!(%error, projection = P::NAME, "readers were not woken; they poll");
        }
    }
}

/// The events of `P`, in order.
fn relevant_keys<P: Projection>(slice: &LogSlice) -> Vec<EventKey> {
    let mut keys = slice.keys();
    keys.retain(|key| P::AGGREGATES.contains(&key.aggregate_type.as_str()));
    keys
}

/// Reports that a projection does not move.
async fn report_stuck(pool: &PgPool, name: &str, reason: &str) {
    if let Err(error) = report_fault(pool, &format!("projection.{name}"), reason).await {
        tracing::warn!(%error, projection = name, "a projection that is stuck was not reported");
    }
}

pub(crate) fn check_gapless(after: i64, slice: &LogSlice) -> Result<(), StepError> {
    slice.gap(after).map_or(Ok(()), |(expected, found)| Err(StepError::Gap { after: expected - 1, found }))
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

/// Waits until there is something for `P`. When it polls, it passes over events for others.
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
