//! A log of one test, and commands on it.

use serde_json::Value;
use signalbox_clock::Clock;
use signalbox_domain::{
    identity::{NewUser, Role, User, UserChanges, UserCommand},
    kernel::{CommandOutcome, Decider, ErrorKind, Metadata, Rejection},
};
use signalbox_event_store::{
    Appender, ExecuteError, Execution, RecordedEvent, execute, read_after, read_stream,
};
use signalbox_test_support::{eventually_some, fresh_database, metadata, seconds};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) pool: PgPool,
    pub(crate) appender: Appender,
    pub(crate) clock: Clock,
}

impl Log {
    pub(crate) async fn start() -> Self {
        let pool = signalbox_database::connect(&fresh_database().await, 24).await.unwrap();
        let clock = Clock::system();
        Self { appender: Appender::start(pool.clone(), clock.clone()), pool, clock }
    }

    /// The same log with a writer of its own, as another process has it.
    pub(crate) fn other_process(&self) -> Self {
        Self { appender: Appender::start(self.pool.clone(), self.clock.clone()), ..self.clone() }
    }

    pub(crate) async fn run<D: Decider>(
        &self,
        id: Uuid,
        command: D::Command,
    ) -> Result<CommandOutcome, ExecuteError> {
        self.run_as::<D>(id, command, &metadata()).await
    }

    pub(crate) async fn run_as<D: Decider>(
        &self,
        id: Uuid,
        command: D::Command,
        metadata: &Metadata,
    ) -> Result<CommandOutcome, ExecuteError> {
        self.run_expecting::<D>(id, None, command, metadata).await
    }

    pub(crate) async fn run_expecting<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        command: D::Command,
        metadata: &Metadata,
    ) -> Result<CommandOutcome, ExecuteError> {
        let execution = Execution { aggregate_id: id, expected_version, metadata: metadata.clone(), command };
        execute::<D>(&self.pool, &self.appender, execution).await
    }

    /// A new user of that name.
    pub(crate) async fn user(&self, name: &str, role: Role) -> Uuid {
        let id = self.clock.new_id();
        self.run::<User>(id, create_user(name, role)).await.unwrap();
        id
    }

    pub(crate) async fn events(&self) -> Vec<RecordedEvent> {
        let mut connection = self.pool.acquire().await.unwrap();
        read_after(&mut connection, 0, 1_000_000).await.unwrap().events
    }

    pub(crate) async fn stream<D: Decider>(&self, id: Uuid) -> Vec<D::Event> {
        let recorded = read_stream(&self.pool, D::TYPE, id).await.unwrap();
        recorded.iter().map(|event| event.decode::<D>().unwrap()).collect()
    }

    /// The aggregate's state by plain replay.
    pub(crate) async fn replay<D: Decider>(&self, id: Uuid) -> D {
        self.stream::<D>(id).await.into_iter().fold(D::default(), |mut state, event| {
            state.evolve(event);
            state
        })
    }

    /// A transaction that holds the lock under which positions are handed out.
    pub(crate) async fn hold_head(&self) -> Transaction<'static, Postgres> {
        let mut transaction = signalbox_database::begin(&self.pool, "BEGIN").await.unwrap();
        sqlx::query("SELECT position FROM log_head WHERE log = 'events' FOR UPDATE")
            .execute(&mut *transaction)
            .await
            .unwrap();
        transaction
    }

    /// Waits until an append waits for that lock; gives its backend.
    pub(crate) async fn waiting_append(&self) -> i32 {
        eventually_some(seconds(10), async || {
            sqlx::query_scalar(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                    AND query LIKE '%append_events%'",
            )
            .fetch_optional(&self.pool)
            .await
            .unwrap()
        })
        .await
    }
}

pub(crate) fn create_user(name: &str, role: Role) -> UserCommand {
    UserCommand::Create(NewUser {
        number: 1,
        email: format!("{name}@example.org"),
        username: name.to_owned(),
        role,
        password_hash: "$argon2id$".to_owned(),
    })
}

pub(crate) fn rename(name: &str) -> UserCommand {
    UserCommand::Change(UserChanges { username: Some(name.to_owned()), ..Default::default() })
}

pub(crate) fn rejection(result: Result<CommandOutcome, ExecuteError>) -> Rejection {
    match result {
        Err(ExecuteError::Rejected(rejection)) => rejection,
        other => panic!("not rejected: {other:?}"),
    }
}

pub(crate) fn assert_rejected(result: Result<CommandOutcome, ExecuteError>, kind: ErrorKind, code: &str) {
    let rejection = rejection(result);
    assert_eq!((rejection.kind, rejection.code.as_str()), (kind, code));
}

pub(crate) fn assert_gapless(events: &[RecordedEvent]) {
    let positions: Vec<_> = events.iter().map(|event| event.position).collect();
    assert_eq!(positions, (1..=events.len() as i64).collect::<Vec<_>>());
}

pub(crate) fn json<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}
