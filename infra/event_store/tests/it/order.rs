use std::collections::{BTreeMap, HashMap};

use chrono::TimeDelta;
use futures::future::join_all;
use signalbox_clock::Clock;
use signalbox_domain::{
    identity::{Role, Session, SessionCommand, User, UserChanges, UserCommand},
    kernel::UserId,
};
use signalbox_event_store::{Appender, RecordedEvent, head_position, read_after};
use signalbox_test_support::{metadata, seconds};
use sqlx::Executor;
use tokio::time::timeout;

use crate::log::{Log, assert_gapless, create_user, rename};

const WRITERS: usize = 8;
const COMMANDS: usize = 40;

/// Each command but the first appends two events.
async fn write(log: Log, writer: usize) {
    let id = log.user(&format!("writer-{writer}"), Role::Operator).await;
    for round in 1..COMMANDS {
        let changes = UserChanges {
            username: Some(format!("writer-{writer}-{round}")),
            password_hash: Some(format!("$argon2id${round}")),
            ..Default::default()
        };
        log.run::<User>(id, UserCommand::Change(changes)).await.unwrap();
    }
}

/// Reads while others write; an event that shows up late or out of order is a gap here.
async fn follow(log: &Log, total: usize) -> Vec<RecordedEvent> {
    let mut seen: Vec<RecordedEvent> = Vec::new();
    while seen.len() < total {
        let after = seen.len() as i64;
        let mut connection = log.pool.acquire().await.unwrap();
        let events = read_after(&mut connection, after, 50).await.unwrap().events;
        for (event, expected) in events.iter().zip(after + 1..) {
            assert_eq!(event.position, expected, "the reader saw a gap");
        }
        seen.extend(events);
        tokio::task::yield_now().await;
    }
    seen
}

fn assert_streams_are_in_order(events: &[RecordedEvent]) {
    let mut versions = HashMap::new();
    for event in events {
        let version = versions.entry(event.aggregate_id).or_insert(0);
        *version += 1;
        assert_eq!(event.sequence, *version);
    }
}

async fn eight_writers_and_a_reader(processes: Vec<Log>) {
    let reader = processes[0].clone();
    let total = WRITERS * (1 + 2 * (COMMANDS - 1));
    let writers: Vec<_> =
        processes.into_iter().enumerate().map(|(writer, log)| tokio::spawn(write(log, writer))).collect();
    let seen = timeout(seconds(120), follow(&reader, total)).await.unwrap();
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    assert_streams_are_in_order(&seen);
    assert_eq!(seen, reader.events().await);
    assert_eq!(head_position(&reader.pool).await.unwrap(), total as i64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_sees_every_event_of_eight_processes_once_and_in_order() {
    let log = Log::start().await;
    eight_writers_and_a_reader((0..WRITERS).map(|_| log.other_process()).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_sees_every_event_of_a_group_commit_once_and_in_order() {
    let log = Log::start().await;
    eight_writers_and_a_reader(vec![log; WRITERS]).await;
}

#[tokio::test]
async fn appends_wait_for_one_that_is_held_open_and_come_after_it() {
    let log = Log::start().await;
    let id = log.user("first", Role::Viewer).await;
    let mut held = log.hold_head().await;
    let others = (0..4).map(|number| {
        let log = log.other_process();
        tokio::spawn(async move { log.user(&format!("other-{number}"), Role::Viewer).await })
    });
    let others: Vec<_> = others.collect();
    log.waiting_append().await;
    append_by_hand(&mut held, 2, id).await;
    assert_eq!(log.events().await.len(), 1, "nothing is seen of an open append");
    held.commit().await.unwrap();
    for other in others {
        timeout(seconds(10), other).await.unwrap().unwrap();
    }
    let events = log.events().await;
    assert_gapless(&events);
    assert_eq!((events.len(), events[1].aggregate_id), (6, id));
}

async fn append_by_hand(connection: &mut sqlx::PgConnection, position: i64, id: uuid::Uuid) {
    sqlx::query(
        r#"INSERT INTO events VALUES ($1, 'user', $2, 2, 'user_renamed', '1',
            '{"type": "user_renamed", "from": "first", "to": "held"}', '{}', now())"#,
    )
    .bind(position)
    .bind(id.to_string())
    .execute(&mut *connection)
    .await
    .unwrap();
    connection.execute("UPDATE log_head SET position = position + 1").await.unwrap();
}

#[tokio::test]
async fn a_rolled_back_append_leaves_no_gap() {
    let log = Log::start().await;
    let id = log.user("first", Role::Viewer).await;
    let mut held = log.hold_head().await;
    append_by_hand(&mut held, 2, id).await;
    held.rollback().await.unwrap();
    log.user("second", Role::Viewer).await;
    let events = log.events().await;
    assert_gapless(&events);
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn rejected_commands_leave_no_gap() {
    let log = Log::start().await;
    log.user("first", Role::Viewer).await;
    for _ in 0..3 {
        let taken = create_user("first", Role::Viewer);
        log.run::<User>(log.clock.new_id(), taken).await.unwrap_err();
    }
    log.user("second", Role::Viewer).await;
    assert_gapless(&log.events().await);
    assert_eq!(head_position(&log.pool).await.unwrap(), 2);
}

#[tokio::test]
async fn the_heads_are_announced_after_each_commit() {
    let log = Log::start().await;
    let mut heads = log.appender.heads();
    let id = log.user("first", Role::Viewer).await;
    assert_eq!(*heads.borrow_and_update(), BTreeMap::from([("user", 1)]));
    let start = SessionCommand::Start { user: UserId(id), expires_at: log.clock.now() };
    log.run::<Session>(log.clock.new_id(), start).await.unwrap();
    log.run::<User>(id, rename("second")).await.unwrap();
    timeout(seconds(5), heads.changed()).await.unwrap().unwrap();
    assert_eq!(*heads.borrow(), BTreeMap::from([("session", 2), ("user", 3)]));
}

#[tokio::test]
async fn the_announced_head_does_not_go_back_when_a_command_is_repeated() {
    let log = Log::start().await;
    let (id, command) = (log.clock.new_id(), metadata());
    log.run_as::<User>(id, create_user("ada", Role::Viewer), &command).await.unwrap();
    log.user("bob", Role::Viewer).await;
    let held = log.hold_head().await;
    let tasks = [0, 1].map(|_| {
        let (log, command) = (log.clone(), command.clone());
        tokio::spawn(async move { log.run_as::<User>(id, rename("eve"), &command).await })
    });
    log.waiting_append().await;
    held.rollback().await.unwrap();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap().position, Some(1));
    }
    assert_eq!(log.appender.heads().borrow()["user"], 2);
}

/// Sweeps delete by the age of events: with a clock that was days behind, results were too old on arrival.
#[tokio::test]
async fn events_of_a_process_whose_clock_is_behind_are_of_the_servers_time() {
    let log = Log::start().await;
    let clock = Clock::shifted(TimeDelta::days(-30));
    let behind = Log { appender: Appender::start(log.pool.clone(), clock), ..log.clone() };
    behind.user("late", Role::Viewer).await;
    let events = log.events().await;
    assert!((log.clock.now() - events[0].recorded_at).abs() < TimeDelta::hours(1), "{events:?}");
}
