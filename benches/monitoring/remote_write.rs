//! Prometheus remote write beside VictoriaMetrics, in turns, the same requests, at 8 connections: 2,000 samples of as many series
//! in a request, as Prometheus sends them. VictoriaMetrics answers before they are on the disk.

use chrono::TimeDelta;
use prost::Message;

use super::{
    beside::{Beside, Measured},
    points,
};
use crate::{
    report, size,
    system::{Peer, Role, Servers, Signalbox},
};

/// Series, each of which has one sample in a request.
const SERIES: usize = 2000;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

pub async fn run() -> anyhow::Result<()> {
    let scrapes = size::of("BENCH_POINTS", 500_000)? as usize / SERIES;
    let rounds = size::of("BENCH_ROUNDS", 3)? as usize;
    let servers = Servers::start().await?;
    let (ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let victoria = Peer::victoria(servers.folder()).await?;
    let begin = (servers.now().await? - TimeDelta::days(1)).timestamp_millis();
    let beside = Beside { servers: &servers, program: &ours, peer: &victoria, our_address: api.address };
    let authorization = format!("Authorization: Bearer {}\r\n", api.token());
    let mut measured = Measured::default();
    for round in 0..=rounds {
        let bodies: Vec<_> = (round * scrapes..(round + 1) * scrapes)
            .map(|scrape| body(scrape, begin))
            .collect::<Result<_, _>>()?;
        let requests = |path: &str, headers: &str| -> Vec<_> {
            bodies.iter().map(|body| request(path, headers, body)).collect()
        };
        let to_us = requests("/api/v1/prometheus/write", &authorization);
        // The first round makes channels and warms up.
        let counted = (round > 0).then_some(&mut measured);
        beside.turn([&to_us, &requests("/api/v1/write", "")], scrapes * SERIES, counted)?;
    }
    report::title(
        "monitoring: remote write, 2,000 samples of as many series in a request; signalbox, VictoriaMetrics",
    );
    measured.print("samples/s", 0.5);
    points::wait_until_folded(&servers.database().await?).await
}

/// A sample of each series, 15 s after those of the scrape before.
fn body(scrape: usize, begin: i64) -> anyhow::Result<Vec<u8>> {
    let series = |number: usize| {
        let label = |(name, value): (&str, String)| Label { name: name.to_owned(), value };
        let labels = [
            ("__name__", "node_cpu_seconds_total".to_owned()),
            ("cpu", (number / 8 % 25).to_string()),
            ("instance", format!("host-{}.example.org:9100", number / 200)),
            ("job", "node".to_owned()),
            (
                "mode",
                ["idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"][number % 8]
                    .to_owned(),
            ),
        ];
        let value = (scrape * 15) as f64 + points::value(number);
        TimeSeries {
            labels: labels.map(label).into(),
            samples: vec![Sample { value, timestamp: begin + scrape as i64 * 15_000 }],
        }
    };
    let message = WriteRequest { timeseries: (0..SERIES).map(series).collect() };
    Ok(snap::raw::Encoder::new().compress_vec(&message.encode_to_vec())?)
}

fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\n{headers}Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}
