//! A cluster of NATS servers on this machine, for tests and measurements of a server's failure.

use signalbox_boxed::boxed;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::child;
use crate::error::EmbeddedError;
use crate::folder::random_word;
use crate::nats::{ClusterPlace, Nats, NatsOptions};
use crate::ports;

/// Servers of one cluster, each of which may be killed and started again.
#[derive(Debug)]
pub struct NatsCluster {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    folder: PathBuf,
    place: Option<ClusterPlace>,
    port: u16,
    url: String,
    name: String,
    running: Option<Nats>,
}

impl NatsCluster {
    /// Starts `count` servers, each in a folder of its own below `data_dir`. One alone is a server like any other.
    #[boxed]
    pub async fn start(data_dir: &Path, count: usize) -> Result<Self, EmbeddedError> {
        // Held until the servers start, so that no other process is given one of these ports meanwhile.
        let held = (0..count).map(|_| ports::hold()).collect::<Result<Vec<_>, _>>()?;
        let routes: Vec<_> = held.iter().map(|(_, port)| *port).collect();
        let password = random_word();
        let mut nodes = Vec::new();
        for (number, (held, port)) in held.into_iter().enumerate() {
            drop(held);
            let place = ClusterPlace { port, routes: routes.clone(), password: password.clone() };
            let place = (count > 1).then_some(place);
            nodes.push(Node::start(data_dir.join(format!("node-{number}")), place).await?);
        }
        Ok(Self { nodes })
    }

    /// Addresses of all servers with user and password, separated by commas; they stay the same over restarts.
    pub fn url(&self) -> String {
        self.nodes.iter().map(|node| node.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Which server is called `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Number of its servers, stopped ones included.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Process ids of those that run.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().filter_map(|node| node.running.as_ref()).map(Nats::pid)
    }

    /// Kills server `index` with SIGKILL; it stays away until [`NatsCluster::restart`].
    pub fn kill(&mut self, index: usize) {
        if let Some(nats) = self.nodes[index].running.take() {
            child::send(nats.pid(), Signal::KILL).ok();
        }
    }

    /// Starts server `index` again on the same ports, after stopping it in good order if it runs.
    #[boxed]
    pub async fn restart(&mut self, index: usize) -> Result<(), EmbeddedError> {
        let node = &mut self.nodes[index];
        if let Some(nats) = node.running.take() {
            nats.stop().await;
        }
        node.running = Some(Nats::start(node.options()).await?);
        Ok(())
    }

    /// Deletes the JetStream data of server `index`, which must not run.
    pub fn wipe(&self, index: usize) -> std::io::Result<()> {
        let stored = self.nodes[index].folder.join("jetstream");
        if stored.exists() { std::fs::remove_dir_all(stored) } else { Ok(()) }
    }
}

impl Node {
    async fn start(folder: PathBuf, place: Option<ClusterPlace>) -> Result<Self, EmbeddedError> {
        let options = NatsOptions { cluster: place.clone(), ..NatsOptions::new(&folder) };
        let nats = Nats::start(options).await?;
        let (port, url, name) = (nats.port(), nats.url(), nats.name().to_owned());
        Ok(Self { folder, place, port, url, name, running: Some(nats) })
    }

    fn options(&self) -> NatsOptions {
        NatsOptions { data_dir: self.folder.clone(), port: Some(self.port), cluster: self.place.clone() }
    }
}
