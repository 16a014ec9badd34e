//! Days that are dropped, and days that are in use.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta};
use signalbox_datapoint_log::{Point, clear_points, micros, read_row};
use signalbox_domain::monitoring::{Channel, ChannelChanges, ChannelCommand};
use signalbox_projections::monitoring::series::{
    Bucket, BucketWindow, Figures, Folder, Overdue, Removal, SeriesError, SeriesReport, buckets,
    continue_removal, counting, days_before, drop_in_turn, drop_old_days, drop_old_rollups, is_turn,
    next_run, old_rollup_days, overdue, rebuild_series, record_removals,
};
use signalbox_test_support::{eventually, seconds};
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

use super::Log;
use crate::world::{World, at};

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
async fn days_are_found_however_postgresql_joins() {
    let mut log = Log::new().await;
    // The day that is folded now stays.
    for _ in 0..2 {
        log.append(one_now(&log)).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(1));
    }
    let oldest = at(0).date_naive() + TimeDelta::days(1);
    let mut connection = log.pool.connect_options().as_ref().clone();
    // As with many tables: all of them are read, and conditions are judged as early as possible.
    for choice in ["enable_nestloop", "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"] {
        connection = connection.options([(choice, "off")]);
    }
    let pool = PgPoolOptions::new().max_connections(1).connect_with(connection).await.unwrap();
    assert_eq!(days_before(&pool, oldest).await.unwrap().len(), 1);
    assert_eq!(drop_old_days(&pool, oldest, log.clock.now().date_naive()).await.unwrap().partitions, 3);
}

#[tokio::test]
async fn a_log_without_its_first_days_is_folded_from_its_first_row() {
    let mut log = Log::new().await;
    for _ in 0..4 {
        log.append(one_now(&log)).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(1));
    }
    let (oldest, today) = (at(0).date_naive() + TimeDelta::days(2), log.clock.now().date_naive());
    drop_old_days(&log.pool, oldest, today).await.unwrap();
    log.known.retain(|point| point.day >= oldest);
    // As after an import.
    for statement in [
        "DROP SCHEMA series CASCADE",
        "SELECT create_series('series')",
        "SELECT create_series_current('series')",
    ] {
        sqlx::query(statement).execute(&log.pool).await.unwrap();
    }
    log.folder = Folder::new(log.pool.clone());
    log.fold().await;
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    let folded: i64 = sqlx::query_scalar("SELECT sum(count)::bigint FROM series.rollups WHERE span = 1")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!(folded, log.known.len() as i64);
    assert_eq!(rebuild(&log).await.differences, 0);
}

#[tokio::test]
async fn sums_at_the_ends_of_the_range_of_a_float_are_kept() {
    let mut log = Log::new().await;
    let time = micros(log.clock.now());
    let values = [5e-324, f64::MAX, f64::MIN];
    log.append((1..).zip(values).map(|(channel, value)| Point { channel, time, value }).collect()).await;
    log.fold().await;
    // As after an earlier removal of values of the same hour.
    sqlx::query("INSERT INTO ops.kept_rollups SELECT * FROM series.rollups")
        .execute(&log.pool)
        .await
        .unwrap();
    log.clock.advance(TimeDelta::days(3));
    log.append(one_now(&log)).await;
    log.fold().await;
    let today = log.clock.now().date_naive();
    drop_old_days(&log.pool, today, today).await.unwrap();
    let kept: Vec<f64> =
        sqlx::query_scalar("SELECT sum FROM ops.kept_rollups WHERE span = 1 ORDER BY channel")
            .fetch_all(&log.pool)
            .await
            .unwrap();
    assert_eq!(kept, [1e-323, f64::MAX, f64::MIN]);
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
    let today = log.clock.now().date_naive();
    let mut reader = signalbox_database::begin(&pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE datapoint_log IN ACCESS SHARE MODE").execute(&mut *reader).await.unwrap();
    let dropping = tokio::spawn({
        let pool = pool.clone();
        async move { drop_in_turn(&pool, oldest, today).await }
    });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    eventually(seconds(20), async || sqlx::query_scalar(waits).fetch_one(&pool).await.unwrap()).await;
    assert!(is_turn(&pool).await.unwrap());
    assert_eq!(days_before(&pool, oldest).await.unwrap().len(), 2);
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    reader.rollback().await.unwrap();
    assert!(dropping.await.unwrap().unwrap().partitions >= 4);
    assert!(!is_turn(&pool).await.unwrap());
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|point| point.day >= oldest));
}

