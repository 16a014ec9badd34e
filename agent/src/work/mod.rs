//! Accepts the gateway's requests and carries them out, several transfers at a time.
//!
//! Reads: messages of the current connection. Writes: reports into the outbox, progress into `messages`. If the agent
//! crashes, its work is lost; the gateway sees that from `active_transfers` and starts another attempt.

mod registry;

use crate::{
    outbox::Outbox,
    protocol::{Command, Envelope, Outcome, Report, TransferId, TransferRequest},
    terminal::Terminal,
    transfer::{Context, Job, Moved, Parts, Progress, TransferError},
};
use registry::{Admission, Ending, Registry, Ticket};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::spawn_blocking,
};
use tokio_util::task::TaskTracker;

/// The work of one agent.
pub struct Work {
    context: Arc<Context>,
    registry: Registry,
    outbox: Arc<Outbox>,
    /// Messages that may be lost: progress, and answers to tests.
    messages: mpsc::Sender<Envelope>,
    terminal: Terminal,
    slots: Semaphore,
    tasks: TaskTracker,
}

impl Work {
    /// Nothing runs yet.
    pub fn new(
        context: Arc<Context>,
        outbox: Arc<Outbox>,
        messages: mpsc::Sender<Envelope>,
        terminal: Terminal,
    ) -> Self {
        let slots = Semaphore::new(context.config.concurrent_transfers);
        let registry = Registry::new(context.config.timing.remember);
        Self { context, registry, outbox, messages, terminal, slots, tasks: TaskTracker::new() }
    }

    /// Handles a message. Returns `false` if it cannot be handled now: it must not be acknowledged, so that it is
    /// delivered again.
    pub fn take(self: &Arc<Self>, envelope: Envelope) -> bool {
        match Command::from(envelope) {
            Command::Transfer(request) => return self.request(*request),
            Command::Cancel(id) => self.cancel(id),
            Command::Test(data) => {
                // Lost when the box is full: the gateway has stopped waiting for it then.
                let _ = self.messages.try_send(Envelope::new("connection_test_response", data));
            }
            Command::Ignored(reason) => tracing::warn!(reason, "a message was ignored"),
        }
        true
    }

    /// The transfers that are worked on now, and those whose end the gateway has not confirmed yet.
    pub fn active(&self) -> Vec<TransferId> {
        // A report enters the outbox before its attempt leaves the registry.
        let mut ids = self.registry.active();
        ids.extend(self.outbox.transfers());
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Forgets old results, time and again.
    pub async fn sweep(&self) {
        let every = (self.context.config.timing.remember / 10).max(Duration::from_millis(100));
        loop {
            tokio::time::sleep(every).await;
            delete(self.registry.sweep());
        }
    }

    /// Stops everything and waits for it, but not for long.
    pub async fn stop(&self) {
        self.registry.stop();
        self.tasks.close();
        if tokio::time::timeout(self.context.config.timing.stop, self.tasks.wait()).await.is_err() {
            tracing::warn!("some transfers did not end in time");
        }
    }

    fn request(self: &Arc<Self>, request: TransferRequest) -> bool {
        match self.registry.admit(&request) {
            Admission::Start(ticket) => {
                self.tasks.spawn(self.clone().attempt(request, ticket));
                true
            }
            Admission::Known => true,
            Admission::Ended(report) => self.outbox.try_push(&report),
            Admission::Full => false,
        }
    }

    fn cancel(&self, id: TransferId) {
        tracing::info!(transfer.id = %id, "transfer cancelled by the gateway");
        delete(self.registry.cancel(id));
        self.outbox.forget(id);
    }

    async fn attempt(self: Arc<Self>, request: TransferRequest, ticket: Ticket) {
        let started = Instant::now();
        let result = match self.wait_for_turn(&ticket).await {
            Ok(_slot) => self.clone().run(request.clone(), &ticket).await,
            Err(error) => Err(error),
        };
        let duration = started.elapsed();
        log_end(&request, &result, duration);
        if result.as_ref().is_err_and(TransferError::drops_parts) {
            let parts = ticket.parts.clone();
            let _ = spawn_blocking(move || parts.delete()).await;
        }
        let ending = ending(&request, result, duration);
        if let Ending::Reported(report) = &ending {
            self.outbox.push(report.clone()).await;
        }
        self.registry.end(&request, ticket, ending);
    }

    async fn wait_for_turn(&self, ticket: &Ticket) -> Result<impl Sized + '_, TransferError> {
        if let Some(before) = &ticket.before {
            ticket.interrupt.guard(before.cancelled()).await?;
        }
        ticket.interrupt.guard(self.slots.acquire()).await?.map_err(|_| TransferError::Internal)
    }

    async fn run(self: Arc<Self>, request: TransferRequest, ticket: &Ticket) -> Result<Moved, TransferError> {
        let (id, direction) = (request.id, request.direction);
        tracing::info!(transfer.id = %id, transfer.direction = %direction, transfer.attempt = request.attempt,
            "transfer started");
        let bar = self.terminal.bar(&format!("{direction} {id}"));
        let every = self.context.config.timing.progress;
        let job = Job {
            context: self.context.clone(),
            progress: Arc::new(Progress::new(id, every, self.messages.clone(), bar)),
            interrupt: ticket.interrupt.clone(),
            parts: ticket.parts.clone(),
            request,
        };
        let progress = job.progress.clone();
        // A task of its own: a fault in it ends this attempt and nothing else.
        let result = self.tasks.spawn(async move { job.run().await }).await;
        progress.finish();
        result.unwrap_or(Err(TransferError::Internal))
    }
}

fn ending(request: &TransferRequest, result: Result<Moved, TransferError>, duration: Duration) -> Ending {
    let outcome = match result {
        Ok(Moved { sha256, files, bytes }) => Outcome::Complete { duration, sha256, files, bytes },
        Err(TransferError::Interrupted(_)) => return Ending::Forgotten,
        Err(error) if error.is_silent() => return Ending::Silent,
        Err(error) => Outcome::Failed { error: error.to_string(), retryable: error.is_retryable() },
    };
    let TransferRequest { id, direction, attempt, .. } = *request;
    Ending::Reported(Report { id, direction, attempt, outcome })
}

fn log_end(request: &TransferRequest, result: &Result<Moved, TransferError>, duration: Duration) {
    let (id, direction, duration_ms) = (request.id, request.direction, duration.as_millis() as u64);
    match result {
        Ok(moved) => {
            tracing::info!(transfer.id = %id, transfer.direction = %direction, transfer.files = moved.files,
            transfer.bytes = moved.bytes, duration_ms, "transfer completed")
        }
        Err(error) if error.is_silent() => tracing::info!(transfer.id = %id, transfer.direction = %direction,
            duration_ms, "transfer stopped: {error}"),
        Err(error) => tracing::error!(transfer.id = %id, transfer.direction = %direction, duration_ms,
            retryable = error.is_retryable(), "transfer failed: {error}"),
    }
}

fn delete(parts: Vec<Arc<Parts>>) {
    if !parts.is_empty() {
        spawn_blocking(move || parts.iter().for_each(|parts| parts.delete()));
    }
}
