//! Rebuilds the tables of a projection beside the live ones, and swaps them in one transaction.
//!
//! Streams that are set aside live are retried. Those that still cannot be applied wait in the rebuilt tables too,
//! and are reported; an event of any other stream that cannot be applied stops the rebuild.
//!
//! The live tables serve meanwhile. At the end the copy catches up with one snapshot of them, and is compared with
//! that. Then the live checkpoint is locked while the copy folds the events since, and replaces the live tables.

use std::time::Duration;

use signalbox_database::is_lock_conflict;
use signalbox_event_store::{LogSlice, count_between, first_gap, read_aggregates};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    ApplyError, Leases, Poison, Projection, Rows,
    checkpoint::{checkpoint, ensure_checkpoint},
    runner::StepError,
    set_aside::{self, Trial, sort_out, withdraw_all},
};

/// Batches that are read ahead.
const AHEAD: usize = 2;
/// Attempts of the swap to lock the live tables, which readers hold; a quarter of a second each.
const LOCK_ATTEMPTS: u32 = 40;

/// Limits of the memory that a rebuild uses.
#[derive(Debug, Clone, Copy)]
pub struct BatchSizes {
    /// Events per step.
    pub events: i64,
    /// Rows of one table that wait for more changes.
    pub rows: usize,
}

impl Default for BatchSizes {
    fn default() -> Self {
        Self { events: 10_000, rows: 50_000 }
    }
}

/// Result of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildReport {
    /// Events read.
    pub events: i64,
    /// Rows in the rebuilt tables.
    pub rows: i64,
    /// Keys whose row differed between the tables that were live and the rebuilt ones.
    pub differences: i64,
    /// Streams that are set aside in the rebuilt tables too, each from this event on.
    pub set_aside: Vec<Poison>,
    /// Streams that were set aside, and are applied in the rebuilt tables.
    pub applied_again: usize,
}

