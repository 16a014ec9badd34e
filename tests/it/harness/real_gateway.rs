//! A gateway as a process of its own, which can be killed.

use std::{net::SocketAddr, process::Stdio};

use signalbox_config::Config;
use signalbox_test_support::free_address;
use tokio::{net::TcpStream, process::Child};

use super::{Client, eventually, program, seconds};

/// A running gateway on the servers of a test.
pub struct RealGateway {
    process: Child,
    pub address: SocketAddr,
}

impl RealGateway {
    /// Starts it and waits until it answers.
    pub async fn start(config: &Config) -> Self {
        Self::start_at(config, free_address()).await
    }

    /// Starts it at an address that an earlier one had.
    pub async fn start_at(config: &Config, address: SocketAddr) -> Self {
        let mut command = program(config);
        command.args(["serve", "--role", "gateway"]).env("SIGNALBOX_SERVER__ADDRESS", address.to_string());
        let process = command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        eventually(seconds(60), async || TcpStream::connect(address).await.is_ok()).await;
        let client = Client::new(address);
        eventually(seconds(60), async || client.get("/readyz").await.status == 200).await;
        Self { process, address }
    }

    /// Kills it, as when its machine fails.
    pub async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}
