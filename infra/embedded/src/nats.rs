//! The private NATS server with JetStream.
//!
//! In its folder: `nats.conf` (with the password, so only its owner reads it), `jetstream` (the streams), `password`,
//! `name`, `log`, `lock`. It listens on 127.0.0.1 alone, asks for the password, and has no monitoring port.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use crate::account;
use crate::child::ServerProcess;
use crate::error::EmbeddedError;
use crate::folder::{Folder, Secret};
use crate::leftovers;
use crate::locate;
use crate::ports;

const NAME: &str = "nats-server";
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const STOP_STEPS: [(Signal, Duration); 1] = [(Signal::TERM, Duration::from_secs(10))];

/// How to start a private NATS server.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Everything of this server lives here; made when missing.
    pub data_dir: PathBuf,
    /// A free port is chosen when none is given.
    pub port: Option<u16>,
}

impl NatsOptions {
    /// A server in `data_dir` on any free port.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), port: None }
    }
}

/// A running NATS server. Dropping it shuts the server down; [`Nats::stop`] does it without blocking.
#[derive(Debug)]
pub struct Nats {
    // Before the folder: the claim is given up only when the server is gone.
    process: ServerProcess,
    _folder: Folder,
    port: u16,
    identity: Identity,
}

/// Who the server says it is, and what a client must say. Both stay the same over restarts, so that clients that
/// reconnect are let in.
#[derive(Clone, Debug)]
struct Identity {
    name: String,
    password: Secret,
}

impl Nats {
    /// Starts the server and waits until it takes connections.
    pub async fn start(options: NatsOptions) -> Result<Self, EmbeddedError> {
        let program = locate::nats_server()?.canonicalize().map_err(EmbeddedError::run(NAME))?;
        let folder = Folder::claim(&options.data_dir, 0o700)?;
        let identity = Identity {
            name: folder.secret("name")?.reveal().to_owned(),
            password: folder.secret("password")?,
        };

        let config = folder.join("nats.conf");
        leftovers::end(folder.path(), |process| leftovers::is_nats_with(process, &config)).await?;
        let launch = |port| launch(&program, &folder, &identity, port);
        let (process, port) = ports::start_on_port(options.port, launch).await?;
        tracing::info!(server.name = NAME, server.pid = process.pid(), server.port = port, "server started");
        Ok(Self { process, _folder: folder, port, identity })
    }

    /// The URL of this server, with user and password.
    ///
    /// `async_nats::connect` passes over both: take them out of a parsed `async_nats::ServerAddr` and give them to
    /// `ConnectOptions::user_and_password`.
    pub fn url(&self) -> String {
        let Identity { name, password } = &self.identity;
        format!("nats://{name}:{}@127.0.0.1:{}", password.reveal(), self.port)
    }

    /// The port on 127.0.0.1 that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Flushes the streams and stops; killed when that takes too long.
    pub async fn stop(self) {
        self.process.stop(&STOP_STEPS).await;
    }
}

async fn launch(
    program: &Path,
    folder: &Folder,
    identity: &Identity,
    port: u16,
) -> Result<(ServerProcess, u16), EmbeddedError> {
    let config = folder.write_private("nats.conf", &configuration(identity, port))?;
    let mut command = account::own_command(program, "TERM")?;
    // The store is named here and not in the file, where the path would have to be quoted.
    command.arg("--config").arg(config).arg("--store_dir").arg(folder.path());
    let mut process = ServerProcess::spawn(NAME, command, folder.join("log"), Signal::TERM)?;
    process.wait_ready(|_| answers(port, &identity.name)).await?;
    Ok((process, port))
}

fn configuration(Identity { name, password }: &Identity, port: u16) -> String {
    let password = password.reveal();
    format!(
        r#"listen: "127.0.0.1:{port}"
server_name: "{name}"
max_payload: 8MB
jetstream: enabled
authorization {{ user: "{name}", password: "{password}" }}
"#
    )
}

/// Whether the server of that name greets at `port`; another program may have taken the port in the meantime.
async fn answers(port: u16, name: &str) -> bool {
    let greeting = async {
        let mut line = String::new();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        BufReader::new(stream).read_line(&mut line).await.map(|_| line)
    };
    matches!(tokio::time::timeout(PROBE_LIMIT, greeting).await,
        Ok(Ok(line)) if line.starts_with("INFO ") && line.contains(name))
}
