//! Migrations while other processes migrate, read and write, and after an interruption.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use std::borrow::Cow;

use futures::future::join_all;
use signalbox_database::{begin, connect, migrate_by};
use signalbox_test_support::{eventually, fresh_database, seconds};
use sqlx::{
    Executor, PgPool,
    migrate::{Migration, MigrationType, Migrator},
};
use tokio::time::timeout;

#[tokio::test]
async fn processes_that_start_together_make_an_index_concurrently() {
    let url = fresh_database().await;
    let migrator = migrator(vec![
        step(1001, "CREATE TABLE large AS SELECT generate_series(1, 200000) AS x"),
        step(1002, "-- no-transaction\nCREATE INDEX CONCURRENTLY large_x ON large (x)"),
    ]);
    let pools = join_all((0..4).map(|_| connect(&url, 2))).await;
    let migrated =
        join_all(pools.iter().map(|pool| migrate_by(pool.as_ref().unwrap(), &migrator, &[]))).await;
    for one in migrated {
        one.unwrap();
    }
    let is_valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'large_x'::regclass";
    let pool = pools.into_iter().next().unwrap().unwrap();
    assert!(sqlx::query_scalar::<_, bool>(is_valid).fetch_one(&pool).await.unwrap());
}

fn migrator(migrations: Vec<Migration>) -> Migrator {
    Migrator { migrations: Cow::Owned(migrations), ignore_missing: true, ..Migrator::DEFAULT }
}

fn step(version: i64, sql: &'static str) -> Migration {
    let no_tx = sql.starts_with("-- no-transaction");
    Migration::new(version, Cow::Borrowed("a step"), MigrationType::Simple, Cow::Borrowed(sql), no_tx)
}

const INDEX: &str = "-- no-transaction\nCREATE UNIQUE INDEX CONCURRENTLY numbers_x ON read.numbers (x)";

/// A table, and the migration that indexes it.
async fn numbers(pool: &PgPool) -> Migrator {
    pool.execute("CREATE TABLE read.numbers AS SELECT generate_series(1, 100) AS x").await.unwrap();
    migrator(vec![step(1001, INDEX)])
}

/// Whether the index is valid; `None` if it does not exist.
async fn is_valid(pool: &PgPool) -> Option<bool> {
    sqlx::query_scalar("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('read.numbers_x')")
        .fetch_optional(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_concurrent_index_that_was_interrupted_is_made_anew() {
    let pool = connect(&fresh_database().await, 3).await.unwrap();
    let indexing = numbers(&pool).await;
    // The statement waits for this snapshot.
    let mut reader = begin(&pool, "BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    reader.execute("SELECT FROM read.numbers").await.unwrap();
    let interrupted = tokio::spawn({
        let pool = pool.clone();
        async move { migrate_by(&pool, &migrator(vec![step(1001, INDEX)]), &[]).await }
    });
    eventually(seconds(20), async || is_valid(&pool).await == Some(false)).await;
    pool.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%INDEX CONCURRENTLY%'",
    )
    .await
    .unwrap();
    assert!(interrupted.await.unwrap().is_err());
    reader.rollback().await.unwrap();
    assert_eq!(is_valid(&pool).await, Some(false));
    migrate_by(&pool, &indexing, &[]).await.unwrap();
    assert_eq!(is_valid(&pool).await, Some(true));
}

#[tokio::test]
async fn a_concurrent_index_that_was_not_recorded_counts_as_made() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let indexing = numbers(&pool).await;
    migrate_by(&pool, &indexing, &[]).await.unwrap();
    let made = "SELECT 'read.numbers_x'::regclass::oid::bigint";
    let made_first: i64 = sqlx::query_scalar(made).fetch_one(&pool).await.unwrap();
    pool.execute("DELETE FROM _sqlx_migrations WHERE version = 1001").await.unwrap();
    migrate_by(&pool, &indexing, &[]).await.unwrap();
    migrate_by(&pool, &indexing, &[]).await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, i64>(made).fetch_one(&pool).await.unwrap(), made_first);
}

#[tokio::test]
async fn writers_do_not_queue_behind_a_migration_that_waits_for_a_dump() {
    let pool = connect(&fresh_database().await, 4).await.unwrap();
    pool.execute("CREATE TABLE numbers (x int)").await.unwrap();
    let mut dump = begin(&pool, "BEGIN").await.unwrap();
    dump.execute("LOCK TABLE numbers IN ACCESS SHARE MODE").await.unwrap();
    let migrated = tokio::spawn({
        let pool = pool.clone();
        async move {
            let migrator = migrator(vec![step(1001, "ALTER TABLE numbers ADD COLUMN y int")]);
            migrate_by(&pool, &migrator, &[]).await
        }
    });
    eventually(seconds(20), async || {
        let waiting =
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'numbers'::regclass AND NOT granted)";
        sqlx::query_scalar(waiting).fetch_one(&pool).await.unwrap()
    })
    .await;
    timeout(seconds(8), pool.execute("INSERT INTO numbers (x) VALUES (1)")).await.unwrap().unwrap();
    dump.rollback().await.unwrap();
    migrated.await.unwrap().unwrap();
    pool.execute("SELECT y FROM numbers").await.unwrap();
}
