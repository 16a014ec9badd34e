//! The bytes kept for callers without a login, by network. The networks are no part of the log: they are personal, and
//! needed only as long as something is kept.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::{begin, delete_in_batches};
use signalbox_domain::kernel::ExtractionJobId;
use signalbox_from_row::FromRow;
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

/// Serialises the counting of documents that arrive at the same time.
const LOCK: i64 = 0x5167_414E_4F4E;
/// Time after which it is certain whether a document belongs to a job.
const COMING: TimeDelta = TimeDelta::hours(1);

/// Bytes that are kept, or that may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct Kept {
    /// For all callers without a login.
    pub all: i64,
    /// For one network.
    pub own: i64,
}

impl Kept {
    /// So many MiB.
    pub fn mebibytes(all: u32, own: u32) -> Self {
        Self { all: i64::from(all) << 20, own: i64::from(own) << 20 }
    }

    /// Whether `bytes` more stay within `limits`.
    pub fn has_room(self, bytes: i64, limits: Self) -> bool {
        self.all.saturating_add(bytes) <= limits.all && self.own.saturating_add(bytes) <= limits.own
    }
}

/// The bytes that are kept for `network`, and for all networks.
///
/// # Errors
/// The database's error.
pub async fn kept(executor: impl PgExecutor<'_>, network: &str) -> Result<Kept, sqlx::Error> {
    sqlx::query_as(
        "SELECT coalesce(sum(bytes), 0)::bigint AS all,
                coalesce(sum(bytes) FILTER (WHERE network = $1), 0)::bigint AS own
           FROM (SELECT noted.network,
                        CASE WHEN job.id IS NULL THEN noted.size + noted.text_size
                             ELSE CASE WHEN job.input_kept THEN job.size ELSE 0 END
                                + CASE WHEN job.ended_at IS NULL THEN noted.text_size
                                       WHEN job.result_kept THEN coalesce(job.result_size, 0)
                                       ELSE 0 END
                         END AS bytes
                   FROM ops.anonymous_jobs noted LEFT JOIN read.extraction_jobs job ON job.id = noted.job_id
                 UNION ALL
                 SELECT network, size FROM ops.cached_texts() WHERE network IS NOT NULL) kept",
    )
    .bind(network)
    .fetch_one(executor)
    .await
}

/// Notes the documents of jobs, if they fit. Those that are noted already count once, and what was noted as `coming` counts no
/// longer. One id may stand for all jobs of an upload until they are known.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note(
    pool: &PgPool,
    network: &str,
    coming: Option<Uuid>,
    jobs: &[ExtractionJobId],
    sizes: &[i64],
    limits: Kept,
) -> Result<bool, sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
    sqlx::query("DELETE FROM ops.anonymous_jobs WHERE job_id = $1")
        .bind(coming)
        .execute(&mut *transaction)
        .await?;
    let before = kept(&mut *transaction, network).await?;
    let added: i64 = sqlx::query_scalar(
        "WITH added AS (
            INSERT INTO ops.anonymous_jobs (job_id, network, size)
            SELECT id, $1, size FROM unnest($2::uuid[], $3::bigint[]) AS new (id, size)
            ON CONFLICT DO NOTHING RETURNING size)
         SELECT coalesce(sum(size), 0)::bigint FROM added",
    )
    .bind(network)
    .bind(jobs)
    .bind(sizes)
    .fetch_one(&mut *transaction)
    .await?;
    let fits = added == 0 || before.has_room(added, limits);
    if fits {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(fits)
}

/// Notes that the text of `job` will have `bytes`, if they fit. A job that is not noted is not counted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_text(
    pool: &PgPool,
    job: ExtractionJobId,
    bytes: i64,
    limits: Kept,
) -> Result<bool, sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
    // The text of an earlier attempt is replaced.
    let network: Option<String> =
        sqlx::query_scalar("UPDATE ops.anonymous_jobs SET text_size = 0 WHERE job_id = $1 RETURNING network")
            .bind(job)
            .fetch_optional(&mut *transaction)
            .await?;
    let fits = match network {
        Some(network) => kept(&mut *transaction, &network).await?.has_room(bytes, limits),
        None => true,
    };
    if fits {
        sqlx::query("UPDATE ops.anonymous_jobs SET text_size = $2 WHERE job_id = $1")
            .bind(job)
            .bind(bytes)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(fits)
}

/// The network that `job` is noted for.
///
/// # Errors
/// The database's error.
pub async fn network_of(pool: &PgPool, job: ExtractionJobId) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT network FROM ops.anonymous_jobs WHERE job_id = $1")
        .bind(job)
        .fetch_optional(pool)
        .await
}

/// Delays the deletion of the note `coming`, whose upload continues.
///
/// # Errors
/// The database's error.
pub async fn renew(pool: &PgPool, coming: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE ops.anonymous_jobs SET noted_at = clock_timestamp() WHERE job_id = $1")
        .bind(coming)
        .execute(pool)
        .await
        .map(drop)
}

/// Deletes the note `coming`, whose upload has ended without a job.
///
/// # Errors
/// The database's error.
pub async fn release(pool: &PgPool, coming: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.anonymous_jobs WHERE job_id = $1").bind(coming).execute(pool).await.map(drop)
}

/// Deletes jobs without remaining data, and those that were never created, at `now`, the time of sweeps.
///
/// # Errors
/// The database's error.
pub async fn forget(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let is_gone = "t.noted_at < least($1, clock_timestamp() - interval '1 hour')
        AND NOT EXISTS (SELECT FROM read.extraction_jobs job
                         WHERE job.id = t.job_id AND (job.ended_at IS NULL OR job.input_kept OR job.result_kept))";
    delete_in_batches(pool, "ops.anonymous_jobs", is_gone, now - COMING).await.map(drop)
}
