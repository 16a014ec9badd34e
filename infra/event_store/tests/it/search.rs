use chrono::{DateTime, TimeDelta, Utc};
use signalbox_event_store::{LogFilter, LogOrder, search};
use signalbox_test_support::{fresh_database, rows_read};
use sqlx::PgPool;
use uuid::Uuid;

use crate::made::make_events;

const EVENTS: i64 = 20_000;

fn time(position: i64) -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + TimeDelta::seconds(position)
}

/// Filters, and the positions that each of them wants.
fn filters() -> Vec<(LogFilter, fn(i64) -> bool)> {
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
    make_events(&pool, EVENTS).await;
    for (filter, wanted) in filters() {
        let expected: Vec<_> = (1..=EVENTS).filter(|n| wanted(*n)).collect();
        let oldest: Vec<_> = expected.iter().take(10).copied().collect();
        assert_eq!(found(&pool, &filter, LogOrder::OldestFirst, 10).await, oldest, "{filter:?}");
        let newest: Vec<_> = expected.iter().rev().take(10).copied().collect();
        assert_eq!(found(&pool, &filter, LogOrder::NewestFirst, 10).await, newest, "{filter:?}");
    }
}

/// With statistics of the tables and without: an index with the right order is used, whatever is known of them.
#[tokio::test]
async fn what_a_search_reads_does_not_grow_with_the_log() {
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    make_events(&watching, EVENTS).await;
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
