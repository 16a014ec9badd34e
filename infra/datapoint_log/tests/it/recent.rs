use std::time::Instant;

use chrono::TimeDelta;
use signalbox_clock::Clock;
use signalbox_database::Class;
use signalbox_datapoint_log::{Point, Reserved, forget_values, reserve};
use signalbox_test_support::{eventually, seconds};
use uuid::Uuid;

use crate::append::{appender, batch, database, noon};

fn point(time: i64, value: f64) -> Point {
    Point { channel: 1, time, value }
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

#[tokio::test]
async fn a_value_is_reserved_for_one_batch() {
    let pool = database().await;
    let given = [point(3, 0.5), point(1, 2.5), point(3, 0.5), point(1, 1.5)];
    let first = reserve(&pool, id(1), &given, noon()).await.unwrap();
    let new = vec![point(3, 0.5), point(1, 2.5), point(1, 1.5)];
    assert_eq!(first, Reserved { new: new.clone(), unfinished: Vec::new() });
    let second = reserve(&pool, id(2), &[point(1, 1.5), point(4, 1.5)], noon()).await.unwrap();
    assert_eq!(second, Reserved { new: vec![point(4, 1.5)], unfinished: vec![(id(1), new)] });
}

#[tokio::test]
async fn a_batch_in_the_log_is_finished() {
    let pool = database().await;
    let (appender, _committed) = appender(&pool, &Clock::manual(noon()));
    reserve(&pool, id(1), &[point(0, 0.5)], noon()).await.unwrap();
    appender.append(batch(1, &[0.5])).await.unwrap();
    let again = reserve(&pool, id(2), &[point(0, 0.5)], noon()).await.unwrap();
    assert_eq!(again, Reserved::default());
}

#[tokio::test]
async fn both_zeros_are_one_value() {
    let pool = database().await;
    let first = reserve(&pool, id(1), &[point(0, 0.0), point(0, -0.0)], noon()).await.unwrap();
    assert_eq!(first.new.len(), 1);
    let second = reserve(&pool, id(2), &[point(0, -0.0)], noon()).await.unwrap();
    assert_eq!((second.new.len(), second.unfinished.len()), (0, 1));
}

#[tokio::test]
async fn a_value_is_recognised_for_24_hours() {
    let pool = database().await;
    reserve(&pool, id(1), &[point(0, 0.5)], noon()).await.unwrap();
    let day = TimeDelta::hours(24);
    let within = reserve(&pool, id(2), &[point(0, 0.5)], noon() + day).await.unwrap();
    assert!(within.new.is_empty());
    let after = noon() + day + TimeDelta::seconds(1);
    let beyond = reserve(&pool, id(3), &[point(0, 0.5)], after).await.unwrap();
    assert_eq!(beyond, Reserved { new: vec![point(0, 0.5)], unfinished: Vec::new() });
    forget_values(&pool, after + day).await.unwrap();
    let count = "SELECT count(*) FROM ops.recent_cells";
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&pool).await.unwrap(), 1);
    forget_values(&pool, after + day + TimeDelta::seconds(1)).await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&pool).await.unwrap(), 0);
}