/// Reasons why a rebuild was abandoned; the live tables are untouched.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The database refused or did not answer.
    #[error("the rebuild failed: {0}")]
    Step(#[from] StepError),
    /// An event cannot be applied, whose stream is not set aside.
    #[error("event {} cannot be applied: {}", .0.key.position, .0.error)]
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

/// Called with the number of log positions folded, and their total.
pub type Watcher<'p> = &'p (dyn Fn(i64, i64) + Sync);

/// Rebuilds projection `P` while the system serves; waits for another rebuild of it.
///
/// # Errors
/// [`RebuildError`]; a poisonous event stops it.
pub async fn rebuild<P: Projection>(pool: &PgPool) -> Result<RebuildReport, RebuildError> {
    rebuild_in::<P>(pool, BatchSizes::default()).await
}

/// Like [`rebuild`]; reports its progress.
///
/// # Errors
/// As [`rebuild`].
pub async fn rebuild_watched<P: Projection>(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    build::<P>(pool, BatchSizes::default(), RebuildMode::Swap, watcher).await
}

/// Rebuilds projection `P` and reports how it differs from the live tables, which stay as they are.
///
/// # Errors
/// As [`rebuild`].
pub async fn compare<P: Projection>(pool: &PgPool) -> Result<RebuildReport, RebuildError> {
    compare_watched::<P>(pool, &|_, _| {}).await
}

/// Like [`compare`]; reports its progress.
///
/// # Errors
/// As [`rebuild`].
pub async fn compare_watched<P: Projection>(
    pool: &PgPool,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    build::<P>(pool, BatchSizes::default(), RebuildMode::Compare, watcher).await
}

/// Like [`rebuild`], with other batch sizes.
///
/// # Errors
/// As [`rebuild`].
pub async fn rebuild_in<P: Projection>(
    pool: &PgPool,
    sizes: BatchSizes,
) -> Result<RebuildReport, RebuildError> {
    build::<P>(pool, sizes, RebuildMode::Swap, &|_, _| {}).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RebuildMode {
    /// The rebuilt tables replace the live ones.
    Swap,
    /// The rebuilt tables are compared with the live ones and dropped.
    Compare,
}

async fn build<P: Projection>(
    pool: &PgPool,
    sizes: BatchSizes,
    mode: RebuildMode,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    let _lease = Leases::new(pool).acquire(&format!("rebuild.{}", P::NAME)).await;
    let schema = format!("read_rebuild_{}", P::NAME);
    ensure_checkpoint(pool, P::NAME).await?;
    // Not given back to the pool, because it is set up for this alone.
    let mut connection = pool.acquire().await?.detach();
    let result = build_and_compare::<P>(pool, &mut connection, &schema, sizes, mode, watcher).await;
    if result.is_err() || mode == RebuildMode::Compare {
        // Best effort if the database is down: the next rebuild drops it too.
        let _ = connection.execute(drop_schema(&schema).as_str()).await;
    }
    result
}

async fn build_and_compare<P: Projection>(
    pool: &PgPool,
    connection: &mut PgConnection,
    schema: &str,
    sizes: BatchSizes,
    mode: RebuildMode,
    watcher: Watcher<'_>,
) -> Result<RebuildReport, RebuildError> {
    // Nothing here has to outlive a crash before the swap, which waits for the disk.
    connection.execute("SET synchronous_commit = off").await?;
    let indexes = prepare::<P>(connection, schema).await?;
    let mut trial = Trial::of::<P>(connection, schema, &indexes).await?;
    let (mut rows, mut position) = (P::Rows::default(), 0);
    let all = checkpoint(pool, P::NAME).await?;
    let mut batches = read_ahead::<P>(pool.clone(), sizes.events);
    while let Some(batch) = batches.recv().await {
        let batch = batch?;
        position = batch.last;
        fold::<P>(&mut rows, connection, schema, &batch.slice, &mut trial).await?;
        rows.write(connection, schema, sizes.rows).await?;
        watcher(position, all.max(position));
    }
    rows.write(connection, schema, 0).await?;
    // Built at once they cost a fraction of their cost row by row.
    for statement in indexes {
        connection.execute(statement.as_str()).await?;
    }
    connection.execute("RESET synchronous_commit").await?;
    finish::<P>(pool, connection, schema, (position, sizes.events), mode, trial).await
}

struct Batch {
    slice: LogSlice,
    /// Position that they reach to.
    last: i64,
}

/// Reads up to the position that the live tables show, and no further: after the swap their runner continues from its
/// own checkpoint. Reads ahead of the fold.
fn read_ahead<P: Projection>(pool: PgPool, count: i64) -> mpsc::Receiver<Result<Batch, RebuildError>> {
    let (batches, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut position = 0;
        while let Some(batch) = next::<P>(&pool, position, count).await.transpose() {
            position = batch.as_ref().map_or(position, |batch| batch.last);
            let failed = batch.is_err();
            // The receiver was dropped: the fold has failed.
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

/// Makes the tables with their keys; returns the statements that make their other indexes.
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
        let unique = index_statements(connection, schema, table, true).await?;
        for statement in key_statements(connection, schema, table).await?.into_iter().chain(unique) {
            connection.execute(statement.as_str()).await?;
        }
        indexes.extend(index_statements(connection, schema, table, false).await?);
    }
    Ok(indexes)
}

/// Statements that give the copy of `table` its keys. `INCLUDING INDEXES` would choose other names, and a later
/// migration would not find them.
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

/// Statements that give the copy of `table` its other indexes, unique ones or not.
async fn index_statements(
    connection: &mut PgConnection,
    schema: &str,
    table: &str,
    is_unique: bool,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT replace(pg_get_indexdef(indexrelid), format(' ON read.%I ', $2), format(' ON %I.%I ', $1, $2))
           FROM pg_index WHERE indrelid = format('read.%I', $2)::regclass AND indisunique = $3
            AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)",
    )
    .bind(schema)
    .bind(table)
    .bind(is_unique)
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
        let found = first_gap(&mut *connection, position, last).await?.unwrap_or(last);
        return Err(StepError::Gap { after: found - 1, found: found + 1 }.into());
    }
    Ok(Batch { slice: read_aggregates(connection, position, last, P::AGGREGATES).await?, last })
}

async fn fold<P: Projection>(
    rows: &mut P::Rows,
    connection: &mut PgConnection,
    schema: &str,
    slice: &LogSlice,
    trial: &mut Trial,
) -> Result<(), RebuildError> {
    trial.renew(connection, P::NAME).await?;
    let sorted = sort_out::<P>(slice, &mut trial.held, None);
    if let Some(poison) = sorted.poisons.into_iter().next() {
        return Err(RebuildError::Poisonous(poison));
    }
    rows.fold(connection, schema, sorted.applicable).await?;
    if !sorted.waiting.is_empty() {
        // Withdrawals are statements, so pending rows are written first.
        rows.write(connection, schema, 0).await?;
        withdraw_all(connection, schema, &[], &sorted.waiting).await?;
    }
    Ok(())
}

