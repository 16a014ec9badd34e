//! A wire between agent and gateway that can be cut.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// Passes bytes on until the allowance of a direction is used up; then cuts that connection, once.
pub struct Proxy {
    address: SocketAddr,
    up: Arc<AtomicI64>,
    down: Arc<AtomicI64>,
    server: JoinHandle<()>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (up, down) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::new(AtomicI64::new(i64::MAX)));
        let allowances = (up.clone(), down.clone());
        let server = tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                let (up, down) = allowances.clone();
                tokio::spawn(async move {
                    let Ok(gateway) = TcpStream::connect(target).await else { return };
                    let (agent_reads, agent_writes) = agent.into_split();
                    let (gateway_reads, gateway_writes) = gateway.into_split();
                    // Whichever direction ends, both do: dropping the halves closes both sockets.
                    tokio::select! {
                        () = carry(agent_reads, gateway_writes, &up) => {}
                        () = carry(gateway_reads, agent_writes, &down) => {}
                    }
                });
            }
        });
        Self { address, up, down, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts the connection that carries the byte after the next `bytes` of the agent.
    pub fn cut_uploads_after(&self, bytes: i64) {
        self.up.store(bytes, Ordering::SeqCst);
    }

    /// Cuts the connection that carries the byte after the next `bytes` of the gateway.
    pub fn cut_downloads_after(&self, bytes: i64) {
        self.down.store(bytes, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, allowance: &AtomicI64) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        if allowance.fetch_sub(read as i64, Ordering::SeqCst) < read as i64 {
            allowance.store(i64::MAX, Ordering::SeqCst);
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
