//! Events per second of many concurrent commands, which share commits, beside one command at a time.
//! `BENCH_SECONDS` for each turn, `BENCH_ROUNDS`, `BENCH_CONCURRENT`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::{Actor, AgentId, Decider, Metadata, UserId},
    transfer::{Agent, AgentCommand, AgentProfile, AgentRef, Job, JobCommand, JobSpec, NewAgent, NewJob},
};
use signalbox_event_store::{Appender, Execution, execute};
use sqlx::PgPool;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{report, size, system::Servers};

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let duration = Duration::from_secs(size::of("BENCH_SECONDS", 3)?);
    let rounds = size::of("BENCH_ROUNDS", 3)?;
    let many = size::of("BENCH_CONCURRENT", 128)? as usize;

    let servers = Servers::start().await?;
    let pool = servers.database().await?;
    let (user, clock) = (Clock::system().new_id(), Clock::system());
    let commander =
        Arc::new(Commander { appender: Appender::start(pool.clone(), clock.clone()), pool, clock, user });
    let agent = commander.add_agent().await?;

    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (one, all) =
            (rate(&commander, agent, 1, duration).await?, rate(&commander, agent, many, duration).await?);
        eprintln!("{round}: {one:.0} and {all:.0} events/s");
        // The first round warms up.
        if round > 0 {
            alone.push(one);
            together.push(all);
        }
    }
    report::title(&format!("append: events of {many} concurrent commands, one command at a time"));
    let ratios: Vec<_> = together.iter().zip(&alone).map(|(all, one)| all / one).collect();
    report::pair("throughput", report::median(together), report::median(alone), "events/s");
    report::ratio("throughput, ratio", report::median(ratios), 10.0);
    Ok(())
}

/// Events per second of `concurrent` senders, each of which waits for its commit.
async fn rate(
    commander: &Arc<Commander>,
    agent: AgentRef,
    concurrent: usize,
    duration: Duration,
) -> anyhow::Result<f64> {
    let (start, events) = (Instant::now(), Arc::new(AtomicI64::new(0)));
    let mut senders = JoinSet::new();
    for _ in 0..concurrent {
        let (commander, events) = (commander.clone(), events.clone());
        senders.spawn(async move {
            while start.elapsed() < duration {
                commander.add_job(agent).await?;
                events.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    Ok(events.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

struct Commander {
    pool: PgPool,
    appender: Appender,
    clock: Clock,
    user: Uuid,
}

impl Commander {
    async fn add_agent(&self) -> anyhow::Result<AgentRef> {
        let id = self.clock.new_id();
        let profile = AgentProfile { name: "press".to_owned(), ..AgentProfile::default() };
        self.send::<Agent>(id, AgentCommand::Create(NewAgent { number: 1, profile })).await?;
        Ok(AgentRef { id: AgentId(id), number: 1 })
    }

    async fn add_job(&self, agent: AgentRef) -> anyhow::Result<()> {
        let (source, destination) = ("results/latest.csv", "incoming/results.csv");
        let spec = JobSpec::new("nightly results", (agent, source), (agent, destination));
        let job = NewJob { number: 1, owner: UserId(self.user), spec };
        self.send::<Job>(self.clock.new_id(), JobCommand::Create(job)).await
    }

    async fn send<D: Decider>(&self, aggregate_id: Uuid, command: D::Command) -> anyhow::Result<()> {
        let metadata = Metadata {
            command_id: self.clock.new_id(),
            actor: Actor::User(UserId(self.user)),
            causation: None,
            correlation: "bench".to_owned(),
            traceparent: None,
            restored_version: None,
        };
        let execution = Execution { aggregate_id, expected_version: None, metadata, command };
        execute::<D>(&self.pool, &self.appender, execution).await?;
        Ok(())
    }
}
