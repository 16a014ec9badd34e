//! Runs workers: each steps while it has work, waits for a wakeup or its period, and backs off after a failure.
//!
//! Every worker is a task of its own, because a call that blocks its thread must not stop the others; it may still delay the
//! task that the thread was to run next. A step that fails repeatedly is a fault, and one that does not return is another.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use signalbox_boxed::boxed;
use signalbox_database::{StepWatch, clear_fault, report_fault};
use signalbox_messaging::Wakeup;
use signalbox_projections::{Lease, Leases};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    AbsenceReporter, Alarms, BlobSweep, Cleanup, Context, DeliveryRemoval, Dispatcher, DocumentIndex,
    ExtractionCleanup, ExtractionRunner, FaultReporter, FirmwareRunner, HashChainWriter, HealthReporter,
    HealthWatch, Housekeeping, Indexer, JobRemoval, Notifications, Parts, PresenceSweep, Readings,
    Reconciler, Relay, Retention, RuleDisabling, RuleEvaluation, RuleLog, Scheduler, StagedSweep, StallSweep,
    TextSweep, WebhookDelivery, WebhookFanOut, WebhookReplay, Worker, WorkerError,
};

/// Backoff after a failed step; it doubles with each further failure that is not transient.
const BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The same for work that each step does from the start, such as a download.
const MAX_HINDERED_BACKOFF: Duration = Duration::from_secs(300);
/// Failed steps in a row after which the worker is reported, and how often it is while they last.
const REPORTED_AFTER: u32 = 3;
const REPORT: Duration = Duration::from_secs(30);
/// How long the end of the tasks is waited for; one that blocks its thread does not end.
const END: Duration = Duration::from_secs(2);

/// The workers of a process.
pub struct Workers {
    context: Context,
    leases: Leases,
    tasks: JoinSet<()>,
    _steps: Option<StepWatch>,
}

impl Workers {
    /// No workers yet. Steps that do not return are reported from now on.
    pub fn new(context: &Context) -> Self {
        let watch = context.steps.watch(&context.pool).inspect_err(|error| {
            tracing::error!(%error, "steps of workers that do not return are not noticed: there can be no further thread");
        });
        let leases = Leases::new(&context.pool);
        Self { context: context.clone(), leases, tasks: JoinSet::new(), _steps: watch.ok() }
    }

    /// Starts a worker that one process at a time runs, by a lease.
    pub fn start<W: Worker + 'static>(&mut self, worker: W) {
        let (leases, context) = (self.leases.clone(), self.context.clone());
        self.tasks.spawn(async move { run_one(worker, &leases, &context).await });
    }

    /// Starts a worker that shares its work among all processes.
    pub fn start_everywhere<W: Worker + 'static>(&mut self, worker: Arc<W>) {
        let context = self.context.clone();
        self.tasks.spawn(async move { run_everywhere(&*worker, &context).await });
    }

    /// Waits for `stop` and ends the workers.
    #[boxed]
    pub async fn run(mut self, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            Some(Err(ended)) = self.tasks.join_next() => {
                if let Ok(panic) = ended.try_into_panic() {
                    resume_unwind(panic);
                }
            }
        }
        if timeout(END, self.tasks.shutdown()).await.is_err() {
            tracing::warn!("a worker does not end, because a call blocks its thread");
        }
    }
}

/// Runs all workers until `stop`.
#[boxed]
pub async fn run(parts: Parts, stop: CancellationToken) {
    let store = parts.store();
    let Parts { context, mailbox, blobs, documents, texts, firmware, senders, config } = parts;
    let health = HealthWatch::default();
    let extraction = Arc::new(ExtractionRunner::new(documents, store.clone(), config.extraction.clone()));
    let mut workers = Workers::new(&context);
    workers.tasks.spawn({
        let (health, context) = (health.clone(), context.clone());
        async move { health.observe(&context).await }
    });
    workers.start(HealthReporter(health));
    workers.start(FaultReporter::new(mailbox.clone()));
    workers.start(Relay::default());
    workers.start(Dispatcher::new(mailbox.clone()));
    workers.start(Scheduler::new(&config.transfer));
    workers.start(JobRemoval::default());
    workers.start(Reconciler::new(mailbox.clone()));
    workers.start(StallSweep::new(&config.transfer));
    workers.start(PresenceSweep::default());
    workers.start(AbsenceReporter);
    workers.start(Cleanup::new(mailbox, blobs.clone(), &config.transfer));
    workers.start(BlobSweep::new(blobs.clone()));
    workers.start(StagedSweep::new(blobs.clone()));
    workers.start(Housekeeping);
    workers.start(Retention::new(config.monitoring));
    workers.start(Indexer);
    workers.start(HashChainWriter);
    workers.start(Readings::default());
    workers.start(RuleLog);
    workers.start(RuleDisabling);
    workers.start(Alarms::default());
    workers.start(Notifications::new(&config.server, &config.sso));
    workers.start_everywhere(Arc::new(RuleEvaluation::default()));
    workers.start(WebhookFanOut::default());
    let firmware = FirmwareRunner::new(firmware, blobs, senders.egress.clone(), config.firmware);
    let delivery = WebhookDelivery::new(senders, &config.webhooks);
    if delivery.is_shared() {
        workers.start_everywhere(Arc::new(delivery));
    } else {
        workers.start(delivery);
    }
    workers.start(WebhookReplay::default());
    workers.start(DeliveryRemoval);
    workers.start_everywhere(extraction.clone());
    workers.start(ExtractionCleanup::new(store.clone(), config.extraction));
    workers.start(TextSweep::new(texts));
    workers.start(DocumentIndex::new(store));
    workers.start(firmware);
    workers.run(&stop).await;
    extraction.give_back(&context).await;
}

