//! Removes files that gateways received and that no event refers to: the gateway crashed, the client disconnected, or
//! a command that got no answer was refused in the end.

use std::time::Duration;

use chrono::TimeDelta;
use signalbox_event_store::mentions;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, worker::REMOVAL};

/// No upload takes this long.
const LONGEST_REQUEST: TimeDelta = TimeDelta::days(1);
/// No command is carried out as late.
const LONGEST_COMMAND: TimeDelta = TimeDelta::hours(1);
/// Files of one step.
const BATCH: i64 = 100;

/// The sweep of files of requests.
#[derive(Debug)]
pub struct StagedSweep;

#[derive(Debug, FromRow)]
struct StagedRow {
    id: Uuid,
    aggregate_type: Option<String>,
    aggregate_id: Option<Uuid>,
}

impl Worker for StagedSweep {
    const NAME: &'static str = "staged-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn limit(&self, _: &Context) -> Duration {
        REMOVAL
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let rows = give_up(context).await?;
        let mut is_getting_on = false;
        for row in &rows {
            match judge(context, row).await {
                Ok(()) => is_getting_on = true,
                // One file that cannot be removed does not keep the others: it is due again after an hour.
                Err(error) => {
                    tracing::warn!(%error, id = %row.id, "a file that was given up stays for now");
                    postpone(context, row.id).await?;
                }
            }
        }
        Ok(is_getting_on && rows.len() as i64 == BATCH)
    }
}

/// Files that no gateway may send a command about any more.
async fn give_up(context: &Context) -> Result<Vec<StagedRow>, sqlx::Error> {
    let Some(now) = context.sweep_time().await? else { return Ok(Vec::new()) };
    sqlx::query_as(
        "UPDATE ops.staged_files SET given_up = true WHERE id IN (
            SELECT id FROM ops.staged_files
             WHERE noted_at < $1 AND (aggregate_id IS NOT NULL OR noted_at < $2)
             ORDER BY noted_at LIMIT $3 FOR UPDATE SKIP LOCKED)
         RETURNING id, aggregate_type, aggregate_id",
    )
    .bind(now - LONGEST_COMMAND)
    .bind(now - LONGEST_REQUEST)
    .bind(BATCH)
    .fetch_all(&context.pool)
    .await
}

async fn postpone(context: &Context, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE ops.staged_files SET noted_at = coalesce($2, clock_timestamp()) WHERE id = $1")
        .bind(id)
        .bind(context.clock.manual_time())
        .execute(&context.pool)
        .await?;
    Ok(())
}

/// Removes the file unless the log refers to it.
async fn judge(context: &Context, row: &StagedRow) -> Result<(), WorkerError> {
    if !is_referred_to(context, row).await? {
        context.blobs.delete_transfer(row.id).await?;
    }
    sqlx::query("DELETE FROM ops.staged_files WHERE id = $1").bind(row.id).execute(&context.pool).await?;
    Ok(())
}

async fn is_referred_to(context: &Context, row: &StagedRow) -> Result<bool, sqlx::Error> {
    match (&row.aggregate_type, row.aggregate_id) {
        (Some(kind), Some(id)) => mentions(&context.pool, kind, id, row.id).await,
        _ => Ok(false),
    }
}
