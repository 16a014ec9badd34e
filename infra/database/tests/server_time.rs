//! PostgreSQL's time, without asking for it each time.

use chrono::{DateTime, TimeDelta};
use signalbox_clock::Clock;
use signalbox_database::{CachedServerClock, connect, server_time};
use signalbox_test_support::{eventually, fresh_database, seconds};

#[tokio::test]
async fn a_clock_that_was_read_lately_continues_without_an_answer() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let (clock, cached) = (Clock::shifted(TimeDelta::hours(1)), CachedServerClock::default());
    let before = server_time(&pool, &clock).await.unwrap();
    let first = cached.get(&pool, &clock).await.unwrap().now();
    assert!(first >= before, "{first} {before}");
    let own = clock.now() - first;
    assert!(own > TimeDelta::minutes(59), "it is that of the machine, which is wrong: {own}");

    pool.close().await;
    let second = cached.clone().get(&pool, &clock).await.expect("the clock was just read").now();
    assert!(second >= first, "{second} {first}");
    eventually(seconds(10), async || cached.get(&pool, &clock).await.is_err()).await;
}

#[tokio::test]
async fn a_clock_that_a_test_moves_is_never_old() {
    let pool = connect(&fresh_database().await, 2).await.unwrap();
    let (clock, cached) = (Clock::manual(DateTime::UNIX_EPOCH), CachedServerClock::default());
    assert_eq!(cached.get(&pool, &clock).await.unwrap().now(), DateTime::UNIX_EPOCH);
    clock.advance(TimeDelta::seconds(3));
    assert_eq!(cached.get(&pool, &clock).await.unwrap().now().timestamp(), 3);
}