/// Compares with one snapshot of the live tables, which are still updated meanwhile: comparing large ones takes
/// seconds, and writers wait for the live tables to show their changes. Updates stop only while the tables are
/// replaced.
async fn finish<P: Projection>(
    pool: &PgPool,
    connection: &mut PgConnection,
    schema: &str,
    (position, count): (i64, i64),
    mode: RebuildMode,
    mut trial: Trial,
) -> Result<RebuildReport, RebuildError> {
    let mut moment = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let live = checkpoint(&mut *moment, P::NAME).await?;
    catch_up::<P>(&mut moment, schema, (position, live), count, &mut trial).await?;
    let mut report =
        RebuildReport { events: live, rows: 0, differences: 0, set_aside: Vec::new(), applied_again: 0 };
    for table in P::TABLES {
        let (rows, differences) = differences(&mut moment, schema, table).await?;
        report.rows += rows;
        report.differences += differences;
    }
    moment.commit().await?;
    if mode == RebuildMode::Swap {
        let mut transaction = connection.begin().await?;
        report.events =
            sqlx::query_scalar("SELECT position FROM read.checkpoints WHERE projection = $1 FOR UPDATE")
                .bind(P::NAME)
                .fetch_one(&mut *transaction)
                .await?;
        catch_up::<P>(&mut transaction, schema, (live, report.events), count, &mut trial).await?;
        swap::<P>(&mut transaction, schema).await?;
        trial.conclude(&mut transaction, P::NAME).await?;
        transaction.commit().await?;
        set_aside::report(pool, P::NAME).await?;
    }
    report.applied_again = trial.applied_again();
    report.set_aside = trial.poisons;
    Ok(report)
}

/// Folds the events after `position` up to `last`.
async fn catch_up<P: Projection>(
    connection: &mut PgConnection,
    schema: &str,
    (mut position, last): (i64, i64),
    count: i64,
    trial: &mut Trial,
) -> Result<(), RebuildError> {
    let mut rows = P::Rows::default();
    while position < last {
        let batch = read::<P>(connection, position, last.min(position + count)).await?;
        fold::<P>(&mut rows, connection, schema, &batch.slice, trial).await?;
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

/// Locks the live tables against readers. PostgreSQL would abort a reader that holds one of them and waits for the
/// next as a deadlock; so this side gives up first and retries.
pub(crate) async fn lock_tables(connection: &mut PgConnection, tables: &[String]) -> Result<(), sqlx::Error> {
    connection.execute("SET LOCAL lock_timeout = '250ms'").await?;
    let statement = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", tables.join(", "));
    for _ in 1..LOCK_ATTEMPTS {
        let mut attempt = connection.begin().await?;
        match attempt.execute(statement.as_str()).await {
            Ok(_) => return attempt.commit().await,
            Err(error) if is_lock_conflict(&error) => attempt.rollback().await?,
            Err(error) => return Err(error),
        }
        sleep(Duration::from_millis(50)).await;
    }
    connection.execute(statement.as_str()).await.map(|_| ())
}

/// Number of rows of the rebuilt table, and of keys whose row differs in the live one or exists in only one of the
/// two.
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

/// The columns of the primary key of `table`, or those that its unique index is made of.
async fn key_columns(connection: &mut PgConnection, table: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "WITH key AS (SELECT * FROM pg_index WHERE indrelid = format('read.%I', $1)::regclass AND indisunique
                       ORDER BY indisprimary DESC, indexrelid LIMIT 1)
         SELECT DISTINCT quote_ident(attname) FROM key JOIN pg_attribute ON attrelid = indrelid
          WHERE attnum = ANY(indkey) OR EXISTS (SELECT FROM pg_depend
                 WHERE classid = 'pg_class'::regclass AND objid = indexrelid
                   AND refclassid = 'pg_class'::regclass AND refobjid = indrelid AND refobjsubid = attnum)",
    )
    .bind(table)
    .fetch_all(connection)
    .await
}