/// Channels 1 to 3 with values twice a day on eight days, some deleted. Channel 2 keeps them for ever, channel 3 for two days.
pub(super) async fn with_own_numbers() -> (Log, NaiveDate) {
    let mut log = Log::new().await;
    for (number, days) in [(1, None), (2, Some(0)), (3, Some(2))] {
        sqlx::query(
            "INSERT INTO read.channels (id, number, owner_id, name, channel_type, retention_days, version, position, created_at, updated_at)
             VALUES (gen_random_uuid(), $1, gen_random_uuid(), 'channel ' || $1, 'sensor', $2, 1, 1, now(), now())",
        )
        .bind(number)
        .bind(days)
        .execute(&log.pool)
        .await
        .unwrap();
    }
    for day in 0..8 {
        for (hours, minutes) in [(0, 0), (0, 20), (1, 0), (0, 0)] {
            log.clock.advance(TimeDelta::hours(hours) + TimeDelta::minutes(minutes));
            let time = micros(log.clock.now());
            let point = |channel| Point { channel, time, value: f64::from(channel) + day as f64 / 8.0 };
            log.append((1..4).map(point).collect()).await;
        }
        let deleted = log.known.len() - 2;
        log.delete(deleted).await;
        log.fold().await;
        log.clock.advance(TimeDelta::hours(22) + TimeDelta::minutes(40));
    }
    log.append(one_now(&log)).await;
    log.fold().await;
    let today = log.clock.now().date_naive();
    (log, today)
}

pub(super) async fn bucketed(log: &Log, step: TimeDelta) -> BTreeMap<i32, Vec<Bucket>> {
    let from = at(0).date_naive().and_hms_opt(0, 0, 0).unwrap().and_utc();
    let window = BucketWindow {
        channels: vec![1, 2, 3],
        from,
        to: from + TimeDelta::days(10),
        step,
        figures: Figures::All,
    };
    buckets(&log.pool, &window).await.unwrap()
}

async fn remove(log: &Log, due: &Overdue, (today, days): (NaiveDate, u32)) {
    record_removals(&log.pool, &due.removals, false).await.unwrap();
    while continue_removal(&log.pool, today, days).await.unwrap() {}
}

/// Rebuilds, and waits until the server has seen that the lease is free.
pub(super) async fn rebuild(log: &Log) -> SeriesReport {
    let report = rebuild_series(&log.pool).await.unwrap();
    let is_free = "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock'
        AND (classid::bigint << 32 | objid::bigint) = hashtextextended('rebuild.datapoints', 0)
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    eventually(seconds(20), async || sqlx::query_scalar(is_free).fetch_one(&log.pool).await.unwrap()).await;
    report
}

