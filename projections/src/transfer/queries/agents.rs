//! What gateway and workers ask about agents and their tokens.

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use super::Filter;
use crate::{
    page::{Page, and_eq, and_like, list},
    transfer::{AgentRow, AgentTokenRow},
};

/// An agent as its presence was last noted. The presence is kept by the gateways beside the log.
const AGENTS: &str = "SELECT a.id, a.number, a.name, a.agent_type, a.description, a.status, a.version_text, a.hostname, a.system,
       a.ip_address, a.capabilities, a.transport_mode, a.session, a.connected_at,
       greatest(a.last_seen, p.last_seen) AS last_seen, a.version, a.created_at, a.updated_at";
const FROM_AGENTS: &str =
    " FROM read.agents a LEFT JOIN ops.agent_presence p ON p.agent_id = a.id AND p.session = a.session";

/// The agent with integer `number`.
///
/// # Errors
/// The database's error.
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
pub async fn agent_by_id(pool: &PgPool, id: Uuid) -> Result<Option<AgentRow>, sqlx::Error> {
    sqlx::query_as(&format!("{AGENTS}{FROM_AGENTS} WHERE a.id = $1")).bind(id).fetch_optional(pool).await
}

/// Key of the agent that had integer `number` and is gone.
///
/// # Errors
/// The database's error.
pub async fn removed_agent(pool: &PgPool, number: i64) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.removed_numbers WHERE kind = 'agent' AND number = $1")
        .bind(number)
        .fetch_optional(pool)
        .await
}

/// A page of agents by name, and how many there are.
///
/// # Errors
/// The database's error.
pub async fn agents(pool: &PgPool, filter: &Filter, page: Page) -> Result<(Vec<AgentRow>, i64), sqlx::Error> {
    list(pool, AGENTS, "a.name, a.number", page, |query| {
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
pub async fn agent_keys(pool: &PgPool, numbers: &[i64]) -> Result<Vec<(i64, Uuid)>, sqlx::Error> {
    sqlx::query_as("SELECT number, id FROM read.agents WHERE number = ANY($1)")
        .bind(numbers)
        .fetch_all(pool)
        .await
}

/// Names of the jobs that use agent `id`, at most ten.
///
/// # Errors
/// The database's error.
pub async fn jobs_of_agent(pool: &PgPool, id: Uuid) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT number, name FROM read.jobs WHERE source_agent_id = $1 OR destination_agent_id = $1 ORDER BY number LIMIT 10",
    )
    .bind(id)
    .fetch_all(pool)
    .await
}

/// Online agents whose last sign of life is older than `before`, with their sessions.
///
/// # Errors
/// The database's error.
pub async fn silent_agents(pool: &PgPool, before: DateTime<Utc>) -> Result<Vec<(Uuid, Uuid)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT a.id, a.session FROM read.agents a
           LEFT JOIN ops.agent_presence p ON p.agent_id = a.id AND p.session = a.session
          WHERE a.session IS NOT NULL AND greatest(a.connected_at, p.last_seen) < $1 LIMIT 1000",
    )
    .bind(before)
    .fetch_all(pool)
    .await
}

/// A page of tokens, newest first, and how many there are.
///
/// # Errors
/// The database's error.
pub async fn agent_tokens(
    pool: &PgPool,
    agent: Option<i64>,
    page: Page,
) -> Result<(Vec<AgentTokenRow>, i64), sqlx::Error> {
    let rows = sqlx::query_as(
        "SELECT * FROM read.agent_tokens WHERE $1::bigint IS NULL OR agent_number = $1
          ORDER BY created_at DESC, number DESC LIMIT $2 OFFSET $3",
    )
    .bind(agent)
    .bind(page.limit)
    .bind(page.offset)
    .fetch_all(pool)
    .await?;
    let count = sqlx::query_scalar(
        "SELECT count(*) FROM read.agent_tokens WHERE $1::bigint IS NULL OR agent_number = $1",
    )
    .bind(agent)
    .fetch_one(pool)
    .await?;
    Ok((rows, count))
}

/// The token with integer `number`.
///
/// # Errors
/// The database's error.
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
pub async fn agent_token_by_id(pool: &PgPool, id: Uuid) -> Result<Option<AgentTokenRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.agent_tokens WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// The token whose secret has this SHA-256, unless it has expired.
///
/// # Errors
/// The database's error.
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
pub async fn live_tokens(pool: &PgPool, ids: &[Uuid], now: DateTime<Utc>) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT id FROM read.agent_tokens WHERE id = ANY($1) AND (expires_at IS NULL OR expires_at > $2)",
    )
    .bind(ids)
    .bind(now)
    .fetch_all(pool)
    .await
}
