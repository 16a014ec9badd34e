//! Queries about agents and their tokens.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_domain::kernel::{AgentId, AgentTokenId};
use sqlx::PgPool;
use uuid::Uuid;

use super::Filter;
use crate::{
    page::{Listed, Order, Page, Sorting, and_eq, and_like, list},
    transfer::{AgentRow, AgentTokenRow},
};

/// An agent as its presence was last noted. The presence is kept by the gateways beside the log.
const AGENTS: &str = "SELECT a.id, a.number, a.name, a.agent_type, a.description, a.status, a.version_text, a.hostname, a.system,
       a.ip_address, a.capabilities, a.transport_mode, a.session, a.connected_at,
       greatest(a.last_seen, p.last_seen) AS last_seen, a.away_since, a.warning, a.version, a.created_at, a.updated_at";
const FROM_AGENTS: &str =
    " FROM read.agents a LEFT JOIN ops.agent_presence p ON p.agent_id = a.id AND p.session = a.session";

/// The agent with integer `number`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent(pool: &PgPool, number: i64) -> Result<Option<AgentRow>, sqlx::Error> {
    sqlx::query_as(&format!("{AGENTS}{FROM_AGENTS} WHERE a.number = $1"))
        .bind(number)
        .fetch_optional(pool)
        .await
}

/// The agent with key `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent_by_id(pool: &PgPool, id: AgentId) -> Result<Option<AgentRow>, sqlx::Error> {
    sqlx::query_as(&format!("{AGENTS}{FROM_AGENTS} WHERE a.id = $1")).bind(id).fetch_optional(pool).await
}

/// Key of the agent that had integer `number` and is gone.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn removed_agent(pool: &PgPool, number: i64) -> Result<Option<AgentId>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.removed_numbers WHERE kind = 'agent' AND number = $1")
        .bind(number)
        .fetch_optional(pool)
        .await
}

impl Listed for AgentRow {
    const SORTING: Sorting = Sorting::newest_first(
        ("created_at", "a.number"),
        &[("name", "a.name"), ("status", "a.status")],
        "a.number",
    )
    .by("a.name");
}

/// A page of agents and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agents(
    pool: &PgPool,
    filter: &Filter,
    order: Order,
    page: Page,
) -> Result<(Vec<AgentRow>, i64), sqlx::Error> {
    list(pool, AGENTS, order, page, |query| {
        query.push(FROM_AGENTS).push(" WHERE true");
        and_eq(query, "a.status", filter.status.as_deref());
        and_eq(query, "a.agent_type", filter.kind.as_deref());
        and_like(query, "a.name", filter.name.as_deref());
    })
    .await
}

/// The integers of two agents as keys, in one question; missing ones are left out.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent_keys(pool: &PgPool, numbers: &[i64]) -> Result<Vec<(i64, AgentId)>, sqlx::Error> {
    sqlx::query_as("SELECT number, id FROM read.agents WHERE number = ANY($1)")
        .bind(numbers)
        .fetch_all(pool)
        .await
}

/// Names of the jobs that use agent `id`, at most ten.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn jobs_of_agent(pool: &PgPool, id: AgentId) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT number, name FROM read.jobs WHERE source_agent_id = $1 OR destination_agent_id = $1 ORDER BY number LIMIT 10",
    )
    .bind(id)
    .fetch_all(pool)
    .await
}

/// Those of the agents `ids` that show a warning.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn warned_agents(pool: &PgPool, ids: &[AgentId]) -> Result<Vec<AgentId>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.agents WHERE id = ANY($1) AND warning IS NOT NULL")
        .bind(ids)
        .fetch_all(pool)
        .await
}

/// Online agents, with their sessions, whose last heartbeat is older than `seconds`, or was never noted; the flag is
/// set if there was one. By the database's clock: those of gateways and workers may differ.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn silent_agents(pool: &PgPool, seconds: f64) -> Result<Vec<(AgentId, Uuid, bool)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT a.id, a.session, p.last_seen IS NOT NULL FROM read.agents a
           LEFT JOIN ops.agent_presence p ON p.agent_id = a.id AND p.session = a.session
          WHERE a.session IS NOT NULL AND coalesce(p.last_seen < now() - make_interval(secs => $1), true)
          ORDER BY p.last_seen LIMIT 1000",
    )
    .bind(seconds)
    .fetch_all(pool)
    .await
}

