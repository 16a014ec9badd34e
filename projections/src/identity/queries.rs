//! Queries about users, sessions and API tokens.

use signalbox_boxed::boxed;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use signalbox_domain::{
    identity::Role,
    kernel::{SessionId, UserId},
};
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use super::{ApiTokenRow, UserRow};
use crate::{
    Word,
    page::{Listed, Order, Page, Sorting, and_eq, and_like, list},
};

/// The users with this e-mail address or user name, in any case of letters: one as a rule. The name of one may be the address of
/// another, who is the first then.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn users_by_login(pool: &PgPool, login: &str) -> Result<Vec<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users WHERE lower(email) = lower($1) OR lower(username) = lower($1) ORDER BY lower(email) = lower($1) DESC LIMIT 2")
        .bind(login)
        .fetch_all(pool)
        .await
}

/// The user `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn user(pool: &PgPool, id: UserId) -> Result<Option<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// The user with this e-mail address, in any case of letters.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn user_by_email(pool: &PgPool, email: &str) -> Result<Option<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users WHERE lower(email) = lower($1)")
        .bind(email)
        .fetch_optional(pool)
        .await
}

/// The user with the identity `subject` at the provider `issuer`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn user_by_identity(
    pool: &PgPool,
    issuer: &str,
    subject: &str,
) -> Result<Option<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users WHERE sso_issuer = $1 AND sso_subject = $2")
        .bind(issuer)
        .bind(subject)
        .fetch_optional(pool)
        .await
}

/// Those of `users` that the read model does not have: they are deleted, or the read model lags.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn missing_users(pool: &PgPool, users: &[UserId]) -> Result<Vec<UserId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT o.id FROM unnest($1::uuid[]) AS o (id) WHERE NOT EXISTS (SELECT FROM read.users u WHERE u.id = o.id)",
    )
    .bind(users)
    .fetch_all(pool)
    .await
}

/// Whether a deleted user had the identity `subject` at the provider `issuer`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn is_removed_identity(pool: &PgPool, issuer: &str, subject: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM read.removed_identities WHERE issuer = $1 AND subject = $2)",
    )
    .bind(issuer)
    .bind(subject)
    .fetch_one(pool)
    .await
}

/// Which users are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct UserFilter {
    /// `admin`, `operator` or `viewer`.
    pub role: Option<&'static str>,
    /// Part of the user name or of the e-mail address, in any case of letters.
    pub name: Option<String>,
}

impl Listed for UserRow {
    const SORTING: Sorting = Sorting::newest_first(
        ("created_on", "created_at"),
        &[("username", "username"), ("email", "email")],
        "id",
    );
}

/// A page of users and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn users(
    pool: &PgPool,
    filter: &UserFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<UserRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.users WHERE true");
        and_eq(query, "role", filter.role);
        // No name contains the line break between them.
        and_like(query, "username || chr(10) || email", filter.name.as_deref());
    })
    .await
}

/// Whether there are users.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn has_users(pool: &PgPool) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM read.users)").fetch_one(pool).await
}

/// A session whose JWTs are valid, and its user.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LiveSession {
    pub user_id: UserId,
    /// The integer that service 1 shows.
    pub number: i64,
    /// Login name.
    pub email: String,
    /// Second login name.
    pub username: String,
    /// Present role.
    pub role: Word<Role>,
}

/// The session `id`, unless it has ended, has expired, or its user is gone or has changed the password since.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn live_session(
    pool: &PgPool,
    id: SessionId,
    now: DateTime<Utc>,
) -> Result<Option<LiveSession>, sqlx::Error> {
    sqlx::query_as(
        "SELECT u.id AS user_id, u.number, u.email, u.username, u.role
           FROM read.sessions s JOIN read.users u ON u.id = s.user_id
          WHERE s.id = $1 AND s.ended_at IS NULL AND s.expires_at > $2 AND s.position > u.valid_after",
    )
    .bind(id)
    .bind(now)
    .fetch_optional(pool)
    .await
}

/// The sessions of `user` whose JWTs are valid.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn live_sessions_of(
    pool: &PgPool,
    user: UserId,
    now: DateTime<Utc>,
) -> Result<Vec<SessionId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT s.id FROM read.sessions s JOIN read.users u ON u.id = s.user_id
          WHERE u.id = $1 AND s.ended_at IS NULL AND s.expires_at > $2 AND s.position > u.valid_after",
    )
    .bind(user)
    .bind(now)
    .fetch_all(pool)
    .await
}

