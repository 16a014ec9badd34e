//! Group commit: one task gathers the appends that arrive while the last transaction was being committed, and
//! writes them in the next one. So one client waits for one commit, and a hundred share it.
//!
//! If the process crashes, callers get no answer and repeat the command with the same id. If a transaction fails,
//! every append in it fails with [`AppendError::Unavailable`], because it is unknown whether it was committed, or with the
//! reason for which it was not.

use std::collections::{BTreeMap, VecDeque};

use signalbox_clock::Clock;
use signalbox_database::{OwnConnection, is_disk_full, is_refusal};
use signalbox_domain::kernel::ClaimOp;
use signalbox_metrics::metrics;
use sqlx::{PgConnection, PgPool, Row, postgres::PgRow};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::yield_now,
};

use crate::{
    batch::{Batch, MAX_COMMANDS},
    request::{Append, AppendError, AppendOutcome},
};

/// Appends that may wait for the writer before callers have to.
const QUEUE: usize = 1024;

/// The newest event of each aggregate type that this process appended, by its position.
pub type Heads = BTreeMap<&'static str, i64>;

/// Handle of the writer task. Clones share it; the task ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Appender {
    queue: mpsc::Sender<Append>,
    heads: watch::Receiver<Heads>,
}

impl Appender {
    /// Starts the writer of this process.
    pub fn start(pool: PgPool, clock: Clock) -> Self {
        let (queue, appends) = mpsc::channel(QUEUE);
        let (moved, heads) = watch::channel(Heads::new());
        tokio::spawn(write(OwnConnection::new(&pool, &[]), clock, appends, moved));
        Self { queue, heads }
    }

    /// The heads that this process appended; updated after each commit.
    pub fn heads(&self) -> watch::Receiver<Heads> {
        self.heads.clone()
    }

    pub(crate) async fn append(
        &self,
        build: impl FnOnce(oneshot::Sender<Result<AppendOutcome, AppendError>>) -> Append,
    ) -> Result<AppendOutcome, AppendError> {
        let (reply, outcome) = oneshot::channel();
        let stopped = || AppendError::Unavailable("the writer has stopped".to_owned());
        self.queue.send(build(reply)).await.map_err(|_| stopped())?;
        outcome.await.unwrap_or_else(|_| Err(stopped()))
    }
}

async fn write(
    mut own: OwnConnection,
    clock: Clock,
    mut appends: mpsc::Receiver<Append>,
    heads: watch::Sender<Heads>,
) {
    let mut waiting = VecDeque::new();
    while let Some(batch) = next_batch(&mut appends, &mut waiting).await {
        metrics().queue("append", waiting.len() + appends.len());
        let result = append_batch(&mut own, &clock, &batch).await;
        if batch.appends.len() > 1 && result.as_ref().is_err_and(is_refusal) {
            // One command is the cause: its neighbours are appended without it.
            tracing::warn!(
                commands = batch.appends.len(),
                "appends are split to find the one that is refused"
            );
            for append in batch.appends {
                let batch = Batch::of(append);
                let result = append_batch(&mut own, &clock, &batch).await;
                heads.send_if_modified(|heads| move_heads(heads, &batch, &result));
                answer(batch, result);
            }
            continue;
        }
        match &result {
            Ok(outcomes) => metrics().append(batch.appends.len(), appended(&batch, outcomes)),
            Err(error) => {
                tracing::error!(%error, commands = batch.appends.len(), "appending to the event log failed");
            }
        }
        // Updated before the replies, so that readers start as early as possible.
        heads.send_if_modified(|heads| move_heads(heads, &batch, &result));
        answer(batch, result);
    }
}

fn move_heads(heads: &mut Heads, batch: &Batch, result: &BatchResult) -> bool {
    let mut moved = false;
    for (append, outcome) in batch.appends.iter().zip(result.iter().flatten()) {
        if let Ok(outcome) = outcome
            && !outcome.duplicate
        {
            let head = heads.entry(append.aggregate_type).or_default();
            *head = outcome.position.max(*head);
            moved = true;
        }
    }
    moved
}

/// How many events of `batch` are in the log because of it.
fn appended(batch: &Batch, outcomes: &[Result<AppendOutcome, AppendError>]) -> usize {
    let is_new =
        |outcome: &Result<AppendOutcome, AppendError>| matches!(outcome, Ok(done) if !done.duplicate);
    let new = batch.appends.iter().zip(outcomes).filter(|(_, outcome)| is_new(outcome));
    new.map(|(append, _)| append.events.len()).sum()
}

async fn next_batch(appends: &mut mpsc::Receiver<Append>, waiting: &mut VecDeque<Append>) -> Option<Batch> {
    let mut batch = Batch::default();
    for append in std::mem::take(waiting) {
        keep_or_wait(&mut batch, waiting, append);
    }
    if batch.appends.is_empty() {
        keep_or_wait(&mut batch, waiting, appends.recv().await?);
        // Commands that arrived in this process at the same time are decided before the first one is written.
        yield_now().await;
    }
    while !batch.is_full() && waiting.len() < MAX_COMMANDS {
        let Ok(append) = appends.try_recv() else { break };
        keep_or_wait(&mut batch, waiting, append);
    }
    Some(batch)
}

