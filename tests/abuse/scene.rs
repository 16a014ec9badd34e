use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use reqwest::{Client, Method};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_test_support::SilentLink;
use sqlx::PgPool;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::system::{AgentAccount, Api, Program, Role, Servers, Signalbox};

/// Events of the abused data, and its points: 300,000 over the last days, and 200,000 during an experiment.
const EVENTS: usize = 50;
const PAST_BATCHES: usize = 30;
const EXPERIMENT_BATCHES: usize = 20;
const BATCH: usize = 10_000;
const DAYS: i64 = 30;
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at the queries that run.
const SAMPLE: Duration = Duration::from_millis(50);
/// Agents that flood.
const AGENTS: usize = 4;
pub const PASSWORD: &str = "an ordinary passphrase";

/// A running system with data, accounts and the means to look into it.
pub struct Scene {
    // Before the servers, which it needs.
    pub program: Program,
    pub api: Api,
    pub pool: PgPool,
    pub target: Target,
    /// When the present abuse began.
    marked: Mutex<DateTime<Utc>>,
    /// Between the server and PostgreSQL.
    pub link: SilentLink,
    _servers: Servers,
}

/// The abusers' knowledge of the system.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// The token of a viewer.
    pub viewer: String,
    pub events: Vec<String>,
    /// An experiment with many datapoints.
    pub experiment: String,
    pub agents: Vec<AgentAccount>,
}

impl Target {
    /// A client at `address`, another one than all the others.
    pub fn client(&self, address: Ipv4Addr) -> anyhow::Result<Client> {
        Ok(Client::builder().no_proxy().local_address(IpAddr::from(address)).timeout(LIMIT).build()?)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Scene {
    pub async fn start() -> anyhow::Result<Self> {
        raise_open_files()?;
        let servers = Servers::start().await?;
        let pool = servers.database().await?;
        let (_, rest) = servers.database_url.rsplit_once('@').context("an address without a user")?;
        let target: SocketAddr = rest.split('/').next().unwrap_or_default().parse()?;
        let link = SilentLink::to(target).await;
        let settings = Signalbox::new(&servers, Role::All)?
            .with_default_limits()
            .with("DATABASE_URL", &link.instead_of(&servers.database_url, target));
        let (program, api) = settings.start_and_log_in().await?;
        add_user(&api, "viewer", "viewer").await?;
        let viewer = log_in(&Client::new(), &api, "viewer").await?;
        let (events, agents) = (Vec::new(), Vec::new());
        let mut target = Target { address: api.address, viewer, events, experiment: String::new(), agents };
        for number in 0..EVENTS {
            let event = json!({"name": format!("abused {number}"), "type": "sensor"});
            target.events.push(text(&api.post("/api/v1/events", &event).await?, "public_id")?);
        }
        add_past_points(&api, &target.events).await?;
        target.experiment = add_experiment(&api, &target.events).await?;
        for number in 0..AGENTS {
            target.agents.push(api.add_agent(&format!("noisy {number}")).await?);
        }
        let marked = Mutex::new(Clock::system().now());
        Ok(Self { program, api, pool, target, marked, link, _servers: servers })
    }

    /// Marks the start of an abuse.
    pub async fn mark(&self) -> anyhow::Result<()> {
        *self.marked.lock().await = sqlx::query_scalar("SELECT now()").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// The most queries for requests that ran at the same time, as seen again and again for `duration`.
    pub async fn most_queries(&self, duration: Duration) -> anyhow::Result<i64> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                      AND application_name = 'signalbox' AND state = 'active'";
        let (end, mut most) = (Instant::now() + duration, 0_i64);
        while Instant::now() < end {
            most = most.max(sqlx::query_scalar(sql).fetch_one(&self.pool).await?);
            sleep(SAMPLE).await;
        }
        Ok(most)
    }

    /// Events of type `kind` that were recorded since the abuse began.
    pub async fn recorded(&self, kind: &str) -> anyhow::Result<i64> {
        let sql = "SELECT count(*) FROM events WHERE event_type = $1 AND recorded_at >= $2";
        let since = *self.marked.lock().await;
        Ok(sqlx::query_scalar(sql).bind(kind).bind(since).fetch_one(&self.pool).await?)
    }
}

pub async fn add_user(api: &Api, name: &str, role: &str) -> anyhow::Result<()> {
    let user =
        json!({"username": name, "email": format!("{name}@example.org"), "password": PASSWORD, "role": role});
    api.post("/api/v1/users", &user).await?;
    Ok(())
}

/// The token of a new login.
pub async fn log_in(client: &Client, api: &Api, name: &str) -> anyhow::Result<String> {
    let credentials = json!({"email": name, "password": PASSWORD});
    let request = client.post(format!("http://{}/api/auth/login", api.address)).json(&credentials);
    let answer: Value = request.send().await?.error_for_status()?.json().await?;
    text(&answer, "token")
}

pub fn text(value: &Value, name: &str) -> anyhow::Result<String> {
    Ok(value[name].as_str().with_context(|| format!("an answer without {name}: {value}"))?.to_owned())
}

/// Values of the last days, in no order that would make them easy to read.
async fn add_past_points(api: &Api, events: &[String]) -> anyhow::Result<()> {
    let (begin, step) =
        (Clock::system().now() - TimeDelta::days(DAYS), DAYS * 86_400 / (PAST_BATCHES * BATCH) as i64);
    for batch in 0..PAST_BATCHES {
        let point = |index: usize| {
            let number = index * PAST_BATCHES + batch;
            let time = begin + TimeDelta::seconds(number as i64 * step);
            json!({"value": number, "event_public_id": events[number % events.len()], "timestamp": time.to_rfc3339()})
        };
        let points: Vec<_> = (0..BATCH).map(point).collect();
        api.post("/api/v1/datapoints/batch", &json!({ "datapoints": points })).await?;
    }
    Ok(())
}

/// An experiment that has ended, with values; returns its id.
async fn add_experiment(api: &Api, events: &[String]) -> anyhow::Result<String> {
    let experiment = text(&api.post("/api/v1/experiments", &json!({"name": "long"})).await?, "public_id")?;
    for _ in 0..EXPERIMENT_BATCHES {
        let point =
            |number: usize| json!({"value": number, "event_public_id": events[number % events.len()]});
        let points: Vec<_> = (0..BATCH).map(point).collect();
        api.post("/api/v1/datapoints/batch", &json!({ "datapoints": points })).await?;
    }
    stop_experiment(api, &experiment).await?;
    Ok(experiment)
}

pub async fn stop_experiment(api: &Api, id: &str) -> anyhow::Result<()> {
    api.call(Method::PUT, &format!("/api/v1/experiments/{id}/stop"), None).await.map(|_| ())
}

/// Thousands of connections are opened here.
fn raise_open_files() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
