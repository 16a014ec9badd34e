//! The load test that ships with the originals, without its delays.

use std::time::Duration;

use futures::{StreamExt, stream};
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::strict::{Datapoint, Event, EventType, Page, Plugin, is_success, leading_number};
use crate::harness::Client;

/// Events that are made at the same time.
const PARALLEL: usize = 50;
const PREFIX: &str = "__loadtest_sensor_";

/// Sensors that send one value each per batch.
pub struct LoadTest {
    client: Client,
    events: Vec<Event>,
    /// Where the channels are that it has mapped its events to.
    mappings: Vec<String>,
}

/// The measurements of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Values that the answers said were accepted.
    pub accepted: usize,
    /// Batches that were not answered as expected.
    pub errors: usize,
    /// How long each batch took.
    pub batches: Vec<Duration>,
    /// How long each look at the newest values took.
    pub looks: Vec<Duration>,
}

impl LoadTest {
    /// Makes `sensors` events, finds their ids by paging through the list, and maps them to channels of the first enabled
    /// plugin instance.
    pub async fn prepare(client: Client, sensors: usize) -> Self {
        let made = stream::iter(0..sensors).map(|number| {
            let client = client.clone();
            async move {
                let event = json!({"name": format!("{PREFIX}{number:04}"), "type": "sensor", "unit": "V",
                    "min_value": 0.0, "max_value": 100.0});
                let answer = client.post("/api/v1/events", event).await.expect(201);
                assert!(is_success(&answer), "{answer}");
            }
        });
        made.buffer_unordered(PARALLEL).collect::<Vec<_>>().await;
        let mut events: Vec<Event> = Vec::new();
        for number in 1.. {
            let path = format!("/api/v1/events?page={number}&page_size=100");
            let page: Page<Event> = serde_json::from_value(client.get(&path).await.expect(200)).unwrap();
            let done = page.data.is_empty() || number * 100 >= page.total;
            events.extend(page.data.into_iter().filter(|event| event.name.starts_with(PREFIX)));
            if done {
                break;
            }
        }
        assert!(events.iter().all(|event| event.kind == EventType::Sensor));
        assert_eq!(events.len(), sensors, "every event is found");
        let mappings = Self::map(&client, &events).await;
        Self { client, events, mappings }
    }

    async fn map(client: &Client, events: &[Event]) -> Vec<String> {
        let page: Page<Plugin> =
            serde_json::from_value(client.get("/api/v1/plugins").await.expect(200)).unwrap();
        let plugin = page.data.into_iter().find(|plugin| plugin.enabled).expect("it needs an enabled plugin");
        let path = format!("/api/v1/plugins/{}/channels", plugin.public_id);
        let made = stream::iter(events).map(|event| async {
            let channel = json!({"channel_id": event.name, "channel_name": event.name, "direction": "input",
                "unit": "V", "event_public_id": event.public_id});
            let made = client.post(&path, channel).await.expect(201);
            format!("{path}/{}", made["public_id"].as_str().unwrap())
        });
        made.buffer_unordered(PARALLEL).collect().await
    }

    /// Sends `batches`, and looks at the newest values after each.
    pub async fn run(&self, batches: usize) -> Outcome {
        let mut outcome = Outcome { accepted: 0, errors: 0, batches: Vec::new(), looks: Vec::new() };
        for number in 0..batches {
            let items = self.events.iter().zip(0..).map(
                |(event, index)| json!({"value": value(number, index), "event_public_id": event.public_id}),
            );
            let body = json!({"datapoints": items.collect::<Vec<_>>()});
            let begun = Instant::now();
            let request = self.client.request(Method::POST, "/api/v1/datapoints/batch").json(&body);
            // As it does to be let through a limit by address.
            let answer = self.client.send(request.header("x-forwarded-for", "127.0.0.1")).await;
            outcome.batches.push(begun.elapsed());
            let accepted = (answer.status == 201).then(|| leading_number(&answer.expect(201))).flatten();
            outcome.accepted += accepted.unwrap_or(0);
            outcome.errors += usize::from(accepted.is_none());
            self.look(number, &mut outcome).await;
        }
        outcome
    }

    /// Fails the test unless the newest values are those of batch `number`.
    async fn look(&self, number: usize, outcome: &mut Outcome) {
        let begun = Instant::now();
        let latest = self.client.get("/api/v1/datapoints/latest").await.expect(200);
        outcome.looks.push(begun.elapsed());
        let latest: Vec<Datapoint> = serde_json::from_value(latest).unwrap();
        assert_eq!(latest.iter().find_map(Datapoint::fault), None);
        for (event, index) in self.events.iter().zip(0..) {
            let point = latest.iter().find(|point| point.event_public_id == event.public_id);
            assert_eq!(point.map(|point| point.value), Some(value(number, index)), "{}", event.name);
            assert!(point.is_some_and(|point| point.public_id.is_some()));
        }
    }

    /// Deletes the mappings and the events.
    pub async fn clean_up(self) {
        let unmapped = stream::iter(&self.mappings).map(|path| async {
            let answer = self.client.delete(path).await.expect(200);
            assert!(is_success(&answer), "{answer}");
        });
        unmapped.buffer_unordered(PARALLEL).collect::<Vec<_>>().await;
        let deleted = stream::iter(&self.events).map(|event| async {
            let path = format!("/api/v1/events/{}", event.public_id);
            let answer = self.client.delete(&path).await.expect(200);
            assert!(is_success(&answer), "{answer}");
        });
        deleted.buffer_unordered(PARALLEL).collect::<Vec<_>>().await;
    }
}

impl Outcome {
    /// The time within which 95 of 100 batches were answered.
    pub fn batch_p95(&self) -> Duration {
        percentile(&self.batches)
    }

    /// The time within which 95 of 100 looks were answered.
    pub fn look_p95(&self) -> Duration {
        percentile(&self.looks)
    }
}

fn percentile(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 95 / 100).or(sorted.last()).copied().unwrap_or_default()
}

fn value(batch: usize, index: i32) -> f64 {
    f64::from(index) + batch as f64 / 8.0
}
