use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use async_nats::{Client, ConnectOptions, ServerAddr, jetstream};
use signalbox_embedded::NatsCluster;
use tokio::{sync::Mutex, task::AbortHandle, time::sleep};

use crate::{eventually_some, home, seconds};

/// Most tests have begun their work by then, and few have ended.
const FIRST_KILL: Duration = Duration::from_secs(3);

/// The nats-servers of one test, which the test may kill, restart and rob of their streams: one, or a cluster of three.
#[derive(Debug)]
pub struct TestNats {
    url: String,
    size: usize,
    nodes: Arc<Mutex<NatsCluster>>,
    killer: Option<AbortHandle>,
}

impl TestNats {
    /// One server.
    pub(crate) async fn start() -> Self {
        Self::with(1).await
    }

    /// A cluster of three.
    pub(crate) async fn start_cluster() -> Self {
        Self::with(3).await
    }

    async fn with(size: usize) -> Self {
        let folder: PathBuf = home::folder("nats");
        let nodes = NatsCluster::start(&folder, size).await.expect("start nats-server");
        let url = nodes.url();
        Self { url, size, nodes: Arc::new(Mutex::new(nodes)), killer: None }
    }

    /// Kills one server of the cluster after another, the first soon, and starts it again.
    pub(crate) fn killed_every(mut self, period: Duration) -> Self {
        let (nodes, size) = (self.nodes.clone(), self.size);
        let test = thread::current().name().unwrap_or_default().to_owned();
        let killer = tokio::spawn(async move {
            sleep(FIRST_KILL).await;
            for index in (0..size).cycle() {
                let mut nodes = nodes.lock().await;
                nodes.kill(index);
                nodes.restart(index).await.expect("start a nats-server again");
                drop(nodes);
                eprintln!("killed a nats-server of {test}");
                // The others need it before the next one may go.
                sleep(period).await;
            }
        });
        self.killer = Some(killer.abort_handle());
        self
    }

    /// Fails when who kills the servers has come to an end: the test would have run undisturbed.
    pub(crate) fn assert_killer_lives(&self) {
        let has_ended = self.killer.as_ref().is_some_and(AbortHandle::is_finished);
        assert!(!has_ended, "the nats-servers are not killed any more: one did not start again");
    }

    /// Addresses with user and password; they stay the same over restarts.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How many servers there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Kills all servers with SIGKILL; they stay away until [`TestNats::restart`].
    pub async fn kill(&self) {
        let mut nodes = self.nodes.lock().await;
        (0..self.size).for_each(|index| nodes.kill(index));
    }

    /// Starts all servers again on the same ports, after stopping those in good order that run.
    pub async fn restart(&self) {
        restart_all(&mut *self.nodes.lock().await).await;
    }

    /// Kills all servers, deletes all that JetStream has stored, and starts them again.
    pub async fn wipe(&self) {
        let mut nodes = self.nodes.lock().await;
        (0..self.size).for_each(|index| nodes.kill(index));
        (0..self.size).for_each(|index| nodes.wipe(index).expect("delete JetStream's folder"));
        restart_all(&mut nodes).await;
    }

    /// Kills one server of a cluster with SIGKILL.
    pub async fn kill_node(&self, index: usize) {
        self.nodes.lock().await.kill(index);
    }

    /// Starts it again.
    pub async fn restart_node(&self, index: usize) {
        self.nodes.lock().await.restart(index).await.expect("start nats-server again");
    }

    /// Which server leads `stream`; waits until one does.
    pub async fn leader_of(&self, stream: &str) -> usize {
        let jetstream = jetstream::new(self.client().await);
        eventually_some(seconds(30), async || {
            let found = jetstream.get_stream(stream).await.ok()?;
            let leader = found.cached_info().cluster.as_ref()?.leader.clone()?;
            self.nodes.lock().await.index_of(&leader)
        })
        .await
    }

    /// A plain client, for what the bus does not show.
    pub async fn client(&self) -> Client {
        let addresses: Vec<ServerAddr> =
            self.url.split(',').map(|address| address.parse().expect("an address")).collect();
        let part = |part: Option<&str>| part.expect("user and password in the address").to_owned();
        let (user, password) = (part(addresses[0].username()), part(addresses[0].password()));
        let options = ConnectOptions::with_user_and_password(user, password);
        options.connect(addresses).await.expect("reach nats-server")
    }
}

async fn restart_all(nodes: &mut NatsCluster) {
    for index in 0..nodes.size() {
        nodes.restart(index).await.expect("start nats-server again");
    }
}

impl Drop for TestNats {
    fn drop(&mut self) {
        if let Some(killer) = &self.killer {
            killer.abort();
        }
    }
}
