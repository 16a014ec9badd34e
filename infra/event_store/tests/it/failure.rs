use std::time::Duration;

use futures::future::join_all;
use signalbox_domain::{
    identity::{Role, User},
    kernel::{ErrorKind, Rejection},
    transfer::{Agent, AgentCommand, AgentProfile, AgentSystem, NewAgent},
};
use signalbox_event_store::ExecuteError;
use signalbox_test_support::{eventually, metadata, seconds};
use sqlx::Executor;
use tokio::time::timeout;

use crate::log::{Log, assert_gapless, assert_rejected, create_user, rename};

async fn terminate(log: &Log, backend: i32) {
    sqlx::query("SELECT pg_terminate_backend($1)").bind(backend).execute(&log.pool).await.unwrap();
}

#[tokio::test]
async fn a_command_on_a_lost_connection_succeeds_once_repeated() {
    let log = Log::start().await;
    let (id, command) = (log.clock.new_id(), metadata());
    let held = log.hold_head().await;
    let sender = {
        let (log, command) = (log.clone(), command.clone());
        tokio::spawn(async move { log.run_as::<User>(id, create_user("ada", Role::Viewer), &command).await })
    };
    terminate(&log, log.waiting_append().await).await;
    let result = timeout(seconds(10), sender).await.unwrap().unwrap();
    assert!(matches!(result, Err(ExecuteError::Unavailable(_))), "{result:?}");
    held.rollback().await.unwrap();

    for _ in 0..2 {
        let again = log.run_as::<User>(id, create_user("ada", Role::Viewer), &command).await.unwrap();
        assert_eq!(again.position, Some(1));
    }
    assert_eq!(log.events().await.len(), 1);
}

#[tokio::test]
async fn a_stream_that_cannot_be_loaded_now_is_unavailable() {
    let log = Log::start().await;
    let id = log.user("ada", Role::Viewer).await;
    log.pool.close().await;
    let result = log.run::<User>(id, rename("eve")).await;
    assert!(matches!(result, Err(ExecuteError::Unavailable(_))), "{result:?}");
}

