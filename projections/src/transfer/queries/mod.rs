//! Queries about agents, tokens, jobs and transfers.

pub mod agent_requests;
mod agents;
mod legs;

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_domain::kernel::{AgentId, JobId, TransferId, UserId};
use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

pub use agents::{
    absent_agents, agent, agent_by_id, agent_keys, agent_token, agent_token_by_id, agent_token_hashes,
    agent_tokens, agents, jobs_of_agent, live_agent_token, live_tokens, note_presences, removed_agent,
    silent_agents, warned_agents,
};
pub use legs::{
    LegRow, Served, forget_old_legs, leg, note_arrival, note_body_begun, note_body_ended, note_named,
    note_poll,
};

use super::{JobRow, TransferFileRow, TransferRow};
use crate::page::{Listed, Order, Page, Sorting, and_eq, and_like, and_within, list};

// Numbers are drawn in the order of creation, and no clock that is wrong moves them.
impl Listed for JobRow {
    const SORTING: Sorting = Sorting::newest_first(
        ("created_at", "number"),
        &[("name", "name"), ("status", "CASE WHEN enabled THEN 'active' ELSE 'paused' END")],
        "number",
    );
}

impl Listed for TransferRow {
    const SORTING: Sorting = Sorting::newest_first(("created_at", "number"), &[], "number");
}

/// Filters of a list of transfers or jobs; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Status word.
    pub status: Option<String>,
    /// `push` or `pull`.
    pub kind: Option<String>,
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    /// The job's integer (transfers only).
    pub job: Option<i64>,
    /// The integer of an agent at either end.
    pub agent: Option<i64>,
    /// Created at or after.
    pub from: Option<DateTime<Utc>>,
    /// Created before.
    pub to: Option<DateTime<Utc>>,
}

/// The job with integer `number`, if it is `owner`'s.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn job(pool: &PgPool, owner: UserId, number: i64) -> Result<Option<JobRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.jobs WHERE number = $2 AND owner_id = $1")
        .bind(owner)
        .bind(number)
        .fetch_optional(pool)
        .await
}

/// Those of the jobs with the integers `numbers` that exist, of any owner.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn existing_jobs(pool: &PgPool, numbers: &[i64]) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT number FROM read.jobs WHERE number = ANY($1::bigint[])")
        .bind(numbers)
        .fetch_all(pool)
        .await
}

/// Key of the job of `owner` that had integer `number` and is gone.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn removed_job(pool: &PgPool, owner: UserId, number: i64) -> Result<Option<JobId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT id FROM read.removed_numbers WHERE kind = 'job' AND number = $1 AND owner_id = $2",
    )
    .bind(number)
    .bind(owner)
    .fetch_optional(pool)
    .await
}

/// The job with key `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn job_by_id(pool: &PgPool, id: JobId) -> Result<Option<JobRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.jobs WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// A page of `owner`'s jobs and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn jobs(
    pool: &PgPool,
    owner: UserId,
    filter: &Filter,
    order: Order,
    page: Page,
) -> Result<(Vec<JobRow>, i64), sqlx::Error> {
    let enabled = filter.status.as_deref().map(|status| status == "active");
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.jobs WHERE owner_id = ").push_bind(owner);
        and_eq(query, "enabled", enabled);
        and_common(query, filter, "name");
    })
    .await
}

/// All users who own jobs.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn job_owners(pool: &PgPool) -> Result<Vec<UserId>, sqlx::Error> {
    sqlx::query_scalar("SELECT DISTINCT owner_id FROM read.jobs").fetch_all(pool).await
}

/// Up to `limit` jobs of `owner`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn jobs_of(pool: &PgPool, owner: UserId, limit: i64) -> Result<Vec<JobId>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.jobs WHERE owner_id = $1 ORDER BY number LIMIT $2")
        .bind(owner)
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// Jobs that are due at `now`, most overdue first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_jobs(pool: &PgPool, now: DateTime<Utc>, limit: i64) -> Result<Vec<JobRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.jobs WHERE next_run <= $1 AND enabled ORDER BY next_run, number LIMIT $2",
    )
    .bind(now)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Whether a transfer of job `id`, other than `except`, has not ended.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn job_is_busy(pool: &PgPool, id: JobId, except: TransferId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM read.transfers WHERE job_id = $1 AND id <> $2 AND phase <> 'done')",
    )
    .bind(id)
    .bind(except)
    .fetch_one(pool)
    .await
}

/// The transfer with integer `number`, if it is `owner`'s.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer(pool: &PgPool, owner: UserId, number: i64) -> Result<Option<TransferRow>, sqlx::Error> {
    let found = transfer_ever(pool, owner, number).await?;
    Ok(found.filter(|row| !row.deleted))
}

/// The transfer with integer `number`, if it is `owner`'s, also a deleted one.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_ever(
    pool: &PgPool,
    owner: UserId,
    number: i64,
) -> Result<Option<TransferRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.transfers WHERE number = $2 AND owner_id = $1")
        .bind(owner)
        .bind(number)
        .fetch_optional(pool)
        .await
}

/// The transfer with integer `number`, if `agent` is one of its ends.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_of_agent(
    pool: &PgPool,
    agent: AgentId,
    number: i64,
) -> Result<Option<TransferRow>, sqlx::Error> {
    let found = transfer_of_agent_ever(pool, agent, number).await?;
    Ok(found.filter(|row| !row.deleted))
}

