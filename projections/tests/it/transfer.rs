use signalbox_domain::transfer::{
    Agent, AgentCommand, AgentProfile, AgentSystem, AgentToken, AgentTokenCommand, AgentType, Arrival, Job,
    JobCommand, JobRef, JobSpec, Leg, NewAgentToken, SkipReason, Transfer, TransferCommand, TransportMode,
};
use signalbox_projections::{
    Word,
    transfer::{AgentRow, JobRow, TransferRow, queries},
};
use uuid::Uuid;

use crate::world::{World, at, digest, file, new_transfer, spec};

const SESSION: Uuid = Uuid::from_u128(5);

async fn agent_row(world: &World, id: Uuid) -> AgentRow {
    world.fold().await;
    queries::agent_by_id(world.pool(), id.into()).await.unwrap().unwrap()
}

async fn job_row(world: &World, job: JobRef) -> JobRow {
    world.fold().await;
    queries::job_by_id(world.pool(), job.id).await.unwrap().unwrap()
}

async fn transfer_row(world: &World, id: Uuid) -> TransferRow {
    world.fold().await;
    queries::transfer_by_id(world.pool(), id.into()).await.unwrap().unwrap()
}

#[tokio::test]
async fn an_agent_is_shown_with_what_people_and_it_itself_say() {
    let world = World::start().await;
    let agent = world.writer.agent(3, "press").await.id.0;
    let row = agent_row(&world, agent).await;
    assert_eq!((row.number, row.name.as_str(), row.status.as_str(), row.version), (3, "press", "offline", 1));
    world.go_to(10);
    let profile = AgentProfile {
        name: "printer".to_owned(),
        kind: AgentType::Client,
        description: Some("in the hall".to_owned()),
    };
    world.writer.run::<Agent>(agent, AgentCommand::Update(profile)).await;
    let system = AgentSystem {
        version: Some("1.2".to_owned()),
        hostname: Some("host".to_owned()),
        system: Some("Linux".to_owned()),
        ip_address: Some("192.0.2.1".to_owned()),
        capabilities: vec!["resume".to_owned(), "tree".to_owned()],
    };
    world.writer.run::<Agent>(agent, AgentCommand::Describe(system)).await;
    let expected = AgentRow {
        name: "printer".to_owned(),
        agent_type: AgentType::Client.into(),
        description: Some("in the hall".to_owned()),
        version_text: Some("1.2".to_owned()),
        hostname: Some("host".to_owned()),
        system: Some("Linux".to_owned()),
        ip_address: Some("192.0.2.1".to_owned()),
        capabilities: vec!["resume".to_owned(), "tree".to_owned()],
        last_seen: Some(at(10)),
        version: 3,
        updated_at: at(10),
        ..row
    };
    assert_eq!(agent_row(&world, agent).await, expected);
    world.servers.finish().await;
}

