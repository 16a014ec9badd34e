use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_config::Config;
use signalbox_database::SharedServerClock;
use signalbox_domain::{
    identity::{ApiToken, ApiTokenCommand, NewApiToken, Role},
    kernel::{is_in_range, parse_time},
};
use signalbox_projections::{
    identity::{
        ApiTokenRow,
        queries::{self, ApiTokenFilter, ListedApiToken},
    },
    register::past,
};
use utoipa::{IntoParams, ToSchema};

use crate::{
    answer::{self, Page, StatusOut},
    auth::{Reader, api_token_text, hash_secret},
    context::RequestContext,
    extract::{EnvelopeParams, IfMatch, JsonBody, Params, Sort, Text, key, present, wanted},
    idempotency::Repetitions,
    past::there,
    problem::{Problem, ProblemOut},
    resource::{NotShown, after_write_or, not_made_again},
    services::{auth::ApiTokens, commands::Commands, replica::Database},
};

/// How long a token works when nothing else is asked for.
const DEFAULT_LIFE: TimeDelta = TimeDelta::days(365);

/// An API token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiTokenOut {
    public_id: String,
    name: String,
    /// When it was last used, to within seconds; null when never.
    last_used_at: Option<DateTime<Utc>>,
    /// Null when it does not expire.
    expires_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    /// Its user.
    user_public_id: String,
    /// Whether it is a controller's, which reads the secrets of plugin instances.
    controller: bool,
}

/// A new API token.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ApiTokenIn {
    /// 1 to 255 characters.
    name: String,
    /// RFC 3339 time (UTC, if it has no zone) or date until which it works; a year from now if absent, for ever if
    /// null.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Option<String>>,
    /// Whether it is for a controller, which reads the secrets in the configurations of plugin instances; for operators and
    /// admins. False if absent.
    #[serde(default)]
    controller: bool,
}

/// A created API token. The secret is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiTokenCreatedOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    public_id: String,
    name: String,
    /// For `Authorization: Bearer` or `X-API-Key`.
    token: String,
    /// Null when it does not expire.
    expires_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    /// Whether it is for a controller.
    controller: bool,
}

/// Which tokens are listed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApiTokenParams {
    /// Part of the name.
    name: Option<String>,
    /// Only this user's; for admins.
    user_public_id: Option<String>,
}

/// List API tokens, newest first: the own ones, or all of them for admins.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "API tokens", security(("jwt" = [])), params(EnvelopeParams, Sort<ListedApiToken>, ApiTokenParams), operation_id = "list_api_tokens",
    responses((status = 200, body = Page<ApiTokenOut>), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn list(
    State(database): State<Database>,
    Reader(current): Reader,
    Params(envelope): Params<EnvelopeParams>,
    sort: Sort<ListedApiToken>,
    Params(params): Params<ApiTokenParams>,
) -> Result<Json<Page<ApiTokenOut>>, Problem> {
    let page = envelope.page()?;
    let user = if current.role == Role::Admin { wanted(params.user_public_id) } else { Some(current.id) };
    let filter = ApiTokenFilter { user, name: params.name };
    let (rows, total) = database.read(|pool| queries::api_tokens(pool, &filter, sort.order(), page)).await?;
    Ok(Json(envelope.envelope(total, rows.into_iter().map(Into::into).collect())))
}

/// Create an API token of one's own. It may do what its owner may do at that moment.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "API tokens", security(("jwt" = [])), request_body = ApiTokenIn, operation_id = "create_api_token",
    responses((status = 201, body = ApiTokenCreatedOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 409, body = ProblemOut), (status = 422, body = ProblemOut)))]
