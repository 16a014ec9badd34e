//! Keeps the chunks up to date.
//!
//! Reads the datapoint log from where it stands; writes chunks, newest points and its progress in one transaction, the
//! progress by compare-and-set. It folds once a second, or as soon as many points wait: queries read the rest from the
//! log, so nobody waits for it. If it dies, the next one goes on from the progress.

use std::{collections::HashSet, time::Duration};

use chrono::{NaiveDate, TimeDelta};
use signalbox_clock::Clock;
use signalbox_datapoint_log::{LogRow, head, read_points_after};
use sqlx::{Executor, PgConnection, PgPool};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    SeriesError,
    fold::{Batch, apply, ensure_days},
    retention::drop_old_days,
    snapshot::{Progress, begin_fold},
};
use crate::{Lease, Leases, runner::END_HUNG};

/// Points that are folded at once, and without waiting.
const MANY: i64 = 100_000;
/// Rows that are folded at once.
const ROWS: i64 = 20_000;
/// How long a few points wait.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(100);
/// How often old days are dropped.
const RETENTION: Duration = Duration::from_secs(60);

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldStep {
    /// There is nothing to fold.
    Idle,
    /// So many points were folded.
    Folded(i64),
}

/// The live fold of datapoints.
pub struct Folder {
    pool: PgPool,
    /// Days whose partitions are known to be there.
    days: HashSet<NaiveDate>,
}

impl Folder {
    /// A fold that goes on from the stored progress.
    pub fn new(pool: PgPool) -> Self {
        Self { pool, days: HashSet::new() }
    }

    /// Folds until `stop`, as long as this process holds the lease; drops days that are older than `retention_days`, if
    /// that is given.
    pub async fn run(
        pool: PgPool,
        leases: Leases,
        clock: Clock,
        retention_days: Option<u32>,
        stop: CancellationToken,
    ) {
        let work = async {
            loop {
                let lease = leases.acquire("projection.datapoints").await;
                if let Err(error) = Self::follow(&pool, &clock, retention_days, &lease).await {
                    tracing::error!(%error, "the fold of datapoints starts over from its progress");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        };
        tokio::select! { () = work => {}, () = stop.cancelled() => {} }
    }

    async fn follow(
        pool: &PgPool,
        clock: &Clock,
        retention_days: Option<u32>,
        lease: &Lease,
    ) -> Result<(), SeriesError> {
        let mut folder = Self::new(pool.clone());
        let (mut folded, mut cleaned): (Option<Instant>, Option<Instant>) = (None, None);
        let is_past = |moment: Option<Instant>, pause| moment.is_none_or(|moment| moment.elapsed() >= pause);
        loop {
            let is_due = is_past(folded, PAUSE) || folder.waiting().await? >= MANY;
            if is_due && let FoldStep::Folded(points) = folder.step().await? {
                folded = (points < MANY).then(Instant::now);
                continue;
            }
            if let Some(days) = retention_days
                && is_past(cleaned, RETENTION)
            {
                let oldest = clock.now().date_naive() - TimeDelta::days(i64::from(days));
                if let Err(error) = drop_old_days(pool, oldest).await {
                    tracing::warn!(%error, "old days were not dropped; it is tried again");
                }
                cleaned = Some(Instant::now());
            }
            sleep(LOOK).await;
            if is_due && !lease.holds().await {
                return Ok(());
            }
        }
    }

    /// Points that are not folded.
    async fn waiting(&self) -> Result<i64, SeriesError> {
        let mut connection = self.pool.acquire().await?;
        let progress = Progress::read(&mut connection, "series").await?;
        Ok(head(&mut *connection).await?.points - progress.total)
    }

    /// Folds what waits, at most about 100,000 points.
    ///
    /// # Errors
    /// [`SeriesError`]; nothing has changed then.
    pub async fn step(&mut self) -> Result<FoldStep, SeriesError> {
        let mut transaction = signalbox_database::begin(&self.pool, "BEGIN").await?;
        // Derived data, and hung folds end, as in the runner of the other projections.
        let (name, value) = END_HUNG;
        let settings = format!("SET LOCAL synchronous_commit = off; SET LOCAL {name} = '{value}'");
        transaction.execute(settings.as_str()).await?;
        begin_fold(&mut transaction).await?;
        let step = step_in(&mut transaction, "series", &mut self.days).await;
        match step {
            Ok(FoldStep::Folded(points)) => {
                transaction.commit().await?;
                Ok(FoldStep::Folded(points))
            }
            other => {
                // Partitions that were made are gone again.
                self.days.clear();
                other
            }
        }
    }
}

/// Folds the next rows of the log into the tables in `schema`.
pub(super) async fn step_in(
    connection: &mut PgConnection,
    schema: &str,
    days: &mut HashSet<NaiveDate>,
) -> Result<FoldStep, SeriesError> {
    let progress = Progress::read(&mut *connection, schema).await?;
    let rows = read_points_after(&mut *connection, progress.end(), MANY, ROWS).await?;
    let Some(last) = rows.last() else { return Ok(FoldStep::Idle) };
    check_gapless(progress.position, &rows)?;
    let sql = format!("UPDATE {schema}.progress SET position = $2, day = $3, total = $4 WHERE position = $1");
    let moved = sqlx::query(&sql)
        .bind(progress.position)
        .bind(last.position)
        .bind(last.day.max(progress.day))
        .bind(last.total)
        .execute(&mut *connection)
        .await?;
    if moved.rows_affected() == 0 {
        return Err(SeriesError::Overtaken);
    }
    let batch = Batch::of(&rows)?;
    let new: Vec<_> = batch.days().difference(days).copied().collect();
    ensure_days(&mut *connection, schema, new.iter().copied()).await?;
    days.extend(new);
    apply(connection, schema, batch).await?;
    Ok(FoldStep::Folded(last.total - progress.total))
}

fn check_gapless(after: i64, rows: &[LogRow]) -> Result<(), SeriesError> {
    for (row, expected) in rows.iter().zip(after + 1..) {
        if row.position != expected {
            return Err(SeriesError::Gap { after: expected - 1, found: row.position });
        }
    }
    Ok(())
}