/// The kept values are found by every query and by id; the roll-ups of all are as they were, after a rebuild too.
#[tokio::test]
async fn numbers_of_channels_precede_the_general_one() {
    let (mut log, today) = with_own_numbers().await;
    let (days, hours) = (TimeDelta::days(1), TimeDelta::hours(1));
    let before = (bucketed(&log, days).await, bucketed(&log, hours).await);
    let due = overdue(&log.pool, today, 4).await.unwrap();
    assert_eq!(due.days, [], "channel 2 has values on the first day");
    let channels: Vec<_> = due.removals.iter().map(|removal| removal.channels.as_slice()).collect();
    assert_eq!(channels, [&[1, 3][..], &[1, 3], &[1, 3], &[1, 3], &[3], &[3]]);
    let gone = log.known.iter().copied().find(|point| point.channel == 3).unwrap();
    remove(&log, &due, (today, 4)).await;
    let is_kept = |point: &super::Datapoint| match point.channel {
        1 => point.day >= today - TimeDelta::days(4),
        2 => true,
        _ => point.day >= today - TimeDelta::days(2),
    };
    log.known.retain(is_kept);
    for _ in 0..2 {
        assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
        assert_eq!((bucketed(&log, days).await, bucketed(&log, hours).await), before);
        assert!(overdue(&log.pool, today, 4).await.unwrap().is_empty());
        assert_eq!(rebuild(&log).await.differences, 0);
    }
    for point in &log.known {
        let row = read_row(&log.pool, point.place()).await.unwrap().unwrap();
        assert_eq!(row.point(point.point.index).unwrap().unwrap().1.value, point.point.value);
    }
    let row = read_row(&log.pool, gone.place()).await.unwrap().unwrap();
    assert_eq!(row.point(gone.point.index).unwrap(), None, "the value is gone from the log as well");
    // Half hours that cut an hour without values cannot be answered, and the answer says how many hours it lacks.
    let (_, counts) = counting(bucketed(&log, TimeDelta::minutes(10))).await;
    assert!(counts.hours > 0 && counts.rows == 0, "{counts:?}");
    // Channel 2 follows the general number from now on: its days are dropped.
    sqlx::query("UPDATE read.channels SET retention_days = NULL WHERE number = 2")
        .execute(&log.pool)
        .await
        .unwrap();
    let due = overdue(&log.pool, today, 4).await.unwrap();
    assert_eq!((due.days.len(), due.removals.len()), (4, 0));
    drop_old_days(&log.pool, today - TimeDelta::days(4), today).await.unwrap();
    log.known.retain(|point| point.day >= today - TimeDelta::days(4));
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    rebuild(&log).await;
    assert_eq!((bucketed(&log, days).await, bucketed(&log, hours).await), before);
    // Roll-ups end after a time of their own.
    let old = old_rollup_days(&log.pool, today - TimeDelta::days(6), 9).await.unwrap();
    assert_eq!(old.len(), 2);
    drop_old_rollups(&log.pool, old[1]).await.unwrap();
    let left = bucketed(&log, days).await;
    assert_eq!(left[&1], before.0[&1][2..]);
}

/// A number that is raised while values wait to be removed spares them; a rebuild in between brings back none.
#[tokio::test]
async fn a_raised_number_spares_waiting_values() {
    let (mut log, today) = with_own_numbers().await;
    let before = bucketed(&log, TimeDelta::days(1)).await;
    let due = overdue(&log.pool, today, 4).await.unwrap();
    record_removals(&log.pool, &due.removals, true).await.unwrap();
    assert!(!is_turn(&log.pool).await.unwrap());
    // The first day has lost its chunks, not its rows in the log.
    assert!(continue_removal(&log.pool, today, 4).await.unwrap());
    let first = due.removals[0].day;
    sqlx::query("UPDATE read.channels SET retention_days = 30 WHERE number = 3")
        .execute(&log.pool)
        .await
        .unwrap();
    while continue_removal(&log.pool, today, 4).await.unwrap() {}
    log.known.retain(|point| match point.channel {
        1 => point.day >= today - TimeDelta::days(4),
        2 => true,
        _ => point.day != first,
    });
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    rebuild(&log).await;
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    assert_eq!(bucketed(&log, TimeDelta::days(1)).await, before);
}

