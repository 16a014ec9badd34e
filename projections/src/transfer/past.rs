//! Agents, their tokens, jobs and transfers at a point in time.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_domain::{
    kernel::{Decider, JobId, TransferId},
    transfer::{
        Agent, AgentEventKind, AgentToken, AgentTokenEventKind, Job, JobEventKind, Transfer, TransferEvent,
        TransferEventKind,
    },
};
use signalbox_event_store::{RecordedEvent, read_streams};
use sqlx::PgPool;
use uuid::Uuid;

use super::{AgentRow, AgentTokenRow, JobRow, TransferFileRow, TransferRow, TransferRows};
use crate::register::{
    At, Kept, Past, Resource, StateError, past,
    past::{fold_stream_slice, found},
};

/// Transfers of a job that are looked at together.
const RUNS: i64 = 100;
/// Transfers of a job that are looked at for one answer at most.
const MAX_RUNS: usize = 100_000;

impl Resource for AgentRow {
    type Aggregate = Agent;
    type Rows = TransferRows;

    fn is_passing(kind: AgentEventKind) -> bool {
        match kind {
            AgentEventKind::AgentConnected
            | AgentEventKind::AgentDescribed
            | AgentEventKind::AgentWarningChanged
            | AgentEventKind::AgentDisconnected
            | AgentEventKind::AgentWentOffline => true,
            AgentEventKind::AgentCreated | AgentEventKind::AgentUpdated | AgentEventKind::AgentDeleted => {
                false
            }
        }
    }

    fn of(rows: &TransferRows, id: Uuid) -> Option<&Self> {
        rows.agents.get(id)
    }
}

impl Resource for AgentTokenRow {
    type Aggregate = AgentToken;
    type Rows = TransferRows;

    fn is_passing(kind: AgentTokenEventKind) -> bool {
        match kind {
            AgentTokenEventKind::AgentTokenCreated | AgentTokenEventKind::AgentTokenRevoked => false,
        }
    }

    fn of(rows: &TransferRows, id: Uuid) -> Option<&Self> {
        rows.tokens.get(id)
    }
}

impl Resource for JobRow {
    type Aggregate = Job;
    type Rows = TransferRows;

    fn is_passing(kind: JobEventKind) -> bool {
        match kind {
            JobEventKind::JobFiringSkipped => true,
            JobEventKind::JobCreated | JobEventKind::JobUpdated | JobEventKind::JobDeleted => false,
        }
    }

    fn of(rows: &TransferRows, id: Uuid) -> Option<&Self> {
        rows.jobs.get(id)
    }
}

impl Kept for JobRow {
    fn makes_version(kind: JobEventKind) -> bool {
        match kind {
            JobEventKind::JobCreated | JobEventKind::JobUpdated | JobEventKind::JobDeleted => true,
            JobEventKind::JobFiringSkipped => false,
        }
    }
}

impl Resource for TransferRow {
    type Aggregate = Transfer;
    type Rows = TransferRows;

    fn is_passing(kind: TransferEventKind) -> bool {
        match kind {
            TransferEventKind::TransferRequested
            | TransferEventKind::TransferDispatched
            | TransferEventKind::TransferProgressed
            | TransferEventKind::FilesStaged
            | TransferEventKind::TransferStaged
            | TransferEventKind::TransferRequeued
            | TransferEventKind::TransferCompleted
            | TransferEventKind::TransferFailed
            | TransferEventKind::TransferCancelled
            | TransferEventKind::LateReportReceived
            | TransferEventKind::StagedBytesDeleted
            | TransferEventKind::TransferDeleted => false,
        }
    }

    fn of(rows: &TransferRows, id: Uuid) -> Option<&Self> {
        rows.transfers.get(id).filter(|row| !row.deleted)
    }
}

/// The job `id` at a point in time, with the transfers that it had started.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_job(pool: &PgPool, JobId(id): JobId, at: At) -> Result<Past<JobRow>, StateError> {
    let alone = past::<JobRow>(pool, id, at).await?;
    let Past::Present(job) = &alone else { return Ok(alone) };
    let runs = runs(pool, id, at, job.settings.schedule.is_some()).await?;
    if runs.is_empty() {
        return Ok(alone);
    }
    let mut rows = TransferRows::default();
    let was_created = fold_stream_slice::<JobRow>(pool, &mut rows, id, at, runs).await?;
    found::<JobRow, _>(pool, id, was_created, rows.jobs.get(id).cloned()).await
}

/// The beginning of the newest transfer of `job`, and that of the newest one that its schedule made, if it `is_scheduled`: the
/// earlier ones have left no trace in the job's row.
async fn runs(
    pool: &PgPool,
    job: Uuid,
    at: At,
    is_scheduled: bool,
) -> Result<Vec<RecordedEvent>, StateError> {
    let (mut newest, mut scheduled, mut seen) = (None, None, 0);
    let mut before: Option<(DateTime<Utc>, Uuid)> = None;
    loop {
        let transfers: Vec<(DateTime<Utc>, Uuid)> = sqlx::query_as(
            "SELECT created_at, id FROM read.transfers
              WHERE job_id = $1 AND (created_at, id) < (coalesce($3, $2 + interval '1 microsecond'), $4)
              ORDER BY created_at DESC, id DESC LIMIT $5",
        )
        .bind(job)
        .bind(at.time)
        .bind(before.map(|(created_at, _)| created_at))
        .bind(before.map_or(Uuid::nil(), |(_, id)| id))
        .bind(RUNS)
        .fetch_all(pool)
        .await?;
        let ids: Vec<_> = transfers.iter().map(|(_, id)| *id).collect();
        let mut begun = read_streams(pool, Transfer::TYPE, &ids, &["transfer_requested"]).await?.events;
        begun.retain(|event| event.position <= at.position);
        for event in begun {
            let by_schedule = matches!(event.decode::<Transfer>()?,
                TransferEvent::TransferRequested(new) if new.scheduled_for.is_some());
            if by_schedule {
                keep_newest(&mut scheduled, event.clone());
            }
            keep_newest(&mut newest, event);
        }
        seen += transfers.len();
        before = transfers.last().copied();
        let run = if is_scheduled { &scheduled } else { &newest };
        // Those of one instant are in no order.
        let rest_is_older =
            before.zip(run.as_ref()).is_some_and(|((oldest, _), found)| oldest < found.recorded_at);
        if (transfers.len() as i64) < RUNS || rest_is_older {
            scheduled = scheduled.filter(|event| newest.as_ref() != Some(event));
            return Ok(newest.into_iter().chain(scheduled).collect());
        }
        if seen >= MAX_RUNS {
            return Err(StateError::TooLong);
        }
    }
}

fn keep_newest(known: &mut Option<RecordedEvent>, event: RecordedEvent) {
    if known.as_ref().is_none_or(|known| known.position < event.position) {
        *known = Some(event);
    }
}

/// The transfer `id` at a point in time, with at most `limit` of the staged entries, sorted by the bytes of their
/// names.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_transfer(
    pool: &PgPool,
    TransferId(id): TransferId,
    at: At,
    limit: usize,
) -> Result<Past<(TransferRow, Vec<TransferFileRow>)>, StateError> {
    let mut rows = TransferRows::default();
    let was_created = fold_stream_slice::<TransferRow>(pool, &mut rows, id, at, Vec::new()).await?;
    let mut files: Vec<_> =
        rows.files.remove(&id).into_iter().flat_map(|staged| staged.into_values()).collect();
    files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    files.truncate(limit);
    let row = TransferRow::of(&rows, id).cloned();
    found::<TransferRow, _>(pool, id, was_created, row.map(|row| (row, files))).await
}
