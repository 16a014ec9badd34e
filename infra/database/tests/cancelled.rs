//! State left behind by a caller that is dropped.

use futures::poll;
use signalbox_database::{begin, connect};
use signalbox_test_support::{eventually, fresh_database, seconds};
use tokio::task::yield_now;

#[tokio::test]
async fn a_transaction_whose_caller_has_gone_away_is_rolled_back_whenever_that_was() {
    let url = fresh_database().await;
    let watching = connect(&url, 1).await.unwrap();
    let pool = connect(&url, 2).await.unwrap();
    // The caller is dropped after an increasing number of steps, so that each step is interrupted once. The next
    // transaction would end an unfinished one, so each is checked separately.
    for steps in 0..40 {
        let mut beginning = Box::pin(begin(&pool, "BEGIN; SET LOCAL enable_sort = off"));
        for _ in 0..steps {
            if poll!(&mut beginning).is_ready() {
                break;
            }
            yield_now().await;
        }
        drop(beginning);
        eventually(seconds(20), async || {
            let open = sqlx::query_scalar::<_, i64>(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL",
            );
            open.fetch_one(&watching).await.unwrap() == 0
        })
        .await;
    }
}
