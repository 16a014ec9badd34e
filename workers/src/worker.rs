use std::time::Duration;

use chrono::{DateTime, Utc};
use signalbox_blob_store::BlobStore;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{CachedServerClock, ServerClock, Steps, sweep_time};
use signalbox_datapoint_log::trace_of_point;
use signalbox_documents::Documents;
use signalbox_domain::{
    automation::DatapointPlace,
    kernel::{Actor, CommandOutcome, Decider, ErrorKind, Metadata, Rejection},
};
use signalbox_event_store::{trace_at, trace_of_cause, trace_of_stream, traces_at};
use signalbox_firmware::Updates;
use signalbox_messaging::{Bus, Mailbox, Wakeup};
use signalbox_telemetry::{Kind, Span, current, is_tracing};
use signalbox_texts::Texts;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{Senders, Store, WorkerError};

/// The part that every worker has: the log, the bus and the time. Clones share them.
#[derive(Clone)]
pub struct Context {
    /// The database.
    pub pool: PgPool,
    /// The bus.
    pub bus: Bus,
    /// The time.
    pub clock: Clock,
    /// PostgreSQL's time, as it was read lately.
    pub server_clock: CachedServerClock,
    /// Steps in progress, of which those that do not return are reported.
    pub steps: Steps,
}

/// The parts that a process has for its workers. Each worker is built from those that it needs.
#[derive(Clone)]
pub struct Parts {
    pub context: Context,
    /// The agents' mailboxes.
    pub mailbox: Mailbox,
    /// Staged bytes.
    pub blobs: BlobStore,
    /// Extracts documents; `None` if the sandbox cannot be started.
    pub documents: Option<Documents>,
    /// Extracted texts.
    pub texts: Texts,
    /// The versions of firmware on this machine.
    pub firmware: Updates,
    pub senders: Senders,
    /// The settings.
    pub config: Config,
}

impl Parts {
    /// Documents and their texts.
    pub fn store(&self) -> Store {
        Store { texts: self.texts.clone(), blobs: self.blobs.clone() }
    }
}

/// Time limit of a step that removes many files.
pub(crate) const REMOVAL: Duration = Duration::from_secs(900);

/// One kind of work.
pub trait Worker: Send + Sync {
    /// Name in the log of events and in the lease.
    const NAME: &'static str;

    /// Interval of steps without a wakeup.
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

    /// Time limit of a step; beyond it a fault is reported. A healthy step never takes this long.
    fn limit(&self) -> Duration {
        Duration::from_secs(300)
    }

    /// One bounded step; returns whether there may be more to do at once.
    fn step(&self, context: &Context) -> impl Future<Output = Result<bool, WorkerError>> + Send;
}

impl Context {
    /// One without steps so far.
    pub fn new(pool: PgPool, bus: Bus, clock: Clock) -> Self {
        Self { pool, bus, clock, server_clock: CachedServerClock::default(), steps: Steps::default() }
    }

    /// The time that sweeps delete by; `None` while the clocks differ, and nothing is to be deleted.
    pub(crate) async fn sweep_time(&self) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
        sweep_time(&self.pool, &self.clock).await
    }

    /// PostgreSQL's time, for times that other processes compare.
    pub(crate) async fn server_time(&self) -> Result<DateTime<Utc>, sqlx::Error> {
        Ok(self.server_clock().await?.now())
    }

    /// PostgreSQL's clock, which can be read repeatedly without a query.
    pub(crate) async fn server_clock(&self) -> Result<ServerClock, sqlx::Error> {
        self.server_clock.get(&self.pool, &self.clock).await
    }

    /// Sends a command in the name of worker `name`. `key` identifies the effect: the same key yields the same
    /// command.
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

    /// Does `work` on aggregate `id` in the name of worker `name`, as a part of the trace of the aggregate's newest
    /// event.
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

    /// The span of work that worker `name` does because of the datapoint at `place`.
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
        due_once(name, self.send_with::<D>(name, id, None, metadata, command).await)
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

    /// Like [`Context::send_if_still_due`], for an item whose failures are remembered: a history that cannot be read refuses every
    /// command, perhaps until an upgrade, and a command that breaks a rule is never taken, so that the item would be due for ever.
    pub(crate) async fn send_for_item<D: Decider>(
        &self,
        name: &str,
        id: Uuid,
        key: &str,
        command: &D::Command,
    ) -> Result<Option<CommandOutcome>, WorkerError> {
        match self.send::<D>(name, id, None, key, command).await {
            Err(rejection)
                if rejection.is_unreadable_history()
                    || rejection.is_newer_history()
                    || rejection.kind == ErrorKind::Invalid =>
            {
                Err(rejection.into())
            }
            sent => due(name, sent),
        }
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

/// A trace that cannot be looked up is replaced by a new one.
fn known<T: Default>(cause: Result<T, sqlx::Error>) -> T {
    cause.unwrap_or_else(|error| {
        tracing::debug!(%error, "the trace that led to some work is not known");
        T::default()
    })
}

/// Metadata of a command of worker `name`. The event that led to it, and the correlation, are found in the log.
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

/// The result of a command; `None` if the work has been done already or is not needed any more, so that nothing is
/// left to do.
pub(crate) fn due<T>(name: &str, sent: Result<T, Rejection>) -> Result<Option<T>, WorkerError> {
    match sent {
        Ok(outcome) => Ok(Some(outcome)),
        // The next step finds the work again.
        Err(rejection) if rejection.is_newer_history() => {
            tracing::warn!(worker = name, %rejection, "some work waits for an upgrade");
            Ok(None)
        }
        Err(rejection) if rejection.kind == ErrorKind::Unavailable => Err(rejection.into()),
        // The command handler has reported which history it is; other work continues.
        Err(rejection) if rejection.is_unreadable_history() => {
            tracing::warn!(worker = name, %rejection, "some work cannot be done");
            Ok(None)
        }
        Err(rejection) => {
            tracing::debug!(worker = name, %rejection, "the work was no longer due");
            Ok(None)
        }
    }
}

/// The same for work that no later step finds again: it waits where a newer release knows the history.
pub(crate) fn due_once<T>(name: &str, sent: Result<T, Rejection>) -> Result<Option<T>, WorkerError> {
    match sent {
        Err(rejection) if rejection.is_newer_history() => Err(rejection.into()),
        sent => due(name, sent),
    }
}
