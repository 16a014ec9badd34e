//! The gateway is killed three times while a client writes. Every value is there exactly once afterwards, by the client's own
//! repetition, or for `influx`, which has none, by that of its user.

use std::net::SocketAddr;

use futures::future::join;
use tokio::net::TcpStream;

use super::{
    Work,
    programs::{VmAgent, influx, influxdb_client, text, write_import},
    token,
};
use crate::{
    api::v1::datapoints::listed,
    harness::{Folder, RealGateway, World, eventually, eventually_some, seconds},
};

const KILLS: i64 = 3;

/// Kills the gateway at which `client` writes `work`, when a quarter, half and three quarters of its values are committed.
async fn kill_thrice(world: &World, work: Work, client: impl AsyncFnOnce(SocketAddr)) {
    let mut gateway = RealGateway::start(&world.config).await;
    let address = gateway.address;
    let total = work.total();
    let killed = async {
        for kill in 1..=KILLS {
            let due = total * kill / (KILLS + 1);
            let written = eventually_some(seconds(200), async || {
                let written = listed(&world.admin, "page_size=1").await.1;
                (written >= due).then_some(written)
            });
            let written = written.await;
            assert!(written < total, "all {total} values were written before kill {kill}");
            gateway.kill().await;
            eprintln!("killed the gateway after {written} of {total} values");
            gateway = RealGateway::start_at(&world.config, address).await;
        }
        gateway
    };
    let (gateway, ()) = join(killed, client(address)).await;
    eventually(seconds(200), async || listed(&world.admin, "page_size=1").await.1 >= total).await;
    gateway.kill().await;
}

#[tokio::test]
async fn the_client_for_python_writes_every_value_once_through_kills() {
    let world = World::start().await;
    let (token, work) = (token(&world).await, Work { series: 20, values: 1000 });
    kill_thrice(&world, work, async |address| {
        let output = influxdb_client(address, &token, work, 500).await;
        let printed = text(&output);
        assert!(output.status.success(), "{printed}");
        assert!(!printed.starts_with("0 sent again"), "{printed}");
    })
    .await;
    work.assert_each_once(&world, "_measurement", "python").await;
    world.finish().await;
}

#[tokio::test]
async fn an_import_by_the_influx_command_is_completed_by_running_it_again() {
    let world = World::start().await;
    let (token, work) = (token(&world).await, Work { series: 20, values: 3000 });
    let folder = Folder::new();
    write_import(&folder, work);
    kill_thrice(&world, work, async |address| {
        let ready = format!("http://{address}/readyz");
        let mut runs = 1;
        loop {
            let output = influx(address, &token, &folder).await;
            if output.status.success() {
                break;
            }
            assert!(runs < 20, "run {runs} of the import failed, too: {}", text(&output));
            runs += 1;
            // No request reaches one that is away, and none is killed while no import runs.
            eventually(seconds(60), async || TcpStream::connect(address).await.is_ok()).await;
            // It may be killed while it answers.
            eventually(seconds(60), async || reqwest::get(&ready).await.is_ok_and(|it| it.status() == 200))
                .await;
        }
        eprintln!("{runs} runs of the import");
        assert!(runs > 1, "no kill was noticed");
    })
    .await;
    work.assert_each_once(&world, "_measurement", "command").await;
    world.finish().await;
}

#[tokio::test]
async fn vmagent_writes_every_value_once_through_kills() {
    let world = World::start().await;
    let (token, work) = (token(&world).await, Work { series: 20, values: 1000 });
    kill_thrice(&world, work, async |address| {
        let agent = VmAgent::start(address, &token, 500).await;
        agent.give(work, 500).await;
        eventually(seconds(200), async || {
            listed(&world.admin, "page_size=1").await.1 >= work.total()
                && agent.metric("vmagent_remotewrite_pending_data_bytes").await == 0.0
        })
        .await;
        assert!(agent.metric("vmagent_remotewrite_retries_count_total").await > 0.0, "no kill was noticed");
        assert_eq!(agent.metric("vmagent_remotewrite_packets_dropped_total").await, 0.0);
    })
    .await;
    work.assert_each_once(&world, "__name__", "vmagent").await;
    world.finish().await;
}
