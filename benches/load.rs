//! The least that a client can do, so that the servers are what is measured: blocking sockets, kept alive, one thread
//! each.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// A connection that is kept alive.
pub struct Connection(BufReader<TcpStream>);

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Bytes of its body, which are still to be read.
    pub length: u64,
}

/// The results of a load.
pub struct Load {
    /// Answers per second.
    pub rate: f64,
    /// Milliseconds of each.
    pub milliseconds: Vec<f64>,
}

impl Connection {
    /// Connects to `address`.
    pub fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(BufReader::with_capacity(256 * 1024, stream)))
    }

    /// Sends bytes of a request.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads the head of the answer.
    pub fn answer(&mut self) -> anyhow::Result<Answer> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status = line.split(' ').nth(1).context("not an answer")?.parse()?;
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            match line.trim().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse()?;
                }
                Some(_) => {}
                None => return Ok(Answer { status, length }),
            }
        }
    }

    /// Where the body of an answer is read from.
    pub fn reader(&mut self) -> &mut impl Read {
        &mut self.0
    }

    /// Reads a body.
    pub fn body(&mut self, answer: &Answer) -> std::io::Result<Vec<u8>> {
        let mut body = vec![0; answer.length as usize];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }

    /// Sends a whole request and reads the whole answer.
    pub fn call(&mut self, request: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.send(request)?;
        let answer = self.answer()?;
        let body = self.body(&answer)?;
        Ok((answer.status, body))
    }
}

/// The bytes of a request with a JSON body.
pub fn post(path: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    );
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Sends `request` over `connections` for `duration`; every answer must have `status`.
pub fn run(
    address: SocketAddr,
    connections: usize,
    duration: Duration,
    request: &[u8],
    status: u16,
) -> anyhow::Result<Load> {
    let start = Instant::now();
    let all: anyhow::Result<Vec<_>> = thread::scope(|scope| {
        let one = || repeat(address, start + duration, request, status);
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a client panicked"),
        });
        joined.collect()
    });
    let milliseconds = all?.concat();
    Ok(Load { rate: milliseconds.len() as f64 / start.elapsed().as_secs_f64(), milliseconds })
}

/// Sends `requests` in turn over `connections`, each once; every answer must have `status`.
pub fn send_all(
    address: SocketAddr,
    connections: usize,
    requests: &[Vec<u8>],
    status: u16,
) -> anyhow::Result<Load> {
    let start = Instant::now();
    let all: anyhow::Result<Vec<_>> = thread::scope(|scope| {
        let share = |first: usize| requests.iter().skip(first).step_by(connections);
        let threads: Vec<_> = (0..connections)
            .map(|first| {
                let share = share(first);
                scope.spawn(move || send_each(address, share, status))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a client panicked"),
        });
        joined.collect()
    });
    let milliseconds = all?.concat();
    Ok(Load { rate: milliseconds.len() as f64 / start.elapsed().as_secs_f64(), milliseconds })
}

fn send_each<'a>(
    address: SocketAddr,
    requests: impl Iterator<Item = &'a Vec<u8>>,
    status: u16,
) -> anyhow::Result<Vec<f64>> {
    let mut connection = Connection::open(address)?;
    let mut milliseconds = Vec::new();
    for request in requests {
        let start = Instant::now();
        let (answered, body) = connection.call(request)?;
        if answered != status {
            bail!("answered with {answered}: {}", String::from_utf8_lossy(&body));
        }
        milliseconds.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(milliseconds)
}

fn repeat(address: SocketAddr, end: Instant, request: &[u8], status: u16) -> anyhow::Result<Vec<f64>> {
    let mut connection = Connection::open(address)?;
    let mut milliseconds = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        let (answered, body) = connection.call(request)?;
        if answered != status {
            bail!("answered with {answered}: {}", String::from_utf8_lossy(&body));
        }
        milliseconds.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(milliseconds)
}
