use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{Api, Program, Servers, free_address, wait_for};

const PROGRAM: &str = env!("CARGO_BIN_EXE_signalbox");
const START: Duration = Duration::from_secs(60);
/// The admin's password in these systems, which are reachable from this machine only.
pub(super) const PASSWORD: &str = "correct horse battery staple";
/// Its login.
pub(super) const EMAIL: &str = "admin@signalbox.local";

/// A role of the server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// All of them in one process.
    All,
    /// All of them in one process that starts the servers that they need.
    Up,
    /// HTTP and sockets.
    Gateway,
    /// Command handlers.
    Commands,
    /// Read models.
    Projections,
    /// Dispatch, schedules, sweeps.
    Workers,
}

/// How to start a process of the server program.
#[derive(Debug, Clone)]
pub struct Signalbox {
    role: Role,
    /// Where its gateway listens.
    pub address: SocketAddr,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
}

impl Signalbox {
    /// A process with `role` on `servers`, without limits that a load generator would run into.
    pub fn new(servers: &Servers, role: Role) -> anyhow::Result<Self> {
        let mut own = Self::of(role, servers.folder())?;
        own.environment.extend([
            ("DATABASE_URL", servers.database_url.clone()),
            ("NATS_URL", servers.nats_url.clone()),
            ("SIGNALBOX_DATABASE__REPLICA_URL", servers.replica_url.clone().unwrap_or_default()),
            ("SIGNALBOX_NATS__REPLICAS", servers.nats_servers().to_string()),
        ]);
        Ok(own)
    }

    /// A process that starts servers of its own, with all that it has in `folder`.
    pub fn with_own_servers(folder: &Path) -> anyhow::Result<Self> {
        Self::of(Role::Up, folder)
    }

    fn of(role: Role, folder: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let many = "4000000000".to_owned();
        let environment = vec![
            ("SIGNALBOX_SERVER__ADDRESS", address.to_string()),
            ("SIGNALBOX_STORAGE__FOLDER", folder.join("data").display().to_string()),
            ("SIGNALBOX_ADMIN_EMAIL", EMAIL.to_owned()),
            ("SIGNALBOX_ADMIN_PASSWORD", PASSWORD.to_owned()),
            // Where the receivers of webhooks are.
            ("SIGNALBOX_EGRESS__ALLOWED_NETWORKS", "127.0.0.0/8".to_owned()),
            ("SIGNALBOX_LIMITS__REQUESTS_PER_MINUTE", many.clone()),
            ("SIGNALBOX_LIMITS__REQUEST_BURST", many.clone()),
            ("SIGNALBOX_LIMITS__AGENT_REQUESTS_PER_MINUTE", many.clone()),
            ("SIGNALBOX_LIMITS__AGENT_REQUEST_BURST", many.clone()),
            ("SIGNALBOX_LIMITS__INGEST_REQUESTS_PER_MINUTE", many.clone()),
            ("SIGNALBOX_LIMITS__INGEST_REQUEST_BURST", many.clone()),
            ("SIGNALBOX_LIMITS__ANONYMOUS_EXTRACTIONS_PER_MINUTE", many),
        ];
        let log = folder.join(format!("{role:?}-{}.log", address.port()).to_lowercase());
        Ok(Self { role, address, environment, log })
    }

    /// The same, with the limits of the default configuration.
    pub fn with_default_limits(mut self) -> Self {
        self.environment.retain(|(name, _)| !name.starts_with("SIGNALBOX_LIMITS__"));
        self
    }

    /// The same, with the environment variable `name` set to `value`.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Runs another command of the program on the same servers, and waits for its end.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        Ok(Program::command(Path::new(PROGRAM), arguments, &self.environment).output()?)
    }

    /// Like [`Signalbox::run`]; returns the lines of JSON that it printed, and fails unless it ended well.
    pub fn run_well(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let output = self.run(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`signalbox {}`: {said}", arguments.join(" "));
        let printed = std::str::from_utf8(&output.stdout)?;
        printed.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Starts the process. It may still be starting up when this returns.
    pub fn start(&self) -> anyhow::Result<Program> {
        let mut arguments = vec![if self.role == Role::Up { "up" } else { "serve" }];
        let role = match self.role {
            Role::All | Role::Up => None,
            Role::Gateway => Some("gateway"),
            Role::Commands => Some("commands"),
            Role::Projections => Some("projections"),
            Role::Workers => Some("workers"),
        };
        arguments.extend(role.into_iter().flat_map(|role| ["--role", role]));
        Program::start(Path::new(PROGRAM), &arguments, &self.environment, &self.log)
    }

    /// Starts the process and logs the admin in at its gateway.
    pub async fn start_and_log_in(&self) -> anyhow::Result<(Program, Api)> {
        let mut program = self.start()?;
        let api = Api::new(self.address)?;
        let api = wait_for("the start of the gateway", START, || {
            let (mut api, running) = (api.clone(), program.is_running());
            async move {
                ensure!(running, "the server has ended");
                api.log_in().await?;
                Ok(Some(api))
            }
        });
        let api = api.await.with_context(|| program.said())?;
        Ok((program, api))
    }
}