#[tokio::test]
async fn a_rebuild_amid_a_removal_keeps_the_roll_ups() {
    let (log, today) = with_own_numbers().await;
    let before = bucketed(&log, TimeDelta::hours(1)).await;
    let due = overdue(&log.pool, today, 4).await.unwrap();
    record_removals(&log.pool, &due.removals, false).await.unwrap();
    for steps in [0, 1, 3] {
        for _ in 0..steps {
            continue_removal(&log.pool, today, 4).await.unwrap();
        }
        rebuild(&log).await;
        assert_eq!(bucketed(&log, TimeDelta::hours(1)).await, before, "after {steps} more steps");
    }
    // Nothing is removed while a rebuild holds its lease.
    let mut rebuild = signalbox_database::begin(&log.pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('rebuild.datapoints', 0))")
        .execute(&mut *rebuild)
        .await
        .unwrap();
    let refused = record_removals(&log.pool, &due.removals, true).await;
    assert!(matches!(refused, Err(SeriesError::Rebuilding)), "{refused:?}");
    rebuild.rollback().await.unwrap();
}

/// The rebuild's lease is not taken by those who only exclude it from each other.
#[tokio::test]
async fn a_removal_is_recorded_while_another_process_drops_days() {
    let (log, today) = with_own_numbers().await;
    let due = overdue(&log.pool, today, 4).await.unwrap();
    sqlx::query("UPDATE read.channels SET retention_days = NULL").execute(&log.pool).await.unwrap();
    let mut reader = signalbox_database::begin(&log.pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE datapoint_log IN ACCESS SHARE MODE").execute(&mut *reader).await.unwrap();
    let dropping = tokio::spawn({
        let pool = log.pool.clone();
        async move { drop_old_days(&pool, today - TimeDelta::days(6), today).await }
    });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    // Each attempt to drop them is short, so that one is met only by trying as long as they last.
    eventually(seconds(20), async || {
        sqlx::query_scalar(waits).fetch_one(&log.pool).await.unwrap() && {
            let removal = due.removals.last().unwrap().clone();
            record_removals(&log.pool, &[removal], false).await.unwrap();
            sqlx::query_scalar(waits).fetch_one(&log.pool).await.unwrap()
        }
    })
    .await;
    reader.rollback().await.unwrap();
    assert_eq!(dropping.await.unwrap().unwrap().days.len(), 2);
}

/// Rows that were read before another process removed values from them are not written back.
#[tokio::test]
async fn processes_that_rewrite_the_same_day_bring_no_value_back() {
    let (log, today) = with_own_numbers().await;
    let due = overdue(&log.pool, today, 4).await.unwrap();
    let Removal { day, channels } = due.removals[0].clone();
    assert_eq!(channels, [1, 3]);
    record_removals(&log.pool, &[Removal { day, channels: vec![3] }], false).await.unwrap();
    assert!(continue_removal(&log.pool, today, 4).await.unwrap(), "the chunks are gone");
    // The other process adds a channel, and has rewritten the rows.
    let mut other = signalbox_database::begin(&log.pool, "BEGIN").await.unwrap();
    let last = clear_points(&mut other, (day, &channels), 0).await.unwrap();
    sqlx::query("UPDATE ops.value_removals SET channels = $2, position = $3 WHERE day = $1")
        .bind(day)
        .bind(&channels)
        .bind(last)
        .execute(&mut *other)
        .await
        .unwrap();
    let continued = tokio::spawn({
        let pool = log.pool.clone();
        async move { continue_removal(&pool, today, 4).await }
    });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                  WHERE NOT l.granted AND a.datname = current_database() AND l.locktype IN ('transactionid', 'tuple'))";
    eventually(seconds(20), async || sqlx::query_scalar(waits).fetch_one(&log.pool).await.unwrap()).await;
    other.commit().await.unwrap();
    assert!(continued.await.unwrap().unwrap());
    while continue_removal(&log.pool, today, 4).await.unwrap() {}
    for point in log.known.iter().filter(|point| point.day == day) {
        let row = read_row(&log.pool, point.place()).await.unwrap().unwrap();
        assert_eq!(row.point(point.point.index).unwrap().is_some(), point.channel == 2, "{point:?}");
    }
}

