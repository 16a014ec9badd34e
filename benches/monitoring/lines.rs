//! Line protocol beside InfluxDB, in turns, the same lines, at 8 connections: 5,000 lines with one field each, and 1,000 lines as
//! the Time Series Benchmark Suite has them, with ten tags and ten fields.
//!
//! Both answer when the values are on the disk. Signalbox also recognises each value that is sent again.

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    beside::{Beside, Measured},
    devops::Devops,
    points,
};
use crate::{
    report, size,
    system::{Api, Peer, Role, Servers, Signalbox},
};

/// Series of lines with one field.
const SENSORS: usize = 500;
/// Lines of a request.
const LINES: usize = 5000;
/// Hosts of lines with ten fields, and lines of a request.
const HOSTS: usize = 100;
const HOST_LINES: usize = 1000;
const FIELDS: usize = 10;

/// Bodies, and how many values they have together.
type Bodies = (Vec<String>, usize);

pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_POINTS", 500_000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 3)? as usize;
    let servers = Servers::start().await?;
    let (ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let influx = Peer::influx(servers.folder()).await?;
    let beside = Beside { servers: &servers, program: &ours, peer: &influx, our_address: api.address };
    let now = servers.now().await?;
    let mut devops = Devops::new(HOSTS);
    for (name, bodies) in [
        (
            "5,000 lines with one field",
            (0..=rounds).map(|round| sensors(count, round, now)).collect::<Vec<_>>(),
        ),
        (
            "1,000 lines with ten fields",
            (0..=rounds).map(|round| hosts(&mut devops, count, round, now)).collect(),
        ),
    ] {
        let mut measured = Measured::default();
        for (round, (bodies, values)) in bodies.iter().enumerate() {
            // The first round makes channels and warms up.
            let counted = (round > 0).then_some(&mut measured);
            beside.turn([&to_us(&api, bodies), &to_influx(bodies)], *values, counted)?;
        }
        report::title(&format!("monitoring: line protocol, {name} in a request; signalbox, InfluxDB"));
        measured.print("values/s", 0.8);
    }
    points::wait_until_folded(&servers.database().await?).await
}

/// `count` values of 500 sensors, a second apart, in the past before `now`.
fn sensors(count: usize, round: usize, now: DateTime<Utc>) -> Bodies {
    let begin = (now - TimeDelta::days(1)).timestamp();
    let line = |nth: usize| {
        let (sensor, second) = (nth % SENSORS, ((round * count + nth) / SENSORS) as i64);
        let (value, time) = (points::value(nth), begin + second);
        format!("points,site=berlin,line=7,sensor=s{sensor} value={value} {time}000000000\n")
    };
    let body = |first: usize| (first..(first + LINES).min(count)).map(line).collect();
    ((0..count).step_by(LINES).map(body).collect(), count)
}

/// About as many values of 100 hosts, ten seconds apart.
fn hosts(devops: &mut Devops, count: usize, round: usize, now: DateTime<Utc>) -> Bodies {
    let ticks = count / FIELDS / HOSTS;
    let begin = (now - TimeDelta::days(2)).timestamp();
    let ticks = round * ticks..(round + 1) * ticks;
    let lines: Vec<_> = ticks.flat_map(|tick| devops.lines(begin + 10 * tick as i64)).collect();
    (lines.chunks(HOST_LINES).map(|lines| lines.concat()).collect(), lines.len() * FIELDS)
}

/// Requests that write `bodies` into Signalbox.
pub fn to_us(api: &Api, bodies: &[String]) -> Vec<Vec<u8>> {
    requests("/api/v2/write", &format!("Authorization: Bearer {}\r\n", api.token()), bodies)
}

/// Requests that write `bodies` into InfluxDB.
pub fn to_influx(bodies: &[String]) -> Vec<Vec<u8>> {
    requests("/write?db=bench", "", bodies)
}

fn requests(path: &str, headers: &str, bodies: &[String]) -> Vec<Vec<u8>> {
    let request = |body: &String| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: bench\r\n{headers}Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}")
            .into_bytes()
    };
    bodies.iter().map(request).collect()
}
