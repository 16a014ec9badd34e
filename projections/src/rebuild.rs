//! Builds the tables of a projection anew beside the live ones, and swaps them in one transaction.
//!
//! The live tables serve meanwhile. At the end the live checkpoint is locked for a moment: the copy catches up with
//! exactly what the live tables show, both are compared, and the copy takes their place.

use std::time::Duration;

use signalbox_event_store::read_after;
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tokio::time::sleep;

use crate::{
    ApplyError, Lease, Poison, Projection,
    runner::{StepError, check_gapless, checkpoint, ensure_checkpoint},
};

/// Events per step.
const BATCH: i64 = 10_000;
/// How often the swap asks for the live tables, which readers hold; a quarter of a second each time.
const LOCK_ATTEMPTS: u32 = 40;
/// PostgreSQL's code for a lock that was not given in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// What a rebuild did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildReport {
    /// Events read.
    pub events: i64,
    /// Rows in the rebuilt tables.
    pub rows: i64,
    /// Rows that differed between the tables that were live and the rebuilt ones.
    pub differences: i64,
}

/// Why a rebuild was given up; the live tables are untouched.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The database refused or did not answer.
    #[error("the rebuild failed: {0}")]
    Step(#[from] StepError),
    /// An event cannot be applied.
    #[error("event {} cannot be applied: {}", .0.position, .0.error)]
    Poisonous(Poison),
}

impl From<sqlx::Error> for RebuildError {
    fn from(error: sqlx::Error) -> Self {
        Self::Step(error.into())
    }
}

impl From<ApplyError> for RebuildError {
    fn from(error: ApplyError) -> Self {
        Self::Step(error.into())
    }
}

/// Rebuilds projection `P` while the system serves; waits for another rebuild of it.
///
/// # Errors
/// [`RebuildError`]; a poisonous event stops it.
pub async fn rebuild<P: Projection>(pool: &PgPool) -> Result<RebuildReport, RebuildError> {
    let _lease = Lease::acquire(pool, &format!("rebuild.{}", P::NAME)).await;
    let schema = format!("read_rebuild_{}", P::NAME);
    ensure_checkpoint(pool, P::NAME).await?;
    let mut connection = pool.acquire().await?;
    let result = build_and_swap::<P>(pool, &mut connection, &schema).await;
    if result.is_err() {
        // The next rebuild would drop it too; if the database is away, that is what is left to do.
        let _ = connection.execute(drop_schema(&schema).as_str()).await;
    }
    result
}

async fn build_and_swap<P: Projection>(
    pool: &PgPool,
    connection: &mut PgConnection,
    schema: &str,
) -> Result<RebuildReport, RebuildError> {
    prepare::<P>(connection, schema).await?;
    let mut position = 0;
    loop {
        // Never beyond the live tables: after the swap their runner goes on from its own checkpoint.
        let ahead = checkpoint(pool, P::NAME).await? - position;
        if ahead <= 0 {
            break;
        }
        position = fill::<P>(connection, schema, position, BATCH.min(ahead)).await?;
    }
    swap::<P>(connection, schema, position).await
}

fn drop_schema(schema: &str) -> String {
    format!("DROP SCHEMA IF EXISTS {schema} CASCADE")
}

async fn prepare<P: Projection>(connection: &mut PgConnection, schema: &str) -> Result<(), sqlx::Error> {
    connection.execute(drop_schema(schema).as_str()).await?;
    connection.execute(format!("CREATE SCHEMA {schema}").as_str()).await?;
    for table in P::TABLES {
        let copy =
            format!("CREATE TABLE {schema}.{table} (LIKE read.{table} INCLUDING ALL EXCLUDING INDEXES)");
        connection.execute(copy.as_str()).await?;
        for statement in index_statements(connection, schema, table).await? {
            connection.execute(statement.as_str()).await?;
        }
    }
    Ok(())
}

