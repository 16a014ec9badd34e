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
    /// Where it tells its numbers.
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
            let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
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

    /// Asks all processes to stop, and waits for them; gives back how each ended.
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

    /// What the process with `role` tells of itself.
    pub async fn metrics(&self, role: &str) -> String {
        let process = self.processes.iter().find(|process| process.role == role).unwrap();
        let url = format!("http://{}/metrics", process.metrics);
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }

    /// What the process with `role` has logged.
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
