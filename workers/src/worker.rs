use std::{future::Future, time::Duration};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_datapoint_log::trace_of_point;
use signalbox_documents::Documents;
use signalbox_domain::{
    automation::DatapointPlace,
    kernel::{Actor, CommandOutcome, Decider, ErrorKind, Metadata, Rejection},
};
use signalbox_egress::Egress;
use signalbox_event_store::{trace_at, trace_of_cause, trace_of_stream, traces_at};
use signalbox_firmware::Updates;
use signalbox_messaging::{Bus, Mailbox, Wakeup};
use signalbox_projections::{Lease, Leases};
use signalbox_sealing::Sealer;
use signalbox_telemetry::{Kind, Span, current, is_tracing};
use signalbox_texts::Texts;
use sqlx::PgPool;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    BlobSweep, Cleanup, Dispatcher, ExtractionCleanup, ExtractionRunner, FirmwareRunner, HealthReporter,
    HealthWatch, Housekeeping, Indexer, Notary, PresenceSweep, Readings, Reconciler, Relay, RuleEvaluation,
    RuleLog, Scheduler, StagedSweep, StallSweep, TextSweep, WebhookDelivery, WebhookFanOut, WebhookReplay,
    WorkerError,
};

/// Pause after a failed step.
const PAUSE: Duration = Duration::from_millis(500);

/// What workers share. Clones share it too.
#[derive(Clone)]
pub struct Context {
    /// The database.
    pub pool: PgPool,
    /// The bus.
    pub bus: Bus,
    /// The agents' mailboxes.
    pub mailbox: Mailbox,
    /// Staged bytes.
    pub blobs: BlobStore,
    /// Who reads documents; none where that cannot be started.
    pub documents: Option<Documents>,
    /// What documents gave.
    pub texts: Texts,
    /// The versions of firmware on this machine.
    pub firmware: Updates,
    /// Requests to addresses that users name.
    pub egress: Egress,
    /// Opens secrets of webhooks.
    pub sealer: Sealer,
    /// The time.
    pub clock: Clock,
    /// The settings.
    pub config: Config,
}

/// One kind of work.
pub trait Worker: Send + Sync {
    /// Name in the log of events and in the lease.
    const NAME: &'static str;

    /// How long it waits for a wake-up before it looks by itself.
    fn period(&self) -> Duration;

    /// Whether `wakeup` means that there may be work.
    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let _ = wakeup;
        false
    }

    /// How long wake-ups are gathered before a step: under load one step serves many of them.
    fn gathers(&self) -> Duration {
        Duration::from_millis(5)
    }

    /// One bounded step; gives back whether there may be more to do at once.
    fn step(&self, context: &Context) -> impl Future<Output = Result<bool, WorkerError>> + Send;
}

impl Context {
    /// Sends a command in the name of worker `name`. `key` says which effect it is: the same key is the same command.
    ///
    /// # Errors
    /// The rejection.
    pub(crate) async fn send<D: Decider>(
        &self,
        name: &str,
        id: Uuid,
        version: Option<i64>,
        key: &str,
        command: &D::Command,
    ) -> Result<CommandOutcome, Rejection> {
        self.send_with::<D>(name, id, version, metadata(name, id, key), command).await
    }

    async fn send_with<D: Decider>(
        &self,
        name: &str,
        id: Uuid,
        version: Option<i64>,
        metadata: Metadata,
        command: &D::Command,
    ) -> Result<CommandOutcome, Rejection> {
        let sent = self.bus.send::<D>(id, version, &metadata, command);
        // Within a larger piece of work the command is a part of that.
        if !is_tracing() || current().is_some() {
            return sent.await;
        }
        let cause = trace_of_cause::<D>(&self.pool, id, metadata.causation).await;
        span(name, known(cause)).around(sent).await
    }

    /// Does `work` on aggregate `id` in the name of worker `name`, as a part of the trace of what happened to it last.
    pub(crate) async fn traced<D: Decider, T>(
        &self,
        name: &str,
        id: Uuid,
        work: impl Future<Output = T> + Send,
    ) -> T {
        if !is_tracing() {
            return work.await;
        }
        let cause = trace_of_stream(&self.pool, D::TYPE, id).await;
        span(name, known(cause)).around(work).await
    }

    /// The span of what worker `name` does because of the datapoint at `place`.
    pub(crate) async fn span_of_point(&self, name: &str, place: Option<DatapointPlace>) -> Span {
        let Some(DatapointPlace { position, index }) = place.filter(|_| is_tracing()) else {
            return Span::default();
        };
        span(name, known(trace_of_point(&self.pool, position, index).await))
    }

    /// The trace of the event at `position`, while traces are exported.
    pub(crate) async fn trace_at(&self, position: i64) -> Option<String> {
        if is_tracing() { known(trace_at(&self.pool, position).await) } else { None }
    }

    /// The traces of the events at `positions`, by position, while traces are exported.
    pub(crate) async fn traces_at(&self, positions: &[i64]) -> Vec<String> {
        if is_tracing() { known(traces_at(&self.pool, positions).await) } else { Vec::new() }
    }

    /// Sends a command that the event at position `cause` of the log led to, where another worker or the state of things may
    /// have been faster.
    pub(crate) async fn send_because<D: Decider>(
        &self,
        name: &str,
        cause: i64,
        id: Uuid,
        key: &str,
        command: &D::Command,
    ) -> Result<Option<CommandOutcome>, WorkerError> {
        let metadata = Metadata { causation: Some(cause), ..metadata(name, id, key) };
        due(name, self.send_with::<D>(name, id, None, metadata, command).await)
    }

