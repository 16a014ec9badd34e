use chrono::{NaiveDate, TimeDelta};
use futures::future::join_all;
use signalbox_clock::Clock;
use signalbox_datapoint_log::{Place, add_days, drop_days, drop_old_batches, read_after, read_row};
use sqlx::PgPool;

use crate::append::{appender, batch, database, noon, values};

async fn partitions(pool: &PgPool, table: &str) -> Vec<String> {
    let names = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass ORDER BY 1";
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
async fn old_days_are_dropped_and_the_rest_is_read_on() {
    let pool = database().await;
    let clock = Clock::manual(noon());
    let (appender, _committed) = appender(&pool, &clock);
    for day in 0..10 {
        // Days that nobody has made ahead are made by the append.
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
    // It goes on where it was.
    assert_eq!(appender.append(batch(99, &[1.0])).await.unwrap().position, 11);
}
