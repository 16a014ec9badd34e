//! Counts of hours, and roll-ups.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use rand::{Rng, SeedableRng, rngs::StdRng};
use signalbox_datapoint_log::micros;
use signalbox_projections::monitoring::series::{
    Bucket, BucketWindow, Figures, FoldStep, buckets, drop_old_days, rebuild_series,
};

use super::{Log, points};
use crate::world::at;

#[tokio::test]
async fn hours_count_what_their_chunks_hold() {
    let random = &mut StdRng::seed_from_u64(19);
    let mut log = Log::new().await;
    for _ in 0..20 {
        log.clock.advance(TimeDelta::hours(9));
        log.append(points(random, micros(log.clock.now()))).await;
        let any = random.random_range(0..log.known.len());
        log.delete(any).await;
        log.fold().await;
    }
    let differences = "SELECT count(*) FROM (SELECT hour, day, sum(count) AS count FROM series.chunks GROUP BY hour, day) c
        FULL JOIN (SELECT * FROM series.hours WHERE count > 0) h USING (hour, day) WHERE c.count IS DISTINCT FROM h.count";
    let differences = async || sqlx::query_scalar::<_, i64>(differences).fetch_one(&log.pool).await.unwrap();
    assert_eq!(differences().await, 0);
    drop_old_days(&log.pool, at(0).date_naive() + TimeDelta::days(3), log.clock.now().date_naive())
        .await
        .unwrap();
    assert_eq!(differences().await, 0);
    rebuild_series(&log.pool).await.unwrap();
    assert_eq!(differences().await, 0);
}

/// A process of an earlier version folds chunks and leaves the roll-ups behind.
#[tokio::test]
async fn roll_ups_that_missed_a_fold_are_made_again() {
    let random = &mut StdRng::seed_from_u64(41);
    let mut log = Log::new().await;
    for _ in 0..12 {
        log.clock.advance(TimeDelta::hours(7));
        log.append(points(random, micros(log.clock.now()))).await;
        log.delete(random.random_range(0..log.known.len())).await;
        log.fold().await;
    }
    let left_behind = "UPDATE series.rollup_progress SET position = position - 1";
    sqlx::query(left_behind).execute(&log.pool).await.unwrap();
    sqlx::query("UPDATE series.rollups SET count = count + 1").execute(&log.pool).await.unwrap();
    for _ in 0..5 {
        log.check_buckets(random).await;
    }
    let pool = log.pool.clone();
    let days = async |table: &str| -> i64 {
        let sql = format!("SELECT count(DISTINCT day) FROM series.{table}");
        sqlx::query_scalar(&sql).fetch_one(&pool).await.unwrap()
    };
    let all = days("chunks").await;
    assert!(all > 2, "{all}");
    log.append(points(random, micros(log.clock.now()))).await;
    assert_ne!(log.folder.step().await.unwrap(), FoldStep::Idle);
    let left = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM series.unrolled_days").fetch_one(&pool).await.unwrap()
    };
    assert!(left().await >= all, "each step makes those of one day");
    // Late values and deletions reach days with roll-ups and days without.
    while left().await > 0 {
        log.append(points(random, micros(log.clock.now()))).await;
        log.delete(random.random_range(0..log.known.len())).await;
        log.folder.step().await.unwrap();
        log.check_buckets(random).await;
    }
    log.fold().await;
    assert_eq!(days("rollups").await, days("chunks").await);
    log.check_buckets(random).await;
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
    log.check_buckets(random).await;
}

