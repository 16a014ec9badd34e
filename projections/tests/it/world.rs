//! A log and its read models, driven step by step.

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use serde_json::Value;
use signalbox_clock::Clock;
use signalbox_domain::{
    identity::{NewUser, Role, User, UserCommand},
    kernel::{AgentId, CommandOutcome, Decider, JobId, Sha256Hex, UserId},
    monitoring::{Channel, ChannelCommand, ChannelSpec, ChannelType, NewChannel},
    transfer::{
        Agent, AgentCommand, AgentProfile, AgentRef, Job, JobCommand, JobRef, JobSpec, NewAgent, NewJob,
        NewTransfer, Retry, Schedule, StagedFile, Transfer, TransferCommand,
    },
};
use signalbox_event_store::{Appender, Execution, execute};
use signalbox_projections::{
    Projection, Runner, automation::AutomationProjection, extraction::ExtractionProjection,
    fleet::FleetProjection, identity::IdentityProjection, monitoring::MonitoringProjection,
    transfer::TransferProjection,
};
use signalbox_test_support::{TestServers, metadata};
use sqlx::PgPool;
use uuid::Uuid;

pub(crate) const OWNER: UserId = UserId(Uuid::from_u128(77));

pub(crate) struct World {
    pub(crate) servers: TestServers,
    pub(crate) clock: Clock,
    pub(crate) writer: Writer,
}

/// Carries out commands; clones are used by tasks.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) pool: PgPool,
    appender: Appender,
    pub(crate) clock: Clock,
}

impl World {
    pub(crate) async fn start() -> Self {
        let servers = TestServers::start().await;
        let clock = Clock::manual(at(0));
        let appender = Appender::start(servers.pool.clone(), clock.clone());
        let writer = Writer { pool: servers.pool.clone(), appender, clock: clock.clone() };
        Self { servers, clock, writer }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.servers.pool
    }

    /// How many users are shown.
    pub(crate) async fn users(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM read.users").fetch_one(self.pool()).await.unwrap()
    }

    pub(crate) async fn runner<P: Projection>(&self) -> Runner<P> {
        Runner::start(self.servers.pool.clone(), self.servers.bus.clone()).await.unwrap()
    }

    /// Applies all that is in the log to all contexts.
    pub(crate) async fn fold(&self) {
        catch_up(&mut self.runner::<AutomationProjection>().await).await;
        catch_up(&mut self.runner::<ExtractionProjection>().await).await;
        catch_up(&mut self.runner::<FleetProjection>().await).await;
        catch_up(&mut self.runner::<IdentityProjection>().await).await;
        catch_up(&mut self.runner::<MonitoringProjection>().await).await;
        catch_up(&mut self.runner::<TransferProjection>().await).await;
    }

    /// Moves the clock to `seconds` after the beginning.
    pub(crate) fn go_to(&self, seconds: i64) {
        self.clock.advance(at(seconds) - self.clock.now());
    }
}

pub(crate) async fn catch_up<P: Projection>(runner: &mut Runner<P>) {
    while runner.step().await.unwrap() > 0 {}
}

/// `seconds` after the beginning of the test's time.
pub(crate) fn at(seconds: i64) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 3, 1, 10, 0, 0).unwrap() + TimeDelta::seconds(seconds)
}

impl Writer {
    pub(crate) async fn run<D: Decider>(&self, id: Uuid, command: D::Command) -> CommandOutcome {
        let execution = Execution { aggregate_id: id, expected_version: None, metadata: metadata(), command };
        execute::<D>(&self.pool, &self.appender, execution).await.unwrap()
    }

    pub(crate) async fn user(&self, number: i64, name: &str, role: Role) -> Uuid {
        let id = self.clock.new_id();
        let new = NewUser {
            number,
            email: format!("{name}@Example.org"),
            username: name.to_owned(),
            role,
            password_hash: "$argon2id$".to_owned(),
        };
        self.run::<User>(id, UserCommand::Create(new)).await;
        id
    }

    pub(crate) async fn channel(&self, number: i64, name: &str) -> Uuid {
        let id = self.clock.new_id();
        let spec = ChannelSpec::new(format!("{name} {number}"), ChannelType::Sensor);
        let new = NewChannel { number: number as i32, owner: OWNER, spec };
        self.run::<Channel>(id, ChannelCommand::Create(new)).await;
        id
    }

    pub(crate) async fn agent(&self, number: i64, name: &str) -> AgentRef {
        let id = self.clock.new_id();
        let profile = AgentProfile { name: name.to_owned(), ..Default::default() };
        self.run::<Agent>(id, AgentCommand::Create(NewAgent { number, profile })).await;
        AgentRef { id: AgentId(id), number }
    }

    pub(crate) async fn job(&self, number: i64, spec: JobSpec) -> JobRef {
        let id = self.clock.new_id();
        self.run::<Job>(id, JobCommand::Create(NewJob { number, owner: OWNER, spec })).await;
        JobRef { id: JobId(id), number }
    }

    pub(crate) async fn transfer(&self, new: NewTransfer) -> Uuid {
        let id = self.clock.new_id();
        self.run::<Transfer>(id, TransferCommand::Request(new)).await;
        id
    }
}

/// Every ten minutes, from `source` to `destination`.
pub(crate) fn spec(name: &str, source: AgentRef, destination: AgentRef) -> JobSpec {
    JobSpec {
        schedule: Some(Schedule { cron: "0 */10 * * * *".to_owned(), timezone: "UTC".to_owned() }),
        retry: Retry { max_attempts: 2, backoff_seconds: 30 },
        ..JobSpec::new(name, (source, "/out/report.csv"), (destination, "/in/report.csv"))
    }
}

pub(crate) fn new_transfer(number: i64, job: Option<JobRef>, spec: &JobSpec) -> NewTransfer {
    NewTransfer {
        number,
        owner: OWNER,
        job,
        kind: spec.kind,
        source_agent: Some(spec.source_agent),
        destination_agent: spec.destination_agent,
        source_path: spec.source_path.clone(),
        destination_path: spec.destination_path.clone(),
        filename: "report.csv".to_owned(),
        size: None,
        retry: spec.retry,
        scheduled_for: None,
    }
}

pub(crate) fn file(name: &str, size: u64) -> StagedFile {
    StagedFile { name: name.to_owned(), size, sha256: digest(size as u8) }
}

pub(crate) fn digest(byte: u8) -> Sha256Hex {
    Sha256Hex::from_bytes(&[byte; 32])
}

/// All rows of the tables of `P` in `schema`, as sorted text.
pub(crate) async fn dump<P: Projection>(
    connection: &mut sqlx::PgConnection,
    schema: &str,
) -> Vec<(String, Value)> {
    let mut rows = Vec::new();
    for table in P::TABLES {
        let sql = format!("SELECT to_jsonb(t) FROM {schema}.{table} t ORDER BY t::text");
        let found: Vec<Value> = sqlx::query_scalar(&sql).fetch_all(&mut *connection).await.unwrap();
        rows.extend(found.into_iter().map(|row| ((*table).to_owned(), row)));
    }
    rows
}
