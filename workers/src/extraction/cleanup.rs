use std::time::Duration;

use chrono::TimeDelta;
use signalbox_config::Extraction;
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand},
    kernel::{Decider, ExtractionJobId},
};
use signalbox_messaging::Wakeup;
use signalbox_projections::extraction::{
    ExtractionJobRow, anonymous, keeping,
    queries::{expired_results, lost_jobs, spent_inputs},
};
use signalbox_texts::Texts;

use super::Store;
use crate::{Context, Worker, WorkerError, failures::Failures, worker::REMOVAL};

/// Jobs of one step, of each kind.
const BATCH: i64 = 100;

/// Gives up jobs that have lost their last worker, and removes documents and texts that have been kept long enough.
#[derive(Debug)]
pub struct ExtractionCleanup {
    store: Store,
    config: Extraction,
    inputs: Failures,
    results: Failures,
}

/// Forgets texts that have answered for their documents long enough.
#[derive(Debug)]
pub struct TextSweep {
    texts: Texts,
}

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

    fn limit(&self) -> Duration {
        REMOVAL
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let (now, config) = (context.server_time().await?, &self.config);
        let hours = |hours: u32| TimeDelta::hours(i64::from(hours));
        let lost = lost_jobs(&context.pool, now, BATCH).await?;
        for id in &lost {
            let give_up = ExtractionJobCommand::GiveUp { at: now };
            context.send_if_still_due::<ExtractionJob>(Self::NAME, id.0, "give up", &give_up).await?;
        }
        let is_full = lost.len() == BATCH as usize;
        // Jobs are given up by PostgreSQL's clock, as claims are made; documents and texts go by a time that is checked.
        let Some(now) = context.sweep_time().await? else { return Ok(is_full) };
        let ended_before = now - hours(config.input_hours);
        let failed_before = now - hours(config.input_hours.max(config.result_hours));
        let paused = self.inputs.paused();
        let spent = spent_inputs(&context.pool, ended_before, failed_before, &paused, BATCH).await?;
        for row in &spent {
            self.inputs.settle(row.id.0, self.remove_input(context, row).await)?;
        }
        self.inputs.report(context, "extraction-cleanup.inputs").await?;
        let (expired_before, paused) = (now - hours(config.result_hours), self.results.paused());
        let expired = expired_results(&context.pool, expired_before, &paused, BATCH).await?;
        for row in &expired {
            self.results.settle(row.id.0, self.remove_result(context, row).await)?;
        }
        self.results.report(context, "extraction-cleanup.results").await?;
        Ok([lost.len(), spent.len(), expired.len()].contains(&(BATCH as usize)))
    }
}

impl ExtractionCleanup {
    /// Removes from `store` what `config` keeps no longer.
    pub fn new(store: Store, config: Extraction) -> Self {
        Self { store, config, inputs: Failures::default(), results: Failures::default() }
    }

    async fn remove_result(&self, context: &Context, row: &ExtractionJobRow) -> Result<(), WorkerError> {
        if let Some(id) = row.result_id {
            self.store.texts.remove(id).await?;
        }
        send(context, row.id, "result expired", ExtractionJobCommand::RecordResultExpired).await
    }

    /// Removes the document, and texts of attempts whose workers crashed before they reported a result.
    async fn remove_input(&self, context: &Context, row: &ExtractionJobRow) -> Result<(), WorkerError> {
        for claim in row.claims.iter().filter(|claim| row.result_id != Some(**claim)) {
            self.store.texts.remove(*claim).await?;
        }
        self.store.blobs.delete_transfer(row.input_id).await?;
        send(context, row.id, "input removed", ExtractionJobCommand::RecordInputRemoved).await
    }
}

async fn send(
    context: &Context,
    id: ExtractionJobId,
    what: &str,
    command: ExtractionJobCommand,
) -> Result<(), WorkerError> {
    context.send_for_item::<ExtractionJob>(ExtractionCleanup::NAME, id.0, what, &command).await.map(|_| ())
}

impl TextSweep {
    /// Forgets some of `texts`.
    pub fn new(texts: Texts) -> Self {
        Self { texts }
    }
}

impl Worker for TextSweep {
    const NAME: &'static str = "text-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn limit(&self) -> Duration {
        REMOVAL
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        // One text that cannot be removed must not stop the counts of bytes that callers are charged with.
        let texts = self.texts.forget().await;
        if let Some(now) = context.sweep_time().await? {
            anonymous::forget(&context.pool, now).await?;
            keeping::forget(&context.pool, now).await?;
        }
        texts?;
        Ok(false)
    }
}