/// Agents whose sessions ended at or before `until`, and whose absence is not recorded, with the times when they ended.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn absent_agents(
    pool: &PgPool,
    until: DateTime<Utc>,
) -> Result<Vec<(AgentId, DateTime<Utc>)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, away_since FROM read.agents WHERE away_since <= $1 ORDER BY away_since LIMIT 1000",
    )
    .bind(until)
    .fetch_all(pool)
    .await
}

impl Listed for AgentTokenRow {
    const SORTING: Sorting = Sorting::newest_first(("created_at", "number"), &[("name", "name")], "number");
}

/// A page of tokens and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent_tokens(
    pool: &PgPool,
    agent: Option<i64>,
    order: Order,
    page: Page,
) -> Result<(Vec<AgentTokenRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.agent_tokens WHERE true");
        and_eq(query, "agent_number", agent);
    })
    .await
}

/// The token with integer `number`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent_token(pool: &PgPool, number: i64) -> Result<Option<AgentTokenRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.agent_tokens WHERE number = $1")
        .bind(number)
        .fetch_optional(pool)
        .await
}

/// The token with key `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent_token_by_id(
    pool: &PgPool,
    id: AgentTokenId,
) -> Result<Option<AgentTokenRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.agent_tokens WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// The token whose secret has this SHA-256, unless it has expired.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn live_agent_token(
    pool: &PgPool,
    secret_sha256: &str,
    now: DateTime<Utc>,
) -> Result<Option<AgentTokenRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.agent_tokens WHERE secret_sha256 = $1 AND (expires_at IS NULL OR expires_at > $2)")
        .bind(secret_sha256)
        .bind(now)
        .fetch_optional(pool)
        .await
}

/// Those of the tokens `ids` that still work.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn live_tokens(pool: &PgPool, ids: &[Uuid], now: DateTime<Utc>) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT id FROM read.agent_tokens WHERE id = ANY($1) AND (expires_at IS NULL OR expires_at > $2)",
    )
    .bind(ids)
    .bind(now)
    .fetch_all(pool)
    .await
}

/// Notes that agents were heard: each with its session and for how many seconds it has been silent.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_presences(pool: &PgPool, presences: &[(AgentId, Uuid, f64)]) -> Result<(), sqlx::Error> {
    sqlx::query(
        // Written as an age, because the database's clock decides who is silent.
        // A session that was replaced must not stand in the way of the present one, whatever its gateway's clock says.
        "INSERT INTO ops.agent_presence AS p (agent_id, session, last_seen)
         SELECT n.agent, n.session, now() - make_interval(secs => n.age)
           FROM unnest($1::uuid[], $2::uuid[], $3::float8[]) AS n (agent, session, age)
           JOIN read.agents a ON a.id = n.agent AND a.session = n.session
         ON CONFLICT (agent_id) DO UPDATE SET session = excluded.session, last_seen = excluded.last_seen
          WHERE p.session <> excluded.session OR p.last_seen < excluded.last_seen",
    )
    .bind(presences.iter().map(|(agent, ..)| *agent).collect::<Vec<_>>())
    .bind(presences.iter().map(|(_, session, _)| *session).collect::<Vec<_>>())
    .bind(presences.iter().map(|(.., silence)| *silence).collect::<Vec<_>>())
    .execute(pool)
    .await?;
    Ok(())
}

/// Id and SHA-256 of each token of an agent that is valid at `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn agent_token_hashes(
    pool: &PgPool,
    now: DateTime<Utc>,
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, secret_sha256 FROM read.agent_tokens WHERE expires_at IS NULL OR expires_at > $1",
    )
    .bind(now)
    .fetch_all(pool)
    .await
}
