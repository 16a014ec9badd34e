//! A receiver that answers every request with the same bytes, or does something worse.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A receiver's reaction to a request.
#[derive(Clone, Copy)]
pub enum Behaviour {
    Answer(&'static str),
    Hang,
    Reset,
    /// Answers 200, and then sends zeros as long as the client reads.
    Flood,
}

pub struct Receiver {
    pub address: SocketAddr,
    counts: Arc<Counts>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    flooded: AtomicUsize,
}

impl Receiver {
    pub async fn start(at: &str, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let (address, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let shared = counts.clone();
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(socket, behaviour, shared.clone()));
            }
        });
        Self { address, counts, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    pub fn flooded(&self) -> usize {
        self.counts.flooded.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut socket: TcpStream, behaviour: Behaviour, counts: Arc<Counts>) {
    while read_request(&mut socket).await {
        counts.requests.fetch_add(1, Ordering::SeqCst);
        match behaviour {
            Behaviour::Answer(answer) => socket.write_all(answer.as_bytes()).await.unwrap(),
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Reset => return socket.set_zero_linger().unwrap(),
            Behaviour::Flood => {
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n").await.unwrap();
                let zeros = vec![0; 64 * 1024];
                while socket.write_all(&zeros).await.is_ok() {
                    counts.flooded.fetch_add(zeros.len(), Ordering::SeqCst);
                }
                return;
            }
        }
    }
}

/// Reads up to the empty line and the announced length of the body, if any.
async fn read_request(socket: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    loop {
        let Ok(byte) = socket.read_u8().await else { return false };
        read.push(byte);
        if read.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut body).await.is_ok()
}
