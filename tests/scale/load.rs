//! Steady load on every part, and when each kind of work went on.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use reqwest::Method;
use serde_json::json;
use sqlx::PgPool;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    installation::Installation,
    pulse::Pulse,
    sink::{Behaviour, Sink},
    system::Api,
};

const INTERVAL: Duration = Duration::from_millis(10);
/// Between two values that cross a threshold.
const VALUE: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(10);
/// How long a write is repeated.
const SUBMIT: Duration = Duration::from_secs(120);
/// Timeout of a read, after which the other gateway is used.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Accepted writes, which are checked at the end.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Agents by their number, with their names.
    pub agents: Vec<(i64, String)>,
    /// Values that crossed the threshold.
    pub values: usize,
    /// Writes whose answers said that they show later.
    pub eventual: usize,
    /// Writes that an answer of the other gateway did not show although it had to.
    pub unseen: Vec<String>,
}

pub struct Load {
    pulses: [Pulse; 6],
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    pub accepted: Arc<Mutex<Accepted>>,
    pub sink: Arc<Sink>,
}

/// The parts of one client.
#[derive(Clone)]
struct Client {
    gateways: [Api; 2],
    pulse: Pulse,
    accepted: Arc<Mutex<Accepted>>,
    stop: CancellationToken,
}

