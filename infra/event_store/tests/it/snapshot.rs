use serde_json::Value;
use signalbox_domain::{
    kernel::{AgentId, Decider, Sha256Hex, UserId},
    transfer::{
        Agent, AgentCommand, AgentProfile, AgentRef, Arrival, JobType, NewAgent, NewTransfer, Retry,
        StagedFile, Transfer, TransferCommand, TransferEvent,
    },
};
use signalbox_test_support::{eventually_some, seconds};
use uuid::Uuid;

use crate::log::{Log, json};

const SOURCE: AgentRef = AgentRef { id: AgentId(Uuid::from_u128(1)), number: 1 };
const DESTINATION: AgentRef = AgentRef { id: AgentId(Uuid::from_u128(2)), number: 2 };
const EVENTS: i64 = 250;

fn request() -> TransferCommand {
    TransferCommand::Request(NewTransfer {
        number: 1,
        owner: UserId(Uuid::nil()),
        job: None,
        kind: JobType::Push,
        source_agent: Some(SOURCE),
        destination_agent: DESTINATION,
        source_path: "/tree/".to_owned(),
        destination_path: "/copy/".to_owned(),
        filename: "tree".to_owned(),
        size: None,
        retry: Retry::default(),
        scheduled_for: None,
    })
}

fn stage(number: i64) -> TransferCommand {
    let sha256 = Sha256Hex::from_bytes(&[number as u8; 32]);
    TransferCommand::Stage { files: vec![StagedFile { name: format!("file-{number:04}"), size: 10, sha256 }] }
}

/// The end of the upload; its event carries a digest over all that the state holds.
fn complete() -> TransferCommand {
    TransferCommand::ReportComplete { agent: SOURCE.id, arrival: Arrival::default() }
}

/// A transfer with `EVENTS` events, whose last snapshot has been stored.
async fn long_transfer(log: &Log) -> Uuid {
    for agent in [SOURCE, DESTINATION] {
        let profile = AgentProfile { name: "agent".to_owned(), ..AgentProfile::default() };
        let new = NewAgent { number: agent.number, profile };
        log.run::<Agent>(agent.id.0, AgentCommand::Create(new)).await.unwrap();
    }
    let id = log.clock.new_id();
    log.run::<Transfer>(id, request()).await.unwrap();
    log.run::<Transfer>(id, TransferCommand::Dispatch).await.unwrap();
    for number in 3..=EVENTS {
        log.run::<Transfer>(id, stage(number)).await.unwrap();
    }
    eventually_some(seconds(10), async || stored(log, id).await.filter(|(sequence, _)| *sequence == 200))
        .await;
    id
}

async fn stored(log: &Log, id: Uuid) -> Option<(i64, Value)> {
    sqlx::query_as("SELECT sequence, state FROM snapshots WHERE aggregate_id = $1")
        .bind(id.to_string())
        .fetch_optional(&log.pool)
        .await
        .unwrap()
}

/// Changes the snapshot, which is derived and may be changed.
async fn tamper(log: &Log, id: Uuid, state: &Value, state_version: i32) {
    sqlx::query("UPDATE snapshots SET state = $2, state_version = $3 WHERE aggregate_id = $1")
        .bind(id.to_string())
        .bind(state)
        .bind(state_version)
        .execute(&log.pool)
        .await
        .unwrap();
}

async fn completed(log: &Log, id: Uuid) -> TransferEvent {
    log.run::<Transfer>(id, complete()).await.unwrap();
    log.stream::<Transfer>(id).await.pop().unwrap()
}

/// The event at the end of the upload, decided on a state that was replayed without snapshots.
async fn by_replay(log: &Log, id: Uuid) -> TransferEvent {
    log.replay::<Transfer>(id).await.decide(complete()).unwrap().remove(0)
}

/// A snapshot in which one of the 200 events' files is missing, to see whether it is used.
async fn without_a_file(log: &Log, id: Uuid) -> Value {
    let (_, mut state) = stored(log, id).await.unwrap();
    state["files"].as_object_mut().unwrap().remove("file-0100").unwrap();
    state
}

#[tokio::test]
async fn a_snapshot_holds_what_plain_replay_gives() {
    let log = Log::start().await;
    let id = long_transfer(&log).await;
    let mut replayed = Transfer::default();
    for event in log.stream::<Transfer>(id).await.into_iter().take(200) {
        replayed.evolve(event);
    }
    assert_eq!(stored(&log, id).await.unwrap(), (200, json(&replayed)));
}

#[tokio::test]
async fn a_long_stream_decides_the_same_as_by_plain_replay() {
    let log = Log::start().await;
    let id = long_transfer(&log).await;
    let expected = by_replay(&log, id).await;
    assert!(matches!(expected, TransferEvent::TransferStaged { files: 248, size: 2480, .. }), "{expected:?}");
    assert_eq!(completed(&log, id).await, expected);
}

#[tokio::test]
async fn a_snapshot_is_what_a_long_stream_starts_from() {
    let log = Log::start().await;
    let id = long_transfer(&log).await;
    tamper(&log, id, &without_a_file(&log, id).await, Transfer::STATE_VERSION).await;
    let event = completed(&log, id).await;
    assert!(matches!(event, TransferEvent::TransferStaged { files: 247, .. }), "{event:?}");
}

#[tokio::test]
async fn a_snapshot_of_another_state_version_is_ignored() {
    let log = Log::start().await;
    let id = long_transfer(&log).await;
    let expected = by_replay(&log, id).await;
    let other = without_a_file(&log, id).await;
    for state_version in [Transfer::STATE_VERSION - 1, Transfer::STATE_VERSION + 1] {
        tamper(&log, id, &other, state_version).await;
        let outcome = log.run::<Transfer>(id, stage(100)).await.unwrap();
        assert_eq!(outcome.version, None, "file 100 is known, so nothing happens");
    }
    assert_eq!(completed(&log, id).await, expected);
}

#[tokio::test]
async fn a_snapshot_that_does_not_decode_is_ignored() {
    let log = Log::start().await;
    let id = long_transfer(&log).await;
    let expected = by_replay(&log, id).await;
    tamper(&log, id, &serde_json::json!({"files": "not a map"}), Transfer::STATE_VERSION).await;
    assert_eq!(completed(&log, id).await, expected);
}

#[tokio::test]
async fn aggregates_without_long_streams_have_no_snapshots() {
    let log = Log::start().await;
    log.user("ada", signalbox_domain::identity::Role::Viewer).await;
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM snapshots").fetch_one(&log.pool).await.unwrap();
    assert_eq!(count, 0);
}
