//! Channels that are deleted with their values.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta};
use signalbox_datapoint_log::{Point, micros, read_row};
use signalbox_projections::monitoring::series::{
    Bucket, Export, ExportSpan, SeriesError, continue_removal, drop_old_days, latest, overdue,
    record_removals, remove_deleted,
};

use super::{
    Datapoint, Log,
    retention::{bucketed, rebuild, with_own_numbers},
};

/// The channel that is deleted: it keeps its values for ever, if it is not.
const GONE: i32 = 2;

async fn delete(log: &Log) {
    sqlx::query("UPDATE read.channels SET deleted_at = now(), values_deleted = true WHERE number = $1")
        .bind(GONE)
        .execute(&log.pool)
        .await
        .unwrap();
}

/// One step of the worker; false when nothing is left.
async fn step(log: &Log, today: NaiveDate) -> bool {
    continue_removal(&log.pool, today, 0).await.unwrap() || remove_deleted(&log.pool).await.unwrap()
}

/// The buckets of the other channels.
async fn others(log: &Log, step: TimeDelta) -> BTreeMap<i32, Vec<Bucket>> {
    let mut found = bucketed(log, step).await;
    found.remove(&GONE);
    found
}

async fn everything(log: &Log) -> Vec<Datapoint> {
    log.exported(DateTime::UNIX_EPOCH, None, 10).await
}

/// Nothing of the channel is in the log, in what is folded from it, or in roll-ups; all else is as it was.
async fn check(log: &mut Log) {
    let (gone, kept): (Vec<_>, Vec<_>) = log.known.drain(..).partition(|point| point.channel == GONE);
    log.known = kept;
    assert_eq!(everything(log).await, log.expected(|_| true));
    assert!(latest(&log.pool).await.unwrap().iter().all(|point| point.channel != GONE));
    assert_eq!(bucketed(log, TimeDelta::days(1)).await[&GONE], []);
    for table in ["series.chunks", "series.rollups", "ops.kept_rollups"] {
        let count = format!("SELECT count(*) FROM {table} WHERE channel = $1");
        let count: i64 = sqlx::query_scalar(&count).bind(GONE).fetch_one(&log.pool).await.unwrap();
        assert_eq!(count, 0, "{table}");
    }
    for point in gone {
        let row = read_row(&log.pool, point.place()).await.unwrap().unwrap();
        assert_eq!(row.point(point.point.index).unwrap(), None, "{point:?}");
    }
    assert_eq!(rebuild(log).await.differences, 0);
    assert_eq!(everything(log).await, log.expected(|_| true));
}

/// A process may crash between any two steps, and the next one may rebuild before it continues.
#[tokio::test]
async fn a_deletion_continues_from_every_step_after_a_rebuild() {
    let (mut log, today) = with_own_numbers().await;
    let before = (others(&log, TimeDelta::days(1)).await, others(&log, TimeDelta::hours(1)).await);
    let expected = log.expected(|point| point.channel != GONE);
    delete(&log).await;
    let mut steps = 0;
    while step(&log, today).await {
        steps += 1;
        let shown: Vec<_> =
            everything(&log).await.into_iter().filter(|point| point.channel != GONE).collect();
        assert_eq!(shown, expected, "after {steps} steps");
        if steps % 4 == 1 {
            rebuild(&log).await;
        }
    }
    assert!(steps > 8 * 2, "{steps} steps");
    check(&mut log).await;
    let after = (others(&log, TimeDelta::days(1)).await, others(&log, TimeDelta::hours(1)).await);
    assert_eq!(after, before);
}

