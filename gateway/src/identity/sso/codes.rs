//! Codes that a front end exchanges for a login: 60 s, once, on any gateway. Only their hashes are stored.

use chrono::TimeDelta;
use uuid::Uuid;

use super::attempt::random_secret;
use crate::{auth::hash_secret, problem::Problem, state::State};

/// How long a code is valid.
const LIFE: TimeDelta = TimeDelta::seconds(60);

/// A new code for `user`.
pub(super) async fn issue(state: &State, user: Uuid) -> Result<String, Problem> {
    let code = random_secret().map_err(|error| Problem::internal(&error))?;
    sqlx::query("INSERT INTO ops.login_codes (code_sha256, user_id, expires_at) VALUES ($1, $2, $3)")
        .bind(hash_secret(&code).as_str())
        .bind(user)
        .bind(state.clock.now() + LIFE)
        .execute(&state.pool)
        .await?;
    Ok(code)
}

/// The user whom `code` was made for. It is void from then on, whether it was in time or not.
pub(super) async fn redeem(state: &State, code: &str) -> Result<Option<Uuid>, sqlx::Error> {
    let found: Option<(Uuid, bool)> = sqlx::query_as(
        "DELETE FROM ops.login_codes WHERE code_sha256 = $1 RETURNING user_id, expires_at > $2",
    )
    .bind(hash_secret(code).as_str())
    .bind(state.clock.now())
    .fetch_optional(&state.pool)
    .await?;
    Ok(found.and_then(|(user, is_in_time)| is_in_time.then_some(user)))
}

/// Deletes codes that nobody has exchanged in time.
pub(crate) async fn purge(state: &State) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.login_codes WHERE expires_at <= $1")
        .bind(state.clock.now())
        .execute(&state.pool)
        .await?;
    Ok(())
}