/// A channel that keeps its values for ever, and one that keeps them for two days: the log has them, the read model does not.
async fn with_unshown_channels() -> (Log, World, Uuid, NaiveDate) {
    let (mut log, world) = Log::in_world().await;
    let for_ever = world.writer.channel(1, "for ever").await;
    let short = world.writer.channel(2, "short").await;
    let keep = |days| ChannelChanges { retention_days: Some(Some(days)), ..ChannelChanges::default() };
    world.writer.run::<Channel>(short, ChannelCommand::Change(keep(2))).await;
    world.fold().await;
    for _ in 0..6 {
        let time = micros(log.clock.now());
        log.append((1..3).map(|channel| Point { channel, time, value: 1.0 }).collect()).await;
        log.fold().await;
        log.clock.advance(TimeDelta::days(1));
    }
    log.append(one_now(&log)).await;
    log.fold().await;
    world.writer.run::<Channel>(for_ever, ChannelCommand::Change(keep(0))).await;
    let today = log.clock.now().date_naive();
    (log, world, for_ever, today)
}

async fn logged_days(log: &Log) -> i64 {
    sqlx::query_scalar("SELECT count(DISTINCT day) FROM datapoint_log").fetch_one(&log.pool).await.unwrap()
}

/// Nothing is removed by an earlier number: not by a run, nor by one that was decided before, nor by a recorded removal.
#[tokio::test]
async fn nothing_is_removed_while_the_log_may_know_a_higher_number() {
    let (log, world, _, today) = with_unshown_channels().await;
    let behind = |outcome: &dyn std::fmt::Debug| {
        let shown = format!("{outcome:?}");
        assert!(shown.contains("ChannelsBehind"), "{shown}");
    };
    behind(&overdue(&log.pool, today, 3).await);
    behind(&next_run(&log.pool, today, 3).await);
    let oldest = today - TimeDelta::days(3);
    behind(&drop_old_days(&log.pool, oldest, today).await);
    behind(&drop_in_turn(&log.pool, oldest, today).await);
    let removal = Removal { day: today - TimeDelta::days(6), channels: vec![1, 2] };
    record_removals(&log.pool, &[removal], false).await.unwrap();
    behind(&continue_removal(&log.pool, today, 3).await);
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, log.expected(|_| true));
    assert!(overdue(&log.pool, at(0).date_naive(), 3).await.unwrap().is_empty(), "nothing is due: no fault");
    world.fold().await;
    // Decided before the number was raised, as a person takes time to confirm.
    let dropped = drop_old_days(&log.pool, oldest, today).await.unwrap();
    assert_eq!((dropped.days.len(), dropped.stayed.len(), dropped.partitions), (0, 3, 0));
    assert_eq!(logged_days(&log).await, 7);
    while continue_removal(&log.pool, today, 3).await.unwrap() {}
    let due = overdue(&log.pool, today, 3).await.unwrap();
    assert_eq!(due.days, []);
    remove(&log, &due, (today, 3)).await;
    let kept = log.expected(|point| point.channel == 1 || point.day >= today - TimeDelta::days(2));
    assert_eq!(log.exported(DateTime::UNIX_EPOCH, None, 10).await, kept);
    world.servers.finish().await;
}

#[tokio::test]
async fn nothing_is_removed_while_a_channel_is_set_aside() {
    let (log, world, channel, today) = with_unshown_channels().await;
    world.fold().await;
    sqlx::query(
        "INSERT INTO read.poisonous_events (projection, position, aggregate_type, aggregate_id, sequence, event_type, error, retry_at)
         VALUES ('monitoring', 3, 'channel', $1, 2, 'channel_updated', 'of a newer version', now())",
    )
    .bind(channel.to_string())
    .execute(&log.pool)
    .await
    .unwrap();
    let refused = [
        overdue(&log.pool, today, 3).await.err(),
        drop_old_days(&log.pool, today - TimeDelta::days(3), today).await.err(),
    ];
    assert!(
        refused.iter().all(|refused| matches!(refused, Some(SeriesError::ChannelsSetAside))),
        "{refused:?}"
    );
    assert_eq!(logged_days(&log).await, 7);
    sqlx::query("DELETE FROM read.poisonous_events").execute(&log.pool).await.unwrap();
    world.servers.finish().await;
}
