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

/// While a snapshot is open, no version of the head can be pruned. An append must not walk through those before the newest.
#[tokio::test]
async fn an_append_does_not_slow_down_while_a_snapshot_is_open() {
    const APPENDS: u128 = 3000;
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    let writing = signalbox_database::connect(&url, 1).await.unwrap();
    let (appender, _committed) = appender(&writing, &Clock::manual(noon()));
    appender.append(batch(0, &[0.5])).await.unwrap();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    let mut snapshot = signalbox_database::begin(&watching, begin).await.unwrap();
    sqlx::query("SELECT count(*) FROM log_head").execute(&mut *snapshot).await.unwrap();
    for id in 1..=APPENDS {
        appender.append(batch(id, &[0.5])).await.unwrap();
    }
    let plan: serde_json::Value = sqlx::query_scalar(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
         SELECT * FROM append_datapoints(ARRAY[gen_random_uuid()], ARRAY[1], ARRAY[''::bytea], $1)",
    )
    .bind(noon())
    .fetch_one(&writing)
    .await
    .unwrap();
    let pages = plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap();
    assert!(pages < 200, "an append touches {pages} pages");
}
