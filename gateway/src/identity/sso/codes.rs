//! Codes that a front end exchanges for a login: within 60 s, once, on any gateway, and only from the browser that
//! logged in at the provider, which has a secret in a cookie: a link with another user's code logs no one in. Only
//! hashes are stored. The time is PostgreSQL's, because another gateway may redeem the code.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_database::delete_in_batches;
use sqlx::PgPool;
use uuid::Uuid;

use super::attempt::random_secret;
use crate::{auth::hash_secret, problem::Problem, services::replica::Database};

/// How long a code is valid.
pub(super) const LIFE: TimeDelta = TimeDelta::seconds(60);

/// A code, and the secret of the browser that may have it exchanged.
pub(super) struct Issued {
    pub(super) code: String,
    pub(super) browser: String,
}

/// A new code for `user`.
pub(super) async fn issue(database: &Database, user: Uuid) -> Result<Issued, Problem> {
    let secret = || random_secret().map_err(|error| Problem::internal(&error));
    let issued = Issued { code: secret()?, browser: secret()? };
    let expires_at = database.time().await? + LIFE;
    sqlx::query(
        "INSERT INTO ops.login_codes (code_sha256, browser_sha256, user_id, expires_at) VALUES ($1, $2, $3, $4)",
    )
    .bind(hash_secret(&issued.code).as_str())
    .bind(hash_secret(&issued.browser).as_str())
    .bind(user)
    .bind(expires_at)
    .execute(&database.primary)
    .await?;
    Ok(issued)
}

/// The user of `code`, if the browser has this secret. The code is void from then on, whether it was in time or not.
pub(super) async fn redeem(
    database: &Database,
    code: &str,
    browser: Option<&str>,
) -> Result<Option<Uuid>, sqlx::Error> {
    let now = database.time().await?;
    let found: Option<(Uuid, bool)> = sqlx::query_as(
        "DELETE FROM ops.login_codes WHERE code_sha256 = $1
         RETURNING user_id, expires_at > $2 AND browser_sha256 IS NOT DISTINCT FROM $3",
    )
    .bind(hash_secret(code).as_str())
    .bind(now)
    .bind(browser.map(|secret| hash_secret(secret).to_string()).unwrap_or_default())
    .fetch_optional(&database.primary)
    .await?;
    Ok(found.and_then(|(user, is_valid)| is_valid.then_some(user)))
}

/// Deletes expired codes.
pub(crate) async fn purge(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    delete_in_batches(pool, "ops.login_codes", "t.expires_at <= $1", now).await.map(drop)
}
