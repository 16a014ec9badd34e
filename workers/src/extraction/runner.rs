//! Reads documents that wait, in every process that runs workers, as many at the same time as that has parsers.
//!
//! Finds its work in the read model, claims a job by `Begin`, sends heartbeats by `Advance` every few seconds, and
//! reports the result by one more command. If it crashes, its claim expires, by PostgreSQL's clock, and another
//! process starts the job again. A cancelled job has no claim in the read model: the reading is dropped, which kills
//! the parser process. Nothing is kept in JetStream.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use signalbox_config::Extraction;
use signalbox_database::ServerClock;
use signalbox_documents::Documents;
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand},
    kernel::Decider,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::extraction::{
    ExtractionJobRow,
    anonymous::Kept,
    queries::{due_jobs, states},
};
use tokio::{sync::Mutex, task::JoinSet, time::timeout};

use super::{Store, attempt::Attempt, running::Running};
use crate::{Context, Worker, WorkerError, failures::Failures, tried::Tried};

/// Jobs that are looked at for each free place: other processes claim from the same.
const AHEAD: usize = 4;
/// Time limit of releasing jobs when the process stops.
const GIVE_BACK: Duration = Duration::from_secs(2);
/// Time limit of a reading beyond its clock, which stands still while external services are called.
const READING: Duration = Duration::from_secs(3600);

/// The worker.
pub struct ExtractionRunner {
    /// `None` if the sandbox cannot be started.
    documents: Option<Documents>,
    store: Store,
    config: Extraction,
    failures: Failures,
    tried: Tried<i64>,
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
        let Some(documents) = &self.documents else { return Ok(false) };
        while self.attempts.lock().await.try_join_next().is_some() {}
        self.stop_lost(context).await?;
        let running = self.running.all();
        let anonymous = running.iter().filter(|(_, reading)| reading.is_anonymous).count();
        let busy: Vec<_> = running.into_iter().map(|(_, reading)| reading.job).collect();
        let capacity = documents.capacity();
        let mut free = capacity.saturating_sub(busy.len());
        // One place is kept free of anonymous jobs: their documents may take minutes.
        let mut free_to_anonymous = capacity.saturating_sub(1).max(1).saturating_sub(anonymous);
        if free == 0 {
            return Ok(false);
        }
        let (paused, ahead) = (self.failures.paused(), free * AHEAD);
        let limit = busy.len() + ahead + paused.len() + self.tried.count();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let time = context.server_clock().await?;
        let mut due = due_jobs(&context.pool, time.now(), free_to_anonymous > 0, limit).await?;
        due.retain(|row| {
            let is_held = paused.contains(&row.id.0) || self.tried.holds(row.id.0, &row.version);
            !is_held && !busy.contains(&row.id)
        });
        due.truncate(ahead);
        // Processes that poll at the same time begin at different jobs, because only one of two claims on a job succeeds. The
        // first job of each owner stays in front.
        let mut owners = HashSet::new();
        let first = due.iter().take_while(|row| owners.insert(row.owner_id)).count();
        if let Some(rest) = due.get_mut(first..).filter(|rest| !rest.is_empty()) {
            let start = context.clock.new_id().as_u128() % rest.len() as u128;
            rest.rotate_left(start as usize);
        }
        for row in due {
            if row.owner_id.is_none() {
                if free_to_anonymous == 0 {
                    continue;
                }
                free_to_anonymous -= 1;
            }
            let (job, version) = (row.id, row.version);
            let begun = self.begin(context, documents, row, &time).await;
            match begun {
                Ok(true) => free -= 1,
                Ok(false) => self.tried.note(job.0, version),
                Err(_) => {}
            }
            // A job that cannot be begun keeps no other job waiting.
            self.failures.settle(job.0, begun.map(|_| ()))?;
            if free == 0 {
                break;
            }
        }
        self.failures.report(context, Self::NAME).await?;
        // The result changes the read model, which wakes this worker.
        Ok(false)
    }
}

impl ExtractionRunner {
    /// Reads by `documents` what is in `store`; nothing without them.
    pub fn new(documents: Option<Documents>, store: Store, config: Extraction) -> Self {
        Self {
            documents,
            store,
            config,
            failures: Failures::default(),
            tried: Tried::default(),
            running: Running::default(),
            attempts: Mutex::default(),
        }
    }

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

    /// Claims the job and starts to read it; false if another process has claimed it.
    async fn begin(
        &self,
        context: &Context,
        documents: &Documents,
        row: ExtractionJobRow,
        time: &ServerClock,
    ) -> Result<bool, WorkerError> {
        let claim = context.clock.new_id();
        let begin = ExtractionJobCommand::Begin { claim, at: time.now() };
        let key = format!("begin {claim}");
        let begun = context.send_for_item::<ExtractionJob>(Self::NAME, row.id.0, &key, &begin).await?;
        let Some(outcome) = begun else { return Ok(false) };
        let place = self.running.enter(claim, &row, outcome.version.unwrap_or_default());
        let config = &self.config;
        let attempt = Attempt {
            context: context.clone(),
            documents: documents.clone(),
            store: self.store.clone(),
            limits: Kept::mebibytes(config.anonymous_mb, config.anonymous_mb_each),
            row,
            claim,
            time: time.clone(),
        };
        // Only a reading whose files or services never answer takes so long.
        let limit = Duration::from_secs(config.wall_seconds) + 2 * config.queue_timeout() + READING;
        let running = context.steps.begin("worker.extraction.reading", limit);
        let abort = self.attempts.lock().await.spawn(async move {
            let _running = running;
            let run = attempt.context.traced::<ExtractionJob, _>(Self::NAME, attempt.row.id.0, attempt.run(place));
            if let Err(error) = run.await {
                tracing::warn!(%error, job = %attempt.row.id, "what a document gave was not recorded; it is read again");
            }
        });
        self.running.set_abort(claim, abort);
        Ok(true)
    }

    /// Releases the running jobs of a process that stops: they are started again at once, and the attempts do not
    /// count.
    pub(crate) async fn give_back(&self, context: &Context) {
        let given_back = self.running.all().into_iter().map(|(claim, reading)| async move {
            self.running.stop(claim);
            let command = ExtractionJobCommand::GiveBack { claim };
            let key = format!("give back {claim}");
            context.send_if_still_due::<ExtractionJob>(Self::NAME, reading.job.0, &key, &command).await
        });
        match timeout(GIVE_BACK, join_all(given_back)).await {
            Ok(results) => results.into_iter().filter_map(Result::err).for_each(
                |error| tracing::warn!(%error, "a job was not given back; it is begun again when its claim lapses"),
            ),
            Err(_) => tracing::warn!("jobs were not given back in time; they are begun again when their claims lapse"),
        }
    }
}
