use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_database::SharedServerClock;
use signalbox_domain::{
    kernel::AgentTokenId,
    transfer::{AgentToken, AgentTokenCommand, NewAgentToken},
};
use signalbox_projections::{
    register::past,
    transfer::{AgentTokenRow, queries},
};
use utoipa::{IntoParams, ToSchema};

use crate::{
    answer,
    auth::{Admin, Reader, hash_secret},
    context::RequestContext,
    extract::{JsonBody, Number, PageParams, Params, Sort},
    idempotency::Repetitions,
    past::there,
    problem::{ErrorOut, Problem},
    resource::{NotShown, after_write_or, not_made_again},
    services::{agent_keys::AgentKeys, commands::Commands, replica::Database},
};

/// Longest life of a token, in days.
pub(crate) const MAX_DAYS: i64 = 36_500;

/// An agent token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenOut {
    id: i64,
    name: String,
    agent_id: i64,
    created_at: DateTime<Utc>,
    /// Null when it does not expire.
    expires_at: Option<DateTime<Utc>>,
}

/// A new agent token.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenIn {
    /// 1 to 255 characters.
    name: String,
    /// The agent of the token.
    agent_id: i64,
    #[serde(default)]
    description: Option<String>,
    /// Days until it stops working; never, if absent, null or not positive.
    #[serde(default)]
    expires_in: Option<i64>,
}

/// A created agent token. The secret is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenCreatedOut {
    token: TokenOut,
    /// 64 hex digits.
    value: String,
}

/// The agents of the listed tokens.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TokenFilter {
    /// Only this agent's.
    agent_id: Option<i64>,
}

/// List agent tokens, newest first.
#[utoipa::path(get, path = "/api/tokens", tag = "agent tokens", security(("jwt" = [])), params(PageParams, Sort<AgentTokenRow>, TokenFilter), operation_id = "list_tokens",
    responses((status = 200, body = [TokenOut]), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    _: Reader,
    Params(page): Params<PageParams>,
    sort: Sort<AgentTokenRow>,
    Params(filter): Params<TokenFilter>,
) -> Result<Response, Problem> {
    let page = page.page()?;
    let (rows, total) =
        database.read(|pool| queries::agent_tokens(pool, filter.agent_id, sort.order(), page)).await?;
    Ok(answer::list(total, &rows.into_iter().map(TokenOut::from).collect::<Vec<_>>()))
}

/// Create an agent token.
#[utoipa::path(post, path = "/api/tokens", tag = "agent tokens", security(("jwt" = [])), request_body = TokenIn, operation_id = "create_token",
    responses((status = 201, body = TokenCreatedOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(server_clock): State<SharedServerClock>,
    State(agent_keys): State<Arc<AgentKeys>>,
    State(repetitions): State<Repetitions>,
    Admin(user): Admin,
    context: RequestContext,
    JsonBody(token): JsonBody<TokenIn>,
) -> Result<Response, Problem> {
    let expires_at = expiry(token.expires_in, server_clock.now())?;
    let [agent] = agent_keys.resolve([("agent_id", token.agent_id)]).await?;
    let value = hex::encode(context.secret(&repetitions).await?.derive("agent token", context.resource)?);
    let new = NewAgentToken {
        number: 0,
        name: token.name,
        agent,
        description: token.description,
        secret_sha256: hash_secret(&value),
        expires_at,
    };
    let metadata = context.metadata(user.actor(), "create agent token");
    let command = AgentTokenCommand::Create(new);
    let written = commands.write::<AgentToken>(context.resource, None, &metadata, &command).await?;
    let shown = || async {
        match written.unseen {
            None => find_by_id(&database, context.resource.into()).await,
            Some(at) => there("Token", past(&database.primary, context.resource, at).await?),
        }
    };
    let row =
        after_write_or(NotShown::SECRET, shown).await.map_err(|problem| not_made_again(written, problem))?;
    if hash_secret(&value).as_str() != row.secret_sha256 {
        return Err(shown_before());
    }
    let location = format!("/api/tokens/{}", row.number);
    let out = TokenCreatedOut { token: row.into(), value };
    Ok(answer::secret(written, StatusCode::CREATED, Some(&location), &out))
}

/// Revoke an agent token; a live session of the agent ends within a second.
#[utoipa::path(delete, path = "/api/tokens/{id}", tag = "agent tokens", security(("jwt" = [])), params(("id" = i64, Path,)), operation_id = "revoke_token",
    responses((status = 204), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut), (status = 404, body = ErrorOut)))]
pub(crate) async fn revoke(
    State(database): State<Database>,
    State(commands): State<Commands>,
    Admin(user): Admin,
    Number(id): Number,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = database.read(|pool| queries::agent_token(pool, id)).await?.ok_or_else(missing)?;
    let metadata = context.metadata(user.actor(), "revoke agent token");
    let written = commands.write::<AgentToken>(row.id.0, None, &metadata, &AgentTokenCommand::Revoke).await?;
    Ok(answer::deleted(written))
}

async fn find_by_id(database: &Database, id: AgentTokenId) -> Result<AgentTokenRow, Problem> {
    database.read(|pool| queries::agent_token_by_id(pool, id)).await?.ok_or_else(missing)
}

fn expiry(days: Option<i64>, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, Problem> {
    let Some(days) = days.filter(|days| *days > 0) else { return Ok(None) };
    if days > MAX_DAYS {
        return Err(Problem::field("expires_in", format!("must be at most {MAX_DAYS} days")));
    }
    Ok(Some(now + TimeDelta::days(days)))
}

fn shown_before() -> Problem {
    Problem::conflict("token_shown", "this token was created before and its value cannot be shown again")
}

fn missing() -> Problem {
    Problem::not_found("Token")
}

impl From<AgentTokenRow> for TokenOut {
    fn from(row: AgentTokenRow) -> Self {
        Self {
            id: row.number,
            name: row.name,
            agent_id: row.agent_number,
            created_at: row.created_at,
            expires_at: row.expires_at,
        }
    }
}
