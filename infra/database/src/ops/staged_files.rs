//! Files that were received and that nothing in the log refers to yet, see docs/adr/0026-files-before-their-events.md.
//!
//! A gateway notes a file before it arrives and offers it before its command is sent; the workers' sweep gives up the
//! files that remain. A file that was given up can no longer be offered, so the two never decide about the same file.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

/// No upload takes this long.
const LONGEST_REQUEST: TimeDelta = TimeDelta::days(1);
/// No command is carried out as late.
const LONGEST_COMMAND: TimeDelta = TimeDelta::hours(1);

/// A file that was given up.
#[derive(Debug, FromRow)]
pub struct StagedFile {
    /// Its name in the blob store.
    pub id: Uuid,
    /// Type of the aggregate whose command named it; none if no command was sent.
    pub aggregate_type: Option<String>,
    /// The aggregate.
    pub aggregate_id: Option<Uuid>,
}

/// Notes a file that is about to come. `now` is PostgreSQL's time where it is `None`, here and below.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_staged(pool: &PgPool, id: Uuid, now: Option<DateTime<Utc>>) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO ops.staged_files (id, noted_at) VALUES ($1, coalesce($2, clock_timestamp()))")
        .bind(id)
        .bind(now)
        .execute(pool)
        .await
        .map(drop)
}

/// Notes the aggregate whose command will name the file; `false` if the file was given up.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn offer_staged(
    pool: &PgPool,
    id: Uuid,
    (aggregate_type, aggregate): (&str, Uuid),
    now: Option<DateTime<Utc>>,
) -> Result<bool, sqlx::Error> {
    let noted = sqlx::query(
        "UPDATE ops.staged_files SET aggregate_type = $2, aggregate_id = $3, noted_at = coalesce($4, clock_timestamp())
          WHERE id = $1 AND NOT given_up",
    )
    .bind(id)
    .bind(aggregate_type)
    .bind(aggregate)
    .bind(now)
    .execute(pool)
    .await?;
    Ok(noted.rows_affected() > 0)
}

/// Gives up files that no gateway may send a command about any more, `limit` at most, and returns them.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn give_up_staged(
    pool: &PgPool,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<StagedFile>, sqlx::Error> {
    sqlx::query_as(
        "UPDATE ops.staged_files SET given_up = true WHERE id IN (
            SELECT id FROM ops.staged_files
             WHERE noted_at < $1 AND (aggregate_id IS NOT NULL OR noted_at < $2)
             ORDER BY noted_at LIMIT $3 FOR UPDATE SKIP LOCKED)
         RETURNING id, aggregate_type, aggregate_id",
    )
    .bind(now - LONGEST_COMMAND)
    .bind(now - LONGEST_REQUEST)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Has the file looked at again after an hour.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn postpone_staged(pool: &PgPool, id: Uuid, now: Option<DateTime<Utc>>) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE ops.staged_files SET noted_at = coalesce($2, clock_timestamp()) WHERE id = $1")
        .bind(id)
        .bind(now)
        .execute(pool)
        .await
        .map(drop)
}

/// Forgets a file that was removed, or that the log refers to.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_staged(pool: &PgPool, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.staged_files WHERE id = $1").bind(id).execute(pool).await.map(drop)
}