/// Reservations that need the same lock wait two seconds for it, not for as long as other transactions may idle.
#[tokio::test]
async fn a_reservation_that_hangs_lets_the_next_one_on() {
    let pool = database().await;
    reserve(&pool, id(1), &[point(0, 0.5)], noon()).await.unwrap();
    let mut table = signalbox_database::begin(&pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE ops.recent_cells IN EXCLUSIVE MODE").execute(&mut *table).await.unwrap();
    // One value is there, so that it takes several statements.
    let (given, next) = ([point(0, 0.5), point(0, 0.7)], [point(1, 0.5)]);
    let mut hung = std::pin::pin!(reserve(&pool, id(2), &given, noon()));
    let waits =
        "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'ops.recent_cells'::regclass)";
    let has_locks =
        eventually(seconds(20), async || sqlx::query_scalar(waits).fetch_one(&pool).await.unwrap());
    tokio::select! {
        reserved = &mut hung => panic!("{reserved:?}"),
        () = has_locks => {}
    }
    // It is not polled any more.
    table.rollback().await.unwrap();
    let begun = Instant::now();
    let reserved = reserve(&pool, id(3), &next, noon()).await.unwrap();
    assert_eq!(reserved, Reserved { new: next.to_vec(), unfinished: Vec::new() });
    assert!(begun.elapsed() < Class::Interactive.idle_in_transaction_timeout(), "{begun:?}");
    hung.await.unwrap_err();
}

#[tokio::test]
async fn values_of_many_cells_are_reserved_and_recognised() {
    let pool = database().await;
    let given: Vec<_> = (0..20_000_i64)
        .map(|nth| Point {
            channel: (nth % 300) as i32,
            time: nth * 1_000_000 - 5_000_000,
            value: nth as f64,
        })
        .collect();
    let first = reserve(&pool, id(1), &given, noon()).await.unwrap();
    assert_eq!(first, Reserved { new: given.clone(), unfinished: Vec::new() });
    let others: Vec<_> = given.iter().step_by(2).map(|point| Point { value: -1.0, ..*point }).collect();
    let second = reserve(&pool, id(2), &[given.clone(), others.clone()].concat(), noon()).await.unwrap();
    assert_eq!(second.new, others);
    let [(unfinished, points)] = second.unfinished.as_slice() else { panic!("{:?}", second.unfinished) };
    let mut sorted = points.clone();
    sorted.sort_by_key(|point| point.time);
    assert_eq!((*unfinished, sorted), (id(1), given));
}

#[tokio::test]
async fn values_around_those_of_others_are_new() {
    let pool = database().await;
    let given = |times: &[i64], channel| -> Vec<_> {
        times.iter().map(|time| Point { channel, ..point(*time, 0.5) }).collect()
    };
    let second = 1_000_000;
    // One statement reserves them all, unless they are in the span and among the channels of a row of others.
    for (number, times, channel) in [
        (1, vec![10 * second, 20 * second], 1),
        (2, vec![9 * second, 21 * second, 15 * second], 1),
        (3, vec![10 * second, 20 * second], 2),
        (4, vec![15 * second + 1], 1),
        (5, vec![0, 100 * second], 1),
    ] {
        let points = given(&times, channel);
        let reserved = reserve(&pool, id(number), &points, noon()).await.unwrap();
        assert_eq!(reserved, Reserved { new: points, unfinished: Vec::new() }, "batch {number}");
    }
    let all = given(&[10 * second, 15 * second + 1, 16 * second], 1);
    let Reserved { new, unfinished } = reserve(&pool, id(6), &all, noon()).await.unwrap();
    assert_eq!(new, given(&[16 * second], 1));
    assert_eq!(unfinished.iter().map(|(batch, _)| *batch).collect::<Vec<_>>(), [id(1), id(4)]);
}

#[tokio::test]
async fn values_that_the_release_before_has_reserved_are_recognised() {
    let pool = database().await;
    let reserved = "INSERT INTO ops.recent_values (channel, time, value, batch_id, place, reserved_at)
                    VALUES (1, 7, 0.5, $1, 1, $2), (1, 5, 2.5, $1, 0, $2)";
    sqlx::query(reserved).bind(id(1)).bind(noon()).execute(&pool).await.unwrap();
    let again = reserve(&pool, id(2), &[point(7, 0.5), point(8, 0.5)], noon()).await.unwrap();
    let unfinished = vec![(id(1), vec![point(5, 2.5), point(7, 0.5)])];
    assert_eq!(again, Reserved { new: vec![point(8, 0.5)], unfinished });
    let day = TimeDelta::hours(24);
    let later = reserve(&pool, id(3), &[point(7, 0.5)], noon() + day + TimeDelta::seconds(1)).await.unwrap();
    assert_eq!(later.new, [point(7, 0.5)]);
    forget_values(&pool, noon() + day + TimeDelta::seconds(1)).await.unwrap();
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM ops.recent_values").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn concurrent_batches_of_the_same_values_reserve_each_once() {
    let pool = database().await;
    let given: Vec<_> = (0..1000).map(|time| point(time, 1.5)).collect();
    let backwards: Vec<_> = given.iter().rev().copied().collect();
    let batches = (1..=8).map(|number| {
        let (pool, points) = (pool.clone(), if number % 2 == 0 { given.clone() } else { backwards.clone() });
        async move { reserve(&pool, id(number), &points, noon()).await.unwrap().new.len() }
    });
    let reserved = futures::future::join_all(batches).await;
    assert_eq!(reserved.iter().sum::<usize>(), 1000, "{reserved:?}");
}
