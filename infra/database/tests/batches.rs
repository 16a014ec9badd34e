//! Sweeps delete in batches.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use signalbox_database::{begin, connect, delete_in_batches};
use signalbox_test_support::{fresh_database, seconds};
use sqlx::{Executor, PgPool};
use tokio::time::timeout;

/// A table with `rows` rows, and one that records how many each statement deletes.
async fn table_of(rows: i32) -> PgPool {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let sql = format!(
        "CREATE TABLE swept AS SELECT generate_series(1, {rows}) AS x;
         CREATE TABLE batches (rows bigint);
         CREATE FUNCTION note_batch() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO batches SELECT count(*) FROM gone; RETURN NULL; END $$;
         CREATE TRIGGER noted AFTER DELETE ON swept REFERENCING OLD TABLE AS gone
            FOR EACH STATEMENT EXECUTE FUNCTION note_batch()"
    );
    pool.execute(sql.as_str()).await.unwrap();
    pool
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM swept").fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn a_sweep_deletes_ten_thousand_rows_per_statement() {
    let pool = table_of(25_000).await;
    assert_eq!(delete_in_batches(&pool, "swept", "t.x <= $1", 24_000).await.unwrap(), 24_000);
    let batches: Vec<i64> =
        sqlx::query_scalar("SELECT rows FROM batches ORDER BY rows").fetch_all(&pool).await.unwrap();
    assert_eq!(batches, [4_000, 10_000, 10_000]);
    assert_eq!(count(&pool).await, 1_000);
}

#[tokio::test]
async fn a_sweep_leaves_out_rows_that_another_transaction_holds() {
    let pool = table_of(10).await;
    let mut other = begin(&pool, "BEGIN").await.unwrap();
    other.execute("SELECT FROM swept WHERE x = 3 FOR UPDATE").await.unwrap();
    let sweep = timeout(seconds(5), delete_in_batches(&pool, "swept", "t.x <= $1", 10));
    assert_eq!(sweep.await.unwrap().unwrap(), 9);
    other.rollback().await.unwrap();
    assert_eq!(count(&pool).await, 1);
}
