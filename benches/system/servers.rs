use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path};

use anyhow::Context as _;
use async_nats::{ConnectOptions, ServerAddr, jetstream};
use chrono::{DateTime, Utc};
use rustix::process::{Pid, Signal, kill_process};
use signalbox_embedded::{NatsCluster, Postgres, PostgresOptions};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tempfile::TempDir;

/// A private PostgreSQL, as durable as the one of `signalbox up`, with or without a streaming replica, and private nats-servers.
pub struct Servers {
    // Before the folder, which they live in.
    replica: Option<Postgres>,
    postgres: Option<Postgres>,
    nats: NatsCluster,
    postgres_options: PostgresOptions,
    /// How the replica is started again, if there is one.
    replica_options: Option<PostgresOptions>,
    /// Address of the database, with password.
    pub database_url: String,
    /// Address of its replica, with password, if there is one.
    pub replica_url: Option<String>,
    /// Addresses of the bus, with password.
    pub nats_url: String,
    folder: TempDir,
}

impl Servers {
    /// Starts one of each in a new folder below the one for temporary files, with an empty database.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(1, false, None, None).await
    }

    /// Starts what a larger installation has: three nats-servers, and a PostgreSQL with a streaming replica.
    pub async fn start_scaled() -> anyhow::Result<Self> {
        Self::start_with(3, true, None, None).await
    }

    /// Like [`Servers::start`], with the data of PostgreSQL or nats-server in folders below those given.
    pub async fn start_in(postgres: Option<&Path>, nats: Option<&Path>) -> anyhow::Result<Self> {
        Self::start_with(1, false, postgres, nats).await
    }

    async fn start_with(
        nats: usize,
        replicated: bool,
        postgres_in: Option<&Path>,
        nats_in: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let folder = new_folder()?;
        let mut postgres_options =
            PostgresOptions::new(postgres_in.unwrap_or(folder.path()).join("postgres"));
        if replicated {
            // As docs/scale-out.md says.
            let settings = [
                ("max_connections", "300"),
                ("wal_writer_delay", "5ms"),
                ("wal_keep_size", "1GB"),
                ("hot_standby_feedback", "on"),
                ("max_standby_streaming_delay", "1s"),
            ];
            postgres_options.settings = settings.map(|(name, value)| (name.into(), value.into())).into();
        }
        let postgres = Postgres::start(postgres_options.clone()).await?;
        postgres_options.port = Some(postgres.port());
        let nats = NatsCluster::start(&nats_in.unwrap_or(folder.path()).join("nats"), nats).await?;
        let mut servers = Self {
            database_url: postgres.url("signalbox"),
            replica_url: None,
            nats_url: nats.url(),
            replica: None,
            postgres: Some(postgres),
            nats,
            postgres_options,
            replica_options: None,
            folder,
        };
        servers.create_database("signalbox").await?;
        if replicated {
            servers.start_replica().await?;
        }
        Ok(servers)
    }

    /// Starts the replica, for the first time or again on the same port.
    pub async fn start_replica(&mut self) -> anyhow::Result<()> {
        let options = match (&self.replica_options, &self.postgres) {
            (Some(options), _) => options.clone(),
            (None, Some(postgres)) => PostgresOptions {
                data_dir: self.folder.path().join("replica"),
                port: None,
                primary: Some(postgres.as_primary()),
                ..self.postgres_options.clone()
            },
            (None, None) => anyhow::bail!("a replica needs a running primary"),
        };
        let replica = Postgres::start(options.clone()).await?;
        self.replica_url = Some(replica.url("signalbox"));
        self.replica_options = Some(PostgresOptions { port: Some(replica.port()), ..options });
        self.replica = Some(replica);
        Ok(())
    }

    /// Ends the replica with SIGKILL.
    pub fn kill_replica(&mut self) -> anyhow::Result<()> {
        self.replica.take().map_or(Ok(()), |replica| kill(replica.pid()))
    }

    /// How many nats-servers there are.
    pub fn nats_servers(&self) -> usize {
        self.nats.size()
    }

    /// Ends the nats-server of that name with SIGKILL; returns its number.
    pub fn kill_nats(&mut self, name: &str) -> anyhow::Result<usize> {
        let index = self.nats.index_of(name).context("no nats-server of that name")?;
        self.nats.kill(index);
        Ok(index)
    }

    /// Starts nats-server `index` again.
    pub async fn start_nats(&mut self, index: usize) -> anyhow::Result<()> {
        Ok(self.nats.restart(index).await?)
    }

    /// Another database on the same server, as its address.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<String> {
        self.rule(&format!("CREATE DATABASE {name}")).await?;
        Ok(self.url(name))
    }

    /// Drops an unused database.
    pub async fn drop_database(&self, name: &str) -> anyhow::Result<()> {
        self.rule(&format!("DROP DATABASE {name} WITH (FORCE)")).await
    }

    fn url(&self, name: &str) -> String {
        self.postgres.as_ref().map(|postgres| postgres.url(name)).unwrap_or_default()
    }

    async fn rule(&self, statement: &str) -> anyhow::Result<()> {
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        connection.execute(statement).await?;
        Ok(connection.close().await?)
    }

    /// A pool on the migrated database.
    pub async fn database(&self) -> anyhow::Result<PgPool> {
        let pool =
            signalbox_database::connect_as(&self.database_url, 16, signalbox_database::Class::Maintenance)
                .await?;
        signalbox_database::migrate(&pool).await?;
        Ok(pool)
    }

    /// The time of the database.
    pub async fn now(&self) -> anyhow::Result<DateTime<Utc>> {
        Ok(sqlx::query_scalar("SELECT now()").fetch_one(&self.database().await?).await?)
    }

    /// Seconds of the processors that PostgreSQL has spent, and those of the nats-servers.
    pub fn cpu_seconds(&self) -> anyhow::Result<[f64; 2]> {
        let postgres = self.postgres.as_ref().context("PostgreSQL does not run")?;
        let mut nats = 0.0;
        for pid in self.nats.pids() {
            nats += super::seconds(pid)?;
        }
        Ok([super::seconds(postgres.pid())?, nats])
    }

    /// A plain client of JetStream, for what the bus does not show.
    pub async fn jetstream(&self) -> anyhow::Result<jetstream::Context> {
        let addresses = self.nats_url.split(',').map(str::parse).collect::<Result<Vec<ServerAddr>, _>>()?;
        let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
        let (user, password) = (part(addresses[0].username()), part(addresses[0].password()));
        let client = ConnectOptions::with_user_and_password(user, password).connect(addresses).await?;
        Ok(jetstream::new(client))
    }

    /// A folder for everything else of this run; it is deleted with the servers.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends PostgreSQL with SIGKILL and starts it again on the same port.
    pub async fn crash_postgres(&mut self) -> anyhow::Result<()> {
        if let Some(postgres) = self.postgres.take() {
            kill(postgres.pid())?;
        }
        self.postgres = Some(Postgres::start(self.postgres_options.clone()).await?);
        Ok(())
    }

    /// Starts PostgreSQL again if it has ended, as a supervisor does; returns whether it had.
    pub async fn revive_postgres(&mut self) -> anyhow::Result<bool> {
        if let Some(postgres) = &mut self.postgres
            && postgres.is_running()
        {
            return Ok(false);
        }
        // The folder is free only when the old handle is gone.
        self.postgres = None;
        self.postgres = Some(Postgres::start(self.postgres_options.clone()).await?);
        Ok(true)
    }

    /// Ends PostgreSQL with SIGKILL and starts it again on the same port, with these environment variables.
    pub async fn restart_postgres_with(&mut self, environment: Vec<(String, String)>) -> anyhow::Result<()> {
        self.postgres_options.environment = environment;
        self.crash_postgres().await
    }

    /// Ends every nats-server with SIGKILL and starts it again on the same port, without its streams if `wiped`.
    pub async fn crash_nats(&mut self, wiped: bool) -> anyhow::Result<()> {
        for index in 0..self.nats.size() {
            self.nats.kill(index);
            if wiped {
                self.nats.wipe(index)?;
            }
        }
        for index in 0..self.nats.size() {
            self.nats.restart(index).await?;
        }
        Ok(())
    }
}

fn kill(pid: u32) -> anyhow::Result<()> {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL)?;
    }
    Ok(())
}

/// The user that PostgreSQL runs as, when this one is root, has to pass through.
fn new_folder() -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("signalbox-bench-").permissions(Permissions::from_mode(0o711)).tempdir()
}
