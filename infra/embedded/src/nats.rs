//! The private NATS server with JetStream.
//!
//! In its folder: `nats.conf` (with the password, so only its owner reads it), `jetstream` (the streams), `password`,
//! `name`, `log`, `lock`. It listens on 127.0.0.1 alone, asks for the password, and has no monitoring port.

use signalbox_boxed::boxed;
use std::fmt;
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
/// User name of clients and of servers in a cluster.
const CLUSTER_USER: &str = "signalbox";
/// A client is disconnected when it has left this many pings unanswered and the next one is due. Until then the server sends
/// it commands that no handler will answer, so the default of two minutes would make every second command time out.
const PINGS: u8 = 2;
const PING_INTERVAL: &str = "2s";
/// Bytes that the streams may reserve together. By default the server reserves no more than three quarters of what the disk had free
/// when it started: after a moment of a full disk, a stream could not be made anew until the server was restarted.
const RESERVED: &str = "16GB";
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const STOP_STEPS: [(Signal, Duration); 1] = [(Signal::TERM, Duration::from_secs(10))];

/// How to start a private NATS server.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Folder of all files of this server; created if missing.
    pub data_dir: PathBuf,
    /// `None` chooses a free port.
    pub port: Option<u16>,
    /// The cluster that it belongs to, if any.
    pub cluster: Option<ClusterPlace>,
}

impl NatsOptions {
    /// A server in `data_dir` on any free port.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), port: None, cluster: None }
    }
}

/// A server's place in a cluster on this machine.
#[derive(Clone)]
pub struct ClusterPlace {
    /// Where the other servers of the cluster find this one.
    pub port: u16,
    /// Where this one finds the others; it may stand among them.
    pub routes: Vec<u16>,
    /// The password of clients and of the other servers, the same for the whole cluster.
    pub password: String,
}

impl fmt::Debug for ClusterPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClusterPlace").field("port", &self.port).finish_non_exhaustive()
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

/// The server's identity and its clients' credentials. Both survive restarts, so that clients can reconnect.
#[derive(Clone, Debug)]
struct Identity {
    name: String,
    user: String,
    password: Secret,
}

impl Nats {
    /// Starts the server and waits until it takes connections.
    #[boxed]
    pub async fn start(options: NatsOptions) -> Result<Self, EmbeddedError> {
        let program = locate::nats_server()?.canonicalize().map_err(EmbeddedError::run(NAME))?;
        let folder = Folder::claim(&options.data_dir, 0o700)?;
        let name = folder.secret("name")?.reveal().to_owned();
        let identity = match &options.cluster {
            // Clients that move from one server to another use the same credentials.
            Some(place) => {
                let password = Secret::from(place.password.as_str());
                Identity { name, user: CLUSTER_USER.to_owned(), password }
            }
            None => Identity { user: name.clone(), name, password: folder.secret("password")? },
        };

        let config = folder.join("nats.conf");
        leftovers::end(folder.path(), |process| leftovers::is_nats_with(process, &config)).await?;
        let cluster = options.cluster.as_ref();
        let launch = |port| launch(&program, &folder, &identity, cluster, port);
        let (process, port) = ports::start_on_port(options.port, launch).await?;
        tracing::info!(server.name = NAME, server.pid = process.pid(), server.port = port, "server started");
        Ok(Self { process, _folder: folder, port, identity })
    }

    /// The URL of this server, with user and password.
    ///
    /// `async_nats::connect` ignores both: take them out of a parsed `async_nats::ServerAddr` and pass them to
    /// `ConnectOptions::user_and_password`.
    pub fn url(&self) -> String {
        let Identity { user, password, .. } = &self.identity;
        format!("nats://{user}:{}@127.0.0.1:{}", password.reveal(), self.port)
    }

    /// The server's name, by which a cluster names its leader.
    pub fn name(&self) -> &str {
        &self.identity.name
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
    #[boxed]
    pub async fn stop(self) {
        self.process.stop(&STOP_STEPS).await;
    }
}

async fn launch(
    program: &Path,
    folder: &Folder,
    identity: &Identity,
    cluster: Option<&ClusterPlace>,
    port: u16,
) -> Result<(ServerProcess, u16), EmbeddedError> {
    let config = folder.write_private("nats.conf", &configuration(identity, cluster, port))?;
    let mut command = account::own_command(program, "TERM")?;
    // The store is named here and not in the file, where the path would have to be quoted.
    command.arg("--config").arg(config).arg("--store_dir").arg(folder.path());
    let mut process = ServerProcess::spawn(NAME, command, folder.join("log"), Signal::TERM)?;
    process.wait_ready(|_| answers(port, &identity.name)).await?;
    Ok((process, port))
}

fn configuration(identity: &Identity, cluster: Option<&ClusterPlace>, port: u16) -> String {
    let Identity { name, user, password } = identity;
    let password = password.reveal();
    let own = format!(
        r#"listen: "127.0.0.1:{port}"
server_name: "{name}"
max_payload: 8MB
ping_interval: "{PING_INTERVAL}"
ping_max: {PINGS}
jetstream {{ max_file_store: {RESERVED} }}
authorization {{ user: "{user}", password: "{password}" }}
"#
    );
    own + &cluster.map(routes).unwrap_or_default()
}

fn routes(ClusterPlace { port, routes, password }: &ClusterPlace) -> String {
    let route = |port: &u16| format!(r#""nats-route://{CLUSTER_USER}:{password}@127.0.0.1:{port}""#);
    let routes = routes.iter().map(route).collect::<Vec<_>>().join(", ");
    format!(
        r#"cluster {{
  name: "signalbox"
  listen: "127.0.0.1:{port}"
  authorization {{ user: "{CLUSTER_USER}", password: "{password}" }}
  routes: [{routes}]
}}
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
