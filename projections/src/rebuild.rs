//! Builds the tables of a projection anew beside the live ones, and swaps them in one transaction.
//!
//! The live tables serve meanwhile. At the end the copy catches up with what they show at one moment, and is compared with that.
//! Then the live checkpoint is locked for as long as the copy takes to fold what has come since, and to take their place.

use std::time::Duration;

use signalbox_event_store::{RecordedEvent, count_between, read_after, read_wanted};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    ApplyError, Leases, Poison, Projection, Rows,
    runner::{StepError, check_gapless, checkpoint, ensure_checkpoint},
};

/// Batches that are read before they are asked for.
const AHEAD: usize = 2;
/// How often the swap asks for the live tables, which readers hold; a quarter of a second each time.
const LOCK_ATTEMPTS: u32 = 40;
/// PostgreSQL's code for a lock that was not given in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// How much of a rebuild is in memory at a time.
#[derive(Debug, Clone, Copy)]
pub struct Portions {
    /// Events per step.
    pub events: i64,
    /// Rows of one table that wait for more changes.
    pub rows: usize,
}

impl Default for Portions {
    fn default() -> Self {
        Self { events: 10_000, rows: 50_000 }
    }
}

/// What a rebuild did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildReport {
    /// Events read.
    pub events: i64,
    /// Rows in the rebuilt tables.
    pub rows: i64,
    /// Keys whose row differed between the tables that were live and the rebuilt ones.
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

/// Is told how many of how many positions of the log have been folded.
pub type Watcher<'p> = &'p (dyn Fn(i64, i64) + Sync);

/// Rebuilds projection `P` while the system serves; waits for another rebuild of it.
///
/// # Errors
/// [`RebuildError`]; a poisonous event stops it.
pub async fn rebuild<P: Projection>(pool: &PgPool) -> Result<RebuildReport, RebuildError> {
    rebuild_in::<P>(pool, Portions::default()).await
}

/// [`rebuild`] that tells how far it is.
///
/// # Errors
/// As [`rebuild`].
pub async fn rebuild_watched<P: Projection>(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    build::<P>(pool, Portions::default(), Fate::Live, watcher).await
}

/// Builds projection `P` anew and says how it differs from the live tables, which stay as they are.
///
/// # Errors
/// As [`rebuild`].
pub async fn compare<P: Projection>(pool: &PgPool) -> Result<RebuildReport, RebuildError> {
    compare_watched::<P>(pool, &|_, _| {}).await
}

/// [`compare`] that tells how far it is.
///
/// # Errors
/// As [`rebuild`].
pub async fn compare_watched<P: Projection>(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    build::<P>(pool, Portions::default(), Fate::Dropped, watcher).await
}

/// [`rebuild`] with other portions.
///
/// # Errors
/// As [`rebuild`].
pub async fn rebuild_in<P: Projection>(
    pool: &PgPool,
    portions: Portions,
) -> Result<RebuildReport, RebuildError> {
    build::<P>(pool, portions, Fate::Live, &|_, _| {}).await
}

/// What becomes of the rebuilt tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They take the place of the live ones.
    Live,
    /// They have shown what they are to show.
    Dropped,
}

async fn build<P: Projection>(
    pool: &PgPool,
    portions: Portions,
    fate: Fate,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    let _lease = Leases::new(pool).acquire(&format!("rebuild.{}", P::NAME)).await;
    let schema = format!("read_rebuild_{}", P::NAME);
    ensure_checkpoint(pool, P::NAME).await?;
    // Not given back to the pool, because it is set up for this alone.
    let mut connection = pool.acquire().await?.detach();
    let result = build_and_compare::<P>(pool, &mut connection, &schema, portions, fate, watcher).await;
    if result.is_err() || fate == Fate::Dropped {
        // The next rebuild would drop it too; if the database is away, that is what is left to do.
        let _ = connection.execute(drop_schema(&schema).as_str()).await;
    }
    result
}

async fn build_and_compare<P: Projection>(
    pool: &PgPool,
    connection: &mut PgConnection,
    schema: &str,
    portions: Portions,
    fate: Fate,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    // Nothing here has to outlive a crash before the swap, which waits for the disk.
    connection.execute("SET synchronous_commit = off").await?;
    let indexes = prepare::<P>(connection, schema).await?;
    let (mut rows, mut position) = (P::Rows::default(), 0);
    let all = checkpoint(pool, P::NAME).await?;
    let mut batches = read_ahead::<P>(pool.clone(), portions.events);
    while let Some(batch) = batches.recv().await {
        let batch = batch?;
        position = batch.last;
        fold::<P>(&mut rows, connection, schema, &batch.events).await?;
        rows.write(connection, schema, portions.rows).await?;
        watcher(position, all.max(position));
    }
    rows.write(connection, schema, 0).await?;
    // Sorted at once they cost a fraction of what they cost row by row.
    for statement in indexes {
        connection.execute(statement.as_str()).await?;
    }
    connection.execute("RESET synchronous_commit").await?;
    finish::<P>(connection, schema, position, portions.events, fate).await
}