impl Load {
    pub async fn start(installation: &Installation) -> anyhow::Result<Self> {
        let sink = Arc::new(Sink::start(Behaviour::Accept).await?);
        let api = &installation.gateways[0];
        let channel = prepare(api, &sink).await?;
        let pulses = ["writes", "reads", "read models", "relay", "deliveries", "firings"].map(Pulse::new);
        let (accepted, stop) = (Arc::<Mutex<Accepted>>::default(), CancellationToken::new());
        let client = |pulse: &Pulse| Client {
            gateways: installation.gateways.clone(),
            pulse: pulse.clone(),
            accepted: accepted.clone(),
            stop: stop.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(client(&pulses[0]).write());
        tasks.spawn(client(&pulses[1]).read());
        tasks.spawn(client(&Pulse::new("values")).measure(channel));
        let pool = &installation.pool;
        tasks.spawn(count(pool.clone(), pulses[2].clone(), stop.clone(), AGENTS));
        tasks.spawn(relayed(pool.clone(), pulses[3].clone(), stop.clone()));
        tasks.spawn(arrivals(sink.clone(), pulses[4].clone(), stop.clone()));
        tasks.spawn(count(pool.clone(), pulses[5].clone(), stop.clone(), FIRINGS));
        Ok(Self { pulses, tasks, stop, accepted, sink })
    }

    pub fn headings(&self) -> String {
        self.pulses.iter().map(|pulse| format!("{:>13}", pulse.name)).collect()
    }

    /// The longest interruptions since then, of each kind.
    pub fn interruptions(&self, since: Instant) -> String {
        self.pulses.iter().map(|pulse| format!("{:>13}", pulse.longest_interruption(since))).collect()
    }

    /// Ends the load.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// A rule that notifies a receiver of each value, and a job that fires every second. Returns the channel of the rule.
async fn prepare(api: &Api, sink: &Sink) -> anyhow::Result<String> {
    let webhook = json!({"url": sink.url("hook"), "secret": "a shared secret", "events": ["sensor.threshold_exceeded"]});
    api.post("/api/v1/webhooks", &webhook).await?;
    let channel = api.post("/api/v1/events", &json!({"name": "pressure", "type": "sensor"})).await?;
    let channel = channel["public_id"].as_str().context("an event without an id")?.to_owned();
    let rule = json!({"name": "too high", "event_public_id": channel, "operator": "gt", "threshold": 10,
        "cooldown_seconds": 0, "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded"});
    api.post("/api/v1/rules", &rule).await?;
    let (press, archive) = (api.add_agent("press").await?, api.add_agent("archive").await?);
    // Its agents are away, so that every firing stays a transfer that waits.
    let job = json!({"name": "every second", "source_agent_id": press.number, "destination_agent_id": archive.number,
        "source_path": "out/a", "destination_path": "in/a", "schedule": "* * * * * *", "overlap": "queue"});
    api.post("/api/jobs", &job).await?;
    Ok(channel)
}

impl Client {
    /// Makes agents at one gateway and then the other, repeating what was not answered, and reads each at the other.
    async fn write(self) -> anyhow::Result<()> {
        for number in 0.. {
            if self.stop.is_cancelled() {
                break;
            }
            let (name, key) = (format!("agent {number}"), format!("agent-{number}"));
            let (mut at, begun) = (number, Instant::now());
            let made = loop {
                match self.gateways[at % 2]
                    .post_noting_repeats("/api/agents", &key, &json!({ "name": name }))
                    .await
                {
                    Ok(made) => break made,
                    Err(error) if begun.elapsed() > SUBMIT => return Err(error),
                    Err(_) => {
                        at += 1;
                        sleep(INTERVAL).await;
                    }
                }
            };
            self.pulse.beat();
            let (agent, eventual) = made;
            let id = agent["id"].as_i64().context("an agent without an id")?;
            self.note(|accepted| {
                accepted.agents.push((id, name.clone()));
                accepted.eventual += usize::from(eventual);
            });
            // Other clients report a gateway that does not answer.
            let path = format!("/api/agents/{id}");
            let shown = self.gateways[(at + 1) % 2].exchange(Method::GET, &path, None).await;
            if !eventual && shown.is_ok_and(|shown| shown.status == 404) {
                self.note(|accepted| accepted.unseen.push(format!("{name} was accepted and is not shown")));
            }
            sleep(INTERVAL).await;
        }
        Ok(())
    }

    /// Reads at one gateway, and at the other when that does not answer.
    async fn read(self) -> anyhow::Result<()> {
        let mut at = 0;
        while !self.stop.is_cancelled() {
            let asked = self.gateways[at % 2].answer(Method::GET, "/api/agents?limit=20", None);
            match tokio::time::timeout(READ_TIMEOUT, asked).await {
                Ok(Ok(_)) => self.pulse.beat(),
                _ => at += 1,
            }
            sleep(INTERVAL).await;
        }
        Ok(())
    }

    /// Lets values cross the threshold of a rule, each once.
    async fn measure(self, channel: String) -> anyhow::Result<()> {
        for number in 0.. {
            if self.stop.is_cancelled() {
                break;
            }
            let point = |value| json!({"value": value, "event_public_id": channel});
            let batch = json!({"datapoints": [point(1.0), point(11.0 + number as f64)]});
            let key = format!("value-{number}");
            let (mut at, begun) = (number, Instant::now());
            while let Err(error) =
                self.gateways[at % 2].post_once("/api/v1/datapoints/batch", &key, &batch).await
            {
                if begun.elapsed() > SUBMIT {
                    return Err(error);
                }
                at += 1;
                sleep(INTERVAL).await;
            }
            self.note(|accepted| accepted.values += 1);
            sleep(VALUE).await;
        }
        Ok(())
    }

    fn note(&self, write: impl FnOnce(&mut Accepted)) {
        write(&mut self.accepted.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

const AGENTS: &str = "SELECT count(*) FROM read.agents";
const FIRINGS: &str = "SELECT count(*) FROM read.transfers";
const RELAYED: &str = "SELECT r.position, h.position FROM ops.relay_checkpoint r, log_head h
  WHERE h.log = 'events' AND r.relay = 'events'";

/// Beats whenever the relay has come further, or has nothing to do.
async fn relayed(pool: PgPool, pulse: Pulse, stop: CancellationToken) -> anyhow::Result<()> {
    let mut before = 0;
    while !stop.is_cancelled() {
        if let Some((position, head)) = sqlx::query_as::<_, (i64, i64)>(RELAYED).fetch_optional(&pool).await?
            && (position > before || position >= head)
        {
            before = position;
            pulse.beat();
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Beats whenever requests have come to the receiver.
async fn arrivals(sink: Arc<Sink>, pulse: Pulse, stop: CancellationToken) -> anyhow::Result<()> {
    let mut came = 0;
    loop {
        came += 1;
        tokio::select! {
            arrived = sink.until(came) => arrived?,
            () = stop.cancelled() => return Ok(()),
        }
        pulse.beat();
    }
}

/// Beats whenever `sql` counts more.
async fn count(pool: PgPool, pulse: Pulse, stop: CancellationToken, sql: &'static str) -> anyhow::Result<()> {
    let mut before = 0;
    while !stop.is_cancelled() {
        let counted: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await?;
        if counted > before {
            before = counted;
            pulse.beat();
        }
        sleep(LOOK).await;
    }
    Ok(())
}
