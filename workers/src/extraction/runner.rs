//! Reads documents that wait, in every process that runs workers, as many at the same time as that has parsers.
//!
//! Finds its work in the read model, claims a job by `Begin`, says every few seconds by `Advance` that it lives, and by one
//! more command what came of it. Should it die, its claim lapses, and another process begins the job again. A job that is
//! cancelled shows in the read model without the claim: the reading is dropped, which kills the process that parses. Nothing
//! of it lies in JetStream.

use std::time::Duration;

use futures::future::join_all;
use signalbox_documents::Documents;
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand},
    kernel::Decider,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::extraction::{
    ExtractionJobRow,
    queries::{due_jobs, states},
};
use tokio::{sync::Mutex, task::JoinSet, time::timeout};

use super::{attempt::Attempt, running::Running};
use crate::{Context, Worker, WorkerError};

/// Jobs that are looked at for each free place: other processes claim from the same.
const AHEAD: usize = 4;
/// How long giving back may take when the process stops.
const GIVE_BACK: Duration = Duration::from_secs(2);

/// The worker.
#[derive(Debug, Default)]
pub struct ExtractionRunner {
    running: Running,
    /// Readings end with this worker.
    attempts: Mutex<JoinSet<()>>,
}

impl Worker for ExtractionRunner {
    const NAME: &'static str = "extraction";

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == ExtractionJob::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let Some(documents) = &context.documents else { return Ok(false) };
        while self.attempts.lock().await.try_join_next().is_some() {}
        self.stop_lost(context).await?;
        let busy: Vec<_> = self.running.all().into_iter().map(|(_, reading)| reading.job).collect();
        let mut free = documents.capacity().saturating_sub(busy.len());
        if free == 0 {
            return Ok(false);
        }
        let limit = i64::try_from(busy.len() + free * AHEAD).unwrap_or(i64::MAX);
        let mut due = due_jobs(&context.pool, context.clock.now(), limit).await?;
        due.retain(|row| !busy.contains(&row.id));
        if !due.is_empty() {
            // Processes that look at the same time begin at different places: of two that ask for the same job, one has asked
            // in vain.
            let somewhere = context.clock.new_id().as_u128() % due.len() as u128;
            due.rotate_left(somewhere as usize);
        }
        for row in due {
            if self.begin(context, documents, row).await? {
                free -= 1;
            }
            if free == 0 {
                break;
            }
        }
        // What ends shows in the read model, which wakes this worker.
        Ok(false)
    }
}

impl ExtractionRunner {
    /// Ends the readings whose jobs were cancelled, or are another worker's.
    async fn stop_lost(&self, context: &Context) -> Result<(), WorkerError> {
        let running = self.running.all();
        if running.is_empty() {
            return Ok(());
        }
        let jobs: Vec<_> = running.iter().map(|(_, reading)| reading.job).collect();
        for state in states(&context.pool, &jobs).await? {
            let lost = running.iter().filter(|(claim, reading)| {
                reading.job == state.id && state.version >= reading.version && state.claim != Some(*claim)
            });
            lost.for_each(|(claim, _)| self.running.stop(*claim));
        }
        Ok(())
    }

    /// Claims the job and begins to read it; false when another process has it.
    async fn begin(
        &self,
        context: &Context,
        documents: &Documents,
        row: ExtractionJobRow,
    ) -> Result<bool, WorkerError> {
        let claim = context.clock.new_id();
        let begin = ExtractionJobCommand::Begin { claim, at: context.clock.now() };
        let key = format!("begin {claim}");
        let begun = context.send_if_still_due::<ExtractionJob>(Self::NAME, row.id, &key, &begin).await?;
        let Some(outcome) = begun else { return Ok(false) };
        let place = self.running.enter(claim, row.id, outcome.version.unwrap_or_default());
        let attempt = Attempt { context: context.clone(), documents: documents.clone(), row, claim };
        let abort = self.attempts.lock().await.spawn(async move {
            let run = attempt.context.traced::<ExtractionJob, _>(Self::NAME, attempt.row.id, attempt.run(place));
            if let Err(error) = run.await {
                tracing::warn!(%error, job = %attempt.row.id, "what a document gave was not recorded; it is read again");
            }
        });
        self.running.set_abort(claim, abort);
        Ok(true)
    }

    /// Gives back what is being read, for a process that stops: it is begun again at once, and no attempt is used up.
    pub(crate) async fn give_back(&self, context: &Context) {
        let given_back = self.running.all().into_iter().map(|(claim, reading)| async move {
            self.running.stop(claim);
            let command = ExtractionJobCommand::GiveBack { claim };
            let key = format!("give back {claim}");
            context.send_if_still_due::<ExtractionJob>(Self::NAME, reading.job, &key, &command).await
        });
        match timeout(GIVE_BACK, join_all(given_back)).await {
            Ok(results) => results.into_iter().filter_map(Result::err).for_each(
                |error| tracing::warn!(%error, "a job was not given back; it is begun again when its claim lapses"),
            ),
            Err(_) => tracing::warn!("jobs were not given back in time; they are begun again when their claims lapse"),
        }
    }
}
