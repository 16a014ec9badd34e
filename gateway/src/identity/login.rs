use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode, response::Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::SharedServerClock;
use signalbox_domain::{
    identity::{Session, SessionCommand, User, UserChanges, UserCommand},
    kernel::{Actor, Decider},
};
use signalbox_event_store::stream_keys;
use signalbox_projections::identity::{UserRow, queries};
use utoipa::ToSchema;
use uuid::Uuid;

use super::login_log;
use crate::{
    answer,
    auth::{Credential, CurrentUser, HashError, Reader, WeakPassword, check_new_password},
    client_address::ClientAddress,
    context::RequestContext,
    extract::JsonBody,
    identity::services::LoginServices,
    limits::Rate,
    problem::{ErrorOut, Problem, ProblemKind},
    resource::{NotShown, after_write_or},
    services::{auth::Keys, commands::Commands, limits::Limiter, replica::Database},
    state::Written,
};

/// Credentials of a user.
#[derive(Deserialize, ToSchema)]
pub(crate) struct LoginIn {
    /// E-mail address or user name.
    #[serde(default, alias = "username")]
    email: String,
    /// Password.
    #[serde(default)]
    password: String,
}

/// A login of service 1.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LoginOut {
    /// JWT for the Authorization header.
    token: String,
    /// When it expires.
    expires_at: DateTime<Utc>,
    /// The user of the token.
    user: UserOut,
}

/// A user as service 1 shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserOut {
    id: i64,
    name: String,
    email: String,
    /// `admin`, `operator` or `viewer`.
    #[schema(value_type = crate::words::Role)]
    role: String,
}

/// A change of the own password.
#[derive(Deserialize, ToSchema)]
pub(crate) struct PasswordIn {
    /// Present password.
    #[serde(default, alias = "current_password")]
    old_password: String,
    /// New password, 8 to 256 characters.
    #[serde(default)]
    new_password: String,
}

/// A changed password. All earlier tokens are void; this one replaces the caller's.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PasswordOut {
    message: String,
    token: String,
    expires_at: DateTime<Utc>,
}

/// The password was changed, and the session that would show it did not begin.
const NO_LOGIN: NotShown = NotShown {
    code: "change_not_shown",
    detail: "The password was changed, but no new login could be started: log in with the new password.",
};

/// A session that has just begun.
pub(super) struct LoggedIn {
    pub(super) token: String,
    pub(super) expires_at: DateTime<Utc>,
    pub(super) user: UserRow,
    pub(super) written: Written,
}

/// Log in with e-mail or user name and password.
#[utoipa::path(post, path = "/api/auth/login", tag = "auth", request_body = LoginIn,
    responses((status = 200, body = LoginOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut), (status = 429, body = ErrorOut)))]
pub(crate) async fn login(
    State(services): State<LoginServices>,
    context: RequestContext,
    address: ClientAddress,
    JsonBody(credentials): JsonBody<LoginIn>,
) -> Result<Response, Problem> {
    let LoggedIn { token, expires_at, user, written } =
        log_in(&services, &context, &address, credentials).await?;
    let out = LoginOut { token, expires_at, user: UserOut::from(user) };
    Ok(answer::secret(written, StatusCode::OK, None, &out))
}

/// Renew the JWT; the old one stays valid until it expires.
#[utoipa::path(post, path = "/api/auth/refresh", tag = "auth", security(("jwt" = [])),
    responses((status = 200, body = LoginOut), (status = 401, body = ErrorOut), (status = 403, body = ErrorOut)))]
pub(crate) async fn refresh(
    State(commands): State<Commands>,
    State(config): State<Arc<Config>>,
    State(server_clock): State<SharedServerClock>,
    State(keys): State<Arc<Keys>>,
    Reader(current): Reader,
    context: RequestContext,
) -> Result<Response, Problem> {
    let Credential::Session(session) = current.credential else {
        return Err(Problem::forbidden_because("an API token is not renewed: make a new one"));
    };
    let expires_at = expiry(&config, &server_clock);
    let command = SessionCommand::Renew { expires_at };
    let metadata = context.metadata(current.actor(), "renew session");
    let written = commands.write::<Session>(session, None, &metadata, &command).await?;
    let token = sign(&keys, current.id.0, session, current.role.as_str(), expires_at)?;
    let out = LoginOut { token, expires_at, user: UserOut::from(current) };
    Ok(answer::secret(written, StatusCode::OK, None, &out))
}

