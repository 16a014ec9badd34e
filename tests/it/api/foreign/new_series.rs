//! A sender with 100,000 new series in a minute, as one that puts a request's id into a label. Channels are made up to the limit, the
//! rest is refused with the reason, and somebody else keeps writing and reading.

use std::time::{Duration, Instant};

use futures::future::join;
use reqwest::Method;
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        prometheus::{series, write},
        v1::datapoints::listed,
    },
    harness::{Answer, Client, World},
};

const FLOOD: usize = 100_000;
/// Series of a request.
const PART: usize = 20_000;
/// Channels that may be made: the default is five times as much, and takes five times as long.
const MOST: u32 = 2000;
/// How long the bystander waits for an answer at most.
const LONGEST: Duration = Duration::from_secs(10);

async fn lines(client: &Client, lines: String) -> Answer {
    let request = client.request(Method::POST, "/api/v2/write?precision=s").body(lines);
    client.send(request).await
}

/// How long the bystander waited for each of its answers.
struct Waits {
    writes: Vec<Duration>,
    reads: Vec<Duration>,
}

/// Writes a value of a known series and reads the newest value, again and again until `stop`.
async fn stand_by(client: &Client, stop: &CancellationToken) -> Waits {
    let mut waits = Waits { writes: Vec::new(), reads: Vec::new() };
    while !stop.is_cancelled() {
        let number = waits.writes.len();
        let begun = Instant::now();
        let answer = lines(client, format!("bystander v={number} {number}")).await;
        waits.writes.push(begun.elapsed());
        assert_eq!(answer.status, 204, "{}", answer.text());
        let begun = Instant::now();
        let page = client.get("/api/v1/events?label=_measurement:bystander").await.expect(200);
        waits.reads.push(begun.elapsed());
        assert_eq!(page["total"], 1);
    }
    waits
}

fn report(what: &str, mut waits: Vec<Duration>) {
    waits.sort();
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100];
    eprintln!(
        "bystander's {} {what}: median {:?}, p99 {:?}, longest {:?}",
        waits.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(at(100) < LONGEST, "{what} took {:?}", at(100));
}

/// Has `send` send the series with the numbers of each part, and looks at the answers and at the bystander.
async fn flood(send: impl AsyncFn(&Client, std::ops::Range<usize>) -> Answer) {
    let world = World::with(|config| config.ingest.max_channels = MOST).await;
    let (flooder, bystander) =
        (world.user("flooder", "operator").await, world.user("bystander", "operator").await);
    assert_eq!(lines(&bystander, "bystander v=0 0".to_owned()).await.status, 204);
    let stop = CancellationToken::new();
    let sent = async {
        let _stopped = stop.clone().drop_guard();
        let begun = Instant::now();
        for first in (0..FLOOD).step_by(PART) {
            let answer = send(&flooder, first..first + PART).await;
            let message = answer.error(400);
            assert!(
                message.contains("2000 channels were made for series: raise ingest.max_channels"),
                "{message}"
            );
            eprintln!("series {first} to {}: after {:?}", first + PART, begun.elapsed());
        }
        begun.elapsed()
    };
    let (taken, waits) = join(sent, stand_by(&bystander, &stop)).await;
    assert!(taken < Duration::from_secs(60), "100,000 series took {taken:?}");
    let values = waits.writes.len() as i64;
    report("writes", waits.writes);
    report("reads", waits.reads);
    // The first one of the bystander stands for its channel and was written again.
    let made = i64::from(MOST) - 1;
    assert_eq!(world.admin.get("/api/v1/events?page_size=1").await.expect(200)["total"], made + 1);
    assert_eq!(listed(&world.admin, "page_size=1").await.1, made + values);
    world.finish().await;
}

#[tokio::test]
async fn new_series_without_end_by_line_protocol_do_not_disturb_others() {
    flood(async |client, numbers| {
        let text: String = numbers.map(|number| format!("flood,request={number} v=1 1772357400\n")).collect();
        lines(client, text).await
    })
    .await;
}

#[tokio::test]
async fn new_series_without_end_by_remote_write_do_not_disturb_others() {
    flood(async |client, numbers| {
        let one = |number: usize| {
            series(&[("__name__", "flood"), ("request", &number.to_string())], &[(1.0, 1_772_357_400_000)])
        };
        write(client, numbers.map(one).collect()).await
    })
    .await;
}
