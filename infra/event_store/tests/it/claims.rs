use signalbox_domain::{
    identity::{Role, User, UserChanges, UserCommand},
    kernel::{AgentId, ErrorKind, UserId},
    transfer::{Agent, AgentCommand, AgentProfile, AgentRef, Job, JobCommand, JobSpec, NewAgent, NewJob},
};
use uuid::Uuid;

use crate::log::{Log, assert_gapless, assert_rejected, create_user, rename};

async fn agent(log: &Log, name: &str) -> AgentRef {
    let id = log.clock.new_id();
    let profile = AgentProfile { name: name.to_owned(), ..Default::default() };
    log.run::<Agent>(id, AgentCommand::Create(NewAgent { number: 1, profile })).await.unwrap();
    AgentRef { id: AgentId(id), number: 1 }
}

fn create_job(source_agent: AgentRef, destination_agent: AgentRef) -> JobCommand {
    JobCommand::Create(NewJob {
        number: 1,
        owner: UserId(Uuid::nil()),
        spec: spec(source_agent, destination_agent),
    })
}

fn spec(source: AgentRef, destination: AgentRef) -> JobSpec {
    JobSpec::new("nightly", (source, "/out/report.csv"), (destination, "/in/report.csv"))
}

#[tokio::test]
async fn an_address_is_given_to_one_user_at_a_time() {
    let log = Log::start().await;
    let ada = log.user("ada", Role::Operator).await;
    let taken = log.run::<User>(log.clock.new_id(), create_user("ADA", Role::Operator)).await;
    assert_rejected(taken, ErrorKind::Conflict, "email_taken");
    let to = UserChanges {
        email: Some("new@example.org".into()),
        username: Some("new".into()),
        ..Default::default()
    };
    log.run::<User>(ada, UserCommand::Change(to)).await.unwrap();
    log.user("ada", Role::Operator).await;
}

#[tokio::test]
async fn only_one_of_concurrent_users_gets_a_name() {
    let log = Log::start().await;
    let other = log.other_process();
    for round in 0..10 {
        let name = format!("name-{round}");
        let (one, two) = (log.clock.new_id(), log.clock.new_id());
        let results = tokio::join!(
            log.run::<User>(one, create_user(&name, Role::Viewer)),
            other.run::<User>(two, create_user(&name, Role::Viewer)),
        );
        let refused = if results.0.is_ok() { results.1 } else { results.0 };
        assert_rejected(refused, ErrorKind::Conflict, "email_taken");
    }
    assert_gapless(&log.events().await);
}

#[tokio::test]
async fn a_user_may_change_the_case_of_its_own_name() {
    let log = Log::start().await;
    let ada = log.user("ada", Role::Operator).await;
    log.run::<User>(ada, rename("Ada")).await.unwrap();
    let taken = rename("ADA");
    let bob = log.user("bob", Role::Operator).await;
    assert_rejected(log.run::<User>(bob, taken).await, ErrorKind::Conflict, "username_taken");
}

#[tokio::test]
async fn the_last_admin_can_neither_be_deleted_nor_demoted() {
    let log = Log::start().await;
    let ada = log.user("ada", Role::Admin).await;
    log.user("bob", Role::Operator).await;
    let demote = UserCommand::Change(UserChanges { role: Some(Role::Viewer), ..Default::default() });
    for command in [UserCommand::Delete, demote] {
        assert_rejected(log.run::<User>(ada, command).await, ErrorKind::Conflict, "last_admin");
    }
    log.user("eve", Role::Admin).await;
    log.run::<User>(ada, UserCommand::Delete).await.unwrap();
}

async fn delete_both_admins(log: &Log, other: &Log) {
    let mut left = log.user("ada", Role::Admin).await;
    for round in 0..10 {
        let new = log.user(&format!("admin-{round}"), Role::Admin).await;
        let results = tokio::join!(
            log.run::<User>(left, UserCommand::Delete),
            other.run::<User>(new, UserCommand::Delete)
        );
        let refused = if results.0.is_ok() { results.1 } else { results.0 };
        assert_rejected(refused, ErrorKind::Conflict, "last_admin");
        left = if log.stream::<User>(new).await.len() == 1 { new } else { left };
    }
}

#[tokio::test]
async fn two_admins_deleted_at_the_same_moment_leave_one_in_one_process() {
    let log = Log::start().await;
    delete_both_admins(&log, &log).await;
}

#[tokio::test]
async fn two_admins_deleted_at_the_same_moment_leave_one_in_two_processes() {
    let log = Log::start().await;
    delete_both_admins(&log, &log.other_process()).await;
}

#[tokio::test]
async fn a_job_needs_agents_that_exist() {
    let log = Log::start().await;
    let known = agent(&log, "press").await;
    let unknown = AgentRef { id: AgentId(log.clock.new_id()), number: 9 };
    for command in [create_job(known, unknown), create_job(unknown, known)] {
        let refused = log.run::<Job>(log.clock.new_id(), command).await;
        assert_rejected(refused, ErrorKind::Invalid, "unknown_agent");
    }
}

#[tokio::test]
async fn an_agent_with_jobs_cannot_be_deleted() {
    let log = Log::start().await;
    let (press, store, other) =
        (agent(&log, "press").await, agent(&log, "store").await, agent(&log, "other").await);
    let job = log.clock.new_id();
    log.run::<Job>(job, create_job(press, store)).await.unwrap();
    for used in [press, store] {
        let refused = log.run::<Agent>(used.id.0, AgentCommand::Delete).await;
        assert_rejected(refused, ErrorKind::Conflict, "agent_in_use");
    }
    log.run::<Job>(job, JobCommand::Update(spec(other, store))).await.unwrap();
    log.run::<Agent>(press.id.0, AgentCommand::Delete).await.unwrap();
    log.run::<Job>(job, JobCommand::Delete).await.unwrap();
    log.run::<Agent>(store.id.0, AgentCommand::Delete).await.unwrap();
}

#[tokio::test]
async fn a_job_may_move_within_one_agent() {
    let log = Log::start().await;
    let press = agent(&log, "press").await;
    let job = log.clock.new_id();
    log.run::<Job>(job, create_job(press, press)).await.unwrap();
    let refused = log.run::<Agent>(press.id.0, AgentCommand::Delete).await;
    assert_rejected(refused, ErrorKind::Conflict, "agent_in_use");
    log.run::<Job>(job, JobCommand::Delete).await.unwrap();
    log.run::<Agent>(press.id.0, AgentCommand::Delete).await.unwrap();
}

#[tokio::test]
async fn a_job_and_the_deletion_of_its_agent_never_both_succeed() {
    let log = Log::start().await;
    let other = log.other_process();
    let store = agent(&log, "store").await;
    for _ in 0..10 {
        let press = agent(&log, "press").await;
        let (job, gone) = tokio::join!(
            log.run::<Job>(log.clock.new_id(), create_job(press, store)),
            other.run::<Agent>(press.id.0, AgentCommand::Delete),
        );
        assert_ne!(job.is_ok(), gone.is_ok(), "{job:?} {gone:?}");
    }
}