/// The current user.
#[utoipa::path(get, path = "/api/auth/user", tag = "auth", security(("jwt" = [])),
    responses((status = 200, body = UserOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn current_user(Reader(current): Reader) -> Json<UserOut> {
    Json(UserOut::from(current))
}

/// Change the own password. Every earlier login ends; the answer carries a new one.
#[utoipa::path(post, path = "/api/auth/password", tag = "auth", security(("jwt" = [])), request_body = PasswordIn,
    responses((status = 200, body = PasswordOut), (status = 400, body = ErrorOut), (status = 401, body = ErrorOut)))]
pub(crate) async fn change_password(
    State(services): State<LoginServices>,
    Reader(current): Reader,
    context: RequestContext,
    JsonBody(change): JsonBody<PasswordIn>,
) -> Result<Response, Problem> {
    throttle_account(&services.config, &services.clock, &services.limiter, &current.id.0.to_string())?;
    valid_password("new_password", &change.new_password)?;
    let row = queries::user(&services.database.primary, current.id)
        .await?
        .ok_or_else(|| Problem::not_found("User"))?;
    let refused = || Problem::malformed("the current password is not correct");
    if !services.passwords.verify(change.old_password, Some(row.password_hash.clone()), None).await? {
        return Err(refused());
    }
    let password_hash = services.passwords.hash(change.new_password).await?;
    // Both may have waited in line while the password was changed.
    if !is_password_current(&services.database, &row).await? {
        return Err(refused());
    }
    let command =
        UserCommand::Change(UserChanges { password_hash: Some(password_hash), ..Default::default() });
    services
        .commands
        .write::<User>(current.id.0, None, &context.metadata(current.actor(), "change password"), &command)
        .await?;
    if let Credential::Session(session) = current.credential {
        services.sessions.forget(session);
    }
    let started = || start_session(&services, &context, row.clone());
    let LoggedIn { token, expires_at, written, .. } = after_write_or(NO_LOGIN, started).await?;
    let message = "password changed successfully".to_owned();
    Ok(answer::secret(written, StatusCode::OK, None, &PasswordOut { message, token, expires_at }))
}

/// Checks the credentials and begins a session. Unknown users and wrong passwords cannot be told apart.
pub(super) async fn log_in(
    services: &LoginServices,
    context: &RequestContext,
    address: &ClientAddress,
    credentials: LoginIn,
) -> Result<LoggedIn, Problem> {
    let LoginIn { email, password } = credentials;
    let login = email.trim().to_owned();
    if login.is_empty() || password.is_empty() {
        let field = if login.is_empty() { "email" } else { "password" };
        return Err(Problem::invalid("email and password are required").about(field));
    }
    throttle_address(&services.config, &services.clock, &services.limiter, address)?;
    let named = if login.contains('\0') {
        Vec::new()
    } else {
        queries::users_by_login(&services.database.primary, &login).await?
    };
    let (known, fits) = identify(services, address, &login, &password, named).await?;
    match known {
        Some(user) if fits => {
            let started = start_session(services, context, user).await?;
            // The check may have waited in line while the password changed. A change after the session has begun voids it.
            if !is_password_current(&services.database, &started.user).await? {
                let metadata = context.metadata(Actor::User(started.user.id), "end session");
                services
                    .commands
                    .write::<Session>(context.resource, None, &metadata, &SessionCommand::End)
                    .await?;
                login_log::note_failure(
                    &services.commands,
                    &services.clock,
                    &services.failed_logins,
                    context,
                    address,
                    Some(&started.user),
                )
                .await;
                return Err(wrong_credentials());
            }
            login_log::note_success(&services.commands, &services.clock, context, address, &started.user)
                .await;
            Ok(started)
        }
        known => {
            login_log::note_failure(
                &services.commands,
                &services.clock,
                &services.failed_logins,
                context,
                address,
                known.as_ref(),
            )
            .await;
            Err(wrong_credentials())
        }
    }
}

/// The one of the users `named` by `login` whose password this is, or else the first, and whether it is its password.
async fn identify(
    services: &LoginServices,
    address: &ClientAddress,
    login: &str,
    password: &str,
    named: Vec<UserRow>,
) -> Result<(Option<UserRow>, bool), Problem> {
    // An account has one share, under whichever of its names.
    let throttle =
        |account: &str| throttle_account(&services.config, &services.clock, &services.limiter, account);
    let verify = async |user: Option<&UserRow>| {
        let stored = user.map(|user| user.password_hash.clone());
        services.passwords.verify(password.to_owned(), stored, Some(address.network())).await
    };
    if named.is_empty() {
        throttle(&login.to_lowercase())?;
        return Ok((None, verify(None).await?));
    }
    let mut first = None;
    for user in named {
        throttle(&user.id.to_string())?;
        if verify(Some(&user)).await? {
            return Ok((Some(user), true));
        }
        first.get_or_insert(user);
    }
    Ok((first, false))
}

