//! Kills parts of the system in the middle of its work: every kind of process, in a seeded random order, with SIGKILL.
//! All transfers must complete, each exactly once; each value that crosses a threshold must fire its rule exactly once and
//! reach the receiver of its webhook.
//!
//! Besides kills: each network between two parts stops carrying data without closing its connections, one process
//! after the other has a wrong clock, and disks are full. Recovery times are printed.
//!
//! `make chaos`; `CHAOS_TRANSFERS` (500), `CHAOS_ROUNDS` (4; each kind is killed once in each), `CHAOS_SEED` (1),
//! `CHAOS_CROSSINGS` (10,000) over `CHAOS_RULES` (200); `CHAOS_DOCUMENTS` (200).

#[path = "../../benches/system/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the benches, which use other parts")]
mod system;

#[path = "../../benches/webhooks/sink.rs"]
#[allow(dead_code, reason = "shared with the benches, which use other parts")]
mod sink;

mod checks;
mod crossings;
mod documents;
mod odds;
mod victims;
mod work;

use std::{env, time::Instant};

use anyhow::Context as _;
use crossings::Crossings;
use system::Servers;
use victims::Victims;
use work::Work;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn killed_processes_cost_time_and_no_data() -> anyhow::Result<()> {
    run(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn a_jetstream_that_loses_its_disk_costs_time_and_no_data() -> anyhow::Result<()> {
    run(true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn each_crossing_fires_once_and_reaches_its_receiver() -> anyhow::Result<()> {
    let (count, rules) = (of("CHAOS_CROSSINGS", 10_000)?, of("CHAOS_RULES", 200)?);
    let (rounds, seed) = (of("CHAOS_ROUNDS", 4)?, of("CHAOS_SEED", 1)?);
    println!("{count} crossings over {rules} rules, every process killed {rounds} times, seed {seed}");
    let mut servers = Servers::start().await?;
    let pool = servers.database().await?;
    let mut victims = Victims::start(&servers).await?;
    let crossings = Crossings::prepare(&victims, &pool, count as usize, rules as usize).await?;
    let start = Instant::now();
    let submitting = tokio::spawn(crossings.clone().submit());
    // JetStream loses its disk each time.
    let disturbed = victims.disturb(&mut servers, &crossings, rounds, seed, true).await;
    disturbed.with_context(|| victims.said())?;
    println!("after {:.1?} the last process was killed", start.elapsed());
    submitting.await??;
    let ended = crossings.wait_until_ended(&mut victims).await;
    println!("after {:.1?} all deliveries had ended", start.elapsed());
    let checked = match ended {
        Ok(()) => crossings.check().await,
        Err(error) => Err(error),
    };
    checked.with_context(|| victims.said())?;
    println!("{} processes ended by themselves and were started again", victims.ended_by_themselves);
    pool.close().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn documents_outlive_the_workers_that_read_them() -> anyhow::Result<()> {
    documents::run(of("CHAOS_DOCUMENTS", 200)? as usize).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn silent_networks_cost_seconds_and_no_data() -> anyhow::Result<()> {
    odds::silent_networks().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn a_process_with_a_wrong_clock_is_reported_and_costs_no_data() -> anyhow::Result<()> {
    odds::wrong_clocks().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and needs root for a small file system; run it with `make chaos`"]
async fn a_full_disk_is_reported_and_costs_no_data() -> anyhow::Result<()> {
    odds::full_disk().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn a_silent_bucket_costs_seconds_and_no_data() -> anyhow::Result<()> {
    odds::silent_bucket().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn a_silent_replica_costs_seconds_and_shows_nothing_old() -> anyhow::Result<()> {
    odds::silent_replica().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run it with `make chaos`"]
async fn a_silent_receiver_is_notified_of_each_event() -> anyhow::Result<()> {
    odds::silent_receiver().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and needs root for a small file system; run it with `make chaos`"]
async fn a_full_disk_of_postgresql_costs_no_data() -> anyhow::Result<()> {
    odds::full_disk_of_postgres().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and needs root for a small file system; run it with `make chaos`"]
async fn a_full_disk_of_the_bus_costs_no_data() -> anyhow::Result<()> {
    odds::full_disk_of_nats().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and needs root for a small file system; run it with `make chaos`"]
async fn a_full_disk_of_everything_is_survived_without_a_hand() -> anyhow::Result<()> {
    odds::full_disk_of_up().await
}

/// `wiped` says whether nats-server loses its streams each time it is killed.
async fn run(wiped: bool) -> anyhow::Result<()> {
    let (count, rounds, seed) = (of("CHAOS_TRANSFERS", 500)?, of("CHAOS_ROUNDS", 4)?, of("CHAOS_SEED", 1)?);
    println!("{count} transfers, every process killed {rounds} times, JetStream wiped: {wiped}, seed {seed}");
    let mut servers = Servers::start().await?;
    let pool = servers.database().await?;
    let mut victims = Victims::start(&servers).await?;
    let work = Work::prepare(&victims, &pool, count as usize).await?;

    let start = Instant::now();
    let submitting = tokio::spawn(work.clone().submit());
    // On this thread: the processes it starts live as long as it does.
    let disturbed = victims.disturb(&mut servers, &work, rounds, seed, wiped).await;
    let disturbed = disturbed.with_context(|| victims.said());
    println!("after {:.1?} the last process was killed", start.elapsed());
    disturbed?;
    submitting.await??;
    let ended = work.wait_until_ended(&mut victims).await;
    println!("after {:.1?} all transfers had ended", start.elapsed());
    let checked = match ended {
        Ok(()) => checks::all(&servers, &pool, &work).await,
        Err(error) => Err(error.context(checks::mail(&servers.jetstream().await?).await?.join("\n"))),
    };
    checked.with_context(|| victims.said())?;
    println!("{} processes ended by themselves and were started again", victims.ended_by_themselves);
    pool.close().await;
    Ok(())
}

fn of(name: &str, default: u64) -> anyhow::Result<u64> {
    match env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}
