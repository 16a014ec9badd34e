//! The private PostgreSQL.
//!
//! In its folder: `cluster` (the data, owned by the user that the server runs as), `password` (of the superuser
//! `signalbox`), `log`, `lock`. It listens on 127.0.0.1 alone and every connection needs the password.

use signalbox_boxed::boxed;
use std::fs;
use std::future::ready;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::account::Account;
use crate::child::ServerProcess;
use crate::error::EmbeddedError;
use crate::folder::{self, Folder, Secret};
use crate::leftovers;
use crate::locate::{self, PostgresPrograms};
use crate::ports;

const NAME: &str = "PostgreSQL";
const SUPERUSER: &str = "signalbox";
const FSYNC_OFF: (&str, &str) = ("fsync", "off");

/// Fast shutdown (checkpoint, then end), then immediate shutdown (recovery at the next start).
const STOP_STEPS: [(Signal, Duration); 2] =
    [(Signal::INT, Duration::from_secs(20)), (Signal::QUIT, Duration::from_secs(5))];

/// Differences from PostgreSQL's defaults: durable, sized for one machine that also runs Signalbox.
const SETTINGS: [(&str, &str); 14] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "128MB"),
    ("max_connections", "200"),
    ("wal_compression", "on"),
    ("max_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("log_line_prefix", "%m [%p] "),
    ("log_destination", "stderr"),
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
];

/// How to start a private PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Folder of all files of this server; created if missing.
    pub data_dir: PathBuf,
    /// `None` chooses a free port.
    pub port: Option<u16>,
    /// Server settings that override the defaults, such as `("fsync", "off")` in tests.
    pub settings: Vec<(String, String)>,
    /// Environment variables of the server beyond those that it needs, for tests of a machine that is not as it should be.
    pub environment: Vec<(String, String)>,
    /// The server that this one copies and follows, if it is a replica.
    pub primary: Option<Primary>,
}

/// Where a replica finds its primary.
#[derive(Clone, Debug)]
pub struct Primary {
    port: u16,
    password: Secret,
}

impl PostgresOptions {
    /// A server in `data_dir` on any free port, with the default settings.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            port: None,
            settings: Vec::new(),
            environment: Vec::new(),
            primary: None,
        }
    }
}

/// A running PostgreSQL. Dropping it shuts the server down at once; [`Postgres::stop`] does it in good order.
#[derive(Debug)]
pub struct Postgres {
    // Before the folder: the claim is given up only when the server is gone.
    process: ServerProcess,
    _folder: Folder,
    port: u16,
    password: Secret,
}

impl Postgres {
    /// Starts the server, initialising its data first if necessary, and waits until it accepts connections.
    #[boxed]
    pub async fn start(options: PostgresOptions) -> Result<Self, EmbeddedError> {
        let mut account = Account::for_postgres()?;
        // The server's user passes through this folder to `cluster`, but cannot list it.
        let mode = if account.owner().is_some() { 0o711 } else { 0o700 };
        let folder = Folder::claim(&options.data_dir, mode)?;
        account.reach(folder.path())?;
        let password = match &options.primary {
            Some(primary) => primary.password.clone(),
            None => folder.secret("password")?,
        };
        let plan = Plan { programs: programs_for(&folder)?, account, folder: &folder, options: &options };

        plan.end_leftovers().await?;
        plan.lay_out_once(&password).await?;
        let (process, port) = ports::start_on_port(options.port, |port| plan.launch(port)).await?;
        tracing::info!(server.name = NAME, server.pid = process.pid(), server.port = port, "server started");
        Ok(Self { process, _folder: folder, port, password })
    }

    /// The URL of a database on this server, with the superuser's name and password. The database `postgres` always
    /// exists; others are the caller's to create.
    pub fn url(&self, database: &str) -> String {
        let (password, port) = (self.password.reveal(), self.port);
        format!("postgres://{SUPERUSER}:{password}@127.0.0.1:{port}/{database}")
    }

    /// The port on 127.0.0.1 that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// This server as the primary of replicas.
    pub fn as_primary(&self) -> Primary {
        Primary { port: self.port, password: self.password.clone() }
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// The main process's number.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends running statements, writes a checkpoint and stops; killed when that takes too long.
    #[boxed]
    pub async fn stop(self) {
        self.process.stop(&STOP_STEPS).await;
    }
}

fn cluster(folder: &Folder) -> PathBuf {
    folder.join("cluster")
}

/// The programs of the version that wrote the data; the newest when there are no data yet.
fn programs_for(folder: &Folder) -> Result<PostgresPrograms, EmbeddedError> {
    let written = fs::read_to_string(cluster(folder).join("PG_VERSION")).ok();
    locate::postgres(folder.path(), written.and_then(|version| version.trim().parse().ok()))
}

/// The parameters of one start.
struct Plan<'a> {
    programs: PostgresPrograms,
    account: Account,
    folder: &'a Folder,
    options: &'a PostgresOptions,
}

