//! A history in which every kind of thing happens, written by one task.

use signalbox_domain::{
    identity::{
        ApiToken, ApiTokenCommand, NewApiToken, Role, Session, SessionCommand, User, UserChanges, UserCommand,
    },
    kernel::UserId,
    transfer::{
        Agent, AgentCommand, AgentToken, AgentTokenCommand, Arrival, Job, JobCommand, JobSpec, NewAgentToken,
        NewTransfer, Transfer, TransferCommand, TransportMode,
    },
};
use uuid::Uuid;

use crate::world::{Writer, digest, file, new_transfer, spec};

pub(crate) async fn users(writer: &Writer, number: i64) {
    let name = format!("user-{number}");
    let id = writer.user(number, &name, Role::Operator).await;
    let session = writer.clock.new_id();
    let expires_at = writer.clock.now();
    let start = || SessionCommand::Start { user: UserId(id), expires_at };
    writer.run::<Session>(session, start()).await;
    let new = NewApiToken {
        user: UserId(id),
        name: name.clone(),
        secret_sha256: digest(number as u8),
        expires_at: None,
    };
    let create = || ApiTokenCommand::Create(new.clone());
    let (kept, revoked) = (writer.clock.new_id(), writer.clock.new_id());
    writer.run::<ApiToken>(kept, create()).await;
    writer.run::<ApiToken>(revoked, create()).await;
    writer.run::<ApiToken>(revoked, ApiTokenCommand::Revoke).await;
    let changes = UserChanges {
        username: Some(format!("renamed-{number}")),
        password_hash: Some("$argon2id$new".to_owned()),
        ..Default::default()
    };
    writer.run::<User>(id, UserCommand::Change(changes)).await;
    writer.run::<Session>(session, SessionCommand::Renew { expires_at }).await;
    if number % 2 == 0 {
        writer.run::<User>(id, UserCommand::Delete).await;
        // A login, and a new token, that were under way when the user was deleted.
        writer.run::<Session>(writer.clock.new_id(), start()).await;
        writer.run::<ApiToken>(writer.clock.new_id(), create()).await;
    }
    writer.run::<Session>(session, SessionCommand::End).await;
}

pub(crate) async fn transfers(writer: &Writer, number: i64) {
    let (source, destination) = (writer.agent(number, "press").await, writer.agent(-number, "store").await);
    let spec = spec("nightly", source, destination);
    let connect = AgentCommand::Connect { session: Uuid::from_u128(9), transport: TransportMode::Websocket };
    writer.run::<Agent>(source.id.0, connect).await;
    token(writer, number, source).await;
    let job = writer.job(number, spec.clone()).await;
    let run = new_transfer(number, Some(job), &spec);
    let firing = NewTransfer { scheduled_for: Some(writer.clock.now()), ..run.clone() };
    move_file(writer, writer.transfer(firing).await, &spec).await;
    writer.transfer(run).await;
    writer.run::<Job>(job.id.0, JobCommand::Update(JobSpec { enabled: number % 3 == 0, ..spec })).await;
    if number % 2 == 0 {
        writer.run::<Job>(job.id.0, JobCommand::Delete).await;
        writer.run::<Agent>(source.id.0, AgentCommand::Delete).await;
    }
}

async fn token(writer: &Writer, number: i64, agent: signalbox_domain::transfer::AgentRef) {
    let new = NewAgentToken {
        number,
        name: "token".to_owned(),
        agent,
        description: None,
        secret_sha256: digest(number as u8),
        expires_at: None,
    };
    writer.run::<AgentToken>(writer.clock.new_id(), AgentTokenCommand::Create(new)).await;
}

/// In vain first, then well.
async fn move_file(writer: &Writer, id: Uuid, spec: &JobSpec) {
    let told = |agent, sha256| TransferCommand::ReportComplete {
        agent,
        arrival: Arrival { sha256: Some(sha256), ..Default::default() },
    };
    for (name, reported) in [("wrong.csv", digest(1)), ("report.csv", digest(100))] {
        writer.run::<Transfer>(id, TransferCommand::Dispatch).await;
        writer.run::<Transfer>(id, TransferCommand::Stage { files: vec![file(name, 100)] }).await;
        writer.run::<Transfer>(id, told(spec.source_agent.id, reported)).await;
    }
    writer
        .run::<Transfer>(
            id,
            TransferCommand::Progress {
                leg: signalbox_domain::transfer::Leg::Download,
                bytes: 50,
                total: None,
            },
        )
        .await;
    writer.run::<Transfer>(id, told(spec.destination_agent.id, digest(100))).await;
}