/// Packs of hours repeat roll-ups; late values, deletions, other releases and damage never show in them.
#[tokio::test]
async fn hours_that_change_no_more_are_packed_until_they_change() {
    let random = &mut StdRng::seed_from_u64(43);
    let mut log = Log::new().await;
    for _ in 0..12 {
        log.clock.advance(TimeDelta::hours(7));
        log.append(points(random, micros(log.clock.now()))).await;
    }
    log.fold().await;
    log.pack().await;
    let pool = log.pool.clone();
    let count = async |of: &str| -> i64 { sqlx::query_scalar(of).fetch_one(&pool).await.unwrap() };
    let packs = async || count("SELECT count(*) FROM series.packed_hours").await;
    let missing = async || {
        count(
            "SELECT count(*) FROM series.rollups r CROSS JOIN series.progress g
              WHERE r.span = 24 AND r.day < g.day AND NOT EXISTS (SELECT FROM series.packed_hours p
                    WHERE p.channel = r.channel AND p.number = r.number AND p.day = r.day)",
        )
        .await
    };
    let all = packs().await;
    assert!(all > 10 && missing().await == 0, "{all}");
    for _ in 0..5 {
        log.check_buckets(random).await;
    }
    // Deletions drop packs with the fold, late values as well, and others stay.
    for _ in 0..10 {
        log.delete(random.random_range(0..log.known.len())).await;
        log.append(points(random, micros(log.clock.now()))).await;
        log.fold().await;
        log.check_buckets(random).await;
    }
    log.pack().await;
    // The release before folds without them.
    for wrong in [
        "UPDATE series.pack_progress SET position = position - 1",
        "UPDATE series.packed_hours SET hours = 0",
    ] {
        sqlx::query(wrong).execute(&pool).await.unwrap();
    }
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    assert_eq!(packs().await, 0, "they may be wrong");
    log.check_buckets(random).await;
    log.pack().await;
    assert!(packs().await >= all && missing().await == 0);
    let damaged =
        "UPDATE series.packed_hours SET sums = substr(sums, 2), extremes = '', ends = substr(ends, 1, 3)";
    sqlx::query(damaged).execute(&pool).await.unwrap();
    for _ in 0..5 {
        log.check_buckets(random).await;
    }
    assert_eq!(rebuild_series(&pool).await.unwrap().differences, 0);
    for _ in 0..5 {
        log.check_buckets(random).await;
    }
    log.pack().await;
    assert_eq!(missing().await, 0);
    // The release before moves roll-ups whose values are gone, and leaves the packs of their hours.
    let whole = BucketWindow {
        channels: vec![1, 2, 3],
        from: at(0) - TimeDelta::days(1000),
        to: at(0) + TimeDelta::days(1000),
        step: TimeDelta::hours(1),
        figures: Figures::Sums,
    };
    let all = buckets(&pool, &whole).await.unwrap();
    let moving = "WITH moved AS (DELETE FROM series.rollups WHERE day = (SELECT min(day) FROM series.packed_hours) RETURNING *)
        INSERT INTO ops.kept_rollups SELECT * FROM moved";
    assert!(sqlx::query(moving).execute(&pool).await.unwrap().rows_affected() > 0);
    let counts = |found: &BTreeMap<i32, Vec<Bucket>>| -> Vec<_> {
        found.values().flatten().map(|bucket| (bucket.start, bucket.summary.count())).collect()
    };
    assert_eq!(counts(&buckets(&pool, &whole).await.unwrap()), counts(&all));
    drop_old_days(&pool, at(0).date_naive() + TimeDelta::days(2), log.clock.now().date_naive())
        .await
        .unwrap();
    let kept = "SELECT count(*) FROM series.packed_hours p JOIN ops.kept_rollups k USING (channel, day)";
    assert!(count("SELECT count(*) FROM ops.kept_rollups").await > 0 && count(kept).await == 0);
}

#[tokio::test]
async fn a_rebuild_reports_wrong_roll_ups_and_repairs_them() {
    let random = &mut StdRng::seed_from_u64(42);
    let mut log = Log::new().await;
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    let wrong = "UPDATE series.rollups SET max = max + 1 WHERE channel = (SELECT min(channel) FROM series.rollups) AND span = 24";
    let changed = sqlx::query(wrong).execute(&log.pool).await.unwrap().rows_affected();
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, changed as i64);
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
    log.check_buckets(random).await;
}
