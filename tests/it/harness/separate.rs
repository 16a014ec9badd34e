//! A service whose roles are processes of their own, as it runs on many machines.

use std::{
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use signalbox_test_support::{TestServers, free_address};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::{ADMIN, Client, PASSWORD, eventually, seconds};

const ROLES: [&str; 4] = ["commands", "projections", "workers", "gateway"];

/// One process for each role, and an admin who is logged in.
pub struct Separate {
    pub servers: TestServers,
    pub admin: Client,
    processes: Vec<Process>,
    folder: TempDir,
}

struct Process {
    role: &'static str,
    child: Child,
    /// Address of its metrics.
    metrics: SocketAddr,
}

impl Separate {
    /// Starts them with these settings besides those that they need.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let servers = TestServers::start().await;
        let folder = TempDir::new().unwrap();
        let address = free_address();
        let start = |role: &'static str| {
            let metrics = free_address();
            let log = File::create(log_of(&folder, role)).unwrap();
            // With fewer open files than the system allows, as most systems start a process.
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -S -n 1024 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_signalbox")]);
            command.args(["serve", "--role", role]).env_remove("SIGNALBOX_CONFIG").kill_on_drop(true);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            command
                .env("DATABASE_URL", &servers.database_url)
                .env("NATS_URL", &servers.nats_url)
                .env("SIGNALBOX_DATABASE__REPLICA_URL", servers.replica_url.as_deref().unwrap_or_default())
                .env("SIGNALBOX_NATS__REPLICAS", servers.nats.size().to_string())
                .env("SIGNALBOX_SERVER__ADDRESS", address.to_string())
                .env("SIGNALBOX_SERVER__METRICS_ADDRESS", metrics.to_string())
                .env("SIGNALBOX_STORAGE__FOLDER", folder.path())
                .env("SIGNALBOX_EGRESS__ALLOWED_NETWORKS", "127.0.0.0/8")
                .env("SIGNALBOX_EXTRACTION__PARSERS", "1")
                .env("SIGNALBOX_ADMIN_EMAIL", ADMIN)
                .env("SIGNALBOX_ADMIN_PASSWORD", PASSWORD)
                .envs(settings.iter().copied());
            Process { role, child: command.spawn().unwrap(), metrics }
        };
        let processes = ROLES.map(start).into();
        let anonymous = Client::new(address);
        let answers = async || tokio::net::TcpStream::connect(address).await.is_ok();
        eventually(seconds(60), answers).await;
        eventually(seconds(60), async || anonymous.get("/readyz").await.status == 200).await;
        let admin = anonymous.log_in(ADMIN, PASSWORD).await;
        Self { servers, admin, processes, folder }
    }

    /// Asks all processes to stop, and waits for them; returns how each ended.
    pub async fn stop(&mut self) -> Vec<(&'static str, ExitStatus)> {
        let mut ended = Vec::new();
        for process in &self.processes {
            terminate(&process.child).await;
        }
        for Process { role, child, .. } in &mut self.processes {
            let status = timeout(seconds(30), child.wait()).await;
            ended.push((*role, status.unwrap_or_else(|_| panic!("{role} did not stop")).unwrap()));
        }
        ended
    }

    /// Where the process with `role` answers operators.
    pub fn metrics_address(&self, role: &str) -> SocketAddr {
        self.processes.iter().find(|process| process.role == role).unwrap().metrics
    }

    /// The roles and the ids of their processes.
    pub fn process_ids(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.processes.iter().map(|process| (process.role, process.child.id().unwrap()))
    }

    /// Kills the process with `role`.
    pub async fn kill(&mut self, role: &str) {
        let process = self.processes.iter_mut().find(|process| process.role == role).unwrap();
        process.child.kill().await.unwrap();
    }

    /// The metrics of the process with `role`.
    pub async fn metrics(&self, role: &str) -> String {
        let url = format!("http://{}/metrics", self.metrics_address(role));
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }

    /// The log output of the process with `role`.
    pub fn log(&self, role: &str) -> String {
        std::fs::read_to_string(log_of(&self.folder, role)).unwrap()
    }
}

/// Asks a process to stop.
pub async fn terminate(process: &Child) {
    let id = process.id().unwrap().to_string();
    Command::new("kill").args(["-TERM", &id]).status().await.unwrap();
}

fn log_of(folder: &TempDir, role: &str) -> PathBuf {
    folder.path().join(format!("{role}.log"))
}
