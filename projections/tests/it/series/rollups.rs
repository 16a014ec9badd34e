//! Counts of hours, and roll-ups.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta};
use rand::{Rng, SeedableRng, rngs::StdRng};
use signalbox_datapoint_log::{Point, micros};
use signalbox_projections::monitoring::series::{
    Bucket, BucketWindow, Figures, FoldStep, buckets, drop_old_days, rebuild_series,
};

use super::{HOUR, Log, points};
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
    // A dump has the tables open.
    let mut dump = signalbox_database::begin(&pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE series.packed_hours IN ACCESS SHARE MODE").execute(&mut *dump).await.unwrap();
    log.fold().await;
    check_hours(&log).await;
    assert!(!log.folder.pack().await.unwrap());
    dump.rollback().await.unwrap();
    log.pack().await;
    let wrong = "SELECT count(*) FROM series.packed_hours WHERE hours = 0";
    assert!(packs().await >= all && missing().await == 0 && count(wrong).await == 0);
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

/// Each hour has as many points as are known.
async fn check_hours(log: &Log) {
    let window = BucketWindow {
        channels: (1..5).collect(),
        from: DateTime::UNIX_EPOCH,
        to: log.clock.now() + TimeDelta::days(100),
        step: TimeDelta::hours(1),
        figures: Figures::Sums,
    };
    let mut expected: BTreeMap<(i32, i64), i64> = BTreeMap::new();
    for point in &log.known {
        *expected.entry((point.channel, point.point.time.div_euclid(HOUR))).or_default() += 1;
    }
    let found = buckets(&log.pool, &window).await.unwrap();
    let counts = found.iter().flat_map(|(channel, buckets)| {
        buckets.iter().map(|bucket| ((*channel, micros(bucket.start) / HOUR), bucket.summary.count()))
    });
    assert_eq!(counts.collect::<BTreeMap<_, _>>(), expected);
}

/// A day of the log with so many hours that they are put in line in parts.
#[tokio::test]
async fn packs_of_a_day_that_is_partly_in_line_change_with_it() {
    let random = &mut StdRng::seed_from_u64(44);
    let mut log = Log::new().await;
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    let pool = log.pool.clone();
    let others = "INSERT INTO series.rollups SELECT g, 24, number, day, count, sum, sum_low, min, max, first_time, first_value,
            first_position, first_index, last_time, last_value, last_position, last_index
       FROM (SELECT * FROM series.rollups WHERE span = 24 ORDER BY number DESC LIMIT 1) AS r, generate_series(100, 60000) AS g";
    sqlx::query(others).execute(&pool).await.unwrap();
    log.clock.advance(TimeDelta::days(1));
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    let unfinished = "SELECT ended_before IS NULL FROM series.pack_progress";
    // Of the hours that did not come late.
    let packed =
        "SELECT count(*) FROM series.packed_hours WHERE day = $1 AND number >= $1 - DATE '1970-01-01' - 1";
    let is_packed = async || -> bool {
        let packed = sqlx::query_scalar::<_, i64>(packed).bind(at(0).date_naive());
        packed.fetch_one(&pool).await.unwrap() > 0
    };
    while !is_packed().await {
        assert!(log.folder.pack().await.unwrap());
    }
    assert!(sqlx::query_scalar::<_, bool>(unfinished).fetch_one(&pool).await.unwrap());
    while log.known.iter().any(|point| point.day == at(0).date_naive()) {
        let place = log.known.iter().position(|point| point.day == at(0).date_naive()).unwrap();
        log.delete(place).await;
        log.fold().await;
        check_hours(&log).await;
    }
}

/// Of a day with tens of millions of hours, a statement finds none in time.
#[tokio::test]
async fn a_day_that_cannot_be_put_in_line_in_time_holds_up_no_other() {
    let random = &mut StdRng::seed_from_u64(46);
    let mut log = Log::new().await;
    for _ in 0..3 {
        log.append(points(random, micros(log.clock.now()))).await;
        log.clock.advance(TimeDelta::days(1));
    }
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    let late = "CREATE FUNCTION public.takes_too_long() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$";
    sqlx::query(late).execute(&log.pool).await.unwrap();
    let trigger = format!(
        "CREATE TRIGGER too_long BEFORE INSERT ON series.unpacked_hours FOR EACH ROW WHEN (NEW.day = '{}')
            EXECUTE FUNCTION public.takes_too_long()",
        at(0).date_naive()
    );
    sqlx::query(&trigger).execute(&log.pool).await.unwrap();
    log.pack().await;
    let days: Vec<NaiveDate> =
        sqlx::query_scalar("SELECT DISTINCT day FROM series.packed_hours ORDER BY day")
            .fetch_all(&log.pool)
            .await
            .unwrap();
    let expected = [1, 2].map(|day| at(0).date_naive() + TimeDelta::days(day));
    assert!(days.starts_with(&expected), "{days:?}");
    check_hours(&log).await;
}

/// Values arrive on a day anew that had ended.
#[tokio::test]
async fn packs_of_a_day_change_with_it_after_a_clock_is_set_back_to_it() {
    let random = &mut StdRng::seed_from_u64(45);
    let mut log = Log::new().await;
    log.append(points(random, micros(log.clock.now()))).await;
    log.clock.advance(TimeDelta::days(2));
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    // In line, and packed.
    for _ in 0..2 {
        assert!(log.folder.pack().await.unwrap());
    }
    sqlx::query("UPDATE series.pack_progress SET ended_before = NULL").execute(&log.pool).await.unwrap();
    log.clock.advance(TimeDelta::days(-2));
    for _ in 0..5 {
        log.append(points(random, micros(log.clock.now()))).await;
        log.fold().await;
        check_hours(&log).await;
        log.pack().await;
    }
    check_hours(&log).await;
    log.clock.advance(TimeDelta::days(2));
    log.append(points(random, micros(log.clock.now()))).await;
    log.fold().await;
    log.pack().await;
    check_hours(&log).await;
}

/// PostgreSQL refuses results that leave the range of a float, and takes both zeros for one.
#[tokio::test]
async fn the_least_and_greatest_values_are_compared_and_rebuilt() {
    let mut log = Log::new().await;
    let values = [5e-324, 1.7e308, -1.7e308, 0.0, -0.0, 1.0];
    let begin = micros(log.clock.now());
    for (channel, value) in (1..).zip(values) {
        let of_both = [Point { channel, time: begin, value }, Point { channel: 9, time: begin, value }];
        log.append(of_both.into()).await;
        log.fold().await;
    }
    let extremes = async || -> Vec<(i32, f64, f64)> {
        sqlx::query_as("SELECT channel, min, max FROM series.rollups WHERE span = 1 ORDER BY channel")
            .fetch_all(&log.pool)
            .await
            .unwrap()
    };
    let before = format!("{:?}", extremes().await);
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, 0);
    assert_eq!(format!("{:?}", extremes().await), before);
    let wrong = "UPDATE series.rollups SET sum = -1.7e308 WHERE channel = 2";
    let changed = sqlx::query(wrong).execute(&log.pool).await.unwrap().rows_affected();
    assert_eq!(rebuild_series(&log.pool).await.unwrap().differences, changed as i64);
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