/// The transfer with integer `number`, if `agent` is one of its ends, also a deleted one.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_of_agent_ever(
    pool: &PgPool,
    agent: AgentId,
    number: i64,
) -> Result<Option<TransferRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfers WHERE number = $2 AND (source_agent_id = $1 OR destination_agent_id = $1)",
    )
    .bind(agent)
    .bind(number)
    .fetch_optional(pool)
    .await
}

/// Open transfers whose present leg is `agent`'s.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfers_at_agent(pool: &PgPool, agent: AgentId) -> Result<Vec<TransferRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfers WHERE phase <> 'done'
            AND ((phase IN ('dispatched', 'uploading') AND source_agent_id = $1)
              OR (phase IN ('staged', 'downloading') AND destination_agent_id = $1)) ORDER BY number LIMIT 10000",
    )
    .bind(agent)
    .fetch_all(pool)
    .await
}

/// The transfer with key `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_by_id(pool: &PgPool, id: TransferId) -> Result<Option<TransferRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.transfers WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// Whether a user has stopped the transfer with key `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_is_cancelled(pool: &PgPool, id: TransferId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM read.transfers WHERE id = $1 AND status = 'cancelled')")
        .bind(id)
        .fetch_one(pool)
        .await
}

/// A page of `owner`'s transfers and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfers(
    pool: &PgPool,
    owner: UserId,
    filter: &Filter,
    order: Order,
    page: Page,
) -> Result<(Vec<TransferRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.transfers WHERE NOT deleted AND owner_id = ").push_bind(owner);
        and_eq(query, "status", filter.status.as_deref());
        and_eq(query, "job_number", filter.job);
        and_common(query, filter, "filename");
    })
    .await
}

/// Staged entries of transfer `id`, sorted by the bytes of their names.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_files(
    pool: &PgPool,
    id: TransferId,
    limit: i64,
) -> Result<Vec<TransferFileRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfer_files WHERE transfer_id = $1 ORDER BY name COLLATE \"C\" LIMIT $2",
    )
    .bind(id)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Staged entries of several transfers, sorted by the bytes of their names, at most `limit` of each.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn files_of_transfers(
    pool: &PgPool,
    ids: &[TransferId],
    limit: i64,
) -> Result<Vec<TransferFileRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT f.* FROM unnest($1::uuid[]) AS t (id), LATERAL (
            SELECT * FROM read.transfer_files f WHERE f.transfer_id = t.id ORDER BY f.name COLLATE \"C\" LIMIT $2) f",
    )
    .bind(ids)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// The staged entry `name` of transfer `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfer_file(
    pool: &PgPool,
    id: TransferId,
    name: &str,
) -> Result<Option<TransferFileRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfer_files
          WHERE transfer_id = $1 AND read.text_key(name) = read.text_key($2) AND name = $2",
    )
    .bind(id)
    .bind(name)
    .fetch_optional(pool)
    .await
}

/// Transfers whose next agent may be notified at `now`, oldest first. A pull waits until its destination is
/// connected.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_transfers(
    pool: &PgPool,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<TransferRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfers t
          WHERE (phase = 'queued' AND (not_before IS NULL OR not_before <= $1)
                 AND (job_type = 'push' OR EXISTS (
                    SELECT FROM read.agents a WHERE a.id = t.destination_agent_id AND a.session IS NOT NULL)))
             OR (phase = 'staged' AND NOT asked)
          ORDER BY number LIMIT $2",
    )
    .bind(now)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Transfers in one of `phases` whose key follows `after`, and to which nothing has happened since `idle_since`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn idle_transfers(
    pool: &PgPool,
    phases: &[&str],
    idle_since: DateTime<Utc>,
    after: TransferId,
    limit: i64,
) -> Result<Vec<TransferRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfers WHERE phase <> 'done' AND phase = ANY($1) AND active_at <= $2 AND id > $3
          ORDER BY id LIMIT $4",
    )
    .bind(phases)
    .bind(idle_since)
    .bind(after)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// Keys and versions of the transfers in one of `phases`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn versions_in(pool: &PgPool, phases: &[&str]) -> Result<Vec<(TransferId, i64)>, sqlx::Error> {
    sqlx::query_as("SELECT id, version FROM read.transfers WHERE phase <> 'done' AND phase = ANY($1)")
        .bind(phases)
        .fetch_all(pool)
        .await
}

/// The transfers `ids`, as far as they are there.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn transfers_by_id(pool: &PgPool, ids: &[TransferId]) -> Result<Vec<TransferRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.transfers WHERE id = ANY($1)").bind(ids).fetch_all(pool).await
}

/// Ended transfers whose staged bytes are due to be deleted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn uncleaned_transfers(
    pool: &PgPool,
    completed_before: DateTime<Utc>,
    without: &[Uuid],
    limit: i64,
) -> Result<Vec<TransferRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT * FROM read.transfers WHERE phase = 'done' AND NOT cleaned
            AND (finished_at <= $1 OR status = 'cancelled' OR deleted) AND id <> ALL($3) ORDER BY finished_at, id LIMIT $2",
    )
    .bind(completed_before)
    .bind(limit)
    .bind(without)
    .fetch_all(pool)
    .await
}

fn and_common<'q>(query: &mut QueryBuilder<'q, Postgres>, filter: &'q Filter, name_column: &str) {
    and_eq(query, "job_type", filter.kind.as_deref());
    and_like(query, name_column, filter.name.as_deref());
    if let Some(agent) = filter.agent {
        query.push(" AND (source_agent_number = ").push_bind(agent);
        query.push(" OR destination_agent_number = ").push_bind(agent).push(")");
    }
    and_within(query, "created_at", filter.from, filter.to);
}
