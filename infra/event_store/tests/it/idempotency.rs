use futures::future::join_all;
use signalbox_domain::{
    identity::{Role, Session, SessionCommand, User, UserCommand},
    kernel::{CommandOutcome, UserId},
};
use signalbox_test_support::{eventually, metadata, seconds};
use uuid::Uuid;

use crate::log::{Log, create_user};

/// Every renewal is an event, so a second effect would show.
fn renew(log: &Log) -> SessionCommand {
    SessionCommand::Renew { expires_at: log.clock.now() }
}

async fn session(log: &Log) -> Uuid {
    let id = log.clock.new_id();
    let start = SessionCommand::Start { user: UserId(log.clock.new_id()), expires_at: log.clock.now() };
    log.run::<Session>(id, start).await.unwrap();
    id
}

#[tokio::test]
async fn a_repetition_after_a_lost_reply_gets_the_first_answer() {
    let log = Log::start().await;
    let id = session(&log).await;
    let command = metadata();
    let held = log.hold_head().await;
    let sender = {
        let (log, command) = (log.clone(), command.clone());
        tokio::spawn(async move { log.run_as::<Session>(id, renew(&log), &command).await })
    };
    log.waiting_append().await;
    sender.abort();
    assert!(sender.await.unwrap_err().is_cancelled());
    held.rollback().await.unwrap();
    eventually(seconds(10), async || log.events().await.len() == 2).await;

    let again = log.run_as::<Session>(id, renew(&log), &command).await.unwrap();
    assert_eq!((again.version, again.position), (Some(2), Some(2)));
    assert_eq!(log.events().await.len(), 2);
}

#[tokio::test]
async fn one_command_id_from_eight_tasks_has_one_effect() {
    let log = Log::start().await;
    let id = session(&log).await;
    let command = metadata();
    let processes = [log.clone(), log.other_process()];
    let tasks = (0..8).map(|number| {
        let (log, command) = (&processes[number % 2], &command);
        async move { log.run_as::<Session>(id, renew(log), command).await.unwrap() }
    });
    let outcomes = join_all(tasks).await;
    assert!(outcomes.iter().all(|outcome| outcome.position == Some(2)), "{outcomes:?}");
    assert_eq!(log.events().await.len(), 2);
}

#[tokio::test]
async fn one_creation_from_eight_tasks_makes_one_user() {
    let log = Log::start().await;
    let (id, command) = (log.clock.new_id(), metadata());
    let processes = [log.clone(), log.other_process()];
    let tasks = (0..8).map(|number| {
        let (log, command) = (&processes[number % 2], &command);
        async move { log.run_as::<User>(id, create_user("ada", Role::Admin), command).await.unwrap() }
    });
    let outcomes = join_all(tasks).await;
    assert!(outcomes.iter().all(|outcome| outcome.position == Some(1)), "{outcomes:?}");
}

#[tokio::test]
async fn a_repeated_deletion_succeeds_again() {
    let log = Log::start().await;
    let id = log.user("ada", Role::Viewer).await;
    let command = metadata();
    let first = log.run_as::<User>(id, UserCommand::Delete, &command).await.unwrap();
    let again = log.run_as::<User>(id, UserCommand::Delete, &command).await.unwrap();
    assert_eq!(again, CommandOutcome { repeated: true, ..first });
    log.run::<User>(id, UserCommand::Delete).await.unwrap_err();
}

#[tokio::test]
async fn a_command_without_effect_has_neither_version_nor_position() {
    let log = Log::start().await;
    let id = session(&log).await;
    log.run::<Session>(id, SessionCommand::End).await.unwrap();
    let outcome = log.run::<Session>(id, SessionCommand::End).await.unwrap();
    assert_eq!((outcome.version, outcome.position), (None, None));
}
