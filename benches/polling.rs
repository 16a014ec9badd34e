//! Many agents that poll one gateway at once: how long it takes until the chosen ones receive their transfer, and the
//! gateway's cost for each. `BENCH_AGENTS`, `BENCH_CHOSEN`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    report, size,
    system::{AgentAccount, Api, Role, Servers, Signalbox, wait_until},
};

/// Requests of the admin at the same time.
const CONCURRENT: usize = 16;
const ONLINE: Duration = Duration::from_secs(120);

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let (count, chosen) = (size::of("BENCH_AGENTS", 400)? as usize, size::of("BENCH_CHOSEN", 40)? as usize);
    ensure!(chosen <= count, "more agents are chosen than there are");
    let servers = Servers::start().await?;
    let mut others = Vec::new();
    for role in [Role::Commands, Role::Projections, Role::Workers] {
        others.push(Signalbox::new(&servers, role)?.start()?);
    }
    let (gateway, api) = Signalbox::new(&servers, Role::Gateway)?.start_and_log_in().await?;
    let accounts: Vec<_> = stream::iter(0..count)
        .map(|number| {
            let api = api.clone();
            async move { api.add_agent(&format!("machine {number}")).await }
        })
        .buffered(CONCURRENT)
        .try_collect()
        .await?;

    let before = gateway.resident_mib()?;
    let mut polls = Polls::begin(&api, &accounts)?;
    all_waiting(&servers, count).await?;
    let per_agent = (gateway.resident_mib()? - before) * 1024.0 / count as f64;

    let asked = ask(&api, &accounts, chosen).await?;
    let mut milliseconds = Vec::new();
    for _ in 0..chosen {
        let (agent, at) = polls.next().await?;
        let asked_at =
            asked.iter().find(|(asked, _)| *asked == agent).context("an agent that was not chosen")?.1;
        milliseconds.push((at - asked_at).as_secs_f64() * 1000.0);
    }
    report::title(&format!(
        "polling: {count} agents at one gateway, {chosen} of them are asked for a transfer"
    ));
    report::figure("reached", milliseconds.len() as f64, "agents");
    for (name, at) in [("request to delivery, p50", 0.5), ("request to delivery, p99", 0.99)] {
        report::figure(name, report::quantile(milliseconds.iter().copied(), at), "ms");
    }
    report::figure("memory of the gateway per agent", per_agent, "KiB");
    Ok(())
}

/// Asks for a transfer from each of `chosen` agents; returns which ones, and when.
async fn ask(api: &Api, accounts: &[AgentAccount], chosen: usize) -> anyhow::Result<Vec<(i64, Instant)>> {
    let every = accounts.len() / chosen.max(1);
    stream::iter(accounts.iter().step_by(every).take(chosen))
        .map(|source| async move {
            let at = Instant::now();
            api.add_transfer(source, &accounts[0], "file", "file").await?;
            Ok((source.number, at))
        })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await
}

/// Waits until each agent has a session and looks into its mailbox.
async fn all_waiting(servers: &Servers, count: usize) -> anyhow::Result<()> {
    let (pool, jetstream) = (servers.database().await?, servers.jetstream().await?);
    wait_until("all agents waiting for mail", ONLINE, || async {
        let sql = "SELECT count(*) FROM read.agents WHERE session IS NOT NULL";
        let online: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await?;
        let mailboxes = jetstream.get_stream("MAIL").await?.cached_info().state.consumer_count;
        Ok(online as usize == count && mailboxes == count)
    })
    .await
}

/// A poll of each agent, repeated until it brings something.
struct Polls(JoinSet<anyhow::Result<(i64, Instant)>>);

impl Polls {
    fn begin(api: &Api, accounts: &[AgentAccount]) -> anyhow::Result<Self> {
        let client = Arc::new(Client::builder().no_proxy().build()?);
        let url = format!("http://{}/api/agent/poll?timeout=120", api.address);
        let mut polls = JoinSet::new();
        for account in accounts {
            polls.spawn(poll(client.clone(), url.clone(), account.clone()));
        }
        Ok(Self(polls))
    }

    /// The next agent that hears of a transfer, and when it did.
    async fn next(&mut self) -> anyhow::Result<(i64, Instant)> {
        self.0.join_next().await.context("all agents have been reached")??
    }
}

async fn poll(client: Arc<Client>, url: String, account: AgentAccount) -> anyhow::Result<(i64, Instant)> {
    loop {
        let response = client.get(&url).bearer_auth(&account.token).send().await?;
        let at = Instant::now();
        if response.status() == StatusCode::NO_CONTENT {
            continue;
        }
        let mails: Value = response.error_for_status()?.json().await?;
        ensure!(mails[0]["message"]["type"] == "transfer_request", "an agent received {mails}");
        return Ok((account.number, at));
    }
}