/// The user of an API token that works.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LiveApiToken {
    /// Key of the token.
    pub token_id: Uuid,
    pub user_id: UserId,
    /// The integer that service 1 shows.
    pub number: i64,
    /// Login name.
    pub email: String,
    /// Second login name.
    pub username: String,
    /// Present role.
    pub role: Word<Role>,
    /// Whether it is a controller's, if known.
    pub controller: Option<bool>,
}

/// The API token with this hash, unless it is revoked, has expired, or its user is gone.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn live_api_token(
    pool: &PgPool,
    secret_sha256: &str,
    now: DateTime<Utc>,
) -> Result<Option<LiveApiToken>, sqlx::Error> {
    sqlx::query_as(
        "SELECT t.id AS token_id, u.id AS user_id, u.number, u.email, u.username, u.role, t.controller
           FROM read.api_tokens t JOIN read.users u ON u.id = t.user_id
          WHERE t.secret_sha256 = $1 AND (t.expires_at IS NULL OR t.expires_at > $2)",
    )
    .bind(secret_sha256)
    .bind(now)
    .fetch_optional(pool)
    .await
}

/// When the API token with this hash expires; `None` when it was revoked or has no expiry.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn api_token_expiry(
    pool: &PgPool,
    secret_sha256: &str,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let expiry = sqlx::query_scalar("SELECT expires_at FROM read.api_tokens WHERE secret_sha256 = $1")
        .bind(secret_sha256)
        .fetch_optional(pool)
        .await?;
    Ok(expiry.flatten())
}

/// An API token in a list.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ListedApiToken {
    /// The token.
    #[row(flatten)]
    pub token: ApiTokenRow,
    /// Last use that a gateway has noted.
    pub last_used: Option<DateTime<Utc>>,
}

/// Which API tokens are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct ApiTokenFilter {
    /// Only this user's.
    pub user: Option<UserId>,
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
}

impl Listed for ListedApiToken {
    const SORTING: Sorting =
        Sorting::newest_first(("created_at", "t.created_at"), &[("name", "t.name")], "t.id");
}

/// A page of API tokens and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn api_tokens(
    pool: &PgPool,
    filter: &ApiTokenFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<ListedApiToken>, i64), sqlx::Error> {
    list(pool, "SELECT t.*, n.last_used", order, page, |query| {
        query.push(" FROM read.api_tokens t LEFT JOIN ops.token_uses n ON n.token_id = t.id");
        // A token that was created while its user was being deleted is not listed.
        query.push(" WHERE EXISTS (SELECT FROM read.users u WHERE u.id = t.user_id)");
        and_eq(query, "t.user_id", filter.user);
        and_like(query, "t.name", filter.name.as_deref());
    })
    .await
}

/// The API token `id`, unless it is revoked.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn api_token(pool: &PgPool, id: Uuid) -> Result<Option<ApiTokenRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.api_tokens WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// The names of those of `tokens` that have not been revoked.
///
/// # Errors
/// The database's error.
pub async fn token_names(
    pool: &PgPool,
    tokens: impl IntoIterator<Item = Uuid>,
) -> Result<HashMap<Uuid, String>, sqlx::Error> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let names: Vec<_> = sqlx::query_as("SELECT id, name FROM read.api_tokens WHERE id = ANY($1)")
        .bind(tokens)
        .fetch_all(pool)
        .await?;
    Ok(names.into_iter().collect())
}

/// Notes when tokens were used last.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_token_uses(
    pool: &PgPool,
    tokens: &[Uuid],
    times: &[DateTime<Utc>],
) -> Result<(), sqlx::Error> {
    if tokens.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO ops.token_uses AS t (token_id, last_used) SELECT * FROM unnest($1::uuid[], $2::timestamptz[])
         ON CONFLICT (token_id) DO UPDATE SET last_used = excluded.last_used WHERE t.last_used < excluded.last_used",
    )
    .bind(tokens)
    .bind(times)
    .execute(pool)
    .await?;
    Ok(())
}

/// Id and SHA-256 of each API token that is valid at `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn api_token_hashes(pool: &PgPool, now: DateTime<Utc>) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, secret_sha256 FROM read.api_tokens WHERE expires_at IS NULL OR expires_at > $1",
    )
    .bind(now)
    .fetch_all(pool)
    .await
}
