//! All kinds of snapshot holders are found.

use signalbox_database::connect;
use signalbox_projections::{note_snapshot_holders, oldest_snapshot};
use signalbox_test_support::{eventually, fresh_database, seconds};
use sqlx::{Executor, PgPool};

async fn is_oldest(pool: &PgPool, holder: &str) -> bool {
    oldest_snapshot(pool).await.unwrap().is_some_and(|oldest| oldest.holder == holder)
}

#[tokio::test]
async fn a_prepared_transaction_is_found() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    pool.execute("BEGIN; CREATE TABLE prepared (x int); PREPARE TRANSACTION 'forgotten'").await.unwrap();
    eventually(seconds(20), async || is_oldest(&pool, "the prepared transaction forgotten").await).await;
    pool.execute("ROLLBACK PREPARED 'forgotten'").await.unwrap();
    eventually(seconds(20), async || !is_oldest(&pool, "the prepared transaction forgotten").await).await;
}

#[tokio::test]
async fn a_replication_slot_is_found_until_it_is_gone() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    pool.execute(
        "INSERT INTO ops.snapshot_holders (holder, oldest, since)
         VALUES ('the replication slot old', '700', now() - interval '1 hour')",
    )
    .await
    .unwrap();
    let oldest = oldest_snapshot(&pool).await.unwrap().unwrap();
    assert!(oldest.holder == "the replication slot old" && oldest.seconds >= 3600.0, "{oldest:?}");
    // There is no such slot.
    note_snapshot_holders(&pool).await.unwrap();
    assert!(!is_oldest(&pool, "the replication slot old").await);
}