impl Plan<'_> {
    /// Ends servers of an earlier run, and removes the file by which the last one said that it runs.
    ///
    /// PostgreSQL ignores that file when no process has the number in it. After a crash in a container the number is
    /// easily another process's, or a zombie's, and the server would refuse to start for ever.
    async fn end_leftovers(&self) -> Result<(), EmbeddedError> {
        let cluster = cluster(self.folder);
        leftovers::end(self.folder.path(), |process| leftovers::is_postgres_in(process, &cluster)).await?;
        let pid_file = cluster.join("postmaster.pid");
        if pid_file.exists() {
            fs::remove_file(&pid_file).map_err(EmbeddedError::file("remove", pid_file))?;
        }
        Ok(())
    }

    /// Lays out the data in a folder that gets its final name when it is complete, so that an interrupted one starts again.
    async fn lay_out_once(&self, password: &Secret) -> Result<(), EmbeddedError> {
        let finished = cluster(self.folder);
        if finished.exists() {
            return self.own(&finished);
        }
        let unfinished = self.folder.join("cluster.new");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(EmbeddedError::file("remove", &unfinished))?;
        }
        // PostgreSQL refuses a folder that others can read.
        let made = fs::DirBuilder::new().mode(0o700).create(&unfinished);
        made.map_err(EmbeddedError::file("make the folder", &unfinished))?;
        self.own(&unfinished)?;
        match &self.options.primary {
            Some(primary) => self.copy(primary, &unfinished).await?,
            None => {
                // initdb reads the password as the server's user, who cannot read ours.
                let password_copy = self.folder.write_private("password.initdb", password.reveal())?;
                self.own(&password_copy)?;
                let laid_out = self.initdb(&unfinished, &password_copy).await;
                fs::remove_file(&password_copy).map_err(EmbeddedError::file("remove", &password_copy))?;
                laid_out?;
            }
        }
        fs::rename(&unfinished, &finished).map_err(EmbeddedError::file("rename", unfinished))
    }

    async fn initdb(&self, target: &Path, password_file: &Path) -> Result<(), EmbeddedError> {
        let mut command = self.account.command(&self.programs.bin.join("initdb"), "KILL")?;
        command.args([
            "--username",
            SUPERUSER,
            "--auth",
            "scram-sha-256",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            // Upper and lower case of every alphabet; the order of texts stays that of their bytes.
            "--lc-ctype",
            "C.UTF-8",
        ]);
        command.arg("--data-checksums").arg("--pwfile").arg(password_file).arg("--pgdata").arg(target);
        self.lay_out_with(command, "initdb").await
    }

    /// Copies the running primary; the copy follows it when it is started.
    async fn copy(&self, primary: &Primary, target: &Path) -> Result<(), EmbeddedError> {
        let mut command = self.account.command(&self.programs.bin.join("pg_basebackup"), "KILL")?;
        // It writes the address and the password into the copy.
        command.env("PGPASSWORD", primary.password.reveal());
        command.args(["--host", "127.0.0.1", "--port", &primary.port.to_string(), "--username", SUPERUSER]);
        command.args(["--wal-method", "stream", "--checkpoint", "fast", "--write-recovery-conf"]);
        command.arg("--pgdata").arg(target);
        self.lay_out_with(command, "pg_basebackup").await
    }

    async fn lay_out_with(
        &self,
        mut command: std::process::Command,
        name: &'static str,
    ) -> Result<(), EmbeddedError> {
        if self.fsync_is_off() {
            command.arg("--no-sync");
        }
        let mut command = tokio::process::Command::from(command);
        command.process_group(0).kill_on_drop(true);
        let output = command.output().await.map_err(EmbeddedError::run(name))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        Err(EmbeddedError::InitFailed { data_dir: self.folder.path().to_owned(), output: said })
    }

    fn fsync_is_off(&self) -> bool {
        self.options.settings.iter().any(|(name, value)| (name.as_str(), value.as_str()) == FSYNC_OFF)
    }

    async fn launch(&self, port: u16) -> Result<(ServerProcess, u16), EmbeddedError> {
        let cluster = cluster(self.folder);
        let mut command = self.account.command(&self.programs.bin.join("postgres"), "INT")?;
        command.arg("-D").arg(&cluster).arg("-p").arg(port.to_string());
        let given = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in SETTINGS.into_iter().chain(given) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let variables = self.options.environment.iter();
        command.envs(variables.map(|(name, value)| (name.as_str(), value.as_str())));
        let mut process = ServerProcess::spawn(NAME, command, self.folder.join("log"), Signal::QUIT)?;
        process.wait_ready(|pid| ready(says_ready(&cluster, pid))).await?;
        Ok((process, port))
    }

    /// Makes `path` the property of the server's user.
    fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        let Some((uid, gid)) = self.account.owner() else { return Ok(()) };
        folder::give(path, uid, gid).map_err(EmbeddedError::file("change the owner of", path))
    }
}

/// The server keeps its state in the eighth line of `postmaster.pid`; `pg_ctl` waits on the same.
fn says_ready(cluster: &Path, pid: u32) -> bool {
    let state = fs::read_to_string(cluster.join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = state.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}