pub(crate) async fn create(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(config): State<Arc<Config>>,
    State(server_clock): State<SharedServerClock>,
    State(repetitions): State<Repetitions>,
    Reader(current): Reader,
    context: RequestContext,
    JsonBody(token): JsonBody<ApiTokenIn>,
) -> Result<Response, Problem> {
    let expires_at = expiry(token.expires_at, server_clock.now())?;
    let controller = token.controller;
    if controller && current.role < Role::Operator {
        return Err(Problem::forbidden());
    }
    let random = context.secret(&repetitions).await?.derive("API token", context.resource)?;
    let secret = api_token_text(config.identity.api_token_prefix, &random);
    let new = NewApiToken {
        user: current.id,
        name: token.name,
        secret_sha256: hash_secret(&secret),
        expires_at,
        controller: Some(controller),
    };
    let metadata = context.metadata(current.actor(), "create API token");
    let command = ApiTokenCommand::Create(new);
    let written = commands.write::<ApiToken>(context.resource, None, &metadata, &command).await?;
    let shown = || async {
        match written.unseen {
            None => find(&database, &context.resource.to_string()).await,
            Some(at) => there("Token", past(&database.primary, context.resource, at).await?),
        }
    };
    let row =
        after_write_or(NotShown::SECRET, shown).await.map_err(|problem| not_made_again(written, problem))?;
    if hash_secret(&secret).as_str() != row.secret_sha256 {
        return Err(shown_before());
    }
    let out = ApiTokenCreatedOut {
        status: "success",
        message: "API token successfully created.",
        public_id: row.id.to_string(),
        name: row.name,
        token: secret,
        expires_at: row.expires_at,
        created_at: row.created_at,
        controller,
    };
    Ok(answer::secret(written, StatusCode::CREATED, None, &out))
}

/// Revoke an API token: one's own, or any for admins. It is void everywhere within a second.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "API tokens", security(("jwt" = [])), params(("id" = String, Path,)), operation_id = "delete_api_token",
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut), (status = 403, body = ProblemOut), (status = 404, body = ProblemOut),
        (status = 412, body = ProblemOut)))]
pub(crate) async fn delete(
    State(database): State<Database>,
    State(commands): State<Commands>,
    State(api_tokens): State<Arc<ApiTokens>>,
    Reader(current): Reader,
    IfMatch(versions): IfMatch,
    Text(id): Text,
    context: RequestContext,
) -> Result<Response, Problem> {
    let row = find(&database, &id).await?;
    if row.user_id != current.id && current.role != Role::Admin {
        return Err(Problem::forbidden());
    }
    let metadata = context.metadata(current.actor(), "revoke API token");
    let written = commands.write::<ApiToken>(row.id, versions, &metadata, &ApiTokenCommand::Revoke).await?;
    api_tokens.forget(row.secret_sha256);
    Ok(answer::success(written, "API token successfully deleted."))
}

fn expiry(wanted: Option<Option<String>>, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, Problem> {
    match wanted {
        None => Ok(Some(now + DEFAULT_LIFE)),
        Some(None) => Ok(None),
        Some(Some(text)) => match parse_expiry(text.trim()) {
            Some(time) if time > now => Ok(Some(time)),
            Some(_) => {
                Err(Problem::field("expires_at", "must be in the future: the token would never be valid"))
            }
            None => {
                let fault = "must be a time such as 2030-01-31T12:00:00Z, a date, or null";
                Err(Problem::field("expires_at", fault))
            }
        },
    }
}

/// A time, or the beginning of a day, from 1970 on.
fn parse_expiry(text: &str) -> Option<DateTime<Utc>> {
    let day = || Some(text.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0)?.and_utc());
    let time = parse_time(text).or_else(|| day().filter(|day| is_in_range(*day)))?;
    (time >= DateTime::UNIX_EPOCH).then_some(time)
}

async fn find(database: &Database, id: &str) -> Result<ApiTokenRow, Problem> {
    let id = key("Token", id)?;
    database.read(|pool| queries::api_token(pool, id)).await?.ok_or_else(|| Problem::not_found("Token"))
}

fn shown_before() -> Problem {
    Problem::conflict("token_shown", "this token was created before and its value cannot be shown again")
}

impl From<ListedApiToken> for ApiTokenOut {
    fn from(row: ListedApiToken) -> Self {
        Self {
            public_id: row.token.id.to_string(),
            name: row.token.name,
            last_used_at: row.last_used,
            expires_at: row.token.expires_at,
            created_at: row.token.created_at,
            user_public_id: row.token.user_id.to_string(),
            controller: row.token.controller.unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_a_zone_without_one_and_as_dates() {
        for (text, expected) in [
            ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00Z"),
            ("2030-01-31T12:00:00.5+02:00", "2030-01-31T10:00:00.5Z"),
            ("2030-01-31T12:00:00.25", "2030-01-31T12:00:00.25Z"),
            ("2030-01-31", "2030-01-31T00:00:00Z"),
            ("1999-01-01", "1999-01-01T00:00:00Z"),
        ] {
            assert_eq!(parse_expiry(text), Some(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "soon", "2030-02-30", "2030-13-01T00:00:00Z", "12:00", "+12030-01-01", "1969-12-31"]
        {
            assert_eq!(parse_expiry(text), None, "{text}");
        }
    }
}
