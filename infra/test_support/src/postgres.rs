use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    sync::OnceLock,
    thread::{self, JoinHandle},
    time::Duration,
};

use signalbox_embedded::{Postgres, PostgresOptions};
use tokio::{runtime, sync::OnceCell, time::sleep};

use crate::{
    administration::{administer, migrated_database},
    home, removal,
    replicated::TestReplicatedPostgres,
    setup::Setup,
};

const TEMPLATE: &str = "signalbox_template";

/// Never dropped: the kernel ends the server with this process.
static SHARED: OnceCell<Shared> = OnceCell::const_new();
static KILLER: OnceLock<JoinHandle<()>> = OnceLock::new();

enum Shared {
    Alone(Postgres),
    Replicated(Box<TestReplicatedPostgres>),
}

impl Shared {
    fn url(&self, database: &str) -> String {
        match self {
            Self::Alone(postgres) => postgres.url(database),
            Self::Replicated(both) => both.url(database),
        }
    }
}

/// A new database with today's schema, as its URL.
pub async fn fresh_database() -> String {
    fresh_database_and_replica().await.0
}

/// A new database with today's schema, as its URL, and the URL of its replica, if this run has one.
pub(crate) async fn fresh_database_and_replica() -> (String, Option<String>) {
    let shared = SHARED.get_or_init(start).await;
    let name = home::unique("test");
    let server = shared.url("postgres");
    // Its files are copied, which takes half the time of logging their pages: nothing has to survive a crash here.
    administer(&server, &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")).await;
    if home::is_in_memory() {
        removal::when_unused(&server, &name);
    }
    let replica_url = match shared {
        Shared::Alone(_) => None,
        Shared::Replicated(both) => Some(both.replica_url(&name)),
    };
    (shared.url(&name), replica_url)
}

async fn start() -> Shared {
    let shared = match Setup::of_this_run() {
        Setup::Plain => Shared::Alone(start_alone().await),
        Setup::Scaled { .. } => {
            Shared::Replicated(Box::new(TestReplicatedPostgres::start_in(&home::of_servers()).await))
        }
    };
    migrated_database(&shared.url("postgres"), &shared.url(TEMPLATE), TEMPLATE).await;
    if let Setup::Scaled { kills: Some(period) } = Setup::of_this_run() {
        KILLER.get_or_init(|| thread::spawn(move || kill_replica_every(period)));
    }
    shared
}

/// Nothing here has to outlive a crash of the machine, so nothing waits for the disk. Databases live for seconds: hundreds that were
/// left would have one looked after every tenth of a second. Functions in PL/pgSQL run in nearly every connection.
async fn start_alone() -> Postgres {
    let settings = [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("max_connections", "500"),
        ("max_prepared_transactions", "4"),
        ("autovacuum", "off"),
        ("max_wal_size", "256MB"),
        ("shared_preload_libraries", "plpgsql"),
    ];
    let mut options = PostgresOptions::new(home::of_servers().join("postgres"));
    options.settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    options.settings.push(("hba_file".to_owned(), trusting_hba_file()));
    Postgres::start(options).await.expect("start PostgreSQL")
}

/// A test makes dozens of connections, and code without optimisation computes each proof of the password for longer than the
/// server takes to connect.
fn trusting_hba_file() -> String {
    let path = home::of_servers().join("pg_hba.conf");
    fs::write(&path, "host all all 127.0.0.1/32 trust\n").expect("write pg_hba.conf");
    // The server runs as another user.
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("let PostgreSQL read pg_hba.conf");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// As long as the process lives, in a thread of its own: the runtimes of tests end with them.
fn kill_replica_every(period: Duration) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("start a runtime");
    runtime.block_on(async {
        loop {
            sleep(period).await;
            if let Some(Shared::Replicated(both)) = SHARED.get() {
                both.kill_replica().await;
                both.restart_replica().await;
                eprintln!("killed the replica of all tests");
            }
        }
    });
}

/// Fails when who kills the replica has come to an end: the test would have run undisturbed.
pub(crate) fn assert_killer_lives() {
    let has_ended = KILLER.get().is_some_and(JoinHandle::is_finished);
    assert!(!has_ended, "the replica is not killed any more: it did not start again");
}