async fn run_one<W: Worker>(worker: W, leases: &Leases, context: &Context) {
    let mut streak = Streak::default();
    loop {
        let lease = leases.acquire(&format!("worker.{}", W::NAME)).await;
        while lease.holds().await {
            work(&worker, context, Some(&lease), &mut streak).await;
        }
        tracing::warn!(worker = W::NAME, "the lease is lost; asking for it again");
    }
}

/// For workers that share their work among all processes.
async fn run_everywhere<W: Worker>(worker: &W, context: &Context) {
    let mut streak = Streak::default();
    loop {
        work(worker, context, None, &mut streak).await;
    }
}

/// Steps of a worker that failed in a row.
#[derive(Debug)]
struct Streak {
    failures: u32,
    /// Whether a fault may be stored; an earlier process may have reported one.
    is_reported: bool,
    reported: Option<Instant>,
}

impl Default for Streak {
    fn default() -> Self {
        Self { failures: 0, is_reported: true, reported: None }
    }
}

impl Streak {
    /// Returns the backoff after the step that failed with `error`.
    async fn fail<W: Worker>(&mut self, context: &Context, error: &WorkerError) -> Duration {
        tracing::warn!(worker = W::NAME, %error, "a step failed and is repeated");
        self.failures += 1;
        let is_due = self.reported.is_none_or(|at| at.elapsed() >= REPORT);
        if self.failures >= REPORTED_AFTER && is_due {
            match report_fault(&context.pool, &part::<W>(), &error.to_string()).await {
                Ok(()) => (self.is_reported, self.reported) = (true, Some(Instant::now())),
                Err(error) => tracing::debug!(%error, worker = W::NAME, "a failing worker was not reported"),
            }
        }
        if !error.is_lasting() {
            return BACKOFF;
        }
        let most = if matches!(error, WorkerError::Hindered(_)) { MAX_HINDERED_BACKOFF } else { MAX_BACKOFF };
        BACKOFF.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(most)
    }

    async fn succeed<W: Worker>(&mut self, context: &Context) {
        self.failures = 0;
        if !self.is_reported {
            return;
        }
        match clear_fault(&context.pool, &part::<W>()).await {
            Ok(_) => (self.is_reported, self.reported) = (false, None),
            Err(error) => tracing::debug!(%error, worker = W::NAME, "a fault was not cleared"),
        }
    }
}

/// Name of the worker among the parts of the installation.
fn part<W: Worker>() -> String {
    match W::NAME {
        "relay" => "relay".to_owned(),
        "notary" => "chain".to_owned(),
        name => format!("worker.{name}"),
    }
}

/// One step of `worker`; a panic of it ends no other worker.
async fn step<W: Worker>(worker: &W, context: &Context) -> Result<bool, WorkerError> {
    let caught = AssertUnwindSafe(worker.step(context)).catch_unwind().await;
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(WorkerError::Panic(text.unwrap_or_else(|| "without a message".to_owned())))
    })
}

/// Steps until there is nothing to do for one period, or the lease is lost.
async fn work<W: Worker>(worker: &W, context: &Context, lease: Option<&Lease>, streak: &mut Streak) {
    let mut wakeups = listen(context).await;
    loop {
        if let Some(lease) = lease
            && !lease.holds().await
        {
            return;
        }
        let running = context.steps.begin(&format!("worker.{}.step", W::NAME), worker.limit());
        let result = step(worker, context).await;
        drop(running);
        match result {
            Ok(true) => streak.succeed::<W>(context).await,
            Ok(false) => {
                streak.succeed::<W>(context).await;
                if timeout(worker.period(), woken(worker, &mut wakeups)).await.is_err() {
                    return;
                }
                sleep(worker.gathers()).await;
                drain(&mut wakeups);
            }
            Err(error) => {
                sleep(streak.fail::<W>(context, &error).await).await;
                return;
            }
        }
    }
}

async fn listen(context: &Context) -> BoxStream<'static, Wakeup> {
    match context.bus.wakeups().await {
        Ok(wakeups) => wakeups.boxed(),
        Err(error) => {
            tracing::warn!(%error, "no wake-ups: the worker polls");
            futures::stream::pending().boxed()
        }
    }
}

/// Drops the wakeups received so far: the next step serves them too.
fn drain(wakeups: &mut BoxStream<'static, Wakeup>) {
    while let Some(Some(_)) = wakeups.next().now_or_never() {}
}

async fn woken<W: Worker>(worker: &W, wakeups: &mut BoxStream<'static, Wakeup>) {
    while let Some(wakeup) = wakeups.next().await {
        if worker.wakes(&wakeup) {
            return;
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn every_worker_is_started() {
        let starting = include_str!("run.rs");
        let (mut found, marker) = (0, "impl Worker for ");
        for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            let source = fs::read_to_string(path).unwrap();
            for name in source.lines().filter_map(|line| line.strip_prefix(marker)?.split(' ').next()) {
                let made = ["default", "new"].map(|constructor| format!("{name}::{constructor}("));
                let given = format!("({name}");
                let is_started = starting.lines().any(|line| {
                    made.iter().any(|made| line.contains(made))
                        || (line.contains("workers.start") && line.contains(&given))
                });
                assert!(is_started, "{name} is not started in run.rs");
                found += 1;
            }
        }
        // Delivery is started in one of two ways.
        let starts = starting.lines().filter(|line| line.trim_start().starts_with("workers.start"));
        assert_eq!(starts.count(), found + 1);
    }
}