/// Another gateway may not know for a second that the channel is gone, and what it has accepted is folded later.
#[tokio::test]
async fn values_that_arrive_amid_and_after_a_deletion_are_removed() {
    let (mut log, today) = with_own_numbers().await;
    delete(&log).await;
    let mut steps = 0;
    while step(&log, today).await {
        steps += 1;
        if steps <= 30 {
            let time = micros(log.clock.now());
            log.append((1..4).map(|channel| Point { channel, time, value: 1.0 }).collect()).await;
        }
        if steps % 2 == 0 {
            log.fold().await;
        }
    }
    log.fold().await;
    while step(&log, today).await {}
    assert!(steps >= 30, "{steps} steps");
    check(&mut log).await;
    // A day later, too.
    log.clock.advance(TimeDelta::days(1));
    let time = micros(log.clock.now());
    log.append(vec![Point { channel: GONE, time, value: 1.0 }, Point { channel: 1, time, value: 1.0 }]).await;
    log.fold().await;
    while step(&log, today).await {}
    check(&mut log).await;
}

#[tokio::test]
async fn an_export_continues_over_a_deletion() {
    let (log, today) = with_own_numbers().await;
    let expected = log.expected(|point| point.channel != GONE);
    let span = ExportSpan { from: DateTime::UNIX_EPOCH, ..ExportSpan::default() };
    let mut export = Export::begin(&log.pool, span).await.unwrap().in_slices_of(3);
    let mut found = export.next().await.unwrap().unwrap();
    delete(&log).await;
    let mut is_left = true;
    while let Some(slice) = export.next().await.unwrap() {
        found.extend(slice);
        for _ in 0..4 {
            is_left = is_left && step(&log, today).await;
        }
    }
    let shown: Vec<_> = found.iter().copied().filter(|point| point.channel != GONE).collect();
    assert_eq!(shown, expected, "the others are there, each once");
    let of_gone = found.len() - shown.len();
    assert!(of_gone < log.known.len() - expected.len(), "{of_gone} of the deleted channel");
}

/// Numbers of days decide about values of channels that are there, not about those that were deleted.
#[tokio::test]
async fn a_deletion_waits_for_no_number_of_days() {
    let (mut log, today) = with_own_numbers().await;
    let due = overdue(&log.pool, today, 4).await.unwrap();
    record_removals(&log.pool, &due.removals, false).await.unwrap();
    sqlx::query(
        "INSERT INTO read.poisonous_events (projection, position, aggregate_type, aggregate_id, sequence, event_type, error, retry_at)
         VALUES ('monitoring', 3, 'channel', 'elsewhere', 2, 'channel_updated', 'of a newer version', now())",
    )
    .execute(&log.pool)
    .await
    .unwrap();
    let refused = continue_removal(&log.pool, today, 4).await;
    assert!(matches!(refused, Err(SeriesError::ChannelsSetAside)), "{refused:?}");
    let before = others(&log, TimeDelta::hours(1)).await;
    delete(&log).await;
    // As the worker: deletions do not wait for those that wait for numbers.
    loop {
        match continue_removal(&log.pool, today, 4).await {
            Ok(true) => {}
            Ok(false) | Err(SeriesError::ChannelsSetAside) => {
                if !remove_deleted(&log.pool).await.unwrap() {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(others(&log, TimeDelta::hours(1)).await, before);
    check(&mut log).await;
    // Values that were left out are found overdue again.
    sqlx::query("DELETE FROM read.poisonous_events").execute(&log.pool).await.unwrap();
    while continue_removal(&log.pool, today, 4).await.unwrap() {}
    let again = overdue(&log.pool, today, 4).await.unwrap();
    drop_old_days(&log.pool, today - TimeDelta::days(4), today).await.unwrap();
    record_removals(&log.pool, &again.removals, false).await.unwrap();
    while continue_removal(&log.pool, today, 4).await.unwrap() {}
    let days = |channel| TimeDelta::days(if channel == 1 { 4 } else { 2 });
    log.known.retain(|point| point.day >= today - days(point.channel));
    assert_eq!(everything(&log).await, log.expected(|_| true));
    assert_eq!(others(&log, TimeDelta::hours(1)).await, before);
}
