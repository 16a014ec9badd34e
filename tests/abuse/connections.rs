//! Requests that are begun and not ended.

use std::{io, net::Ipv4Addr, time::Duration};

use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use crate::{scene::Target, socket::connect, tally::Tally};

const CONNECTIONS: usize = 1000;
const ADDRESSES: usize = 5;
const INTERVAL: Duration = Duration::from_secs(1);
const HALF_A_HEAD: &[u8] = b"GET /api/info HTTP/1.1\r\nHost: x\r\nX-Slow: ";
const HEAD: &[u8] = b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{";

pub async fn half_open(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    hold(target, tally, HALF_A_HEAD, None).await
}

pub async fn slow_bodies(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    hold(target, tally, HEAD, Some(Duration::from_secs(2))).await
}

/// Keeps all connections open, each with `begun` and then a byte after each `interval`; closed ones are opened again.
async fn hold(
    target: &Target,
    tally: &Tally,
    begun: &[u8],
    interval: Option<Duration>,
) -> anyhow::Result<()> {
    let one = |number: usize| async move {
        let address = Ipv4Addr::new(127, 0, 10, 1 + (number % ADDRESSES) as u8);
        loop {
            tally.count("opened");
            match connect(address, target.address).await {
                Ok(stream) => tally.count(outcome(stream, begun, interval).await),
                Err(error) => tally.count(error.kind()),
            }
            sleep(INTERVAL).await;
        }
    };
    join_all((0..CONNECTIONS).map(one)).await;
    Ok(())
}

/// The status of the answer, or that there was none before the connection was closed.
async fn outcome(mut stream: TcpStream, begun: &[u8], interval: Option<Duration>) -> String {
    let closed = || "closed".to_owned();
    if stream.write_all(begun).await.is_err() {
        return closed();
    }
    let (mut reader, mut writer) = stream.split();
    let writing = async {
        while let Some(interval) = interval {
            sleep(interval).await;
            if writer.write_all(b" ").await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        status = status(&mut reader) => status.unwrap_or_else(|_| closed()),
        () = writing => closed(),
    }
}

/// The status in the first line of an answer.
pub async fn status(reader: &mut (impl AsyncReadExt + Unpin)) -> io::Result<String> {
    let mut line = [0; 12];
    reader.read_exact(&mut line).await?;
    Ok(String::from_utf8_lossy(&line[9..]).into_owned())
}
