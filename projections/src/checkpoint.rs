//! How far a projection has applied the log, as it is stored.

use signalbox_from_row::FromRow;
use sqlx::{PgExecutor, PgPool};

pub(crate) async fn ensure_checkpoint(pool: &PgPool, name: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO read.checkpoints (projection, position) VALUES ($1, 0) ON CONFLICT DO NOTHING")
        .bind(name)
        .execute(pool)
        .await?;
    Ok(())
}

/// The applied and stored position of projection `name`.
///
/// # Errors
/// The database's error.
pub async fn checkpoint(executor: impl PgExecutor<'_>, name: &str) -> Result<i64, sqlx::Error> {
    let position: Option<i64> =
        sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1")
            .bind(name)
            .fetch_optional(executor)
            .await?;
    Ok(position.unwrap_or(0))
}

/// The position of a projection, and the data that caches of its rows need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct Progress {
    /// The applied position.
    pub position: i64,
    /// Grows when rows change without a new event.
    pub revision: i64,
    /// Whether it has set streams aside.
    pub has_set_aside: bool,
}

/// How far projection `name` is.
///
/// # Errors
/// The database's error.
pub async fn progress(executor: impl PgExecutor<'_>, name: &str) -> Result<Progress, sqlx::Error> {
    let progress = sqlx::query_as(
        "SELECT position, revision, EXISTS (SELECT FROM read.poisonous_events WHERE projection = $1) AS has_set_aside
           FROM read.checkpoints WHERE projection = $1",
    );
    Ok(progress.bind(name).fetch_optional(executor).await?.unwrap_or_default())
}