fn wrong_credentials() -> Problem {
    Problem::unauthenticated("Invalid e-mail address, user name or password")
}

/// Whether the log has no newer password of `user` than the one in the row.
async fn is_password_current(database: &Database, user: &UserRow) -> Result<bool, sqlx::Error> {
    let id = user.id.to_string();
    let mut connection = database.primary.acquire().await?;
    let words = ["user_password_changed"];
    let changes = stream_keys(&mut connection, (User::TYPE, id.as_str()), 1, i64::MAX, &words).await?;
    Ok(changes.iter().all(|change| change.position <= user.valid_after))
}

/// Starts the session of the request. A request that is repeated starts none, and is answered again while that one lasts.
pub(super) async fn start_session(
    services: &LoginServices,
    context: &RequestContext,
    user: UserRow,
) -> Result<LoggedIn, Problem> {
    let (session, expires_at) = (context.resource, expiry(&services.config, &services.server_clock));
    let command = SessionCommand::Start { user: user.id, expires_at };
    let metadata = context.metadata(Actor::User(user.id), "start session");
    let written = services.commands.write::<Session>(session, None, &metadata, &command).await?;
    if written.repeated && written.unseen.is_none() {
        services.sessions.forget(session);
        if services.sessions.user(session).await?.is_none() {
            let detail = "this Idempotency-Key was used for a login that has ended since: use a new one";
            return Err(Problem::new(ProblemKind::KeyReused, "idempotency_key_reused", detail));
        }
    }
    let token = sign(&services.keys, user.id.0, session, user.role.as_str(), expires_at)?;
    Ok(LoggedIn { token, expires_at, user, written })
}

fn expiry(config: &Config, server_clock: &SharedServerClock) -> DateTime<Utc> {
    server_clock.now() + TimeDelta::hours(i64::from(config.identity.token_hours))
}

fn sign(
    keys: &Keys,
    user: Uuid,
    session: Uuid,
    role: &str,
    expires_at: DateTime<Utc>,
) -> Result<String, Problem> {
    keys.sign(user, session, role, expires_at).map_err(|error| Problem::internal(&error))
}

/// Counts an attempt to log in from `address`.
pub(super) fn throttle_address(
    config: &Config,
    clock: &Clock,
    limiter: &Limiter,
    address: &ClientAddress,
) -> Result<(), Problem> {
    let limit = config.limits.logins_per_address;
    take(
        clock,
        limiter,
        &format!("login address:{}", address.network()),
        Rate { per_minute: limit, burst: limit },
    )
}

fn throttle_account(config: &Config, clock: &Clock, limiter: &Limiter, account: &str) -> Result<(), Problem> {
    let limit = config.limits.logins_per_account;
    take(clock, limiter, &format!("login account:{account}"), Rate { per_minute: limit, burst: limit })
}

fn take(clock: &Clock, limiter: &Limiter, key: &str, rate: Rate) -> Result<(), Problem> {
    limiter.take(key, rate, clock.now()).map_err(Problem::too_many)
}

/// A new password that is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0} {1}")]
pub(crate) struct InvalidPassword(&'static str, WeakPassword);

/// Checks a new password.
pub(crate) fn valid_password(field: &'static str, password: &str) -> Result<(), InvalidPassword> {
    check_new_password(password).map_err(|weak| InvalidPassword(field, weak))
}

impl From<InvalidPassword> for Problem {
    fn from(error: InvalidPassword) -> Self {
        Self::field(error.0, error.1)
    }
}

impl From<HashError> for Problem {
    fn from(error: HashError) -> Self {
        match error {
            HashError::Busy => Self::unavailable(error.to_string()),
            HashError::Failed(_) => Self::internal(&error),
        }
    }
}

impl From<UserRow> for UserOut {
    fn from(row: UserRow) -> Self {
        Self { id: row.number, name: row.username, email: row.email, role: row.role.into() }
    }
}

impl From<CurrentUser> for UserOut {
    fn from(current: CurrentUser) -> Self {
        Self {
            id: current.number,
            name: current.username,
            email: current.email,
            role: current.role.to_string(),
        }
    }
}
