//! What gateway and workers ask about users and sessions.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::UserRow;

/// The user with this e-mail address or user name, in any case of letters.
///
/// # Errors
/// The database's error.
pub async fn user_by_login(pool: &PgPool, login: &str) -> Result<Option<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users WHERE lower(email) = lower($1) OR lower(username) = lower($1) ORDER BY lower(email) = lower($1) DESC LIMIT 1")
        .bind(login)
        .fetch_optional(pool)
        .await
}

/// The user `id`.
///
/// # Errors
/// The database's error.
pub async fn user(pool: &PgPool, id: Uuid) -> Result<Option<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// A page of users, newest first.
///
/// # Errors
/// The database's error.
pub async fn users(pool: &PgPool, limit: i64, offset: i64) -> Result<Vec<UserRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.users ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2")
        .bind(limit)
        .bind(offset)
        .fetch_all(pool)
        .await
}

/// How many users there are.
///
/// # Errors
/// The database's error.
pub async fn count_users(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM read.users").fetch_one(pool).await
}

/// A session whose JWTs are valid, and its user.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LiveSession {
    /// Whose it is.
    pub user_id: Uuid,
    /// The integer that service 1 shows.
    pub number: i64,
    /// Login name.
    pub email: String,
    /// Second login name.
    pub username: String,
    /// Present role.
    pub role: String,
}

/// The session `id`, unless it has ended, has expired, or its user is gone or has changed the password since.
///
/// # Errors
/// The database's error.
pub async fn live_session(
    pool: &PgPool,
    id: Uuid,
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
