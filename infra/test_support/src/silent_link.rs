use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// A TCP proxy that can go silent without closing anything: bytes are accepted and dropped in both directions, as by a
/// firewall that forgot its connections behind a proxy that still acknowledges them.
#[derive(Debug)]
pub struct SilentLink {
    address: SocketAddr,
    silences: Arc<watch::Sender<Silence>>,
    server: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Silence {
    /// How often it went silent: connections opened before the last time stay silent for good.
    count: u64,
    is_silent: bool,
}

impl SilentLink {
    /// A link to `target`.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a port for the link");
        let address = listener.local_addr().expect("the link has an address");
        let silences = Arc::new(watch::Sender::new(Silence::default()));
        let accepting = silences.clone();
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target, accepting.subscribe()));
            }
        });
        Self { address, silences, server }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `url` with the link's address in place of its target's.
    pub fn instead_of(&self, url: &str, target: SocketAddr) -> String {
        url.replace(&target.to_string(), &self.address.to_string())
    }

    /// Carries nothing from now on, neither of open connections nor of new ones.
    pub fn silence(&self) {
        self.silences.send_modify(|silence| {
            silence.count += 1;
            silence.is_silent = true;
        });
    }

    /// Carries new connections again. Those that met the silence stay silent.
    pub fn restore(&self) {
        self.silences.send_modify(|silence| silence.is_silent = false);
    }
}

impl Drop for SilentLink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, mut silences: watch::Receiver<Silence>) {
    let start = *silences.borrow_and_update();
    if start.is_silent {
        return swallow(client).await;
    }
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    // Like the two ends themselves: else an answer of several pieces waits for 40 ms.
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = silences.wait_for(|now| now.count != start.count) => {}
    }
    tokio::join!(swallow(client), swallow(server));
}

/// Reads and drops until the other side closes; nothing reaches the one beyond.
async fn swallow(mut stream: TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = stream.read(&mut buffer).await {}
}
