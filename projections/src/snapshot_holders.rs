//! Holders of old snapshots, which keep PostgreSQL from removing replaced rows: sessions, prepared transactions,
//! replication slots and standbys.
//!
//! Sessions and prepared transactions show their start. Of slots and standbys only the held transaction is known, so
//! a worker records since when it has not moved ([`note_snapshot_holders`]).

use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;

/// The oldest snapshot that the database keeps rows for.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct OldestSnapshot {
    /// Its age.
    pub seconds: f64,
    /// The holder, such as `the session with process id 7`.
    pub holder: String,
}

/// The oldest snapshot in the database, if there is any. Rows that were replaced since cannot be removed, which makes appends
/// slower.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn oldest_snapshot(pool: &PgPool) -> Result<Option<OldestSnapshot>, sqlx::Error> {
    sqlx::query_as(
        "SELECT extract(epoch FROM clock_timestamp() - since)::float8 AS seconds, holder FROM (
             SELECT xact_start AS since, format('the session with process id %s (%s)', pid, application_name) AS holder
               FROM pg_stat_activity
              WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
                AND backend_type = 'client backend'
              UNION ALL
             SELECT prepared, format('the prepared transaction %s', gid) FROM pg_prepared_xacts
              WHERE database = current_database()
              UNION ALL
             SELECT since, holder FROM ops.snapshot_holders) AS held
          WHERE since IS NOT NULL ORDER BY since LIMIT 1",
    )
    .fetch_optional(pool)
    .await
}

/// Records which replication slots and standbys hold a snapshot, and since when it is the same one.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_snapshot_holders(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH held AS (
             SELECT format('the replication slot %s', slot_name) AS holder, xmin FROM pg_replication_slots
              WHERE xmin IS NOT NULL
              UNION ALL
             SELECT format('the standby %s at %s', application_name, coalesce(client_addr::text, 'this machine')),
                    min(backend_xmin::text::bigint)::text::xid
               FROM pg_stat_replication WHERE backend_xmin IS NOT NULL GROUP BY 1),
         gone AS (DELETE FROM ops.snapshot_holders WHERE holder NOT IN (SELECT holder FROM held))
         INSERT INTO ops.snapshot_holders AS known (holder, oldest, since)
         SELECT holder, xmin, clock_timestamp() FROM held
             ON CONFLICT (holder) DO UPDATE SET oldest = excluded.oldest, since = excluded.since
          WHERE known.oldest <> excluded.oldest",
    )
    .execute(pool)
    .await?;
    Ok(())
}
