//! Upload and download of one large file through a gateway, beside nginx (WebDAV PUT, GET with sendfile) on the same
//! disk, in turns. `BENCH_FILE_MIB`, `BENCH_ROUNDS`.

mod nginx;

use std::{
    io::Read,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::{
    load::{Connection, post},
    report, size,
    system::{AgentAccount, Api, Role, Servers, Signalbox, wait_until},
};

const BUFFER: usize = 256 * 1024;
const LIMIT: Duration = Duration::from_secs(30);

/// Seconds of one round.
#[derive(Debug)]
struct Round {
    our_put: f64,
    our_get: f64,
    their_put: f64,
    /// To make the upload durable, which nginx leaves out.
    their_sync: f64,
    their_get: f64,
}

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let (mib, rounds) = (size::of("BENCH_FILE_MIB", 256)?, size::of("BENCH_ROUNDS", 3)?);
    let servers = Servers::start().await?;
    let Some(theirs) = nginx::start(servers.folder()).await? else {
        report::title(
            "files: left out, because nginx is not installed (Debian: apt-get install nginx-light)",
        );
        return Ok(());
    };
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let mover = Mover {
        source: api.add_agent("source").await?,
        destination: api.add_agent("destination").await?,
        api,
    };
    let mut measured = Vec::new();
    for round in 0..=rounds {
        let their_put = put(theirs.address, "/file", "", mib << 20)?;
        let their_sync = theirs.sync()?;
        let their_get = get(theirs.address, "/file", "", mib << 20)?;
        // Every upload makes a new file: replacing a large one costs time of its own.
        theirs.delete()?;
        let (our_put, our_get) = mover.round(mib << 20).await?;
        let taken = Round { our_put, our_get, their_put, their_sync, their_get };
        eprintln!("{round}: {taken:.2?}");
        // The first round warms up.
        if round > 0 {
            measured.push(taken);
        }
    }
    print(mib, &measured);
    Ok(())
}

/// Plays both agents.
struct Mover {
    api: Api,
    source: AgentAccount,
    destination: AgentAccount,
}

impl Mover {
    /// Seconds to upload, and to download.
    async fn round(&self, bytes: u64) -> anyhow::Result<(f64, f64)> {
        let number = self.api.add_transfer(&self.source, &self.destination, "file", "file").await?;
        self.reaches(number, "dispatched").await?;
        let path = format!("/api/files/{number}/upload?filename=file");
        let put = put(self.api.address, &path, &self.source.token, bytes)?;
        let report =
            json!({"type": "transfer_complete", "data": {"transfer_id": number.to_string(), "duration": 1}});
        let report = post("/api/agent/messages", &self.source.token, &report.to_string());
        let (status, _) = Connection::open(self.api.address)?.call(&report)?;
        ensure!(status == 200, "the end of the upload was answered with {status}");
        self.reaches(number, "staged").await?;
        let path = format!("/api/files/{number}/download");
        let get = get(self.api.address, &path, &self.destination.token, bytes)?;
        self.api.post(&format!("/api/transfers/{number}/cancel"), &json!({})).await?;
        Ok((put, get))
    }

    async fn reaches(&self, number: i64, phase: &str) -> anyhow::Result<()> {
        let path = format!("/api/transfers/{number}");
        wait_until("a phase of the transfer", LIMIT, || async {
            Ok(self.api.get(&path).await?["phase"].as_str() == Some(phase))
        })
        .await
    }
}

/// Seconds to upload `bytes` and get the answer.
fn put(server: SocketAddr, path: &str, token: &str, bytes: u64) -> anyhow::Result<f64> {
    let buffer: Vec<u8> = (0..BUFFER).map(|index| (index * 31 / 7) as u8).collect();
    let start = Instant::now();
    let mut connection = Connection::open(server)?;
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nContent-Length: {bytes}\r\n\r\n"
    );
    connection.send(head.as_bytes())?;
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        let part = left.min(BUFFER);
        connection.send(&buffer[..part])?;
        left -= part;
    }
    let answer = connection.answer()?;
    ensure!((200..300).contains(&answer.status), "an upload was answered with {}", answer.status);
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds to download all of the `bytes`.
fn get(server: SocketAddr, path: &str, token: &str, bytes: u64) -> anyhow::Result<f64> {
    let mut buffer = vec![0; BUFFER];
    let start = Instant::now();
    let mut connection = Connection::open(server)?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\r\n");
    connection.send(head.as_bytes())?;
    let answer = connection.answer()?;
    ensure!(answer.status == 200 && answer.length == bytes, "a download was answered with {}", answer.status);
    let mut left = bytes;
    while left > 0 {
        let read = connection.reader().read(&mut buffer)?;
        ensure!(read > 0, "a download ended {left} bytes early");
        left = left.checked_sub(read as u64).context("more came than was announced")?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn print(mib: u64, rounds: &[Round]) {
    let median = |of: fn(&Round) -> f64| report::median(rounds.iter().map(of));
    let rate = |of: fn(&Round) -> f64| mib as f64 / median(of);
    let ratio = |ours: fn(&Round) -> f64, theirs: fn(&Round) -> f64| {
        report::median(rounds.iter().map(|round| theirs(round) / ours(round)))
    };
    report::title(&format!("files: one of {mib} MiB; signalbox, nginx"));
    report::pair("upload", rate(|round| round.our_put), rate(|round| round.their_put), "MiB/s");
    report::ratio("upload, ratio", ratio(|round| round.our_put, |round| round.their_put), 0.8);
    let durable = ratio(|round| round.our_put, |round| round.their_put + round.their_sync);
    report::figure("upload, with an fsync after nginx", durable, "ratio");
    report::pair("download", rate(|round| round.our_get), rate(|round| round.their_get), "MiB/s");
    report::ratio("download, ratio", ratio(|round| round.our_get, |round| round.their_get), 0.8);
}
