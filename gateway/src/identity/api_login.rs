use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::identity::{ApiToken, ApiTokenCommand, Session, SessionCommand};
use signalbox_projections::identity::queries;
use utoipa::ToSchema;

use super::{
    login::{LoggedIn, LoginIn, log_in},
    users::UserRecordOut,
};
use crate::{
    answer::{self, StatusOut},
    auth::{Credential, Reader},
    client_address::ClientAddress,
    context::RequestContext,
    extract::JsonBody,
    identity::services::LoginServices,
    problem::{Problem, ProblemOut},
    services::{
        auth::{ApiTokens, Sessions},
        commands::Commands,
        replica::Database,
    },
};

/// A login of services 2 and 3.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiLoginOut {
    #[schema(value_type = crate::words::Success)]
    status: &'static str,
    message: &'static str,
    /// JWT for the Authorization header.
    access_token: String,
    public_id: String,
    username: String,
    /// When the JWT expires.
    expires_at: DateTime<Utc>,
}

/// Log in with e-mail or user name and password.
#[utoipa::path(post, path = "/api/v1/auth/login", tag = "auth", request_body = LoginIn, operation_id = "api_login",
    responses((status = 200, body = ApiLoginOut), (status = 401, body = ProblemOut), (status = 422, body = ProblemOut), (status = 429, body = ProblemOut)))]
pub(crate) async fn login(
    State(services): State<LoginServices>,
    context: RequestContext,
    address: ClientAddress,
    JsonBody(credentials): JsonBody<LoginIn>,
) -> Result<Response, Problem> {
    let started = log_in(&services, &context, &address, credentials).await?;
    Ok(answer::secret(started.written, StatusCode::OK, None, &ApiLoginOut::from(started)))
}

/// Log out: every JWT of this login is void. An API token that logs out is revoked.
#[utoipa::path(post, path = "/api/v1/auth/logout", tag = "auth", security(("jwt" = [])),
    responses((status = 200, body = StatusOut), (status = 401, body = ProblemOut)))]
pub(crate) async fn logout(
    State(commands): State<Commands>,
    State(database): State<Database>,
    State(sessions): State<Arc<Sessions>>,
    State(api_tokens): State<Arc<ApiTokens>>,
    Reader(current): Reader,
    context: RequestContext,
) -> Result<Json<StatusOut>, Problem> {
    let metadata = context.metadata(current.actor(), "log out");
    match current.credential {
        Credential::Session(session) => {
            commands.write::<Session>(session, None, &metadata, &SessionCommand::End).await?;
            sessions.forget(session);
        }
        Credential::ApiToken(token) => {
            let row = queries::api_token(&database.primary, token).await?;
            commands.write::<ApiToken>(token, None, &metadata, &ApiTokenCommand::Revoke).await?;
            // Else it would be valid here for the rest of a second.
            if let Some(row) = row {
                api_tokens.forget(row.secret_sha256);
            }
        }
    }
    Ok(Json(StatusOut::success("Successfully logged out.")))
}

/// The current user.
#[utoipa::path(get, path = "/api/v1/auth/me", tag = "auth", security(("jwt" = [])),
    responses((status = 200, body = UserRecordOut), (status = 401, body = ProblemOut)))]
pub(crate) async fn me(
    State(database): State<Database>,
    Reader(current): Reader,
) -> Result<Json<UserRecordOut>, Problem> {
    let row =
        queries::user(&database.primary, current.id).await?.ok_or_else(|| Problem::not_found("User"))?;
    Ok(Json(row.into()))
}

impl From<LoggedIn> for ApiLoginOut {
    fn from(LoggedIn { token, expires_at, user, .. }: LoggedIn) -> Self {
        Self {
            status: "success",
            message: "Successfully logged in.",
            access_token: token,
            public_id: user.id.to_string(),
            username: user.username,
            expires_at,
        }
    }
}
