//! Receivers: one that answers as fast as it can, and those that mean no good.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A receiver's reaction to a request.
#[derive(Debug, Clone, Copy)]
pub enum Behaviour {
    Accept,
    /// Accepts after so long.
    Delay(Duration),
    Hang,
    Fail,
    Reset,
    Redirect,
    /// Sends a gigabyte back.
    Flood,
}

/// A body that came, and when, in seconds since 1970.
pub type Arrival = (f64, Vec<u8>);

pub struct Sink {
    pub address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// How many arrivals there are.
    count: Arc<watch::Sender<usize>>,
    server: JoinHandle<()>,
}

impl Sink {
    pub async fn start(behaviour: Behaviour) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let arrivals = Arc::<Mutex<Vec<Arrival>>>::default();
        let count = Arc::new(watch::Sender::new(0));
        let (shared, counted) = (arrivals.clone(), count.clone());
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (arrivals, counted) = (shared.clone(), counted.clone());
                tokio::spawn(async move {
                    let note = |body| {
                        let mut arrivals = arrivals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        arrivals.push((now(), body));
                        counted.send_replace(arrivals.len());
                    };
                    // A connection that breaks is the sender's affair.
                    let _ = serve(socket, behaviour, note).await;
                });
            }
        });
        Ok(Self { address, arrivals, count, server })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Waits until `count` requests have come since the last [`Sink::take`].
    pub async fn until(&self, count: usize) -> anyhow::Result<()> {
        self.count.subscribe().wait_for(|came| *came >= count).await?;
        Ok(())
    }

    /// The requests received since the last call.
    pub fn take(&self) -> Vec<Arrival> {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.count.send_replace(0);
        std::mem::take(&mut arrivals)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

async fn serve(mut socket: TcpStream, behaviour: Behaviour, note: impl Fn(Vec<u8>)) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let Some((head, length)) = head(&buffer) else {
            if socket.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            continue;
        };
        while buffer.len() < head + length {
            if socket.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        note(buffer[head..head + length].to_vec());
        buffer.drain(..head + length);
        match behaviour {
            Behaviour::Accept => socket.write_all(OK).await?,
            Behaviour::Delay(time) => {
                sleep(time).await;
                socket.write_all(OK).await?;
            }
            Behaviour::Hang => return std::future::pending().await,
            Behaviour::Fail => socket.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").await?,
            Behaviour::Reset => return socket.set_zero_linger(),
            Behaviour::Redirect => {
                let answer =
                    b"HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n";
                socket.write_all(answer).await?;
            }
            Behaviour::Flood => {
                socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n").await?;
                let zeros = vec![0; 64 * 1024];
                for _ in 0..(1 << 30) / zeros.len() {
                    socket.write_all(&zeros).await?;
                }
            }
        }
    }
}

/// Offset and length of the body.
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some((end, length.unwrap_or(0)))
}
