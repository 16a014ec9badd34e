use chrono::{NaiveDate, TimeDelta};
use futures::future::join_all;
use signalbox_clock::Clock;
use signalbox_datapoint_log::{
    Batch, Place, Tombstone, add_day, add_days, append_tombstone, drop_days, drop_old_batches, forget_traces,
    read_after, read_points_after, read_row,
};
use signalbox_test_support::seconds;
use sqlx::{Executor, PgPool};
use tokio::time::timeout;

use crate::append::{appender, batch, database, noon, values};

async fn partitions(pool: &PgPool, table: &str) -> Vec<String> {
    // Test databases have those of today, which are long after the days of these tests.
    let names = "SELECT inhrelid::regclass::text FROM pg_inherits
                  WHERE inhparent = $1::text::regclass AND inhrelid::regclass::text < $1::text || '_202604' ORDER BY 1";
    sqlx::query_scalar(names).bind(table).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn days_are_made_ahead_by_many_at_once() {
    let pool = database().await;
    let today = noon().date_naive();
    for made in join_all((0..6).map(|_| add_days(&pool, today))).await {
        made.unwrap();
    }
    let expected = ["20260301", "20260302", "20260303", "20260304"].map(|day| format!("datapoint_log_{day}"));
    assert_eq!(partitions(&pool, "datapoint_log").await, expected);
}

#[tokio::test]
async fn a_trace_that_is_in_use_does_not_hold_up_the_sweep() {
    let pool = database().await;
    pool.execute(
        "INSERT INTO ops.datapoint_traces SELECT x, 0, 1, '', '2026-02-01' FROM generate_series(1, 9) x",
    )
    .await
    .unwrap();
    let mut user = signalbox_database::begin(&pool, "BEGIN").await.unwrap();
    user.execute("SELECT FROM ops.datapoint_traces WHERE position = 4 FOR UPDATE").await.unwrap();
    timeout(seconds(5), forget_traces(&pool, noon())).await.unwrap().unwrap();
    let left = sqlx::query_scalar::<_, i64>("SELECT position FROM ops.datapoint_traces");
    assert_eq!(left.fetch_all(&pool).await.unwrap(), [4]);
    user.rollback().await.unwrap();
}

#[tokio::test]
async fn old_days_are_dropped_and_the_rest_is_read_on() {
    let pool = database().await;
    let clock = Clock::manual(noon());
    let (appender, _committed) = appender(&pool, &clock);
    for day in 0..10 {
        // The append creates partitions that do not exist yet.
        appender.append(batch(day, &[day as f64])).await.unwrap();
        clock.advance(TimeDelta::days(1));
    }
    assert_eq!(values(&pool).await.len(), 10);
    let oldest = noon().date_naive() + TimeDelta::days(6);
    // Tombstones have a partition a day too.
    assert_eq!(drop_days(&pool, oldest).await.unwrap(), 12);
    let rest = read_after(&pool, 0, NaiveDate::default(), 100).await.unwrap();
    assert_eq!(rest.iter().map(|row| row.position).collect::<Vec<_>>(), [7, 8, 9, 10]);
    let place = Place { day: oldest - TimeDelta::days(1), position: 6, index: 0 };
    assert!(read_row(&pool, place).await.unwrap().is_none());
    drop_old_batches(&pool, oldest).await.unwrap();
    assert!(partitions(&pool, "datapoint_batches").await[0].ends_with("_20260305"));
    // It continues where it stopped.
    assert_eq!(appender.append(batch(99, &[1.0])).await.unwrap().position, 11);
}

#[tokio::test]
async fn rows_after_a_clock_that_was_ahead_are_read() {
    let pool = database().await;
    let clock = Clock::manual(noon());
    let (appender, _committed) = appender(&pool, &clock);
    appender.append(batch(1, &[1.0])).await.unwrap();
    clock.advance(TimeDelta::days(30));
    let ahead = appender.append(batch(2, &[2.0])).await.unwrap();
    clock.advance(TimeDelta::days(-30));
    appender.append(batch(3, &[3.0])).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let rows = read_points_after(&mut connection, (ahead.position, ahead.day, 2), 100, 100).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.position).collect::<Vec<_>>(), [3]);
    // A batch is recognised on whatever day it was appended.
    assert!(appender.append(batch(2, &[2.0])).await.unwrap().duplicate);
}

/// The day of a process that was 4,000 days behind was dropped by retention within the hour, with all values on it.
#[tokio::test]
async fn values_of_a_process_that_is_years_behind_are_of_the_servers_day() {
    let pool = database().await;
    let clock = Clock::shifted(TimeDelta::days(-4000));
    let (appender, mut committed) = appender(&pool, &clock);
    let traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    appender.append(Batch { traceparent, ..batch(1, &[1.0]) }).await.unwrap();
    let place = appender.append(batch(2, &[2.0])).await.unwrap();
    let tombstone = Tombstone {
        day: place.day,
        position: place.position,
        index: 0,
        channel: 1,
        time: 0,
        actor: "system:test".to_owned(),
    };
    append_tombstone(&pool, &tombstone, &clock).await.unwrap().unwrap();
    let rows = read_after(&pool, 0, NaiveDate::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert!((Clock::system().now() - row.recorded_at).abs() < TimeDelta::hours(1), "{row:?}");
        assert_eq!(row.day, row.recorded_at.date_naive());
    }
    for row in &rows[..2] {
        let announced = committed.recv().await.unwrap();
        assert_eq!((announced.position, announced.recorded_at), (row.position, row.recorded_at));
    }
}

#[tokio::test]
async fn a_day_is_made_while_others_read_and_make_days() {
    let pool = database().await;
    let clock = Clock::manual(noon());
    let (appender, _committed) = appender(&pool, &clock);
    appender.append(batch(1, &[1.0])).await.unwrap();
    // A fold reads the log, then makes a day of its own in the same transaction.
    let mut fold = signalbox_database::begin(&pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT count(*) FROM datapoint_log").execute(&mut *fold).await.unwrap();
    clock.advance(TimeDelta::days(30));
    appender.append(batch(2, &[2.0])).await.unwrap();
    add_day(&mut *fold, "series.chunks", clock.now().date_naive()).await.unwrap();
    fold.commit().await.unwrap();
    assert_eq!(values(&pool).await.len(), 2);
}
