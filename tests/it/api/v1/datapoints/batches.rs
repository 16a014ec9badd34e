use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_domain::kernel::ErrorKind;
use signalbox_messaging::{Bus, IngestMessage};
use uuid::Uuid;

use super::{DATAPOINTS, event, events, listed, value};
use crate::harness::{Client, World};

async fn post(client: &Client, items: Vec<Value>) -> Value {
    client.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201)
}

#[tokio::test]
async fn a_batch_is_recorded_and_omissions_are_reported() {
    let world = World::start().await;
    let events = events(&world, 2).await;
    let deleted = event(&world, "deleted").await;
    world.admin.delete(&format!("/api/v1/events/{deleted}")).await.expect(200);
    let late = json!({"value": 4, "event_public_id": events[1], "timestamp": "2020-02-29T12:00:00+01:00"});
    let ahead = json!({"value": 5, "event_public_id": events[1], "timestamp": "2099-01-01T00:00:00Z"});
    let before = json!({"value": 6, "event_public_id": events[1], "timestamp": "1969-01-01T00:00:00Z"});
    let items = vec![
        value(&events[0], 1.0),
        value("unknown", 2.0),
        value(&deleted, 3.0),
        late,
        ahead,
        before,
        value(&events[1], 7.5),
    ];
    let made = post(&world.admin, items).await;
    assert_eq!(made["accepted"], 3);
    assert_eq!(made["message"].as_str().unwrap().split(' ').next(), Some("3"));
    let expected = json!([
        {"index": 1, "reason": "unknown event"},
        {"index": 2, "reason": "unknown event"},
        {"index": 4, "reason": "timestamp is more than 10 minutes in the future"},
        {"index": 5, "reason": "timestamp is before 1970"},
    ]);
    assert_eq!(made["rejected"], expected);
    let (values, total) = listed(&world.admin, "").await;
    assert_eq!((values.last(), total), (Some(&4.0), 3));
    let nothing = post(&world.admin, vec![value("unknown", 1.0)]).await;
    assert_eq!((&nothing["accepted"], &nothing["message"].as_str().unwrap()[..2]), (&json!(0), "0 "));
    world.finish().await;
}

#[tokio::test]
async fn a_batch_has_one_to_ten_thousand_items() {
    let world = World::start().await;
    let event = event(&world, "many").await;
    let items =
        |count: u32| (0..count).map(|index| value(&event, f64::from(index) / 4.0)).collect::<Vec<_>>();
    let path = format!("{DATAPOINTS}/batch");
    for count in [0, 10_001] {
        world.admin.post(&path, json!({"datapoints": items(count)})).await.error(422);
    }
    assert_eq!(listed(&world.admin, "").await.1, 0);
    assert_eq!(post(&world.admin, items(10_000)).await["accepted"], 10_000);
    // Of equal times the later one is the newer one.
    let (values, total) = listed(&world.admin, "page_size=2&page=2").await;
    assert_eq!((values, total), (vec![9997.0 / 4.0, 9996.0 / 4.0], 10_000));
    let (values, _) = listed(&world.admin, "page_size=100&page=100").await;
    assert_eq!(values.last(), Some(&0.0));
    world.finish().await;
}

#[tokio::test]
async fn a_batch_may_be_compressed_in_any_way_that_gzip_knows() {
    let world = World::start().await;
    let event = event(&world, "many").await;
    let batch = json!({"datapoints": [value(&event, 1.0)]}).to_string();
    let zipped = |level: Compression, text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), level);
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let path = format!("{DATAPOINTS}/batch");
    let send = async |body: Vec<u8>, encoding: &str| {
        let request = world.admin.request(Method::POST, &path).header("content-encoding", encoding);
        world.admin.send(request.header("idempotency-key", "once").body(body)).await
    };
    let first = send(zipped(Compression::best(), &batch), "gzip").await.expect(201);
    for (body, encoding) in
        [(zipped(Compression::none(), &batch), "gzip"), (batch.clone().into_bytes(), "identity")]
    {
        assert_eq!(send(body, encoding).await.expect(201), first);
    }
    assert_eq!(listed(&world.admin, "").await, (vec![1.0], 1));
    let post = async |body: Vec<u8>, encoding: &str| {
        let request = world.admin.request(Method::POST, &path).header("content-encoding", encoding);
        world.admin.send(request.body(body)).await
    };
    post(zipped(Compression::best(), &" ".repeat(64 << 20)), "gzip").await.error(413);
    assert!(post(batch.clone().into_bytes(), "gzip").await.error(400).contains("gzip"));
    assert!(post(batch.into_bytes(), "br").await.error(400).contains("Content-Encoding"));
    world.finish().await;
}