    /// Like [`Context::send`], where another worker or the state of things may have been faster: then nothing is left
    /// to do.
    pub(crate) async fn send_if_still_due<D: Decider>(
        &self,
        name: &str,
        id: Uuid,
        key: &str,
        command: &D::Command,
    ) -> Result<Option<CommandOutcome>, WorkerError> {
        due(name, self.send::<D>(name, id, None, key, command).await)
    }

    /// Like [`Context::send_if_still_due`], if the aggregate is still at `version`.
    pub(crate) async fn send_if_unchanged<D: Decider>(
        &self,
        name: &str,
        id: Uuid,
        version: i64,
        key: &str,
        command: &D::Command,
    ) -> Result<Option<CommandOutcome>, WorkerError> {
        due(name, self.send::<D>(name, id, Some(version), key, command).await)
    }
}

/// The span of a piece of work of worker `name` that follows from `cause`.
pub(crate) fn span(name: &str, cause: Option<String>) -> Span {
    let mut span = Span::begin(Kind::Consumer, cause.as_deref(), || format!("work {name}"));
    span.set_with("signalbox.worker", || name.to_owned());
    span
}

/// A trace that cannot be looked up is one that begins.
fn known<T: Default>(cause: Result<T, sqlx::Error>) -> T {
    cause.unwrap_or_else(|error| {
        tracing::debug!(%error, "the trace that led to some work is not known");
        T::default()
    })
}

/// Metadata of a command of worker `name`. What led to it, and the correlation, are found in the log.
fn metadata(name: &str, id: Uuid, key: &str) -> Metadata {
    Metadata {
        command_id: Uuid::new_v5(&id, format!("{name} {key}").as_bytes()),
        actor: Actor::system(name),
        causation: None,
        correlation: String::new(),
        traceparent: None,
        restored_version: None,
    }
}

/// What became of work that may have been done already, or that nobody wants any more: then nothing is left to do.
pub(crate) fn due<T>(name: &str, sent: Result<T, Rejection>) -> Result<Option<T>, WorkerError> {
    match sent {
        Ok(outcome) => Ok(Some(outcome)),
        Err(rejection) if rejection.kind == ErrorKind::Unavailable => Err(rejection.into()),
        Err(rejection) => {
            tracing::debug!(worker = name, %rejection, "the work was no longer due");
            Ok(None)
        }
    }
}

/// Runs all workers until `stop`.
pub async fn run(context: Context, stop: CancellationToken) {
    let (health, leases) = (HealthWatch::default(), Leases::new(&context.pool));
    let (extraction, rules) = (ExtractionRunner::default(), RuleEvaluation::default());
    let work = async {
        tokio::join!(
            health.observe(&context),
            run_one(HealthReporter(health.clone()), &leases, &context),
            run_one(Relay::default(), &leases, &context),
            run_one(Dispatcher, &leases, &context),
            run_one(Scheduler, &leases, &context),
            run_one(Reconciler, &leases, &context),
            run_one(StallSweep, &leases, &context),
            run_one(PresenceSweep, &leases, &context),
            run_one(Cleanup, &leases, &context),
            run_one(BlobSweep, &leases, &context),
            run_one(StagedSweep, &leases, &context),
            run_one(Housekeeping, &leases, &context),
            run_one(Indexer, &leases, &context),
            run_one(Notary, &leases, &context),
            run_one(Readings::default(), &leases, &context),
            run_one(RuleLog, &leases, &context),
            run_everywhere(&rules, &context),
            run_one(WebhookFanOut::default(), &leases, &context),
            run_one(WebhookDelivery::default(), &leases, &context),
            run_one(WebhookReplay, &leases, &context),
            run_everywhere(&extraction, &context),
            run_one(ExtractionCleanup, &leases, &context),
            run_one(TextSweep, &leases, &context),
            run_one(FirmwareRunner, &leases, &context),
        )
    };
    tokio::select! { _ = work => {}, () = stop.cancelled() => {} }
    extraction.give_back(&context).await;
}

async fn run_one<W: Worker>(worker: W, leases: &Leases, context: &Context) {
    loop {
        let lease = leases.acquire(&format!("worker.{}", W::NAME)).await;
        while lease.holds().await {
            work(&worker, context, Some(&lease)).await;
        }
        tracing::warn!(worker = W::NAME, "the lease is lost; asking for it again");
    }
}

/// For workers that share their work among all processes.
async fn run_everywhere<W: Worker>(worker: &W, context: &Context) {
    loop {
        work(worker, context, None).await;
    }
}

/// Steps until there is nothing to do for one period, or the lease is lost.
async fn work<W: Worker>(worker: &W, context: &Context, lease: Option<&Lease>) {
    let mut wakeups = listen(context).await;
    loop {
        if let Some(lease) = lease
            && !lease.holds().await
        {
            return;
        }
        match worker.step(context).await {
            Ok(true) => {}
            Ok(false) => {
                if timeout(worker.period(), woken(worker, &mut wakeups)).await.is_err() {
                    return;
                }
                sleep(worker.gathers()).await;
                drain(&mut wakeups);
            }
            Err(error) => {
                tracing::warn!(worker = W::NAME, %error, "a step failed and is repeated");
                sleep(PAUSE).await;
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

/// Takes the wake-ups that have come already: the step that follows serves them too.
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
