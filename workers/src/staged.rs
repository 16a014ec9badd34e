//! Removes files that gateways received and that nothing in the log came to refer to: the gateway died, the client left, or
//! nobody answered a command that was refused in the end.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_database::begin;
use signalbox_event_store::mentions;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// No request takes as long, and no command is carried out as late.
const KEEP: TimeDelta = TimeDelta::days(1);
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

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let swept = sweep(context, context.clock.now() - KEEP).await?;
        Ok(swept as i64 == BATCH)
    }
}

/// Judges up to [`BATCH`] files that were noted before `time`; gives back how many. Their rows are held meanwhile, so that no
/// gateway sends a command about one that is being removed.
async fn sweep(context: &Context, time: DateTime<Utc>) -> Result<usize, WorkerError> {
    let mut transaction = begin(&context.pool, "BEGIN").await?;
    let rows: Vec<StagedRow> = sqlx::query_as(
        "SELECT id, aggregate_type, aggregate_id FROM ops.staged_files
          WHERE noted_at < $1 ORDER BY noted_at LIMIT $2 FOR UPDATE SKIP LOCKED",
    )
    .bind(time)
    .bind(BATCH)
    .fetch_all(&mut *transaction)
    .await?;
    for row in &rows {
        if !is_referred_to(context, row).await? {
            context.blobs.delete_transfer(row.id).await?;
        }
    }
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    sqlx::query("DELETE FROM ops.staged_files WHERE id = ANY($1)")
        .bind(&ids)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(rows.len())
}

async fn is_referred_to(context: &Context, row: &StagedRow) -> Result<bool, WorkerError> {
    match (&row.aggregate_type, row.aggregate_id) {
        (Some(kind), Some(id)) => Ok(mentions(&context.pool, kind, id, row.id).await?),
        _ => Ok(false),
    }
}