fn keep_or_wait(batch: &mut Batch, waiting: &mut VecDeque<Append>, append: Append) {
    if batch.is_full() {
        waiting.push_back(append);
    } else if let Err(append) = batch.add(append) {
        waiting.push_back(*append);
    }
}

fn answer(batch: Batch, result: BatchResult) {
    match result {
        Ok(outcomes) => {
            for (append, outcome) in batch.appends.into_iter().zip(outcomes) {
                // A caller that was dropped repeats the command with the same id.
                let _ = append.reply.send(outcome);
            }
        }
        Err(error) => {
            // An internal error of the server may pass.
            let code = error.as_database_error().and_then(|error| error.code());
            let refusal = code.is_some_and(|code| code.starts_with("22") || code.starts_with("54"));
            for append in batch.appends {
                let reason = || error.to_string();
                let cause = if refusal {
                    AppendError::Refused(reason())
                } else if is_disk_full(&error) {
                    AppendError::DiskFull
                } else {
                    AppendError::Unavailable(reason())
                };
                let _ = append.reply.send(Err(cause));
            }
        }
    }
}

/// Results of the appends of a batch, or the error of its transaction.
type BatchResult = Result<Vec<Result<AppendOutcome, AppendError>>, sqlx::Error>;

async fn append_batch(own: &mut OwnConnection, clock: &Clock, batch: &Batch) -> BatchResult {
    let mut connection = own.take().await?;
    let result = append_on(&mut connection, clock, batch).await;
    if result.is_ok() {
        own.keep(connection);
    }
    result
}

async fn append_on(connection: &mut PgConnection, clock: &Clock, batch: &Batch) -> BatchResult {
    let appends = &batch.appends;
    let indexed = || (1_i32..).zip(appends);
    let claims =
        || indexed().flat_map(|(index, append)| append.claims.iter().map(move |claim| (index, claim)));
    let events = || {
        indexed().flat_map(|(index, append)| {
            append
                .events
                .iter()
                .zip(append.expected + 1..)
                .map(move |(event, sequence)| (index, sequence, event))
        })
    };
    let rows = sqlx::query(
        "SELECT outcome, stream_version, log_position, detail
           FROM append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                              coalesce($16, clock_timestamp()))",
    )
    .bind(appends.iter().map(|append| append.command_id).collect::<Vec<_>>())
    .bind(appends.iter().map(|append| append.aggregate_type).collect::<Vec<_>>())
    .bind(appends.iter().map(|append| append.aggregate_id.to_string()).collect::<Vec<_>>())
    .bind(appends.iter().map(|append| append.expected).collect::<Vec<_>>())
    .bind(appends.iter().map(|append| append.events.len() as i32).collect::<Vec<_>>())
    .bind(appends.iter().map(|append| &append.metadata).collect::<Vec<_>>())
    .bind(claims().map(|(index, _)| index).collect::<Vec<_>>())
    .bind(claims().map(|(_, claim)| op_name(claim.op)).collect::<Vec<_>>())
    .bind(claims().map(|(_, claim)| claim.kind.as_str()).collect::<Vec<_>>())
    .bind(claims().map(|(_, claim)| claim.key.as_str()).collect::<Vec<_>>())
    .bind(events().map(|(index, ..)| index).collect::<Vec<_>>())
    .bind(events().map(|(_, sequence, _)| sequence).collect::<Vec<_>>())
    .bind(events().map(|(.., event)| event.event_type.as_str()).collect::<Vec<_>>())
    .bind(events().map(|(.., event)| event.event_version.as_str()).collect::<Vec<_>>())
    .bind(events().map(|(.., event)| &event.payload).collect::<Vec<_>>())
    // PostgreSQL's clock unless a test replaces it: events recorded by a wrong clock are deleted too early or too
    // late.
    .bind(clock.manual_time())
    .fetch_all(connection)
    .await?;
    rows.iter().map(outcome_of).collect()
}

const OPS: [(ClaimOp, &str); 5] = [
    (ClaimOp::Take, "take"),
    (ClaimOp::Release, "release"),
    (ClaimOp::ReleaseNotLast, "release_not_last"),
    (ClaimOp::Require, "require"),
    (ClaimOp::RequireNone, "require_none"),
];

fn op_name(op: ClaimOp) -> &'static str {
    OPS.iter().find(|(candidate, _)| *candidate == op).map_or("", |(_, name)| name)
}

fn outcome_of(row: &PgRow) -> Result<Result<AppendOutcome, AppendError>, sqlx::Error> {
    let outcome: &str = row.try_get("outcome")?;
    Ok(match outcome {
        "appended" | "duplicate" => Ok(AppendOutcome {
            version: row.try_get("stream_version")?,
            position: row.try_get("log_position")?,
            duplicate: outcome == "duplicate",
        }),
        "conflict" => Err(AppendError::Conflict),
        _ => {
            let detail: &str = row.try_get("detail")?;
            let (name, kind) = detail.split_once(':').unwrap_or((detail, ""));
            let op =
                OPS.iter().find(|(_, candidate)| *candidate == name).map_or(ClaimOp::Take, |(op, _)| *op);
            Err(AppendError::Claim { op, kind: kind.to_owned() })
        }
    })
}
