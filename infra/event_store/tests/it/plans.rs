use futures::future::join_all;
use signalbox_clock::Clock;
use signalbox_domain::{
    identity::{Role, User},
    kernel::Decider,
};
use signalbox_event_store::{Appender, read_streams};
use signalbox_test_support::{fresh_database, rows_read};
use uuid::Uuid;

use crate::log::{Log, create_user};

/// The writer's statements are planned while the log is empty. Had they been planned to read whole tables, that many appends
/// would read fifty times as many rows.
#[tokio::test]
async fn what_an_append_reads_does_not_grow_with_the_log() {
    const APPENDS: i64 = 400;
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    let read = rows_read(&watching, async || {
        let log = open(&url).await;
        append_users(&log, APPENDS).await;
        log.pool.close().await;
    })
    .await;
    assert!(read < APPENDS * 4, "{read} rows for {APPENDS} appends");
}

/// Read while the log is small, the plan is kept when it has grown.
#[tokio::test]
async fn what_a_few_streams_cost_does_not_grow_with_the_log() {
    const USERS: i64 = 400;
    const READS: i64 = 20;
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    let rows = rows_read(&watching, async || {
        let log = open(&url).await;
        let few = append_users(&log, 4).await;
        let reader = signalbox_database::connect(&url, 1).await.unwrap();
        for round in 0..2 * READS {
            if round == READS {
                append_users(&log, USERS).await;
            }
            let events = read_streams(&reader, User::TYPE, &few, &["user_created"]).await.unwrap().events;
            assert_eq!(events.iter().map(|event| event.aggregate_id).collect::<Vec<_>>(), few);
        }
        reader.close().await;
        log.pool.close().await;
    })
    .await;
    // Four for each append, as above; one for each event of a stream, or two.
    assert!(rows < USERS * 4 + READS * 2 * 4 * 2, "{rows} rows");
}

async fn open(url: &str) -> Log {
    let pool = signalbox_database::connect(url, 4).await.unwrap();
    let clock = Clock::system();
    Log { appender: Appender::start(pool.clone(), clock.clone()), pool, clock }
}

/// Keys of `count` new users.
async fn append_users(log: &Log, count: i64) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for _ in 0..count / 4 {
        let new: Vec<_> = (0..4).map(|_| log.clock.new_id()).collect();
        join_all(new.iter().map(async |id| {
            log.run::<User>(*id, create_user(&format!("user-{id}"), Role::Viewer)).await.unwrap()
        }))
        .await;
        ids.extend(new);
    }
    ids
}
