use std::path::PathBuf;

use async_nats::{Client, ConnectOptions, ServerAddr};
use rustix::process::{Pid, Signal, kill_process};
use signalbox_embedded::{Nats, NatsOptions};
use tokio::sync::Mutex;

use crate::home;

/// A nats-server of one test, which the test may kill, restart and rob of its streams.
#[derive(Debug)]
pub struct TestNats {
    folder: PathBuf,
    port: u16,
    url: String,
    running: Mutex<Option<Nats>>,
}

impl TestNats {
    pub(crate) async fn start() -> Self {
        let folder = home::folder("nats");
        let nats = Nats::start(NatsOptions::new(&folder)).await.expect("start nats-server");
        Self { folder, port: nats.port(), url: nats.url(), running: Mutex::new(Some(nats)) }
    }

    /// Its address with user and password; stays the same over restarts.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills it with SIGKILL; it stays away until [`TestNats::restart`].
    pub async fn kill(&self) {
        if let Some(nats) = self.running.lock().await.take() {
            let pid = i32::try_from(nats.pid()).ok().and_then(Pid::from_raw).expect("a process id");
            kill_process(pid, Signal::KILL).expect("kill nats-server");
        }
    }

    /// Starts it again on the same port, after stopping it in good order if it runs.
    pub async fn restart(&self) {
        let mut running = self.running.lock().await;
        if let Some(nats) = running.take() {
            nats.stop().await;
        }
        let options = NatsOptions { data_dir: self.folder.clone(), port: Some(self.port) };
        *running = Some(Nats::start(options).await.expect("start nats-server again"));
    }

    /// Kills it, deletes all that JetStream has stored, and starts it again.
    pub async fn wipe(&self) {
        self.kill().await;
        let stored = self.folder.join("jetstream");
        if stored.exists() {
            std::fs::remove_dir_all(&stored).expect("delete JetStream's folder");
        }
        self.restart().await;
    }

    /// A plain client, for what the bus does not show.
    pub async fn client(&self) -> Client {
        let address: ServerAddr = self.url.parse().expect("an address");
        let part = |part: Option<&str>| part.expect("user and password in the address").to_owned();
        let (user, password) = (part(address.username()), part(address.password()));
        let options = ConnectOptions::with_user_and_password(user, password);
        options.connect(address).await.expect("reach nats-server")
    }
}
