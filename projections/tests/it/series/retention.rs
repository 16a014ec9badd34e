//! Days that are dropped, and days that are in use.

use chrono::{DateTime, TimeDelta};
use signalbox_datapoint_log::{Point, micros};
use signalbox_projections::monitoring::series::{days_before, drop_in_turn, is_turn};
use signalbox_test_support::{eventually, seconds};

use super::Log;
use crate::world::at;

/// One point of channel 1 at the log's present.
fn one_now(log: &Log) -> Vec<Point> {
    vec![Point { channel: 1, time: micros(log.clock.now()), value: 1.0 }]
}

#[tokio::test]
async fn datapoints_of_each_day_are_counted_with_deleted_ones() {
    let mut log = Log::new().await;
    for rows in [200, 300, 10] {
        for _ in 0..rows {
            log.append(one_now(&log)).await;
        }
        log.delete(0).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(1));
    }
    let oldest = at(0).date_naive() + TimeDelta::days(2);
    let days = days_before(&log.pool, oldest).await.unwrap();
    let points: Vec<_> = days.into_iter().map(|day| day.points).collect();
    assert_eq!(points, [200, 300]);
}

#[tokio::test]
async fn days_that_are_in_use_stay_whole_and_their_turn_is_kept() {
    let mut log = Log::new().await;
    for _ in 0..4 {
        log.append(one_now(&log)).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(1));
    }
    let (pool, oldest) = (log.pool.clone(), at(0).date_naive() + TimeDelta::days(2));
    let mut reader = signalbox_database::begin(&pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE datapoint_log IN ACCESS SHARE MODE").execute(&mut *reader).await.unwrap();
    let dropping = tokio::spawn({
        let pool = pool.clone();
        async move { drop_in_turn(&pool, oldest).await }
    });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    eventually(seconds(20), async || sqlx::query_scalar(waits).fetch_one(&pool).await.unwrap()).await;
    assert!(is_turn(&pool).await.unwrap());
    assert_eq!(days_before(&pool, oldest).await.unwrap().len(), 2);
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    reader.rollback().await.unwrap();
    assert!(dropping.await.unwrap().unwrap() >= 4);
    assert!(!is_turn(&pool).await.unwrap());
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|point| point.day >= oldest));
}
