use chrono::{DateTime, TimeDelta, Utc};
use signalbox_event_store::{LogFilter, LogOrder, extend_index, search};
use signalbox_test_support::{fresh_database, rows_read};
use sqlx::PgPool;
use uuid::Uuid;

use crate::made::make_events;

const EVENTS: i64 = 20_000;

fn time(position: i64) -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::seconds(position)
}

/// Whether the event at a position fits.
type Fits = fn(i64) -> bool;

/// Filters, and the positions that match each of them.
fn filters() -> Vec<(LogFilter, Fits)> {
    let text = |text: &str| Some(text.to_owned());
    let any = LogFilter::default;
    let id: Uuid = "018f0000-0000-7000-8000-000000000011".parse().unwrap();
    vec![
        (any(), |_| true),
        (LogFilter { stream_type: text("rare"), ..any() }, |n| n % 100 == 0),
        (LogFilter { stream_type: text("common"), stream_id: Some(id), ..any() }, |n| n % 100 == 0x11),
        (LogFilter { event_type: text("it_shone"), ..any() }, |n| n % 100 == 0),
        (LogFilter { actor: text("system:sun"), ..any() }, |n| n % 10 == 0),
        (LogFilter { correlation: text("c1000"), ..any() }, |n| n / 7 == 1000),
        (LogFilter { event_type: text("it_rained"), actor: text("system:sun"), ..any() }, |n| {
            n % 10 == 0 && n % 100 != 0
        }),
        (LogFilter { from: Some(time(15_000)), to: Some(time(15_003)), ..any() }, |n| {
            (15_000..15_003).contains(&n)
        }),
        (LogFilter { first: Some(7), last: Some(9), ..any() }, |n| (7..=9).contains(&n)),
        (
            LogFilter { from: Some(time(19_000)), actor: text("system:sun"), first: Some(19_500), ..any() },
            |n| n % 10 == 0 && n >= 19_500,
        ),
        (LogFilter { event_type: text("it_snowed"), ..any() }, |_| false),
        (LogFilter { from: Some(time(EVENTS + 1)), ..any() }, |_| false),
    ]
}

async fn found(pool: &PgPool, filter: &LogFilter, order: LogOrder, limit: i64) -> Vec<i64> {
    search(pool, filter, order, limit).await.unwrap().iter().map(|event| event.position).collect()
}

#[tokio::test]
async fn a_search_finds_what_fits_in_its_order() {
    let pool = signalbox_database::connect(&fresh_database().await, 2).await.unwrap();
    // Events that are not indexed yet are found too; the index has ranges of all lengths.
    for (count, steps) in [(40, 1), (EVENTS / 2, 20), (EVENTS, 0), (EVENTS, 20)] {
        make_events(&pool, count).await;
        for _ in 0..steps {
            extend_index(&pool).await.unwrap();
        }
        finds_all(&pool, count).await;
    }
}

async fn finds_all(pool: &PgPool, count: i64) {
    for (filter, matches) in filters() {
        let expected: Vec<_> = (1..=count).filter(|n| matches(*n)).collect();
        for limit in [10, 500] {
            let oldest: Vec<_> = expected.iter().take(limit as usize).copied().collect();
            assert_eq!(found(pool, &filter, LogOrder::OldestFirst, limit).await, oldest, "{filter:?}");
            let newest: Vec<_> = expected.iter().rev().take(limit as usize).copied().collect();
            assert_eq!(found(pool, &filter, LogOrder::NewestFirst, limit).await, newest, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn two_concurrent_indexers_make_one_index() {
    let pool = signalbox_database::connect(&fresh_database().await, 8).await.unwrap();
    make_events(&pool, EVENTS).await;
    let mut has_more = true;
    while has_more {
        let done = tokio::join!(extend_index(&pool), extend_index(&pool), extend_index(&pool));
        has_more = done.0.unwrap() | done.1.unwrap() | done.2.unwrap();
    }
    let entries = "SELECT sum(cardinality(positions))::bigint FROM log_index WHERE field = 'actor'";
    assert_eq!(sqlx::query_scalar::<_, i64>(entries).fetch_one(&pool).await.unwrap(), EVENTS);
    finds_all(&pool, EVENTS).await;
}

/// With and without statistics of the tables, the index with the right order is used.
#[tokio::test]
async fn what_a_search_reads_does_not_grow_with_the_log() {
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    // A backend reports its statistics when it ends, so the earlier ones have to end first.
    let making = signalbox_database::connect(&url, 1).await.unwrap();
    make_events(&making, EVENTS).await;
    while extend_index(&making).await.unwrap() {}
    making.close().await;
    for (filter, _) in filters() {
        for order in [LogOrder::OldestFirst, LogOrder::NewestFirst] {
            let read = rows_read(&watching, async || {
                let pool = signalbox_database::connect(&url, 1).await.unwrap();
                found(&pool, &filter, order, 10).await;
                pool.close().await;
            })
            .await;
            assert!(read < 200, "{read} rows for {filter:?}");
        }
        sqlx::query("ANALYZE events").execute(&watching).await.unwrap();
    }
}
