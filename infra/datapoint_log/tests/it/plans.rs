use futures::future::try_join_all;
use signalbox_clock::Clock;
use signalbox_test_support::{fresh_database, rows_read};

use crate::append::{appender, batch, noon};

/// The statements of the append are planned while the log is empty. Had they been planned to read all batches of the day,
/// that many appends would read several times as many rows.
#[tokio::test]
async fn what_an_append_reads_does_not_grow_with_the_log() {
    const APPENDS: u128 = 640;
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    let read = rows_read(&watching, async || {
        let pool = signalbox_database::connect(&url, 1).await.unwrap();
        let (appender, _committed) = appender(&pool, &Clock::manual(noon()));
        for first in (0..APPENDS).step_by(32) {
            let at_once = (first..first + 32).map(|id| appender.append(batch(id, &[0.5])));
            try_join_all(at_once).await.unwrap();
        }
        pool.close().await;
    })
    .await;
    assert!(read < APPENDS as i64 * 4, "{read} rows for {APPENDS} appends");
}