#[tokio::test]
async fn one_item_that_cannot_be_read_refuses_the_batch_and_names_itself() {
    let world = World::start().await;
    let event = event(&world, "strict").await;
    for wrong in [
        json!({"value": "geheim", "event_public_id": event}),
        json!({"event_public_id": event}),
        json!({"value": 1}),
        json!({"value": 1, "event_public_id": 5}),
        json!({"value": 1, "event_public_id": event, "timestamp": "geheim"}),
        json!("geheim"),
    ] {
        let items = json!({"datapoints": [value(&event, 1.0), wrong]});
        let answer = world.admin.post(&format!("{DATAPOINTS}/batch"), items).await;
        let detail = answer.error(422);
        assert!(detail.starts_with("datapoints[1]"), "{detail}");
        assert!(!answer.text().contains("geheim"), "{}", answer.text());
    }
    for (number, status) in [("NaN", 422), ("1e999", 422), ("1e", 400)] {
        let body = format!(r#"{{"datapoints": [{{"value": {number}, "event_public_id": "{event}"}}]}}"#);
        let request = world.admin.request(Method::POST, &format!("{DATAPOINTS}/batch")).body(body);
        assert_eq!(world.admin.send(request).await.status, status, "{number}");
    }
    assert_eq!(listed(&world.admin, "").await.1, 0);
    world.finish().await;
}

#[tokio::test]
async fn batches_at_once_over_two_gateways_lose_and_double_nothing() {
    let mut world = World::start().await;
    world.another_process().await.handle_commands();
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let events = events(&world, 5).await;
    let batches = (0..60_u32).map(|batch| {
        let client = if batch % 2 == 0 { &world.admin } else { &there };
        let items = (0..50).map(|item| value(&events[item as usize % 5], f64::from(batch * 50 + item)));
        post(client, items.collect())
    });
    for made in join_all(batches).await {
        assert_eq!(made["accepted"], 50);
    }
    for client in [&world.admin, &there] {
        let mut found = Vec::new();
        for page in 1..=30 {
            found.extend(listed(client, &format!("page_size=100&page={page}")).await.0);
        }
        found.sort_by(f64::total_cmp);
        assert_eq!(found, (0..3000).map(f64::from).collect::<Vec<_>>());
    }
    let positions: i64 = sqlx::query_scalar("SELECT count(*) FROM datapoint_log")
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    assert!(positions < 60, "{positions} commits for 60 batches");
    world.finish().await;
}

#[tokio::test]
async fn a_block_that_cannot_be_read_is_not_appended() {
    let world = World::start().await;
    let event = event(&world, "pressure").await;
    post(&world.admin, vec![value(&event, 1.0)]).await;
    let rows = async || {
        let counted = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM datapoint_log");
        counted.fetch_one(&world.servers.pool).await.unwrap()
    };
    let before = rows().await;
    let bus = Bus::connect(world.config.nats.url.expose()).await.unwrap();
    let broken = IngestMessage {
        batch_id: Uuid::from_u128(1),
        points: 3,
        block: Bytes::from_static(b"\xff\xff of an unknown encoding"),
    };
    let refused = bus.ingest(&broken).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    assert_eq!(rows().await, before);
    // The channel's values are whole, and others are taken.
    post(&world.admin, vec![value(&event, 2.0)]).await;
    assert_eq!(listed(&world.admin, "").await.1, 2);
}
