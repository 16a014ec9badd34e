//! The private PostgreSQL and nats-server of `signalbox up`.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use signalbox_config::{Config, Secret};
use signalbox_embedded::{Nats, NatsOptions, Postgres, PostgresOptions};
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Where the private database's address is written for other commands, readable by this user alone.
pub(crate) const DATABASE_FILE: &str = "database-url";
/// Where the private bus's address is written for other commands, readable by this user alone.
pub(crate) const BUS_FILE: &str = "nats-url";
const DATABASE: &str = "signalbox";
/// Interval of checks for a server that has stopped.
const WATCH: Duration = Duration::from_millis(500);

/// The servers that were started because no address was configured.
pub(crate) struct Servers {
    folder: PathBuf,
    postgres: Option<Postgres>,
    nats: Option<Nats>,
}

impl Servers {
    /// Starts the servers that are not configured, and completes the configuration with their addresses.
    pub(crate) async fn start(config: &mut Config) -> anyhow::Result<Self> {
        let folder = config.storage.folder.clone();
        fs::create_dir_all(&folder).with_context(|| {
            format!("the folder {} cannot be made: choose another one with storage.folder", folder.display())
        })?;
        let mut servers = Self { folder, postgres: None, nats: None };
        if config.database.url.is_empty() {
            let postgres = Postgres::start(PostgresOptions::new(servers.folder.join("postgres"))).await?;
            create_database(&postgres).await?;
            config.database.url = Secret::new(postgres.url(DATABASE));
            write_private(&servers.folder.join(DATABASE_FILE), config.database.url.expose())?;
            servers.postgres = Some(postgres);
        }
        if config.nats.url.is_empty() {
            let nats = Nats::start(NatsOptions::new(servers.folder.join("nats"))).await?;
            config.nats.url = Secret::new(nats.url());
            write_private(&servers.folder.join(BUS_FILE), config.nats.url.expose())?;
            servers.nats = Some(nats);
        }
        Ok(servers)
    }

    /// Restarts a server that has stopped, on the same port, until `stop`.
    pub(crate) async fn watch(&mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! { () = sleep(WATCH) => {}, () = stop.cancelled() => return }
            if let Err(error) = self.restart_dead().await {
                tracing::error!(%error, "a server has stopped and cannot be restarted; trying once more");
            }
        }
    }

    async fn restart_dead(&mut self) -> anyhow::Result<()> {
        if let Some(postgres) = self.postgres.take_if(|postgres| !postgres.is_running()) {
            tracing::error!("PostgreSQL has stopped; restarting it");
            let options = PostgresOptions {
                port: Some(postgres.port()),
                ..PostgresOptions::new(self.folder.join("postgres"))
            };
            // The folder is free only when the old handle is gone.
            drop(postgres);
            self.postgres = Some(Postgres::start(options).await?);
        }
        if let Some(nats) = self.nats.take_if(|nats| !nats.is_running()) {
            tracing::error!("nats-server has stopped; restarting it");
            let options =
                NatsOptions { port: Some(nats.port()), ..NatsOptions::new(self.folder.join("nats")) };
            drop(nats);
            self.nats = Some(Nats::start(options).await?);
        }
        Ok(())
    }

    /// Stops the servers.
    pub(crate) async fn stop(self) {
        if let Some(nats) = self.nats {
            nats.stop().await;
        }
        if let Some(postgres) = self.postgres {
            postgres.stop().await;
        }
        for file in [DATABASE_FILE, BUS_FILE] {
            // A file that was never written is as good as one that is removed.
            let _ = fs::remove_file(self.folder.join(file));
        }
    }
}

async fn create_database(postgres: &Postgres) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(DATABASE)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        sqlx::query(&format!("CREATE DATABASE {DATABASE}")).execute(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use io::Write;
    let failed = || format!("{} cannot be written", path.display());
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)
}
