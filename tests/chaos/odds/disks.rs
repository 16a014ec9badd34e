//! Full disks of PostgreSQL, of the bus, and of all that `signalbox up` has.

use std::{cell::Cell, fs, time::Duration};

use anyhow::{Context as _, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{END, SmallDisk, System, parts};
use crate::system::{Servers, Signalbox, wait_for, wait_until};

const POSTGRES_MEGABYTES: u32 = 600;
const NATS_MEGABYTES: u32 = 3000;
const UP_MEGABYTES: u32 = 1500;
const BATCH: usize = 1000;
/// A full disk shows by then, since each batch needs some of it.
const BATCHES: usize = 500;
/// Writes that PostgreSQL refuses for want of space, after which the bus may have kept its own.
const REFUSED: u32 = 3;
/// The bus has so long to recover by itself; then it is started again.
const RECOVERY: Duration = Duration::from_secs(30);

/// Fills the disk of PostgreSQL's data while datapoints are sent.
pub async fn full_disk_of_postgres() -> anyhow::Result<()> {
    let disk = SmallDisk::mount(POSTGRES_MEGABYTES)?;
    let mut system =
        System::start_on(Servers::start_in(Some(disk.0.path()), None).await?, false, &[]).await?;
    let event = system.api.post("/api/v1/events", &json!({"name": "boiler", "type": "sensor"})).await?;
    system.ask().await?;
    system.completed().await?;
    disk.fill()?;
    let start = Instant::now();
    let (mut batches, mut refused) = (0, None);
    while refused.is_none() && batches < BATCHES {
        let key = format!("batch-{batches}");
        match system.api.post_once("/api/v1/datapoints/batch", &key, &batch(&event)).await {
            Ok(_) => batches += 1,
            Err(error) => refused = Some(error.to_string()),
        }
    }
    let said = refused.context("nothing was refused on the full disk")?;
    ensure!(said.contains("answered with 503"), "a full disk was no reason for 503: {said}");
    let sentence = said.split_once("\"detail\":").map_or("", |(_, detail)| detail);
    ensure!(sentence.contains(' '), "a refusal without a sentence: {said}");
    println!("PostgreSQL's disk is full: {batches} batches were taken, the next was refused: {sentence}");
    // A gateway whose commands fail is not ready, whether PostgreSQL runs or has stopped.
    wait_until("the gateway not being ready, or health naming a part", END, || async {
        let ready = system.api.exchange(Method::GET, "/readyz", None).await?;
        let health = system.api.exchange(Method::GET, "/health", None).await?;
        let health: Value = serde_json::from_slice(&health.bytes)?;
        ensure!(!ready.status.is_success() || health["status"] != "ok", "all is well: {health}");
        Ok(true)
    })
    .await?;
    fs::remove_file(disk.filler())?;
    let freed = Instant::now();
    let mut again = system.servers.revive_postgres().await?;
    // The one that was refused, which may have been stored all the same. PostgreSQL may end once more meanwhile.
    let key = format!("batch-{batches}");
    loop {
        let tried = system.api.post_once("/api/v1/datapoints/batch", &key, &batch(&event)).await;
        if tried.is_ok() {
            break;
        }
        ensure!(
            freed.elapsed() < END,
            "nothing is taken after the disk has space: {tried:?}\n{}",
            system.said()
        );
        again |= system.servers.revive_postgres().await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let taken = freed.elapsed();
    system.ask().await?;
    system.completed().await?;
    println!(
        "PostgreSQL's disk was full for {:.1?}; started again: {again}; writes were answered {taken:.1?} after it had space, all work was done after {:.1?}",
        freed - start,
        freed.elapsed()
    );
    let expected = (batches + 1) * BATCH;
    wait_until("every datapoint being there once", END, || async {
        let listed = system.api.get("/api/v1/datapoints?per_page=1").await?;
        let total = ["total", "count"].iter().find_map(|name| listed[*name].as_u64());
        ensure!(total == Some(expected as u64), "{expected} datapoints were taken, {total:?} are listed");
        Ok(true)
    })
    .await?;
    system.check().await
}

fn batch(event: &Value) -> Value {
    let point = |value| json!({"value": value, "event_public_id": event["public_id"]});
    json!({"datapoints": (0..BATCH).map(point).collect::<Vec<_>>()})
}

/// Fills the disk of JetStream's streams while transfers are asked for.
pub async fn full_disk_of_nats() -> anyhow::Result<()> {
    let disk = SmallDisk::mount(NATS_MEGABYTES)?;
    let mut system =
        System::start_on(Servers::start_in(None, Some(disk.0.path())).await?, false, &[]).await?;
    system.ask().await?;
    system.completed().await?;
    disk.fill()?;
    let start = Instant::now();
    let event = json!({"name": "boiler", "type": "sensor"});
    let made = system.api.exchange(Method::POST, "/api/v1/events", Some(&event)).await?;
    let said = String::from_utf8_lossy(&made.bytes).into_owned();
    let expected = made.status.is_success() || made.status == StatusCode::SERVICE_UNAVAILABLE;
    ensure!(expected, "a full disk was answered with {}: {said}", made.status);
    println!("the disk of the bus is full: a write was answered with {}", made.status);
    // They cannot end before there is space; those that are taken now have to end afterwards.
    let early = tokio::time::timeout(RECOVERY, system.ask()).await;
    println!("transfers were taken on the full disk: {}", matches!(early, Ok(Ok(()))));
    fs::remove_file(disk.filler())?;
    let freed = Instant::now();
    let recovered = wait_for("a write being taken", RECOVERY, || async {
        let event = json!({"name": "boiler again", "type": "sensor"});
        Ok(Some(system.api.post_once("/api/v1/events", "after", &event).await?))
    })
    .await
    .is_ok();
    if !recovered {
        system.servers.crash_nats(false).await?;
    }
    system.ask().await?;
    let taken = freed.elapsed();
    system.completed().await?;
    println!(
        "the disk of the bus was full for {:.1?}; recovered by itself: {recovered}; writes were answered {taken:.1?} after it had space, all work was done after {:.1?}",
        freed - start,
        freed.elapsed()
    );
    system.check().await
}

/// Fills the disk of `signalbox up` until the relay is stuck or writes are refused, and makes space again: it has to recover by itself.
pub async fn full_disk_of_up() -> anyhow::Result<()> {
    let disk = SmallDisk::mount(UP_MEGABYTES)?;
    let (program, api) = Signalbox::with_own_servers(disk.0.path())?.start_and_log_in().await?;
    let made = Cell::new(0);
    let event = || {
        made.set(made.get() + 1);
        json!({"name": format!("boiler {}", made.get()), "type": "sensor"})
    };
    api.post("/api/v1/events", &event()).await?;
    disk.fill()?;
    let has_relay_fault = async || anyhow::Ok(parts(&api).await?.iter().any(|part| part == "relay"));
    // The files that both servers have already take a few more.
    let (taken, refused) = (Cell::new(0), Cell::new(0));
    let stuck = wait_for("the relay being stuck, or writes being refused", END, || async {
        let answer = api.exchange(Method::POST, "/api/v1/events", Some(&event())).await?;
        let count = if answer.status.is_success() { &taken } else { &refused };
        count.set(count.get() + 1);
        let is_stuck = has_relay_fault().await?;
        Ok((is_stuck || refused.get() == REFUSED).then_some(is_stuck))
    });
    let is_stuck = stuck.await.with_context(|| program.said())?;
    println!(
        "the disk of everything is full: {} writes were taken, {} refused, the relay is stuck: {is_stuck}",
        taken.get(),
        refused.get()
    );
    fs::remove_file(disk.filler())?;
    let freed = Instant::now();
    let works = wait_until("the relay being well", END, || async { Ok(!has_relay_fault().await?) });
    works.await.with_context(|| program.said())?;
    api.post("/api/v1/events", &event()).await?;
    println!("the relay went on {:.1?} after the disk had space", freed.elapsed());
    program.stop();
    Ok(())
}
