use std::time::Duration;

use chrono::TimeDelta;
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand},
    kernel::Decider,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::extraction::{
    ExtractionJobRow,
    queries::{expired_results, lost_jobs, spent_inputs},
};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// Jobs of one step, of each kind.
const BATCH: i64 = 100;

/// Gives up jobs that have lost their last worker, and removes documents and texts that have been kept long enough.
#[derive(Debug)]
pub struct ExtractionCleanup;

/// Forgets texts that have answered for their documents long enough.
#[derive(Debug)]
pub struct TextSweep;

impl Worker for ExtractionCleanup {
    const NAME: &'static str = "extraction-cleanup";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == ExtractionJob::TYPE)
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(200)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let (now, config) = (context.clock.now(), &context.config.extraction);
        let hours = |hours: u32| TimeDelta::hours(i64::from(hours));
        let lost = lost_jobs(&context.pool, now, BATCH).await?;
        for id in &lost {
            send(context, *id, "give up", ExtractionJobCommand::GiveUp { at: now }).await?;
        }
        let ended_before = now - hours(config.input_hours);
        let failed_before = now - hours(config.input_hours.max(config.result_hours));
        let spent = spent_inputs(&context.pool, ended_before, failed_before, BATCH).await?;
        for row in &spent {
            remove_input(context, row).await?;
        }
        let expired = expired_results(&context.pool, now - hours(config.result_hours), BATCH).await?;
        for row in &expired {
            if let Some(id) = row.result_id {
                context.texts.remove(id).await?;
            }
            send(context, row.id, "result expired", ExtractionJobCommand::RecordResultExpired).await?;
        }
        Ok([lost.len(), spent.len(), expired.len()].contains(&(BATCH as usize)))
    }
}

/// Removes the document, and texts of attempts whose workers died before they said so.
async fn remove_input(context: &Context, row: &ExtractionJobRow) -> Result<(), WorkerError> {
    for claim in row.claims.iter().filter(|claim| row.result_id != Some(**claim)) {
        context.texts.remove(*claim).await?;
    }
    context.blobs.delete_transfer(row.input_id).await?;
    send(context, row.id, "input removed", ExtractionJobCommand::RecordInputRemoved).await
}

async fn send(
    context: &Context,
    id: Uuid,
    what: &str,
    command: ExtractionJobCommand,
) -> Result<(), WorkerError> {
    context.send_if_still_due::<ExtractionJob>(ExtractionCleanup::NAME, id, what, &command).await.map(|_| ())
}

impl Worker for TextSweep {
    const NAME: &'static str = "text-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        context.texts.forget().await?;
        Ok(false)
    }
}
