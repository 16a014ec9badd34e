use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use signalbox_embedded::{Postgres, PostgresOptions};
use sqlx::{Connection, Executor, PgConnection};
use tokio::sync::Mutex;

use crate::{administration::migrated_database, home};

/// A PostgreSQL with a streaming replica, which may be killed and restarted.
#[derive(Debug)]
pub struct TestReplicatedPostgres {
    primary: Postgres,
    replica: Mutex<Option<Postgres>>,
    /// How the replica is started again.
    again: PostgresOptions,
    /// Of the database `postgres` there.
    replica_url: String,
}

impl TestReplicatedPostgres {
    /// Both of one test.
    pub async fn start() -> Self {
        Self::start_in(&home::folder("replicated")).await
    }

    /// Nothing here has to outlive a crash of the machine, so nothing waits for the disk.
    pub(crate) async fn start_in(folder: &Path) -> Self {
        let settings = [
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("max_connections", "500"),
            ("max_prepared_transactions", "4"),
            // Commits that do not wait for the disk are sent to the replica only once they are written.
            ("wal_writer_delay", "5ms"),
            // A replica that was away for a while finds what it missed.
            ("wal_keep_size", "1GB"),
            ("hot_standby_feedback", "on"),
            ("max_standby_streaming_delay", "1s"),
        ];
        let mut options = PostgresOptions::new(folder.join("postgres"));
        options.settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let primary = Postgres::start(options.clone()).await.expect("start PostgreSQL");
        options.data_dir = folder.join("replica");
        options.primary = Some(primary.as_primary());
        let replica = Postgres::start(options.clone()).await.expect("start a replica of PostgreSQL");
        options.port = Some(replica.port());
        let replica_url = replica.url("postgres");
        Self { primary, replica: Mutex::new(Some(replica)), again: options, replica_url }
    }

    /// Makes a database with today's schema.
    pub async fn make_database(&self, name: &str) {
        migrated_database(&self.url("postgres"), &self.url(name), name).await;
    }

    /// Address of `database`.
    pub fn url(&self, database: &str) -> String {
        self.primary.url(database)
    }

    /// Address of `database` at the replica; stays the same over restarts.
    pub fn replica_url(&self, database: &str) -> String {
        let (server, _) = self.replica_url.rsplit_once('/').expect("an address with a database");
        format!("{server}/{database}")
    }

    /// Kills the replica with SIGKILL; it stays away until [`TestReplicatedPostgres::restart_replica`].
    pub async fn kill_replica(&self) {
        if let Some(replica) = self.replica.lock().await.take() {
            signal(&replica, Signal::KILL);
        }
    }

    /// Starts the replica again on the same port.
    pub async fn restart_replica(&self) {
        let mut replica = self.replica.lock().await;
        *replica = Some(Postgres::start(self.again.clone()).await.expect("start the replica again"));
    }

    /// Lets the replica fall behind: it answers, but shows nothing new until [`TestReplicatedPostgres::resume_replay`].
    pub async fn pause_replay(&self) {
        self.at_replica("SELECT pg_wal_replay_pause()").await;
    }

    /// Lets the replica catch up.
    pub async fn resume_replay(&self) {
        self.at_replica("SELECT pg_wal_replay_resume()").await;
    }

    async fn at_replica(&self, statement: &str) {
        let mut connection = PgConnection::connect(&self.replica_url).await.expect("reach the replica");
        connection.execute(statement).await.expect(statement);
    }
}

fn signal(postgres: &Postgres, signal: Signal) {
    let pid = i32::try_from(postgres.pid()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("signal PostgreSQL");
}
