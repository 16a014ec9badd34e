use futures::future::join_all;
use signalbox_clock::Clock;
use signalbox_domain::identity::{Role, User};
use signalbox_event_store::Appender;
use signalbox_test_support::{fresh_database, rows_read};

use crate::log::{Log, create_user};

/// The writer's statements are planned while the log is empty. Had they been planned to read whole tables, that many appends
/// would read fifty times as many rows.
#[tokio::test]
async fn what_an_append_reads_does_not_grow_with_the_log() {
    const APPENDS: i64 = 400;
    let url = fresh_database().await;
    let watching = signalbox_database::connect(&url, 1).await.unwrap();
    let read = rows_read(&watching, async || {
        let pool = signalbox_database::connect(&url, 4).await.unwrap();
        let clock = Clock::system();
        let log = Log { appender: Appender::start(pool.clone(), clock.clone()), pool, clock };
        for round in 0..APPENDS / 4 {
            join_all((0..4).map(|number| {
                let (log, id, name) = (&log, log.clock.new_id(), format!("user-{round}-{number}"));
                async move { log.run::<User>(id, create_user(&name, Role::Viewer)).await.unwrap() }
            }))
            .await;
        }
        log.pool.close().await;
    })
    .await;
    assert!(read < APPENDS * 4, "{read} rows for {APPENDS} appends");
}
