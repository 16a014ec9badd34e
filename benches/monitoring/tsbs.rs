//! Questions as the Time Series Benchmark Suite has them, about a day of 100 hosts with ten fields, one value every 10 s, beside
//! InfluxDB and VictoriaMetrics, in turns.
//!
//! Signalbox answers the first three by its own interface, with a series for each host where the others merge hosts, and the others
//! through Prometheus by remote read.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use chrono::DateTime;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::index};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    devops::{Devops, FIELDS},
    lines, points,
};
use crate::{
    load, report, size,
    system::{Api, Peer, Role, Servers, Signalbox},
};

const CONNECTIONS: usize = 4;
const HOSTS: usize = 100;
/// Seconds between two values.
const PACE: i64 = 10;
const HOUR: i64 = 3600;
/// Lines of a request, and ticks that are made together.
const LINES: usize = 1000;
const TICKS: i64 = 720;
/// Events of a request for series at most.
const EVENTS: usize = 20;
const SEED: u64 = 123;
/// The goal for the first three.
const MOST: f64 = 3.0;

/// All that answers.
struct Sides {
    api: Api,
    influx: Peer,
    victoria: Peer,
    prometheus: Peer,
    /// Ids of channels, by host and field.
    channels: Vec<Vec<String>>,
    begin: i64,
    end: i64,
}

/// A question about some hosts and fields, from a moment on.
struct Question {
    hosts: Vec<usize>,
    fields: usize,
    from: i64,
    to: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Fields, and hosts.
    Single(usize, usize),
    LastPoint,
    DoubleGroupBy,
    HighCpu(usize),
}

const KINDS: [(&str, Kind); 6] = [
    ("single-groupby-1-1-1", Kind::Single(1, 1)),
    ("single-groupby-5-8-1", Kind::Single(5, 8)),
    ("lastpoint", Kind::LastPoint),
    ("double-groupby-1", Kind::DoubleGroupBy),
    ("high-cpu-1", Kind::HighCpu(1)),
    ("high-cpu-all", Kind::HighCpu(HOSTS)),
];

pub async fn run() -> anyhow::Result<()> {
    let hours = size::of("BENCH_HOURS", 24)? as i64;
    let requests = size::of("BENCH_QUERIES", 50)?;
    ensure!(hours > 12, "BENCH_HOURS must be more than the 12 hours that questions are about");
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let influx = Peer::influx(servers.folder()).await?;
    let victoria = Peer::victoria(servers.folder()).await?;
    let url = format!("http://{}/api/v1/prometheus/read", api.address);
    let prometheus = Peer::prometheus(servers.folder(), &url, api.token()).await?;
    let end = servers.now().await?.timestamp() / HOUR * HOUR;
    let begin = end - hours * HOUR;
    let mut devops = Devops::new(HOSTS);
    let ticks: Vec<_> = (begin..end).step_by(PACE as usize).collect();
    for ticks in ticks.chunks(TICKS as usize) {
        let all: Vec<_> = ticks.iter().flat_map(|second| devops.lines(*second)).collect();
        let bodies: Vec<_> = all.chunks(LINES).map(|lines| lines.concat()).collect();
        load::send_all(api.address, CONNECTIONS, &lines::to_us(&api, &bodies), 204)?;
        // VictoriaMetrics takes the same requests.
        for peer in [&influx, &victoria] {
            load::send_all(peer.address, CONNECTIONS, &lines::to_influx(&bodies), 204)?;
        }
    }
    points::wait_until_folded(&servers.database().await?).await?;
    victoria.get("/internal/force_flush", &[]).await?;
    let channels = channels(&api).await?;
    let sides = Sides { api, influx, victoria, prometheus, channels, begin, end };
    report::title(&format!(
        "monitoring: questions about {} values, medians in ms; signalbox, InfluxDB, VictoriaMetrics",
        ticks.len() * HOSTS * FIELDS.len()
    ));
    let mut rng = StdRng::seed_from_u64(SEED);
    for (name, kind) in KINDS {
        let mut times: [Vec<f64>; 3] = Default::default();
        // Those that take long are asked less often.
        let requests = if matches!(kind, Kind::DoubleGroupBy | Kind::HighCpu(HOSTS)) {
            requests.div_ceil(5)
        } else {
            requests
        };
        for request in 0..=requests {
            let question = sides.question(&mut rng, kind);
            let taken = [
                sides.ours(&question, kind).await?,
                sides.influx(&question, kind).await?,
                sides.victoria(&question, kind).await?,
            ];
            // The first one warms up.
            if request > 0 {
                times.iter_mut().zip(taken).for_each(|(times, time)| times.push(time));
            }
        }
        let [ours, influx, victoria] = times.map(report::median);
        report::triple(name, [ours, influx, victoria], "ms");
        let ratio = ours / influx.min(victoria);
        match kind {
            Kind::Single(..) | Kind::LastPoint => report::bounded("to the best", ratio, "", MOST),
            Kind::DoubleGroupBy | Kind::HighCpu(_) => report::figure("to the best", ratio, ""),
        }
    }
    Ok(())
}