/// What gives the copy of `table` its keys and indexes. `INCLUDING INDEXES` would name them anew, and a later
/// migration would not find them.
async fn index_statements(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s', $1, $2, conname, pg_get_constraintdef(oid))
           FROM pg_constraint WHERE conrelid = format('read.%I', $2)::regclass AND contype IN ('p', 'u', 'x')
          UNION ALL
         SELECT replace(pg_get_indexdef(indexrelid), format(' ON read.%I ', $2), format(' ON %I.%I ', $1, $2))
           FROM pg_index WHERE indrelid = format('read.%I', $2)::regclass
            AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)",
    )
    .bind(schema)
    .bind(table)
    .fetch_all(connection)
    .await
}

/// Applies up to `limit` events after `position`; gives back the new position.
async fn fill<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    position: i64,
    limit: i64,
) -> Result<i64, RebuildError> {
    let events = read_after(&mut *connection, position, limit).await?;
    check_gapless(position, &events)?;
    let wanted: Vec<_> =
        events.iter().filter(|event| P::AGGREGATES.contains(&event.aggregate_type.as_str())).collect();
    let poisons = P::apply(connection, schema, &wanted).await?;
    if let Some(poison) = poisons.into_iter().next() {
        return Err(RebuildError::Poisonous(poison));
    }
    Ok(events.last().map_or(position, |event| event.position))
}

async fn swap<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    mut position: i64,
) -> Result<RebuildReport, RebuildError> {
    let mut transaction = connection.begin().await?;
    let live: i64 =
        sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1 FOR UPDATE")
            .bind(P::NAME)
            .fetch_one(&mut *transaction)
            .await?;
    while position < live {
        position = fill::<P>(&mut transaction, schema, position, BATCH.min(live - position)).await?;
    }
    let mut report = RebuildReport { events: position, rows: 0, differences: 0 };
    for table in P::TABLES {
        let (rows, differences) = compare(&mut transaction, schema, table).await?;
        report.rows += rows;
        report.differences += differences;
    }
    lock::<P>(&mut transaction).await?;
    for table in P::TABLES {
        transaction.execute(format!("DROP TABLE read.{table}").as_str()).await?;
        transaction.execute(format!("ALTER TABLE {schema}.{table} SET SCHEMA read").as_str()).await?;
    }
    transaction.execute(format!("DROP SCHEMA {schema}").as_str()).await?;
    transaction.commit().await?;
    Ok(report)
}

/// Locks the live tables against readers. A reader that holds one of them and waits for the next would be stopped by
/// PostgreSQL as a deadlock; so this side gives up first and asks again.
async fn lock<P: Projection>(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute("SET LOCAL lock_timeout = '250ms'").await?;
    let tables: Vec<_> = P::TABLES.iter().map(|table| format!("read.{table}")).collect();
    let statement = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
    for _ in 1..LOCK_ATTEMPTS {
        let mut attempt = connection.begin().await?;
        match attempt.execute(statement.as_str()).await {
            Ok(_) => return attempt.commit().await,
            Err(error) if is_lock_timeout(&error) => attempt.rollback().await?,
            Err(error) => return Err(error),
        }
        sleep(Duration::from_millis(50)).await;
    }
    connection.execute(statement.as_str()).await.map(|_| ())
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == LOCK_NOT_AVAILABLE)
}

/// Rows of the rebuilt table, and how many rows are only in one of the two.
async fn compare(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
) -> Result<(i64, i64), sqlx::Error> {
    let sql = format!(
        "SELECT (SELECT count(*) FROM {schema}.{table}),
                (SELECT count(*) FROM (
                    (TABLE read.{table} EXCEPT ALL TABLE {schema}.{table})
                    UNION ALL
                    (TABLE {schema}.{table} EXCEPT ALL TABLE read.{table})) AS difference)"
    );
    sqlx::query_as(&sql).fetch_one(connection).await
}