struct Batch {
    events: Vec<RecordedEvent>,
    /// Position that they reach to.
    last: i64,
}

/// Reads what the live tables show, and no more: after the swap their runner goes on from its own checkpoint. Stays
/// ahead of who applies it.
fn read_ahead<P: Projection>(pool: PgPool, count: i64) -> mpsc::Receiver<Result<Batch, RebuildError>> {
    let (batches, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut position = 0;
        while let Some(batch) = next::<P>(&pool, position, count).await.transpose() {
            position = batch.as_ref().map_or(position, |batch| batch.last);
            let failed = batch.is_err();
            // Who does not listen any more has given up.
            if batches.send(batch).await.is_err() || failed {
                break;
            }
        }
    });
    receiver
}

async fn next<P: Projection>(
    pool: &PgPool,
    position: i64,
    count: i64,
) -> Result<Option<Batch>, RebuildError> {
    let last = checkpoint(pool, P::NAME).await?.min(position + count);
    if last <= position {
        return Ok(None);
    }
    read::<P>(&mut *pool.acquire().await?, position, last).await.map(Some)
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

async fn fold<P: Projection>(
    rows: &mut P::Rows,
    connection: &mut PgConnection,
    schema: &str,
    events: &[RecordedEvent],
) -> Result<(), RebuildError> {
    let poisons = rows.fold(connection, schema, &events.iter().collect::<Vec<_>>()).await?;
    poisons.into_iter().next().map_or(Ok(()), |poison| Err(RebuildError::Poisonous(poison)))
}

/// Compares with one moment of the live tables, which go on meanwhile: comparing large ones takes seconds, and whoever has
/// written something waits for the live tables to show it. They stand still only while they are replaced.
async fn finish<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    position: i64,
    count: i64,
    fate: Fate,
) -> Result<RebuildReport, RebuildError> {
    let mut moment = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let live = checkpoint(&mut *moment, P::NAME).await?;
    catch_up::<P>(&mut moment, schema, position, live, count).await?;
    let mut report = RebuildReport { events: live, rows: 0, differences: 0 };
    for table in P::TABLES {
        let (rows, differences) = differences(&mut moment, schema, table).await?;
        report.rows += rows;
        report.differences += differences;
    }
    moment.commit().await?;
    if fate == Fate::Live {
        let mut transaction = connection.begin().await?;
        report.events =
            sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1 FOR UPDATE")
                .bind(P::NAME)
                .fetch_one(&mut *transaction)
                .await?;
        catch_up::<P>(&mut transaction, schema, live, report.events, count).await?;
        swap::<P>(&mut transaction, schema).await?;
        transaction.commit().await?;
    }
    Ok(report)
}

/// Folds the events after `position` up to `last`.
async fn catch_up<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    mut position: i64,
    last: i64,
    count: i64,
) -> Result<(), RebuildError> {
    let mut rows = P::Rows::default();
    while position < last {
        let batch = read::<P>(connection, position, last.min(position + count)).await?;
        fold::<P>(&mut rows, connection, schema, &batch.events).await?;
        rows.write(connection, schema, 0).await?;
        position = batch.last;
    }
    Ok(())
}

async fn swap<P: Projection>(connection: &mut PgConnection, schema: &str) -> Result<(), sqlx::Error> {
    let tables: Vec<_> = P::TABLES.iter().map(|table| format!("read.{table}")).collect();
    lock_tables(connection, &tables).await?;
    for table in P::TABLES {
        connection.execute(format!("DROP TABLE read.{table}").as_str()).await?;
        connection.execute(format!("ALTER TABLE {schema}.{table} SET SCHEMA read").as_str()).await?;
    }
    connection.execute(format!("DROP SCHEMA {schema}").as_str()).await.map(|_| ())
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

/// Rows of the rebuilt table, and how many keys have another row in the live one, or are only in one of the two.
async fn differences(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
) -> Result<(i64, i64), sqlx::Error> {
    let key = key_columns(connection, table).await?.join(", ");
    let sql = format!(
        "SELECT (SELECT count(*) FROM {schema}.{table}),
                (SELECT count(*) FROM read.{table} AS live FULL JOIN {schema}.{table} AS rebuilt USING ({key})
                  WHERE live IS DISTINCT FROM rebuilt)"
    );
    sqlx::query_as(&sql).fetch_one(connection).await
}

async fn key_columns(connection: &mut PgConnection, table: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT quote_ident(attname) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
          WHERE indrelid = format('read.%I', $1)::regclass AND indisprimary",
    )
    .bind(table)
    .fetch_all(connection)
    .await
}
