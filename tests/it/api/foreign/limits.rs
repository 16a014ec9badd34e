//! Too many requests, and how clients of other products take the answer.

use reqwest::Method;
use signalbox_clock::Clock;

use super::{
    Work,
    programs::{VmAgent, influxdb_client, text},
    token,
};
use crate::{
    api::{
        prometheus::{series, write},
        v1::datapoints::listed,
    },
    harness::{Answer, World, eventually, seconds},
};

fn wait_of(answer: &Answer) -> i64 {
    assert_eq!(answer.status, 429, "{}", answer.text());
    answer.header("retry-after").unwrap().parse().unwrap()
}

#[tokio::test]
async fn too_many_requests_are_refused_in_the_shape_that_clients_expect() {
    let world = World::at(Clock::manual(Clock::system().now()), |config| {
        config.limits.ingest_requests_per_minute = 6;
        config.limits.ingest_request_burst = 1;
    })
    .await;
    let client = world.at_one_gateway();
    let lines = async || client.send(client.request(Method::POST, "/api/v2/write").body("m v=1 1000")).await;
    let remote = async || write(&client, vec![series(&[("__name__", "up")], &[(1.0, 1000)])]).await;
    assert_eq!(lines().await.status, 204);
    let refused = [lines().await, remote().await];
    for answer in &refused {
        let seconds = wait_of(answer);
        assert!((1..=10).contains(&seconds), "{seconds}");
    }
    let shape = refused[0].expect(429);
    assert_eq!(shape["code"], "too many requests");
    assert!(shape["message"].is_string() && shape["error"] == shape["message"], "{shape}");
    world.clock.advance(chrono::TimeDelta::seconds(wait_of(&refused[1])));
    assert_eq!(remote().await.status, 204);
    world.finish().await;
}

#[tokio::test]
async fn the_client_for_python_waits_as_long_as_the_answer_says() {
    let world = World::with(|config| {
        config.limits.ingest_requests_per_minute = 60;
        config.limits.ingest_request_burst = 2;
    })
    .await;
    let (token, work) = (token(&world).await, Work { series: 5, values: 100 });
    let output = influxdb_client(world.address, &token, work, 100).await;
    let printed = text(&output);
    assert!(output.status.success() && !printed.starts_with("0 sent again"), "{printed}");
    work.assert_each_once(&world, "_measurement", "python").await;
    world.finish().await;
}

#[tokio::test]
async fn vmagent_repeats_what_came_too_fast() {
    let world = World::with(|config| {
        config.limits.ingest_requests_per_minute = 60;
        config.limits.ingest_request_burst = 2;
    })
    .await;
    let (token, work) = (token(&world).await, Work { series: 5, values: 100 });
    let agent = VmAgent::start(world.address, &token, 100).await;
    agent.give(work, 100).await;
    eventually(seconds(100), async || listed(&world.admin, "page_size=1").await.1 >= work.total()).await;
    assert_eq!(agent.metric("vmagent_remotewrite_packets_dropped_total").await, 0.0);
    work.assert_each_once(&world, "__name__", "vmagent").await;
    world.finish().await;
}
