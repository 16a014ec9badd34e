use futures::future::join_all;
use signalbox_domain::{
    identity::{Role, User, UserChanges, UserCommand, UserEvent},
    kernel::{CommandOutcome, ErrorKind},
};
use signalbox_test_support::metadata;
use sqlx::Executor;

use crate::log::{Log, assert_rejected, rename};

/// Every change must have been decided on the result of the one before it.
fn assert_no_lost_update(events: &[UserEvent]) {
    let mut name = "start".to_owned();
    for event in events {
        if let UserEvent::UserRenamed { from, to } = event {
            assert_eq!(*from, name);
            name = to.clone();
        }
    }
}

#[tokio::test]
async fn commands_of_several_processes_on_one_stream_are_decided_on_the_newest_state() {
    let log = Log::start().await;
    let id = log.user("start", Role::Viewer).await;
    // Each process sends its next command as soon as one is carried out, so that conflicts happen all the time.
    let processes = (0..4).map(|process| {
        let log = log.other_process();
        async move {
            for number in 0..50 {
                log.run::<User>(id, rename(&format!("name-{process}-{number}"))).await.unwrap();
            }
        }
    });
    join_all(processes).await;
    let events = log.stream::<User>(id).await;
    assert_eq!(events.len(), 1 + 4 * 50);
    assert_no_lost_update(&events);
}

#[tokio::test]
async fn commands_of_one_process_on_one_stream_both_take_effect() {
    let log = Log::start().await;
    let id = log.user("start", Role::Viewer).await;
    let address =
        UserCommand::Change(UserChanges { email: Some("new@example.org".into()), ..Default::default() });
    let (one, other) = tokio::join!(log.run::<User>(id, rename("renamed")), log.run::<User>(id, address));
    let mut versions = [one.unwrap().version, other.unwrap().version];
    versions.sort();
    assert_eq!(versions, [Some(2), Some(3)]);
}

#[tokio::test]
async fn a_command_is_abandoned_after_fifty_conflicts() {
    let log = Log::start().await;
    let id = log.user("start", Role::Viewer).await;
    log.pool.execute(ALWAYS_CONFLICT).await.unwrap();
    assert_rejected(log.run::<User>(id, rename("late")).await, ErrorKind::Conflict, "concurrent_changes");
    let attempts: i64 =
        sqlx::query_scalar("SELECT last_value FROM attempts").fetch_one(&log.pool).await.unwrap();
    assert_eq!(attempts, 1 + 50);
}

const ALWAYS_CONFLICT: &str = r"
CREATE SEQUENCE attempts;
DROP FUNCTION append_events;
CREATE FUNCTION append_events(uuid[], text[], text[], bigint[], int[], jsonb[], int[], text[], text[], text[], int[],
    bigint[], text[], text[], jsonb[], timestamptz)
RETURNS TABLE (outcome text, stream_version bigint, log_position bigint, detail text) LANGUAGE sql AS $$
    SELECT 'conflict', nextval('attempts'), NULL::bigint, NULL::text
$$";

#[tokio::test]
async fn a_caller_that_insists_on_an_old_version_is_refused() {
    let log = Log::start().await;
    let id = log.user("start", Role::Viewer).await;
    log.run_expecting::<User>(id, Some(1), rename("second"), &metadata()).await.unwrap();
    let late = log.run_expecting::<User>(id, Some(1), rename("third"), &metadata()).await;
    assert_rejected(late, ErrorKind::PreconditionFailed, "version_mismatch");
    assert_eq!(log.events().await.len(), 2);
}

#[tokio::test]
async fn of_two_callers_that_insist_on_one_version_one_is_refused() {
    let log = Log::start().await;
    let id = log.user("start", Role::Viewer).await;
    let (one, other) = (log.other_process(), log.other_process());
    let (first, second) = (metadata(), metadata());
    let results = tokio::join!(
        one.run_expecting::<User>(id, Some(1), rename("one"), &first),
        other.run_expecting::<User>(id, Some(1), rename("other"), &second),
    );
    let refused = match results {
        (Ok(_), refused) | (refused, Ok(_)) => refused,
        neither => panic!("{neither:?}"),
    };
    assert_rejected(refused, ErrorKind::PreconditionFailed, "version_mismatch");
}

#[tokio::test]
async fn a_repeated_command_gets_its_first_answer_although_the_version_has_moved_on() {
    let log = Log::start().await;
    let id = log.user("start", Role::Viewer).await;
    let command = metadata();
    let first = log.run_expecting::<User>(id, Some(1), rename("second"), &command).await.unwrap();
    let again = log.run_expecting::<User>(id, Some(1), rename("second"), &command).await.unwrap();
    assert_eq!(again, CommandOutcome { repeated: true, ..first });
}
