//! Builds the tables of a projection anew beside the live ones, and swaps them in one transaction.
//!
//! The live tables serve meanwhile. At the end the live checkpoint is locked for a moment: the copy catches up with
//! exactly what the live tables show, both are compared, and the copy takes their place.

use signalbox_event_store::read_after;
use sqlx::{PgConnection, PgPool};

use crate::{
    ApplyError, Poison, Projection,
    runner::{StepError, check_gapless, checkpoint},
};

/// Events per step.
const BATCH: i64 = 10_000;

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

/// Rebuilds projection `P` while the system serves.
///
/// # Errors
/// [`RebuildError`]; a poisonous event stops it.
pub async fn rebuild<P: Projection>(pool: &PgPool) -> Result<RebuildReport, RebuildError> {
    let schema = format!("read_rebuild_{}", P::NAME);
    let mut connection = pool.acquire().await?;
    prepare::<P>(&mut connection, &schema).await?;
    let mut position = 0;
    while position < checkpoint(pool, P::NAME).await? {
        position = fill::<P>(&mut connection, &schema, position, BATCH).await?;
    }
    swap::<P>(&mut connection, &schema, position).await
}

async fn prepare<P: Projection>(connection: &mut PgConnection, schema: &str) -> Result<(), sqlx::Error> {
    sqlx::query(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).execute(&mut *connection).await?;
    sqlx::query(&format!("CREATE SCHEMA {schema}")).execute(&mut *connection).await?;
    for table in P::TABLES {
        let sql = format!("CREATE TABLE {schema}.{table} (LIKE read.{table} INCLUDING ALL)");
        sqlx::query(&sql).execute(&mut *connection).await?;
    }
    Ok(())
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
    let mut transaction = sqlx::Connection::begin(connection).await?;
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
        sqlx::query(&format!("DROP TABLE read.{table}")).execute(&mut *transaction).await?;
        sqlx::query(&format!("ALTER TABLE {schema}.{table} SET SCHEMA read"))
            .execute(&mut *transaction)
            .await?;
    }
    sqlx::query(&format!("DROP SCHEMA {schema}")).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(report)
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