/// Ids of the channels that were made for the lines.
async fn channels(api: &Api) -> anyhow::Result<Vec<Vec<String>>> {
    let mut found = vec![vec![String::new(); FIELDS.len()]; HOSTS];
    let mut count = 0;
    for page in 1.. {
        let answer = api.get(&format!("/api/v1/events?page={page}&page_size=100")).await?;
        let events = answer["data"].as_array().context("a list without data")?;
        if events.is_empty() {
            break;
        }
        for event in events {
            let label = |name: &str| event["labels"][name].as_str().context("a channel without labels");
            let host: usize = label("hostname")?.trim_start_matches("host_").parse()?;
            let field = FIELDS.iter().position(|field| label("_field").is_ok_and(|label| label == *field));
            found[host][field.context("another field")?] =
                event["public_id"].as_str().context("no id")?.to_owned();
            count += 1;
        }
    }
    ensure!(count == HOSTS * FIELDS.len(), "{count} channels were made");
    Ok(found)
}

impl Sides {
    fn question(&self, rng: &mut StdRng, kind: Kind) -> Question {
        let (fields, hosts, hours) = match kind {
            Kind::Single(fields, hosts) => (fields, hosts, 1),
            Kind::LastPoint => (FIELDS.len(), HOSTS, 1),
            Kind::DoubleGroupBy => (1, HOSTS, 12),
            Kind::HighCpu(hosts) => (1, hosts, 12),
        };
        // On no whole minute, as there.
        let from = rng.random_range(self.begin..=self.end - hours * HOUR);
        Question { hosts: index::sample(rng, HOSTS, hosts).into_vec(), fields, from, to: from + hours * HOUR }
    }

    async fn ours(&self, question: &Question, kind: Kind) -> anyhow::Result<f64> {
        let start = Instant::now();
        match kind {
            Kind::Single(..) => {
                let ids = question.hosts.iter().flat_map(|host| &self.channels[*host][..question.fields]);
                let ids: Vec<_> = ids.collect();
                let time = |second| DateTime::from_timestamp(second, 0).unwrap_or_default().to_rfc3339();
                let ask = |ids: &[&String]| {
                    let request = json!({"event_public_ids": ids, "from": time(question.from), "to": time(question.to),
                        "step_seconds": 60, "aggregate": "max"});
                    async move { self.api.answer(Method::POST, "/api/v1/datapoints/series", Some(&request)).await }
                };
                let answers = futures::future::try_join_all(ids.chunks(EVENTS).map(ask)).await?;
                let took = milliseconds(start);
                let mut series = 0;
                for answer in answers {
                    let answer: Value = serde_json::from_slice(&answer)?;
                    let all = answer.as_object().context("no series")?;
                    ensure!(
                        all.values().all(|points| points.as_array().is_some_and(|points| points.len() >= 60)),
                        "a series is short"
                    );
                    series += all.len();
                }
                ensure!(series == ids.len(), "{series} series came");
                Ok(took)
            }
            Kind::LastPoint => {
                let answer = self.api.answer(Method::GET, "/api/v1/datapoints/latest", None).await?;
                let took = milliseconds(start);
                let latest: Value = serde_json::from_slice(&answer)?;
                ensure!(
                    latest.as_array().is_some_and(|latest| latest.len() == HOSTS * FIELDS.len()),
                    "too few came"
                );
                Ok(took)
            }
            Kind::DoubleGroupBy => {
                let query = "avg by (hostname) (avg_over_time(signalbox_value{_field=\"usage_user\"}[1h]))";
                by_promql(&self.prometheus, query, question, "1h").await
            }
            Kind::HighCpu(_) => {
                let selector = format!("signalbox_value{{_field=\"usage_user\"{}}} > 90", of_hosts(question));
                by_promql(&self.prometheus, &selector, question, "10s").await
            }
        }
    }