#[tokio::test]
async fn an_agent_is_online_while_its_session_lasts() {
    let world = World::start().await;
    let agent = world.writer.agent(1, "press").await.id.0;
    let connect = AgentCommand::Connect { session: SESSION, transport: TransportMode::Polling };
    world.go_to(5);
    world.writer.run::<Agent>(agent, connect).await;
    let row = agent_row(&world, agent).await;
    assert_eq!((row.status.as_str(), row.session, row.connected_at), ("online", Some(SESSION), Some(at(5))));
    assert_eq!(row.transport_mode.as_ref().map(Word::as_str), Some("polling"));
    world.go_to(9);
    let disconnect = AgentCommand::Disconnect { session: SESSION, reason: "closed".to_owned() };
    world.writer.run::<Agent>(agent, disconnect).await;
    let row = agent_row(&world, agent).await;
    assert_eq!((row.status.as_str(), row.session, row.last_seen), ("offline", None, Some(at(9))));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_deleted_agent_is_gone_with_its_tokens() {
    let world = World::start().await;
    let (press, store) = (world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    for (number, agent) in [(1, press), (2, press), (3, store), (4, store)] {
        let new = NewAgentToken {
            number,
            name: "token".to_owned(),
            agent,
            description: None,
            secret_sha256: digest(number as u8),
            expires_at: None,
        };
        let id = Uuid::from_u128(number as u128);
        world.writer.run::<AgentToken>(id, AgentTokenCommand::Create(new)).await;
    }
    world.writer.run::<AgentToken>(Uuid::from_u128(3), AgentTokenCommand::Revoke).await;
    world.writer.run::<Agent>(press.id.0, AgentCommand::Delete).await;
    world.fold().await;
    assert_eq!(queries::agent_by_id(world.pool(), press.id).await.unwrap(), None);
    let numbers: Vec<i64> =
        sqlx::query_scalar("SELECT number FROM read.agent_tokens").fetch_all(world.pool()).await.unwrap();
    assert_eq!(numbers, [4]);
    world.servers.finish().await;
}

/// A job that is due at 600 s, 1,200 s and so on.
async fn job(world: &World) -> (JobRef, JobSpec) {
    let spec = spec("nightly", world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    (world.writer.job(5, spec.clone()).await, spec)
}

#[tokio::test]
async fn a_job_is_due_by_its_schedule() {
    let world = World::start().await;
    let (job, spec) = job(&world).await;
    assert_eq!(job_row(&world, job).await.next_run, Some(at(600)));
    world.go_to(601);
    let run = signalbox_domain::transfer::NewTransfer {
        scheduled_for: Some(at(600)),
        ..new_transfer(8, Some(job), &spec)
    };
    world.writer.transfer(run).await;
    let row = job_row(&world, job).await;
    assert_eq!((row.next_run, row.last_run), (Some(at(1200)), Some(at(601))));
    assert_eq!(row.last_transfer_number, Some(8));
    let skip = JobCommand::SkipFiring { scheduled_for: at(1200), reason: SkipReason::Overlap };
    world.writer.run::<Job>(job.id.0, skip).await;
    assert_eq!(job_row(&world, job).await.next_run, Some(at(1800)));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_run_by_hand_does_not_move_the_schedule() {
    let world = World::start().await;
    let (job, spec) = job(&world).await;
    world.go_to(30);
    world.writer.transfer(new_transfer(8, Some(job), &spec)).await;
    let row = job_row(&world, job).await;
    assert_eq!((row.next_run, row.last_run), (Some(at(600)), Some(at(30))));
    world.servers.finish().await;
}

#[tokio::test]
async fn a_job_is_due_only_while_it_is_enabled() {
    let world = World::start().await;
    let (job, enabled) = job(&world).await;
    let disabled = JobSpec { enabled: false, ..enabled.clone() };
    world.writer.run::<Job>(job.id.0, JobCommand::Update(disabled)).await;
    assert_eq!(job_row(&world, job).await.next_run, None);
    world.go_to(700);
    world.writer.run::<Job>(job.id.0, JobCommand::Update(enabled.clone())).await;
    assert_eq!(job_row(&world, job).await.next_run, Some(at(1200)));
    world.go_to(1300);
    let renamed = JobSpec { name: "renamed".to_owned(), ..enabled };
    world.writer.run::<Job>(job.id.0, JobCommand::Update(renamed)).await;
    let row = job_row(&world, job).await;
    assert_eq!(
        (row.settings.name.as_str(), row.next_run),
        ("renamed", Some(at(1200))),
        "the missed firing stays due"
    );
    world.writer.run::<Job>(job.id.0, JobCommand::Delete).await;
    world.fold().await;
    assert_eq!(queries::job_by_id(world.pool(), job.id).await.unwrap(), None);
    world.servers.finish().await;
}

/// A queued transfer of one file from agent 1 to agent 2.
async fn transfer(world: &World) -> (Uuid, JobSpec) {
    let spec = spec("once", world.writer.agent(1, "press").await, world.writer.agent(2, "store").await);
    (world.writer.transfer(new_transfer(8, None, &spec)).await, spec)
}

async fn run(world: &World, id: Uuid, second: i64, command: TransferCommand) -> TransferRow {
    world.go_to(second);
    world.writer.run::<Transfer>(id, command).await;
    transfer_row(world, id).await
}

fn step(row: &TransferRow) -> (&str, &str, i64, i64) {
    (row.status.as_str(), row.phase.as_str(), row.uploaded, row.downloaded)
}

#[tokio::test]
async fn a_transfer_is_shown_on_its_whole_way() {
    let world = World::start().await;
    let (id, spec) = transfer(&world).await;
    let row = transfer_row(&world, id).await;
    assert_eq!((step(&row), row.started_at), (("pending", "queued", 0, 0), None));
    let row = run(&world, id, 1, TransferCommand::Dispatch).await;
    assert_eq!((step(&row), row.attempts), (("pending", "dispatched", 0, 0), 1));
    let upload = TransferCommand::Progress { leg: Leg::Upload, bytes: 40, total: Some(100), attempt: None };
    let row = run(&world, id, 2, upload).await;
    assert_eq!(
        (step(&row), row.size, row.started_at),
        (("running", "uploading", 40, 0), Some(100), Some(at(2)))
    );
    let row = run(&world, id, 3, TransferCommand::Stage { files: vec![file("report.csv", 100)] }).await;
    assert_eq!((row.phase.as_str(), row.file_count), ("uploading", 1));
    let at_source =
        TransferCommand::ReportComplete { agent: spec.source_agent.id, arrival: Arrival::default() };
    let row = run(&world, id, 4, at_source).await;
    assert_eq!(
        (step(&row), row.sha256.clone()),
        (("running", "staged", 100, 0), Some(digest(100).to_string()))
    );
    let download =
        TransferCommand::Progress { leg: Leg::Download, bytes: 60, total: Some(100), attempt: None };
    let row = run(&world, id, 5, download).await;
    assert_eq!(step(&row), ("running", "downloading", 100, 60));
    let arrival = Arrival { sha256: Some(digest(100)), ..Default::default() };
    let at_destination = TransferCommand::ReportComplete { agent: spec.destination_agent.id, arrival };
    let row = run(&world, id, 6, at_destination).await;
    assert_eq!(step(&row), ("completed", "done", 100, 100));
    assert_eq!((row.proven, row.finished_at, row.cleaned), (true, Some(at(6)), false));
    let row = run(&world, id, 7, TransferCommand::RecordCleanup).await;
    assert_eq!((row.cleaned, row.updated_at, row.finished_at), (true, at(7), Some(at(6))));
    world.servers.finish().await;
}

fn error(world_spec: &JobSpec, error: &str) -> TransferCommand {
    TransferCommand::ReportError {
        agent: world_spec.source_agent.id,
        attempt: None,
        error: error.to_owned(),
        retryable: true,
    }
}

#[tokio::test]
async fn a_transfer_is_retried_after_a_delay_and_then_fails() {
    let world = World::start().await;
    let (id, spec) = transfer(&world).await;
    run(&world, id, 1, TransferCommand::Dispatch).await;
    let row = run(&world, id, 2, error(&spec, "the line broke")).await;
    assert_eq!((row.phase.as_str(), row.not_before), ("queued", Some(at(32))));
    assert_eq!(row.error.as_deref(), Some("the line broke"));
    let row = run(&world, id, 40, TransferCommand::Dispatch).await;
    assert_eq!((row.phase.as_str(), row.attempts), ("dispatched", 2));
    let row = run(&world, id, 41, error(&spec, "and again")).await;
    assert_eq!((row.status.as_str(), row.phase.as_str(), row.not_before), ("failed", "done", None));
    assert_eq!((row.error.as_deref(), row.finished_at), (Some("and again"), Some(at(41))));
    world.servers.finish().await;
}

#[tokio::test]
async fn what_was_staged_in_vain_is_shown_no_longer() {
    let world = World::start().await;
    let (id, spec) = transfer(&world).await;
    run(&world, id, 1, TransferCommand::Dispatch).await;
    run(&world, id, 2, TransferCommand::Stage { files: vec![file("report.csv", 100)] }).await;
    let arrival = Arrival { sha256: Some(digest(1)), ..Default::default() };
    let differs = TransferCommand::ReportComplete { agent: spec.source_agent.id, arrival };
    let row = run(&world, id, 3, differs).await;
    assert_eq!((row.phase.as_str(), row.file_count, row.uploaded), ("queued", 0, 0));
    assert_eq!(queries::transfer_files(world.pool(), id.into(), 10).await.unwrap(), []);
    world.servers.finish().await;
}

#[tokio::test]
async fn a_cancelled_transfer_has_ended() {
    let world = World::start().await;
    let (id, _) = transfer(&world).await;
    let row = run(&world, id, 3, TransferCommand::Cancel).await;
    assert_eq!(
        (row.status.as_str(), row.phase.as_str(), row.finished_at),
        ("cancelled", "done", Some(at(3)))
    );
    world.servers.finish().await;
}
