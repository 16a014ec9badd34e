//! The bytes that are kept for one user, counted so that jobs that are submitted at the same moment stay within the limit together: the
//! read model shows each of them only after it was taken in.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::{begin, delete_in_batches};
use signalbox_domain::{
    extraction::ExtractionJob,
    kernel::{Decider, ExtractionJobId, UserId},
};
use sqlx::PgPool;

/// Time after which it is certain whether a document belongs to a job.
const COMING: TimeDelta = TimeDelta::hours(1);

/// Notes the documents of `jobs` whose texts `owner` keeps, unless `most` bytes are reached before the last of them: then none is noted,
/// and the bytes that are taken without them are returned. Those that are noted already count once.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note(
    pool: &PgPool,
    owner: UserId,
    jobs: &[ExtractionJobId],
    sizes: &[i64],
    most: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    // One after the other for each user.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('keeping.' || $1::uuid::text, 0))")
        .bind(owner)
        .execute(&mut *transaction)
        .await?;
    // Texts with the places of their blocks; of jobs that have not ended, or are not shown yet, their document counts.
    let taken: i64 = sqlx::query_scalar(
        "SELECT ((SELECT coalesce(sum(result_size), 0) FROM read.extraction_jobs
                   WHERE kept AND owner_id = $1::uuid AND id <> ALL($2::uuid[]))
               + (SELECT coalesce(sum(size), 0) FROM read.extraction_jobs
                   WHERE due_at IS NOT NULL AND owner_id = $1::uuid AND options ->> 'keep' = 'true' AND id <> ALL($2::uuid[]))
               + (SELECT coalesce(sum(noted.size), 0) FROM ops.keeping_jobs noted
                   WHERE noted.owner_id = $1::uuid AND noted.job_id <> ALL($2::uuid[])
                     AND NOT EXISTS (SELECT FROM read.extraction_jobs job WHERE job.id = noted.job_id)))::bigint",
    )
    .bind(owner)
    .bind(jobs)
    .fetch_one(&mut *transaction)
    .await?;
    // One after the other, the last one would be the first that is refused.
    let others = sizes.split_last().map_or(0, |(_, others)| others.iter().sum());
    if taken.saturating_add(others) >= most {
        transaction.rollback().await?;
        return Ok(Some(taken));
    }
    sqlx::query(
        "INSERT INTO ops.keeping_jobs (job_id, owner_id, size)
         SELECT id, $1::uuid, size FROM unnest($2::uuid[], $3::bigint[]) AS new (id, size)
         ON CONFLICT DO NOTHING",
    )
    .bind(owner)
    .bind(jobs)
    .bind(sizes)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(None)
}

/// Forgets the notes of those of `jobs` that were not taken in: the log has none of them. The others count until they show.
///
/// # Errors
/// The database's error.
pub async fn release(pool: &PgPool, jobs: &[ExtractionJobId]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM ops.keeping_jobs noted WHERE job_id = ANY($1::uuid[])
            AND NOT EXISTS (SELECT FROM events e WHERE e.aggregate_type = $2 AND e.aggregate_id = noted.job_id::text)",
    )
    .bind(jobs)
    .bind(ExtractionJob::TYPE)
    .execute(pool)
    .await
    .map(drop)
}

/// Forgets, at `now`, the time of sweeps, what the read model shows since, and what never became a job.
///
/// # Errors
/// The database's error.
pub async fn forget(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let is_old = "t.noted_at < least($1, clock_timestamp() - interval '1 hour')";
    delete_in_batches(pool, "ops.keeping_jobs", is_old, now - COMING).await.map(drop)
}
