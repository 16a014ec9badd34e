//! Queries about extraction jobs.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_domain::{
    extraction::MAX_ATTEMPTS,
    kernel::{ExtractionJobId, UserId},
};
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use super::ExtractionJobRow;
use crate::page::{Listed, Order, Page, Sorting, and_eq, and_like, and_within, list};

const ATTEMPTS: i32 = MAX_ATTEMPTS.cast_signed();

/// Which jobs are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Status word.
    pub status: Option<&'static str>,
    /// Part of the file's name, in any case of letters.
    pub filename: Option<String>,
    /// Submitted at or after.
    pub from: Option<DateTime<Utc>>,
    /// Submitted before.
    pub to: Option<DateTime<Utc>>,
}

/// How many jobs there are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct JobCounts {
    /// Of anybody, waiting for a worker.
    pub queue_depth: i64,
    /// The caller's.
    pub total: i64,
    /// Of these.
    pub completed: i64,
    /// Of these.
    pub failed: i64,
    /// Of these.
    pub processing: i64,
    /// Of these.
    pub queued: i64,
    /// Of these.
    pub cancelled: i64,
}

/// How a job stands, for the worker that has it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct JobState {
    /// Key.
    pub id: ExtractionJobId,
    /// The claim in force.
    pub claim: Option<Uuid>,
    /// Version of the aggregate.
    pub version: i64,
}

/// The job `id`, also a deleted one.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn job(pool: &PgPool, id: ExtractionJobId) -> Result<Option<ExtractionJobRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.extraction_jobs WHERE id = $1").bind(id).fetch_optional(pool).await
}

impl Listed for ExtractionJobRow {
    const SORTING: Sorting = Sorting::newest_first(("created_at", "created_at"), &[], "id");
}

/// A page of the jobs of `owner` and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn jobs(
    pool: &PgPool,
    owner: UserId,
    filter: &JobFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<ExtractionJobRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.extraction_jobs WHERE NOT deleted AND owner_id = ").push_bind(owner);
        and_eq(query, "status", filter.status);
        and_like(query, "filename", filter.filename.as_deref());
        and_within(query, "created_at", filter.from, filter.to);
    })
    .await
}

/// How many jobs `owner` has in each state. Anonymous jobs are never counted: like the list, they are found only by
/// id.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn counts(pool: &PgPool, owner: Option<UserId>) -> Result<JobCounts, sqlx::Error> {
    sqlx::query_as(
        "SELECT (SELECT count(*) FROM read.extraction_jobs WHERE status = 'queued') AS queue_depth,
                count(*) AS total,
                count(*) FILTER (WHERE status = 'completed') AS completed,
                count(*) FILTER (WHERE status = 'failed') AS failed,
                count(*) FILTER (WHERE status = 'processing') AS processing,
                count(*) FILTER (WHERE status = 'queued') AS queued,
                count(*) FILTER (WHERE status = 'cancelled') AS cancelled
           FROM read.extraction_jobs WHERE owner_id = $1 AND NOT deleted",
    )
    .bind(owner)
    .fetch_one(pool)
    .await
}

/// How many jobs would not have ended if those with `ids` were taken in, of which some may be there already; counts no further than
/// `most` of those that are there.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn open_jobs_with(pool: &PgPool, ids: &[ExtractionJobId], most: i64) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM read.extraction_jobs WHERE due_at IS NOT NULL LIMIT $1) open)
              + (SELECT count(*) FROM unnest($2) new (id)
                  WHERE NOT EXISTS (SELECT FROM read.extraction_jobs job WHERE job.id = new.id))",
    )
    .bind(most)
    .bind(ids)
    .fetch_one(pool)
    .await
}

/// Jobs that a worker may begin at `now`: one of each owner, then a second one of each, users before callers without a login,
/// the longest due first. `anonymous` says whether those without a login are among them.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_jobs(
    pool: &PgPool,
    now: DateTime<Utc>,
    anonymous: bool,
    limit: i64,
) -> Result<Vec<ExtractionJobRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.extraction_jobs
          WHERE due_at <= $1 AND (status = 'queued' OR attempts < $2) AND (owner_id IS NOT NULL OR $4)
          ORDER BY row_number() OVER (PARTITION BY owner_id ORDER BY due_at, id), owner_id IS NULL, due_at, id
          LIMIT $3",
    )
    .bind(now)
    .bind(ATTEMPTS)
    .bind(limit)
    .bind(anonymous)
    .fetch_all(pool)
    .await
}

/// Jobs whose last attempt has lost its worker.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn lost_jobs(
    pool: &PgPool,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<ExtractionJobId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT id FROM read.extraction_jobs
          WHERE due_at <= $1 AND status = 'processing' AND attempts >= $2 ORDER BY due_at, id LIMIT $3",
    )
    .bind(now)
    .bind(ATTEMPTS)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// How the jobs `ids` stand.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn states(pool: &PgPool, ids: &[ExtractionJobId]) -> Result<Vec<JobState>, sqlx::Error> {
    sqlx::query_as("SELECT id, claim, version FROM read.extraction_jobs WHERE id = ANY($1)")
        .bind(ids)
        .fetch_all(pool)
        .await
}

/// Jobs that finished at `ended_before` or earlier, and whose document is kept. Failed jobs that may be retried, and those that
/// keep their document as long as their text, keep it until `failed_before`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn spent_inputs(
    pool: &PgPool,
    ended_before: DateTime<Utc>,
    failed_before: DateTime<Utc>,
    without: &[Uuid],
    limit: i64,
) -> Result<Vec<ExtractionJobRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.extraction_jobs
          WHERE input_kept AND ended_at <= $1 AND (status <> 'failed' OR attempts >= $2 OR ended_at < $3)
            AND (NOT coalesce((options ->> 'keep_input')::boolean, false) OR ended_at < $3)
            AND id <> ALL($5) ORDER BY ended_at, id LIMIT $4",
    )
    .bind(ended_before)
    .bind(ATTEMPTS)
    .bind(failed_before)
    .bind(limit)
    .bind(without)
    .fetch_all(pool)
    .await
}

/// Jobs that ended before `ended_before` and whose text is kept.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn expired_results(
    pool: &PgPool,
    ended_before: DateTime<Utc>,
    without: &[Uuid],
    limit: i64,
) -> Result<Vec<ExtractionJobRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.extraction_jobs
          WHERE result_kept AND ended_at < $1 AND id <> ALL($3) ORDER BY ended_at, id LIMIT $2",
    )
    .bind(ended_before)
    .bind(limit)
    .bind(without)
    .fetch_all(pool)
    .await
}