#[tokio::test]
async fn a_load_that_is_cut_off_is_unavailable() {
    let log = Log::start().await;
    let id = log.user("ada", Role::Viewer).await;
    let mut lock = signalbox_database::begin(&log.pool, "BEGIN").await.unwrap();
    lock.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let loading = {
        let log = log.clone();
        tokio::spawn(async move { log.run::<User>(id, rename("eve")).await })
    };
    let cut_off = async || {
        let terminated: Vec<bool> = sqlx::query_scalar(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_all(&log.pool)
        .await
        .unwrap();
        !terminated.is_empty()
    };
    eventually(seconds(10), cut_off).await;
    let result = timeout(seconds(10), loading).await.unwrap().unwrap();
    assert!(matches!(result, Err(ExecuteError::Unavailable(_))), "{result:?}");
}

#[tokio::test]
async fn a_full_disk_is_named_and_the_command_is_carried_out_once_there_is_space() {
    let log = Log::start().await;
    let (id, command) = (log.clock.new_id(), metadata());
    sqlx::raw_sql(
        "CREATE FUNCTION refuse_for_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
         CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_for_space()",
    )
    .execute(&log.pool)
    .await
    .unwrap();
    let result = log.run_as::<User>(id, create_user("ada", Role::Viewer), &command).await;
    assert!(matches!(result, Err(ExecuteError::DiskFull)), "{result:?}");
    let rejection = Rejection::from(result.unwrap_err());
    assert!(rejection.kind == ErrorKind::Unavailable && rejection.is_database_full(), "{rejection:?}");
    assert!(rejection.message.contains("disk of the database is full"), "{rejection}");
    log.pool.execute("DROP TRIGGER full_disk ON events").await.unwrap();
    log.run_as::<User>(id, create_user("ada", Role::Viewer), &command).await.unwrap();
    assert_eq!(log.events().await.len(), 1);
}

#[tokio::test]
async fn a_caller_is_not_answered_before_the_commit() {
    let log = Log::start().await;
    let held = log.hold_head().await;
    let sender = {
        let log = log.clone();
        tokio::spawn(async move { log.user("ada", Role::Viewer).await })
    };
    log.waiting_append().await;
    assert!(!sender.is_finished());
    held.rollback().await.unwrap();
    timeout(Duration::from_secs(10), sender).await.unwrap().unwrap();
    assert_eq!(log.events().await.len(), 1);
}

async fn agent(log: &Log) -> uuid::Uuid {
    let id = log.clock.new_id();
    let profile = AgentProfile { name: "press".to_owned(), ..Default::default() };
    log.run::<Agent>(id, AgentCommand::Create(NewAgent { number: 1, profile })).await.unwrap();
    id
}

/// PostgreSQL stores no U+0000, and refuses the whole statement that holds one.
fn unstorable() -> AgentCommand {
    AgentCommand::Describe(AgentSystem { hostname: Some("a\0b".to_owned()), ..Default::default() })
}

#[tokio::test]
async fn a_command_that_cannot_be_stored_is_refused_without_harm_to_those_beside_it() {
    let log = Log::start().await;
    let press = agent(&log).await;
    let held = log.hold_head().await;
    // The first one waits for the lock; the others gather behind it and share the next transaction.
    let first = tokio::spawn({
        let log = log.clone();
        async move { log.user("first", Role::Viewer).await }
    });
    log.waiting_append().await;
    let bad = tokio::spawn({
        let log = log.clone();
        async move { log.run::<Agent>(press, unstorable()).await }
    });
    let good = (0..4).map(|number| {
        let log = log.clone();
        tokio::spawn(async move { log.user(&format!("good-{number}"), Role::Viewer).await })
    });
    let good: Vec<_> = good.collect();
    held.rollback().await.unwrap();
    first.await.unwrap();
    assert_rejected(bad.await.unwrap(), ErrorKind::Invalid, "invalid_field");
    for result in join_all(good).await {
        result.unwrap();
    }
    assert_gapless(&log.events().await);
}

/// Appends an event to the stream of a user, as another program may have done.
async fn append(log: &Log, id: uuid::Uuid, (word, version): (&str, &str), payload: serde_json::Value) {
    let insert = "WITH head AS (UPDATE log_head SET position = position + 1 WHERE log = 'events' RETURNING position)
        INSERT INTO events SELECT position, 'user', $1,
               (SELECT count(*) + 1 FROM events WHERE aggregate_type = 'user' AND aggregate_id = $1), $2, $3, $4, '{}', now()
          FROM head";
    let insert = sqlx::query(insert).bind(id.to_string()).bind(word).bind(version).bind(payload);
    insert.execute(&log.pool).await.unwrap();
}

/// During a rolling upgrade, a process of the newer release can read its events; no process can read damaged ones.
#[tokio::test]
async fn a_stream_of_a_newer_release_is_not_taken_for_a_damaged_one() {
    let log = Log::start().await;
    for (number, (word, version), payload, is_newer) in [
        (
            0,
            ("user_renamed", "99"),
            serde_json::json!({"type": "user_renamed", "from": "a", "to": "b"}),
            true,
        ),
        (1, ("user_paused", "1"), serde_json::json!({"type": "user_paused"}), true),
        (2, ("user_renamed", "1"), serde_json::json!({"type": "nonsense"}), false),
    ] {
        let id = log.user(&format!("user-{number}"), Role::Viewer).await;
        append(&log, id, (word, version), payload).await;
        let refused = log.run::<User>(id, rename("eve")).await.unwrap_err();
        assert_eq!(matches!(refused, ExecuteError::Newer(_)), is_newer, "{refused:?}");
        let refused = Rejection::from(refused);
        assert_eq!((refused.is_newer_history(), refused.is_unreadable_history()), (is_newer, !is_newer));
    }
}
