//! Callers that go away while their statements run.

#![expect(clippy::unwrap_used, reason = "a failure of a helper fails the test")]

use std::time::Duration;

use signalbox_database::{Class, begin, connect, connect_as, on_behalf};
use signalbox_test_support::{eventually, fresh_database, seconds};
use sqlx::{Executor, PgPool};
use tokio::{sync::oneshot, time::timeout};

/// How many sessions of this database sleep.
async fn asleep(watching: &PgPool) -> i64 {
    let asked = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep(%'";
    sqlx::query_scalar(asked).fetch_one(watching).await.unwrap()
}

#[tokio::test]
async fn a_statement_ends_with_its_caller_and_the_share_after_it() {
    let url = fresh_database().await;
    let watching = connect(&url, 1).await.unwrap();
    let pool = connect_as(&url, 1, Class::Background).await.unwrap();
    for is_in_transaction in [false, true] {
        let (share, mut freed) = oneshot::channel::<()>();
        let caller = tokio::spawn(on_behalf(share, {
            let pool = pool.clone();
            async move {
                if is_in_transaction {
                    let mut transaction = begin(&pool, "BEGIN").await?;
                    transaction.execute("SELECT pg_sleep(50)").await?;
                    transaction.commit().await
                } else {
                    pool.execute("SELECT pg_sleep(50)").await.map(|_| ())
                }
            }
        }));
        eventually(seconds(20), async || asleep(&watching).await == 1).await;
        assert!(freed.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
        caller.abort();
        // It is dropped, and nothing is sent.
        assert!(timeout(seconds(10), freed).await.unwrap().is_err());
        assert_eq!(asleep(&watching).await, 0);
        // The pool's only connection is usable.
        timeout(seconds(5), pool.execute("SELECT 1")).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_share_is_free_when_the_work_has_ended() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    let (share, mut freed) = oneshot::channel::<()>();
    let one: i32 = on_behalf(share, sqlx::query_scalar("SELECT 1").fetch_one(&pool)).await.unwrap();
    assert_eq!(one, 1);
    assert!(freed.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
}

#[tokio::test]
async fn the_next_statement_on_a_connection_is_not_cancelled() {
    let pool = connect(&fresh_database().await, 1).await.unwrap();
    // Whenever the caller is dropped, the only connection is used again at once.
    for milliseconds in (0..80).step_by(2) {
        let work = on_behalf((), pool.execute("SELECT pg_sleep(0.06)"));
        // Both ends occur.
        let _ = timeout(Duration::from_millis(milliseconds), work).await;
        pool.execute("SELECT pg_sleep(0.002)").await.unwrap();
    }
}
