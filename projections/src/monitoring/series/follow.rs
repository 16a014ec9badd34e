//! Keeps the chunks up to date.
//!
//! Reads the datapoint log from its progress on; writes chunks, newest points and the progress in one transaction,
//! the progress by compare-and-set. It folds once a second, or as soon as many points are pending: queries read the
//! rest from the log, so they never wait for it. If it crashes, the next one continues from the progress.

use signalbox_boxed::boxed;
use std::{collections::HashSet, panic::AssertUnwindSafe, time::Duration};

use chrono::NaiveDate;
use futures::FutureExt;
use signalbox_database::{clear_fault, report_fault};
use signalbox_datapoint_log::{LogRow, read_points_after};
use signalbox_from_row::FromRow;
use sqlx::{Executor, PgConnection, PgPool};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    SeriesError,
    batch::Batch,
    current,
    fold::{apply, ensure_days},
    incomplete::{record_skipped, report_skipped},
    kept::leave_out,
    packing, packs, rollups,
    snapshot::{Progress, begin_fold},
};
use crate::{Lease, Leases, runner::END_HUNG};

/// Points that are folded without waiting.
const MANY: i64 = 100_000;
/// Points that are folded at once: more than [`MANY`] are pending only under load, and then each channel's rows are written less often.
const AT_ONCE: i64 = 400_000;
/// Rows that are folded at once.
const ROWS: i64 = 20_000;
/// How long a few points wait.
const FOLD_INTERVAL: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Name among the parts of the installation.
const PART: &str = "fold.datapoints";
/// How often it is looked whether there are points.
const LOOK: Duration = Duration::from_millis(250);
/// How often rows that cannot be decoded are reported.
const REPORT: Duration = Duration::from_secs(30);

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldStep {
    /// There is nothing to fold.
    Idle,
    /// So many points were folded.
    Folded(i64),
}

/// The rows of the log after the progress, and their points.
#[derive(Debug, Clone, Copy, FromRow)]
struct Waiting {
    rows: i64,
    points: i64,
}

/// The live fold of datapoints.
pub struct Folder {
    pool: PgPool,
    /// Days whose partitions certainly exist.
    days: HashSet<NaiveDate>,
    /// Whether every channel has its current point, which an upgrade leaves to be looked up.
    is_filled: bool,
}

impl Folder {
    /// A fold that continues from the stored progress.
    pub fn new(pool: PgPool) -> Self {
        Self { pool, days: HashSet::new(), is_filled: false }
    }

    /// Folds until `stop`, as long as this process holds the lease.
    #[boxed]
    pub async fn run(pool: PgPool, leases: Leases, stop: CancellationToken) {
        let work = async {
            let mut delay = FOLD_INTERVAL;
            loop {
                let lease = leases.acquire("projection.datapoints").await;
                let follow = Self::follow(&pool, &lease, &mut delay);
                // A panic ends no other read model of this process.
                let error = match AssertUnwindSafe(follow).catch_unwind().await {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "the fold panicked".to_owned(),
                };
                tracing::error!(error, "the fold of datapoints starts over from its progress");
                if let Err(error) = report_fault(&pool, PART, &error).await {
                    tracing::debug!(%error, "a fold that is stuck was not reported");
                }
                sleep(delay).await;
                delay = (delay * 2).min(MAX_BACKOFF);
            }
        };
        tokio::select! { () = work => {}, () = stop.cancelled() => {} }
    }

    async fn follow(pool: &PgPool, lease: &Lease, delay: &mut Duration) -> Result<(), SeriesError> {
        let mut folder = Self::new(pool.clone());
        folder.step().await?;
        *delay = FOLD_INTERVAL;
        clear_fault(pool, PART).await?;
        let (mut folded, mut idled, mut packed) = (None::<Instant>, None::<Instant>, None::<Instant>);
        let mut reported = None::<Instant>;
        let is_past = |moment: Option<Instant>, delay| moment.is_none_or(|moment| moment.elapsed() >= delay);
        loop {
            let waiting = folder.waiting().await?;
            // A step has more to do than to fold new rows, but looks more often for these alone.
            let is_due = waiting.points >= MANY
                || (is_past(folded, FOLD_INTERVAL) && (waiting.rows > 0 || is_past(idled, FOLD_INTERVAL)));
            if is_due {
                if let FoldStep::Folded(points) = folder.step().await? {
                    folded = (points < MANY).then(Instant::now);
                    continue;
                }
                idled = Some(Instant::now());
            }
            if is_past(packed, FOLD_INTERVAL) {
                packed = (!folder.pack().await?).then(Instant::now);
            }
            if is_past(reported, REPORT) {
                report_skipped(&mut *pool.acquire().await?).await?;
                reported = Some(Instant::now());
            }
            sleep(LOOK).await;
            if !lease.holds().await {
                return Ok(());
            }
        }
    }

    /// How much is to be folded.
    async fn waiting(&self) -> Result<Waiting, SeriesError> {
        // Newest first, as the log's own question for its end.
        let waiting = sqlx::query_as(
            "SELECT h.position - p.position AS rows, h.points - p.total AS points
               FROM series.progress p,
                    (SELECT position, points FROM log_head WHERE log = 'datapoints' ORDER BY position DESC LIMIT 1) h",
        );
        Ok(waiting.fetch_one(&self.pool).await?)
    }

    /// Packs some hours that change no more; false when there are none.
    ///
    /// # Errors
    /// [`SeriesError`]; nothing has changed then.
    #[boxed]
    pub async fn pack(&self) -> Result<bool, SeriesError> {
        packing::step(&self.pool).await
    }

    /// Folds pending points, at most about 400,000.
    ///
    /// # Errors
    /// [`SeriesError`]; nothing has changed then.
    #[boxed]
    pub async fn step(&mut self) -> Result<FoldStep, SeriesError> {
        if !self.is_filled {
            Progress::begin(&mut *self.pool.acquire().await?, "series").await?;
            self.is_filled = current::fill(&self.pool).await?;
        }
        rollups::fill(&self.pool).await?;
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
    let rows = read_points_after(&mut *connection, progress.end(), AT_ONCE, ROWS).await?;
    let Some(last) = rows.last() else { return Ok(FoldStep::Idle) };
    check_gapless(progress.position, &rows)?;
    let sql = format!("UPDATE {schema}.progress SET position = $2, day = $3, total = $4 WHERE position = $1");
    let moved = sqlx::query(&sql)
        .bind(progress.position)
        .bind(last.position)
        // Of the newest row, even if one before it has a later day: a clock may have been ahead.
        .bind(last.day)
        .bind(last.total)
        .execute(&mut *connection)
        .await?;
    if moved.rows_affected() == 0 {
        return Err(SeriesError::Overtaken);
    }
    rollups::keep_up(&mut *connection, schema, &progress, last.position).await?;
    let mut batch = Batch::of(&rows);
    if schema == "series" {
        let until = (last.position, last.day);
        if let Some(packed_before) = packs::keep_up(&mut *connection, &progress, until).await? {
            packs::forget(&mut *connection, &batch, packed_before).await?;
        }
    } else {
        leave_out(&mut *connection, &mut batch).await?;
    }
    record_skipped(&mut *connection, &batch.skipped).await?;
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
