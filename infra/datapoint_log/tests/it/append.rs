use chrono::{DateTime, NaiveDate, TimeDelta, TimeZone, Utc};
use futures::future::join_all;
use signalbox_clock::Clock;
use signalbox_datapoint_log::{
    Appender, Batch, Committed, Entry, IdKey, Origin, Place, Point, Tombstone, append_tombstone,
    codec::encode_block, decode_payload, head, read_after, read_row,
};
use signalbox_test_support::fresh_database;
use sqlx::PgPool;
use tokio::sync::mpsc;
use uuid::Uuid;

pub(crate) async fn database() -> PgPool {
    signalbox_database::connect(&fresh_database().await, 12).await.unwrap()
}

pub(crate) fn noon() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).unwrap()
}

pub(crate) fn batch(id: u128, values: &[f64]) -> Batch {
    let point = |(index, value): (usize, &f64)| Point { channel: 1, time: index as i64, value: *value };
    let mut points: Vec<_> = values.iter().enumerate().map(point).collect();
    let block = encode_block(Origin::User(Uuid::from_u128(7)), &mut points);
    Batch { id: Uuid::from_u128(id), points: points.len(), block: block.into(), traceparent: None }
}

pub(crate) fn appender(pool: &PgPool, clock: &Clock) -> (Appender, mpsc::Receiver<Committed>) {
    let (sender, committed) = mpsc::channel(1000);
    (Appender::start(pool.clone(), clock.clone(), sender), committed)
}

pub(crate) async fn values(pool: &PgPool) -> Vec<f64> {
    let rows = read_after(pool, 0, NaiveDate::default(), 1000).await.unwrap();
    let expected: Vec<_> = (1..=rows.len() as i64).collect();
    assert_eq!(rows.iter().map(|row| row.position).collect::<Vec<_>>(), expected, "positions are gapless");
    let mut total = 0;
    for row in &rows {
        total += i64::from(row.points);
        assert_eq!(row.total, total);
    }
    let points = rows.iter().flat_map(|row| match row.entry().unwrap() {
        Entry::Points(points) => points,
        Entry::Deleted(_) => Vec::new(),
    });
    points.map(|point| point.value).collect()
}

#[tokio::test]
async fn a_batch_is_found_again_by_the_ids_of_its_points() {
    let pool = database().await;
    let (appender, mut committed) = appender(&pool, &Clock::manual(noon()));
    let one = appender.append(batch(1, &[0.5, 1.5])).await.unwrap();
    let two = appender.append(batch(2, &[2.5])).await.unwrap();
    assert_eq!((one.position, one.first_index, two.position), (1, 0, 2));
    let announced = committed.recv().await.unwrap();
    assert_eq!((announced.position, decode_payload(&announced.payload).unwrap().len()), (1, 2));
    let key = IdKey::load(&pool).await.unwrap();
    let id = key.id(Place { day: one.day, position: 1, index: 1 });
    let place = key.place(id).unwrap();
    let (origin, point) = read_row(&pool, place).await.unwrap().unwrap().point(place.index).unwrap().unwrap();
    assert_eq!((origin, point.value), (Origin::User(Uuid::from_u128(7)), 1.5));
    assert_eq!(values(&pool).await, [0.5, 1.5, 2.5]);
    assert_eq!(head(&pool).await.unwrap().points, 3);
}

#[tokio::test]
async fn many_senders_share_commits_and_each_gets_its_own_place() {
    let pool = database().await;
    let clock = Clock::manual(noon());
    // Two processes.
    let appenders = [appender(&pool, &clock).0, appender(&pool, &clock).0];
    let sent = (0..200_u128).map(|id| appenders[id as usize % 2].append(batch(id, &[id as f64, 0.25])));
    let outcomes = join_all(sent).await;
    let rows = head(&pool).await.unwrap().position;
    assert!(rows < 150, "{rows} commits for 200 batches");
    for (id, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap();
        let place = Place { day: outcome.day, position: outcome.position, index: outcome.first_index };
        let row = read_row(&pool, place).await.unwrap().unwrap();
        assert_eq!(row.point(outcome.first_index).unwrap().unwrap().1.value, id as f64);
        assert_eq!(row.point(outcome.first_index + 1).unwrap().unwrap().1.value, 0.25);
    }
    assert_eq!(values(&pool).await.len(), 400);
}

#[tokio::test]
async fn a_batch_that_is_sent_again_is_appended_once() {
    let pool = database().await;
    let clock = Clock::manual(noon());
    let (one, mut committed) = appender(&pool, &clock);
    let (other, _) = appender(&pool, &clock);
    let sends = (0..20_u128).flat_map(|_| (0..5_u128).map(|id| (id, [&one, &other][id as usize % 2])));
    let outcomes =
        join_all(sends.map(|(id, to)| async move { (id, to.append(batch(id, &[id as f64])).await) })).await;
    let mut places = std::collections::HashMap::new();
    for (id, outcome) in outcomes {
        let outcome = outcome.unwrap();
        let place = (outcome.position, outcome.first_index);
        assert_eq!(*places.entry(id).or_insert(place), place, "batch {id}");
    }
    let mut found = values(&pool).await;
    found.sort_by(f64::total_cmp);
    assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 4.0]);
    // Not even across midnight, and what is announced is what was committed.
    clock.advance(TimeDelta::hours(14));
    assert!(one.append(batch(3, &[3.0])).await.unwrap().duplicate);
    assert_eq!(values(&pool).await.len(), 5);
    drop((one, other));
    while let Some(row) = committed.recv().await {
        let read = read_after(&pool, row.position - 1, row.day, 1).await.unwrap();
        assert_eq!(read[0].entry().unwrap(), Entry::Points(decode_payload(&row.payload).unwrap()));
    }
}

#[tokio::test]
async fn of_many_deletions_of_a_point_one_is_appended() {
    let pool = database().await;
    let (appender, _committed) = appender(&pool, &Clock::manual(noon()));
    let appended = appender.append(batch(1, &[1.0, 2.0])).await.unwrap();
    let place = Place { day: appended.day, position: 1, index: 1 };
    let tombstone = Tombstone {
        day: place.day,
        position: place.position,
        index: place.index,
        channel: 1,
        time: 1,
        actor: "system:test".to_owned(),
    };
    let clock = Clock::manual(noon());
    let deleted = join_all((0..8).map(|_| append_tombstone(&pool, &tombstone, &clock))).await;
    let positions: Vec<_> = deleted.into_iter().filter_map(|outcome| outcome.unwrap()).collect();
    assert_eq!(positions, [2]);
    assert!(read_row(&pool, place).await.unwrap().is_none());
    assert!(read_row(&pool, Place { index: 0, ..place }).await.unwrap().is_some());
    let rows = read_after(&pool, 1, place.day, 10).await.unwrap();
    assert_eq!(rows[0].entry().unwrap(), Entry::Deleted(tombstone));
}

#[tokio::test]
async fn the_log_cannot_be_changed() {
    let pool = database().await;
    let (appender, _committed) = appender(&pool, &Clock::manual(noon()));
    appender.append(batch(1, &[1.0])).await.unwrap();
    for statement in ["UPDATE datapoint_log SET points = 0", "DELETE FROM datapoint_log"] {
        let error = sqlx::query(statement).execute(&pool).await.unwrap_err().to_string();
        assert!(error.contains("append-only"), "{error}");
    }
}
