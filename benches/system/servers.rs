use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path};

use async_nats::{ConnectOptions, ServerAddr, jetstream};
use rustix::process::{Pid, Signal, kill_process};
use signalbox_embedded::{Nats, NatsOptions, Postgres, PostgresOptions};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tempfile::TempDir;

/// A private PostgreSQL, as durable as the one of `signalbox up`, and a private nats-server.
pub struct Servers {
    // Before the folder, which they live in.
    postgres: Option<Postgres>,
    nats: Option<Nats>,
    postgres_port: u16,
    nats_port: u16,
    /// Address of the database, with password.
    pub database_url: String,
    /// Address of the bus, with password.
    pub nats_url: String,
    folder: TempDir,
}

impl Servers {
    /// Starts both in a new folder below the one for temporary files, with an empty database.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = new_folder()?;
        let postgres = Postgres::start(PostgresOptions::new(folder.path().join("postgres"))).await?;
        let nats = Nats::start(NatsOptions::new(folder.path().join("nats"))).await?;
        let servers = Self {
            postgres_port: postgres.port(),
            nats_port: nats.port(),
            database_url: postgres.url("signalbox"),
            nats_url: nats.url(),
            postgres: Some(postgres),
            nats: Some(nats),
            folder,
        };
        servers.create_database("signalbox").await?;
        Ok(servers)
    }

    /// Another database on the same server, as its address.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<String> {
        let url = |name: &str| self.postgres.as_ref().map(|postgres| postgres.url(name)).unwrap_or_default();
        let mut connection = PgConnection::connect(&url("postgres")).await?;
        connection.execute(format!("CREATE DATABASE {name}").as_str()).await?;
        connection.close().await?;
        Ok(url(name))
    }

    /// A pool on the migrated database.
    pub async fn database(&self) -> anyhow::Result<PgPool> {
        let pool = signalbox_database::connect(&self.database_url, 16).await?;
        signalbox_database::migrate(&pool).await?;
        Ok(pool)
    }

    /// A plain client of JetStream, for what the bus does not show.
    pub async fn jetstream(&self) -> anyhow::Result<jetstream::Context> {
        let address: ServerAddr = self.nats_url.parse()?;
        let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
        let (user, password) = (part(address.username()), part(address.password()));
        let client = ConnectOptions::with_user_and_password(user, password).connect(address).await?;
        Ok(jetstream::new(client))
    }

    /// A folder for everything else of this run; it goes with the servers.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends PostgreSQL with SIGKILL and starts it again on the same port.
    pub async fn crash_postgres(&mut self) -> anyhow::Result<()> {
        if let Some(postgres) = self.postgres.take() {
            kill(postgres.pid())?;
        }
        let options = PostgresOptions {
            port: Some(self.postgres_port),
            ..PostgresOptions::new(self.folder.path().join("postgres"))
        };
        self.postgres = Some(Postgres::start(options).await?);
        Ok(())
    }

    /// Ends nats-server with SIGKILL and starts it again on the same port, without its streams if `wiped`.
    pub async fn crash_nats(&mut self, wiped: bool) -> anyhow::Result<()> {
        if let Some(nats) = self.nats.take() {
            kill(nats.pid())?;
        }
        let folder = self.folder.path().join("nats");
        if wiped {
            std::fs::remove_dir_all(folder.join("jetstream"))?;
        }
        let options = NatsOptions { port: Some(self.nats_port), ..NatsOptions::new(folder) };
        self.nats = Some(Nats::start(options).await?);
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
