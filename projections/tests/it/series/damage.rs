//! Rows and chunks that cannot be read hide no others.

use chrono::TimeDelta;
use rand::{SeedableRng, rngs::StdRng};
use signalbox_datapoint_log::{Point, micros};
use signalbox_projections::{
    Page,
    monitoring::series::{
        Aggregate, ListFilter, Window, counting_skipped, drop_old_days, latest, list, rebuild_series, series,
    },
};
use sqlx::PgPool;

use super::{Log, order, points};
use crate::world::at;

async fn faults(pool: &PgPool) -> Vec<String> {
    signalbox_database::faults(pool).await.unwrap().into_iter().map(|fault| fault.part).collect()
}

#[tokio::test]
async fn an_unreadable_row_is_left_out_and_counted() {
    let mut log = Log::new().await;
    let random = &mut StdRng::seed_from_u64(11);
    for is_folded in [true, false] {
        log.append(points(random, micros(log.clock.now()))).await;
        log.append_unreadable(3).await;
        log.append(points(random, micros(log.clock.now()))).await;
        let (_, skipped) = counting_skipped(log.check(random)).await;
        assert_eq!(skipped, if is_folded { 1 } else { 2 });
        log.fold().await;
        let (_, skipped) = counting_skipped(log.check(random)).await;
        assert_eq!(skipped, if is_folded { 1 } else { 2 }, "folded");
    }
    assert_eq!(faults(&log.pool).await, ["datapoints.rows"]);
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
    log.check(random).await;
    // Queries of a later time are not concerned.
    log.clock.advance(TimeDelta::days(9));
    log.append(points(random, micros(log.clock.now()))).await;
    let window = Window {
        channels: vec![1],
        from: log.clock.now() - TimeDelta::days(3),
        to: None,
        max_points: 10,
        aggregate: Aggregate::None,
    };
    assert_eq!(counting_skipped(series(&log.pool, &window)).await.1, 0);
    // Retention ends it.
    log.fold().await;
    drop_old_days(&log.pool, log.clock.now().date_naive(), log.clock.now().date_naive()).await.unwrap();
    assert_eq!(counting_skipped(latest(&log.pool)).await.1, 0);
}

#[tokio::test]
async fn a_damaged_chunk_does_not_stop_the_fold() {
    let mut log = Log::new().await;
    let start = micros(at(0));
    let one = |nth: i64| vec![Point { channel: 1, time: start + nth, value: nth as f64 }];
    log.append(one(0)).await;
    log.fold().await;
    sqlx::query("UPDATE series.chunks SET points = '\\x0badc0de'").execute(&log.pool).await.unwrap();
    log.append(one(1)).await;
    log.fold().await;
    log.append(one(2)).await;
    let page = Page { limit: 10, offset: 0 };
    let (found, skipped) =
        counting_skipped(list(&log.pool, ListFilter::default(), order("newest"), page)).await;
    let values: Vec<_> = found.unwrap().points.iter().map(|point| point.point.value).collect();
    assert_eq!((values, skipped), (vec![2.0, 1.0], 1));
    log.fold().await;
    assert!(rebuild_series(&log.pool).await.unwrap().differences > 0);
    let (found, skipped) =
        counting_skipped(list(&log.pool, ListFilter::default(), order("newest"), page)).await;
    assert_eq!((found.unwrap().points.len(), skipped), (3, 0));
}