    async fn influx(&self, question: &Question, kind: Kind) -> anyhow::Result<f64> {
        let fields = |function: &str| {
            FIELDS[..question.fields]
                .iter()
                .map(|field| format!("{function}({field})"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let hosts = question
            .hosts
            .iter()
            .map(|host| format!("hostname = 'host_{host}'"))
            .collect::<Vec<_>>()
            .join(" or ");
        let range = format!("time >= {}s and time < {}s", question.from, question.to);
        let query = match kind {
            Kind::Single(..) => {
                format!("SELECT {} FROM cpu WHERE ({hosts}) AND {range} GROUP BY time(1m)", fields("max"))
            }
            Kind::LastPoint => {
                "SELECT * FROM cpu GROUP BY \"hostname\" ORDER BY time DESC LIMIT 1".to_owned()
            }
            Kind::DoubleGroupBy => {
                format!("SELECT {} FROM cpu WHERE {range} GROUP BY time(1h), hostname", fields("mean"))
            }
            Kind::HighCpu(HOSTS) => format!("SELECT * FROM cpu WHERE usage_user > 90.0 AND {range}"),
            Kind::HighCpu(_) => {
                format!("SELECT * FROM cpu WHERE usage_user > 90.0 AND ({hosts}) AND {range}")
            }
        };
        let start = Instant::now();
        let answer = self.influx.get("/query", &[("db", "bench"), ("q", &query)]).await?;
        let took = milliseconds(start);
        let answer: Value = serde_json::from_slice(&answer)?;
        let result = &answer["results"][0];
        ensure!(result["error"].is_null(), "InfluxDB says {result}");
        ensure!(
            matches!(kind, Kind::HighCpu(_)) || !result["series"].is_null(),
            "InfluxDB found nothing by {query}"
        );
        Ok(took)
    }

    async fn victoria(&self, question: &Question, kind: Kind) -> anyhow::Result<f64> {
        match kind {
            Kind::Single(..) => {
                let names = FIELDS[..question.fields].join("|");
                let selector = format!("{{__name__=~\"cpu_({names})\"{}}}", of_hosts(question));
                let query = format!("max by (__name__) (max_over_time({selector}[1m]))");
                by_promql(&self.victoria, &query, question, "1m").await
            }
            Kind::LastPoint => {
                let time = self.end.to_string();
                let asked = [
                    ("query", "last_over_time({__name__=~\"cpu_.*\"}[1h])"),
                    ("time", time.as_str()),
                    ("nocache", "1"),
                ];
                let start = Instant::now();
                let answer = self.victoria.get("/api/v1/query", &asked).await?;
                let took = milliseconds(start);
                let answer: Value = serde_json::from_slice(&answer)?;
                let count = answer["data"]["result"].as_array().map_or(0, Vec::len);
                ensure!(count == HOSTS * FIELDS.len(), "VictoriaMetrics gave {count} points");
                Ok(took)
            }
            Kind::DoubleGroupBy => {
                by_promql(
                    &self.victoria,
                    "avg by (hostname) (avg_over_time(cpu_usage_user[1h]))",
                    question,
                    "1h",
                )
                .await
            }
            Kind::HighCpu(_) => {
                let selector =
                    format!("cpu_usage_user{{{}}} > 90", of_hosts(question).trim_start_matches(','));
                by_promql(&self.victoria, &selector, question, "10s").await
            }
        }
    }
}

/// A matcher of the question's hosts, unless it is about all.
fn of_hosts(question: &Question) -> String {
    if question.hosts.len() == HOSTS {
        return String::new();
    }
    let names: Vec<_> = question.hosts.iter().map(|host| format!("host_{host}")).collect();
    format!(",hostname=~\"{}\"", names.join("|"))
}

/// Milliseconds of `query` over the range of `question`.
async fn by_promql(peer: &Peer, query: &str, question: &Question, step: &str) -> anyhow::Result<f64> {
    let (from, to) = (question.from.to_string(), question.to.to_string());
    let asked =
        [("query", query), ("start", from.as_str()), ("end", to.as_str()), ("step", step), ("nocache", "1")];
    let start = Instant::now();
    let answer = peer.get("/api/v1/query_range", &asked).await?;
    let took = milliseconds(start);
    let answer: Value = serde_json::from_slice(&answer)?;
    ensure!(answer["status"] == "success" && answer["warnings"].is_null(), "{query}: {}", answer["warnings"]);
    let is_found = answer["data"]["result"].as_array().is_some_and(|result| !result.is_empty());
    ensure!(is_found || query.contains('>'), "nothing was found by {query}");
    Ok(took)
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}
