//! Users and machines at work: reads of all kinds, commands that are read back, datapoints, charts, and experiments
//! that are delivered to subscriptions. Each request is sent at its time, whether the one before has been answered or
//! not, and its latency counts from that time.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    alike,
    seed::{Subjects, number},
};
use crate::{system::Api, webhooks};

/// Of each client.
const READS: Duration = Duration::from_millis(40);
const READERS: usize = 4;
const COMMANDS: Duration = Duration::from_millis(100);
const BATCHES: Duration = Duration::from_millis(100);
const CHARTS: Duration = Duration::from_millis(200);
const EXPERIMENTS: Duration = Duration::from_millis(250);
/// Points of a batch.
const POINTS: usize = 100;
/// Resources that are read in turn.
const SAMPLE: usize = 200;
/// Marks an answer that did not wait for its read model.
const EVENTUAL: &str = "consistency";

/// Results of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Milliseconds of each request.
    pub milliseconds: Vec<f64>,
    /// The failed requests.
    pub failures: Vec<String>,
    /// Answers to commands whose read model was more than 2 s behind.
    pub eventual: usize,
    /// Events that have to be delivered to each subscription.
    pub published: usize,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.milliseconds.extend(other.milliseconds);
        self.failures.extend(other.failures);
        self.eventual += other.eventual;
        self.published += other.published;
    }
}

/// A load that runs until it is ended.
pub struct Load {
    stop: CancellationToken,
    clients: JoinSet<Outcome>,
}

/// The request that one client repeats.
#[derive(Debug, Clone)]
enum Work {
    /// Reads these in turn, one of them after the other.
    Read(Vec<String>),
    /// Makes something and reads it back.
    Command,
    Record,
    Chart,
    /// Makes those from this number on.
    Experiment(usize),
}

/// One client of a load.
struct Client {
    api: Api,
    subjects: Arc<Subjects>,
    outcome: Outcome,
}

impl Load {
    /// Starts it. Its experiments are numbered from `first`.
    pub async fn start(api: &Api, subjects: &Arc<Subjects>, first: usize) -> anyhow::Result<Self> {
        let mut paths: Vec<_> = alike::sample(api, SAMPLE).await?.into_iter().map(|(_, path)| path).collect();
        let mut works = vec![
            (Work::Command, COMMANDS),
            (Work::Record, BATCHES),
            (Work::Chart, CHARTS),
            (Work::Experiment(first), EXPERIMENTS),
        ];
        for _ in 0..READERS {
            paths.rotate_left(SAMPLE / READERS);
            works.push((Work::Read(paths.clone()), READS));
        }
        let mut load = Self { stop: CancellationToken::new(), clients: JoinSet::new() };
        for (work, pace) in works {
            let client = Client { api: api.clone(), subjects: subjects.clone(), outcome: Outcome::default() };
            load.clients.spawn(client.run(work, pace, load.stop.clone()));
        }
        Ok(load)
    }

    /// Ends it when everything in progress has been answered.
    pub async fn end(mut self) -> anyhow::Result<Outcome> {
        self.stop.cancel();
        let mut outcome = Outcome::default();
        while let Some(ended) = self.clients.join_next().await {
            outcome.add(ended?);
        }
        Ok(outcome)
    }
}

impl Client {
    async fn run(mut self, work: Work, pace: Duration, stop: CancellationToken) -> Outcome {
        let mut times = interval(pace);
        for nth in 0.. {
            let due = tokio::select! {
                due = times.tick() => due,
                () = stop.cancelled() => break,
            };
            let result = self.act(&work, nth).await;
            self.outcome.milliseconds.push((Instant::now() - due).as_secs_f64() * 1000.0);
            if let Err(error) = result {
                self.outcome.failures.push(format!("{error:#}"));
            }
        }
        self.outcome
    }

    async fn act(&mut self, work: &Work, nth: usize) -> anyhow::Result<()> {
        match work {
            Work::Read(paths) => self.get(&paths[nth % paths.len()]).await.map(|_| ()),
            Work::Command => self.command(nth).await,
            Work::Record => self.record(nth).await,
            Work::Chart => self.chart().await,
            Work::Experiment(first) => self.experiment(first + nth).await,
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.api.answer(Method::GET, path, None).await?).unwrap_or_default())
    }

    async fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self.api.exchange(Method::POST, path, Some(body)).await?;
        let text = || String::from_utf8_lossy(&answer.bytes).into_owned();
        ensure!(answer.status == StatusCode::CREATED, "POST {path}: {} {}", answer.status, text());
        self.outcome.eventual += usize::from(answer.headers.contains_key(EVENTUAL));
        Ok(serde_json::from_slice(&answer.bytes)?)
    }

    async fn command(&mut self, nth: usize) -> anyhow::Result<()> {
        let eventual = self.outcome.eventual;
        let (path, made, field) = if nth.is_multiple_of(2) {
            let [source, destination] = &self.subjects.agents;
            let job = json!({"name": format!("made meanwhile {nth}"), "source_agent_id": source.number,
                "destination_agent_id": destination.number, "source_path": "/a", "destination_path": "/b"});
            let made = self.post("/api/jobs", &job).await?;
            (format!("/api/jobs/{}", number(&made)?), made, "name")
        } else {
            let entry =
                json!({"content": format!("made meanwhile {nth}"), "source": "bench", "type": "info"});
            let made = self.post("/api/v1/logging", &entry).await?;
            (format!("/api/v1/logging/{}", webhooks::public_id(&made)?), made, "content")
        };
        // A write that was answered as eventual may show later.
        if self.outcome.eventual == eventual {
            let shown = self.get(&path).await?;
            ensure!(shown[field] == made[field], "GET {path} shows {shown} after {made}");
        }
        Ok(())
    }

    async fn record(&mut self, nth: usize) -> anyhow::Result<()> {
        let subjects = self.subjects.clone();
        let event = |place: usize| &subjects.events[(nth + place) % subjects.events.len()];
        let point = |place| json!({"value": place as f64 / 8.0, "event_public_id": event(place)});
        let points: Vec<_> = (0..POINTS).map(point).collect();
        let answer = self.post("/api/v1/datapoints/batch", &json!({"datapoints": points})).await?;
        ensure!(answer["accepted"] == POINTS, "of {POINTS} datapoints were taken: {answer}");
        Ok(())
    }

    async fn chart(&self) -> anyhow::Result<()> {
        let chart = json!({"event_public_ids": self.subjects.events[..10], "minutes": 60, "max_points": 500});
        self.api.post("/api/v1/datapoints/series", &chart).await.map(|_| ())
    }

    async fn experiment(&mut self, nth: usize) -> anyhow::Result<()> {
        webhooks::experiment(&self.api, nth).await?;
        self.outcome.published += webhooks::EVENTS.len();
        Ok(())
    }
}
