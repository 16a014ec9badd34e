//! Builds the tables of a projection anew beside the live ones, and swaps them in one transaction.
//!
//! The live tables serve meanwhile. At the end the live checkpoint is locked for a moment: the copy catches up with
//! exactly what the live tables show, both are compared, and the copy takes their place.

use std::{marker::PhantomData, time::Duration};

use signalbox_event_store::{RecordedEvent, count_between, read_after, read_wanted};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tokio::{task::JoinHandle, time::sleep};

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
    // Not given back to the pool, because it is set up for this alone.
    let mut connection = pool.acquire().await?.detach();
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
    // Nothing here has to outlive a crash before the swap, which waits for the disk.
    connection.execute("SET synchronous_commit = off").await?;
    let indexes = prepare::<P>(connection, schema).await?;
    let mut position = 0;
    let mut ahead = Ahead::<P>::read(pool, position).await?;
    while let Some(batch) = ahead.take().await? {
        position = batch.last;
        ahead = Ahead::<P>::read(pool, position).await?;
        apply::<P>(connection, schema, &batch.events).await?;
    }
    // Sorted at once they cost a fraction of what they cost row by row.
    for statement in indexes {
        connection.execute(statement.as_str()).await?;
    }
    connection.execute("RESET synchronous_commit").await?;
    swap::<P>(connection, schema, position).await
}

/// Events on their way here while the last ones are applied.
struct Ahead<P>(Option<JoinHandle<Result<Batch, RebuildError>>>, PhantomData<P>);

struct Batch {
    events: Vec<RecordedEvent>,
    /// Position that they reach to.
    last: i64,
}

impl<P: Projection> Ahead<P> {
    /// Begins to read what the live tables show after `position`, and no more: after the swap their runner goes on from its
    /// own checkpoint.
    async fn read(pool: &PgPool, position: i64) -> Result<Self, sqlx::Error> {
        let last = checkpoint(pool, P::NAME).await?.min(position + BATCH);
        let pool = pool.clone();
        let reading = (last > position).then(|| {
            tokio::spawn(async move { read::<P>(&mut *pool.acquire().await?, position, last).await })
        });
        Ok(Self(reading, PhantomData))
    }

    async fn take(self) -> Result<Option<Batch>, RebuildError> {
        match self.0 {
            Some(reading) => {
                reading.await.map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?.map(Some)
            }
            None => Ok(None),
        }
    }
}

fn drop_schema(schema: &str) -> String {
    format!("DROP SCHEMA IF EXISTS {schema} CASCADE")
}

/// Makes the tables with their keys; gives back the statements that make their other indexes.
async fn prepare<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
) -> Result<Vec<String>, sqlx::Error> {
    let mut indexes = Vec::new();
    connection.execute(drop_schema(schema).as_str()).await?;
    connection.execute(format!("CREATE SCHEMA {schema}").as_str()).await?;
    for table in P::TABLES {
        let copy =
            format!("CREATE TABLE {schema}.{table} (LIKE read.{table} INCLUDING ALL EXCLUDING INDEXES)");
        connection.execute(copy.as_str()).await?;
        for statement in key_statements(connection, schema, table).await? {
            connection.execute(statement.as_str()).await?;
        }
        indexes.extend(index_statements(connection, schema, table).await?);
    }
    Ok(indexes)
}

/// What gives the copy of `table` its keys. `INCLUDING INDEXES` would name them anew, and a later migration would not find
/// them.
async fn key_statements(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s', $1, $2, conname, pg_get_constraintdef(oid))
           FROM pg_constraint WHERE conrelid = format('read.%I', $2)::regclass AND contype IN ('p', 'u', 'x')",
    )
    .bind(schema)
    .bind(table)
    .fetch_all(connection)
    .await
}

/// What gives the copy of `table` its other indexes.
async fn index_statements(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT replace(pg_get_indexdef(indexrelid), format(' ON read.%I ', $2), format(' ON %I.%I ', $1, $2))
           FROM pg_index WHERE indrelid = format('read.%I', $2)::regclass
            AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)",
    )
    .bind(schema)
    .bind(table)
    .fetch_all(connection)
    .await
}

/// The events of `P` after `position` up to `last`.
async fn read<P: Projection>(
    connection: &mut PgConnection,
    position: i64,
    last: i64,
) -> Result<Batch, RebuildError> {
    if count_between(&mut *connection, position, last).await? != last - position {
        check_gapless(position, &read_after(&mut *connection, position, last - position).await?)?;
    }
    Ok(Batch { events: read_wanted(connection, position, last, P::AGGREGATES).await?, last })
}

async fn apply<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    events: &[RecordedEvent],
) -> Result<(), RebuildError> {
    let poisons = P::apply(connection, schema, &events.iter().collect::<Vec<_>>()).await?;
    poisons.into_iter().next().map_or(Ok(()), |poison| Err(RebuildError::Poisonous(poison)))
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
        let batch = read::<P>(&mut transaction, position, live.min(position + BATCH)).await?;
        apply::<P>(&mut transaction, schema, &batch.events).await?;
        position = batch.last;
    }
    let mut report = RebuildReport { events: position, rows: 0, differences: 0 };
    for table in P::TABLES {
        let (rows, differences) = compare(&mut transaction, schema, table).await?;
        report.rows += rows;
        report.differences += differences;
    }
    let tables: Vec<_> = P::TABLES.iter().map(|table| format!("read.{table}")).collect();
    lock_tables(&mut transaction, &tables).await?;
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
pub(crate) async fn lock_tables(connection: &mut PgConnection, tables: &[String]) -> Result<(), sqlx::Error> {
    connection.execute("SET LOCAL lock_timeout = '250ms'").await?;
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
