//! Questions about the server itself, its settings and its replicas.

use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::{Connection, PgConnection, PgPool};

/// Whether the server answers a query.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn answers(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT 1").execute(pool).await.map(drop)
}

/// The server's version, such as `16.4`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn server_version(pool: &PgPool) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("SELECT current_setting('server_version')").fetch_one(pool).await
}

/// Names of the settings that are off and without which a power failure may lose commits.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn settings_that_lose_commits(pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
          ORDER BY name",
    )
    .fetch_all(pool)
    .await
}

/// Milliseconds after which commits that do not wait for the disk are sent to a replica, at the latest.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn wal_writer_delay(primary: &PgPool) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay'")
        .fetch_one(primary)
        .await
}

/// How a replica stands to its primary.
#[derive(Debug, Clone, Copy, PartialEq, FromRow)]
pub struct ReplicaState {
    /// Whether it is a replica at all.
    pub is_replica: bool,
    /// Whether it has replayed all that the primary had flushed.
    pub is_current: bool,
    /// Age of the last replayed transaction.
    pub seconds: f64,
}

/// Compares `replica` with `primary`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn replica_state(replica: &PgPool, primary: &PgPool) -> Result<ReplicaState, sqlx::Error> {
    let end: String =
        sqlx::query_scalar("SELECT pg_current_wal_flush_lsn()::text").fetch_one(primary).await?;
    sqlx::query_as(
        "SELECT pg_is_in_recovery() AS is_replica, coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false) AS is_current,
                coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float8 AS seconds",
    )
    .bind(end)
    .fetch_one(replica)
    .await
}

/// How far the primary has written its log.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn written_position(primary: &mut PgConnection) -> Result<String, sqlx::Error> {
    // At the end of a page the reported position is that of the next record, after the next page's header, which is
    // not replayable.
    sqlx::query_scalar(
        "SELECT CASE WHEN beyond IN (24, 40) THEN (next - beyond)::text ELSE next::text END
           FROM pg_current_wal_insert_lsn() AS next, LATERAL (SELECT pg_wal_lsn_diff(next, '0/0') % 8192) AS page (beyond)",
    )
    .fetch_one(primary)
    .await
}

/// True once the replica has replayed its log up to `position`; false on a server that is not in recovery.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn has_replayed(replica: &mut PgConnection, position: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce(pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)",
    )
    .bind(position)
    .fetch_one(replica)
    .await
}

/// Creates the database `name` on the server at `url`, unless it exists. `name` is not external input.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn create_database(url: &str, name: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(name)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        sqlx::query(&format!("CREATE DATABASE {name}")).execute(&mut connection).await?;
    }
    connection.close().await
}
