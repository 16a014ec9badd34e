//! How far a worker has read the log.

use signalbox_boxed::boxed;
use sqlx::PgPool;

/// The position up to which worker `name` has done its work.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read(pool: &PgPool, name: &str) -> Result<i64, sqlx::Error> {
    let position = sqlx::query_scalar("SELECT position FROM ops.relay_checkpoint WHERE relay = $1")
        .bind(name)
        .fetch_optional(pool)
        .await?;
    if let Some(position) = position {
        return Ok(position);
    }
    sqlx::query("INSERT INTO ops.relay_checkpoint (relay, position) VALUES ($1, 0) ON CONFLICT DO NOTHING")
        .bind(name)
        .execute(pool)
        .await?;
    Ok(0)
}

/// Does not wait for the disk: if a crash of the server takes it back, the same work is repeated without effect.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn advance(pool: &PgPool, name: &str, from: i64, to: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE ops.relay_checkpoint SET position = $3
           FROM (SELECT set_config('synchronous_commit', 'off', true)) AS setting
          WHERE relay = $1 AND position = $2",
    )
    .bind(name)
    .bind(from)
    .bind(to)
    .execute(pool)
    .await?;
    Ok(())
}
