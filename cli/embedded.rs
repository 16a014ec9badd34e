//! The private PostgreSQL and nats-server of `signalbox up`.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use rustix::fs::statvfs;
use signalbox_config::{Config, Secret};
use signalbox_embedded::{Nats, NatsOptions, Postgres, PostgresOptions};
use signalbox_messaging::Bus;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Where the private database's address is written for other commands, readable by this user alone.
pub(crate) const DATABASE_FILE: &str = "database-url";
/// Where the private bus's address is written for other commands, readable by this user alone.
pub(crate) const BUS_FILE: &str = "nats-url";
const DATABASE: &str = "signalbox";
/// Interval of checks for a server that has stopped.
const WATCH: Duration = Duration::from_millis(500);
/// Time between two attempts to start a server.
const START_AGAIN: Duration = Duration::from_secs(5);
/// A nats-server that has stored nothing for so long is restarted. Before that, a stream that is stuck is made anew.
const UNSTORED: Duration = Duration::from_secs(20);
/// Time between two such restarts at least.
const RESTART_AGAIN: Duration = Duration::from_secs(300);
/// Free bytes of the disk without which a restart does not help.
const FREE: u64 = 256 << 20;
/// Free bytes of the disk without which no server starts.
const LEAST: u64 = 32 << 20;

/// The servers that were started because no address was configured.
pub(crate) struct Servers {
    folder: PathBuf,
    postgres: Option<Kept<Postgres>>,
    nats: Option<Kept<Nats>>,
}

/// A server that is started again, on its port, when it has stopped.
struct Kept<S> {
    port: u16,
    /// `None` while it cannot be started.
    server: Option<S>,
}

impl Servers {
    /// Starts the servers that are not configured, and completes the configuration with their addresses.
    pub(crate) async fn start(config: &mut Config) -> anyhow::Result<Self> {
        let folder = config.storage.folder.clone();
        fs::create_dir_all(&folder).with_context(|| {
            format!("the folder {} cannot be made: choose another one with storage.folder", folder.display())
        })?;
        let mut servers = Self { folder, postgres: None, nats: None };
        if config.database.url.is_empty() || config.nats.url.is_empty() {
            let free = servers.free().unwrap_or(u64::MAX);
            anyhow::ensure!(
                free >= LEAST,
                "the disk of the folder {} is full, {} kB are left: free space, {} MB at least, then start again",
                servers.folder.display(),
                free >> 10,
                LEAST >> 20
            );
        }
        if config.database.url.is_empty() {
            let postgres = Postgres::start(PostgresOptions::new(servers.folder.join("postgres"))).await?;
            signalbox_database::create_database(&postgres.url("postgres"), DATABASE).await?;
            config.database.url = Secret::new(postgres.url(DATABASE));
            write_private(&servers.folder.join(DATABASE_FILE), config.database.url.expose())?;
            servers.postgres = Some(Kept { port: postgres.port(), server: Some(postgres) });
        }
        if config.nats.url.is_empty() {
            let nats = Nats::start(NatsOptions::new(servers.folder.join("nats"))).await?;
            config.nats.url = Secret::new(nats.url());
            write_private(&servers.folder.join(BUS_FILE), config.nats.url.expose())?;
            servers.nats = Some(Kept { port: nats.port(), server: Some(nats) });
        }
        Ok(servers)
    }

    /// Restarts a server that has stopped, on the same port, until `stop`; also a nats-server that stores nothing of what is sent on
    /// `bus`: after a moment of a full disk it does not until it is restarted.
    pub(crate) async fn watch(&mut self, bus: &Bus, stop: &CancellationToken) {
        let mut restarted: Option<Instant> = None;
        while !stop.is_cancelled() {
            tokio::select! { () = sleep(WATCH) => {}, () = stop.cancelled() => return }
            let is_due = restarted.is_none_or(|at| at.elapsed() >= RESTART_AGAIN);
            if is_due && bus.unstored_for().is_some_and(|time| time >= UNSTORED) && self.has_space() {
                restarted = Some(Instant::now());
                self.stop_nats().await;
            }
            if let Err(error) = self.restart_dead().await {
                tracing::error!(%error, "a server has stopped and cannot be restarted; it is tried again");
                tokio::select! { () = sleep(START_AGAIN) => {}, () = stop.cancelled() => return }
            }
        }
    }

    /// Bytes that are left on the disk, if it says so.
    fn free(&self) -> Option<u64> {
        statvfs(&self.folder).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn has_space(&self) -> bool {
        self.free().is_some_and(|free| free >= FREE)
    }

    /// Ends the private nats-server, if there is one; it counts as one that has stopped.
    async fn stop_nats(&mut self) {
        if let Some(nats) = self.nats.as_mut().and_then(|kept| kept.server.take()) {
            tracing::error!("nats-server stores nothing, as after a full disk");
            nats.stop().await;
        }
    }

    async fn restart_dead(&mut self) -> anyhow::Result<()> {
        let postgres = self.restart_postgres().await;
        let nats = self.restart_nats().await;
        postgres.and(nats)
    }

    async fn restart_postgres(&mut self) -> anyhow::Result<()> {
        let Some(Kept { port, server }) = &mut self.postgres else { return Ok(()) };
        if !server.as_mut().is_some_and(Postgres::is_running) {
            tracing::error!("PostgreSQL has stopped; restarting it");
            // The folder is free only when the old handle is gone.
            *server = None;
            let options = PostgresOptions::new(self.folder.join("postgres"));
            *server = Some(Postgres::start(PostgresOptions { port: Some(*port), ..options }).await?);
        }
        Ok(())
    }

    async fn restart_nats(&mut self) -> anyhow::Result<()> {
        let Some(Kept { port, server }) = &mut self.nats else { return Ok(()) };
        if !server.as_mut().is_some_and(Nats::is_running) {
            tracing::error!("nats-server has stopped; restarting it");
            *server = None;
            let options = NatsOptions::new(self.folder.join("nats"));
            *server = Some(Nats::start(NatsOptions { port: Some(*port), ..options }).await?);
        }
        Ok(())
    }

    /// Stops the servers.
    pub(crate) async fn stop(self) {
        if let Some(nats) = self.nats.and_then(|kept| kept.server) {
            nats.stop().await;
        }
        if let Some(postgres) = self.postgres.and_then(|kept| kept.server) {
            postgres.stop().await;
        }
        for file in [DATABASE_FILE, BUS_FILE] {
            // A file that was never written is as good as one that is removed.
            let _ = fs::remove_file(self.folder.join(file));
        }
    }
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
