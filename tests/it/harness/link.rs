//! A wire between agent and gateway that can be held.

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

/// Passes bytes on until the allowance of a direction is used up; then that connection stands still.
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    up: AtomicI64,
    down: AtomicI64,
}

impl Link {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (up, down) = (AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX));
        let shared = Arc::new(Shared { up, down });
        let for_server = shared.clone();
        let server = tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                let shared = for_server.clone();
                tokio::spawn(async move {
                    let Ok(gateway) = TcpStream::connect(target).await else { return };
                    let (agent_reads, agent_writes) = agent.into_split();
                    let (gateway_reads, gateway_writes) = gateway.into_split();
                    // Whichever direction ends, both do: dropping the halves closes both sockets.
                    tokio::select! {
                        () = carry(agent_reads, gateway_writes, &shared.up) => {}
                        () = carry(gateway_reads, agent_writes, &shared.down) => {}
                    }
                });
            }
        });
        Self { address, shared, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds the connection that carries the byte after the next `bytes` of the agent.
    pub fn hold_uploads_after(&self, bytes: i64) {
        self.shared.up.store(bytes, Ordering::SeqCst);
    }

    /// Holds the connection that carries the byte after the next `bytes` of the gateway.
    pub fn hold_downloads_after(&self, bytes: i64) {
        self.shared.down.store(bytes, Ordering::SeqCst);
    }
}

impl Drop for Link {
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
            return std::future::pending().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
