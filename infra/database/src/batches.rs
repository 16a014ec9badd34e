//! Deletes many rows in batches.
//!
//! A sweep that deletes everything in one statement exceeds the statement's time limit once enough rows have
//! gathered, is rolled back, and fails every time after. Each batch is a statement of its own, so its deletions are
//! kept.

use sqlx::{Encode, PgExecutor, PgPool, Postgres, Type};

/// Rows deleted by one statement.
pub const BATCH: i64 = 10_000;
/// Batches of one call; the next call continues.
const MAX_BATCHES: usize = 100;

/// Deletes the rows of `table`, which is not partitioned, for which `condition` holds; returns how many. `$1` in the condition
/// is `value`, and `t` the table. After a million rows the next call has to continue.
///
/// # Errors
/// The database's error; earlier batches stay deleted.
pub async fn delete_in_batches<V>(
    pool: &PgPool,
    table: &str,
    condition: &str,
    value: V,
) -> Result<u64, sqlx::Error>
where
    V: for<'q> Encode<'q, Postgres> + Type<Postgres> + Clone + Send + 'static,
{
    let mut deleted = 0;
    for _ in 0..MAX_BATCHES {
        let batch = delete_batch(pool, table, condition, value.clone()).await?;
        deleted += batch;
        if batch < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(deleted)
}

/// One batch of [`delete_in_batches`]. Rows that another transaction has locked are skipped, so that processes that
/// sweep the same table do not wait for each other.
///
/// # Errors
/// The database's error.
pub async fn delete_batch<V>(
    executor: impl PgExecutor<'_>,
    table: &str,
    condition: &str,
    value: V,
) -> Result<u64, sqlx::Error>
where
    V: for<'q> Encode<'q, Postgres> + Type<Postgres> + Send + 'static,
{
    let sql = format!(
        "DELETE FROM {table} WHERE ctid = ANY(ARRAY(
            SELECT t.ctid FROM {table} t WHERE {condition} LIMIT {BATCH} FOR UPDATE OF t SKIP LOCKED))"
    );
    Ok(sqlx::query(&sql).bind(value).execute(executor).await?.rows_affected())
}
