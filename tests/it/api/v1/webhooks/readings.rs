//! `sensor.reading`: the first value at once, then the newest one every five seconds.

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::subscribe;
use crate::{
    api::v1::datapoints::{DATAPOINTS, event, record_ago, value},
    harness::{Got, Receiver, World, eventually, seconds},
};

async fn send(world: &World, event: &str, number: f64) {
    world.admin.post(DATAPOINTS, value(event, number)).await.expect(201);
}

fn values(got: &[Got]) -> Vec<Value> {
    got.iter().map(|got| got.json()["value"].clone()).collect()
}

#[tokio::test]
async fn the_first_value_is_published_at_once_and_the_last_one_too() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let (boiler, valve) = (event(&world, "boiler").await, json!({"name": "valve", "type": "actuator"}));
    let valve = world.admin.post("/api/v1/events", valve).await.expect(201);
    // There is no subscription yet, and this value is never delivered.
    send(&world, &boiler, 0.5).await;
    world.clock.advance(TimeDelta::seconds(1));
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["sensor.reading"]).await;
    send(&world, valve["public_id"].as_str().unwrap(), 1.0).await;
    send(&world, &boiler, 1.0).await;
    let first = receiver.until_got(1).await.remove(0).json();
    for (field, expected) in [
        ("type", json!("sensor.reading")),
        ("sensor", json!("boiler")),
        ("sensor_id", json!(boiler)),
        ("value", json!(1.0)),
        ("device", json!("api")),
    ] {
        assert_eq!(first[field], expected, "{field}");
    }
    for number in [2.0, 3.0, 4.0] {
        send(&world, &boiler, number).await;
    }
    world.clock.advance(TimeDelta::milliseconds(4_900));
    send(&world, &boiler, 5.0).await;
    world.clock.advance(TimeDelta::milliseconds(100));
    assert_eq!(values(&receiver.until_got(2).await), [1.0, 5.0]);
    world.clock.advance(TimeDelta::seconds(20));
    send(&world, &boiler, 6.0).await;
    assert_eq!(values(&receiver.until_got(3).await), [1.0, 5.0, 6.0]);
    assert_eq!(world.count_events("reading_reported").await, 3);
    world.finish().await;
}

#[tokio::test]
async fn two_processes_report_as_often_as_one() {
    let mut world = World::start().await;
    world.another_process().await.work().await;
    let boiler = event(&world, "boiler").await;
    let receiver = Receiver::start().await;
    let webhook = subscribe(&world, &receiver, &["sensor.reading"]).await;
    send(&world, &boiler, 0.0).await;
    receiver.until_got(1).await;
    for number in 1..60 {
        send(&world, &boiler, f64::from(number)).await;
    }
    // The last value arrives when five seconds have passed.
    let is_last = || receiver.got().last().is_some_and(|got| got.json()["value"] == 59.0);
    eventually(seconds(20), async || is_last()).await;
    let spaces: Vec<bool> = sqlx::query_scalar(
        "SELECT (payload->>'reported_at')::timestamptz - lag((payload->>'reported_at')::timestamptz)
                OVER (ORDER BY position) >= interval '5 s'
           FROM events WHERE event_type = 'reading_reported' ORDER BY position OFFSET 1",
    )
    .fetch_all(&world.servers.pool)
    .await
    .unwrap();
    assert!(!spaces.is_empty() && spaces.iter().all(|is_long| *is_long), "{spaces:?}");
    // Without a subscription nothing is done.
    world.admin.put(&super::path(&webhook), json!({"enabled": false})).await.expect(200);
    let before = world.count_events("reading_reported").await;
    let unsubscribed = "SELECT count(*) FROM ops.readings_wanted";
    let pool = &world.servers.pool;
    eventually(seconds(10), async || {
        sqlx::query_scalar::<_, i64>(unsubscribed).fetch_one(pool).await.unwrap() == 0
    })
    .await;
    send(&world, &boiler, 99.0).await;
    send(&world, &boiler, 98.0).await;
    assert_eq!(world.count_events("reading_reported").await, before);
    world.finish().await;
}

/// However wrong the clock of the device is: every newly arrived value counts.
#[tokio::test]
async fn values_of_wrong_clocks_are_reported_like_others() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let boiler = event(&world, "boiler").await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["sensor.reading"]).await;
    // A clock 9 min ahead, one that is right, and values that were measured long ago.
    for (count, (number, ago)) in [(1.0, -540), (2.0, 0), (3.0, 3600), (4.0, 7200)].into_iter().enumerate() {
        record_ago(&world, &boiler, number, ago).await;
        let got = receiver.until_got(count + 1).await;
        assert_eq!(got.last().unwrap().json()["value"], json!(number));
        world.clock.advance(TimeDelta::seconds(5));
    }
    world.finish().await;
}

#[tokio::test]
async fn burst_is_reported_by_its_first_and_its_last_value() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["sensor.reading"]).await;
    let items: Vec<_> = (1..=5).map(|number| value(&boiler, f64::from(number))).collect();
    world.admin.post(&format!("{DATAPOINTS}/batch"), json!({ "datapoints": items })).await.expect(201);
    assert_eq!(values(&receiver.until_got(1).await), [1.0]);
    // Another channel has a window of its own.
    send(&world, &vat, 7.0).await;
    assert_eq!(values(&receiver.until_got(2).await), [1.0, 7.0]);
    world.clock.advance(TimeDelta::milliseconds(5_000));
    assert_eq!(values(&receiver.until_got(3).await), [1.0, 7.0, 5.0]);
    assert_eq!(world.count_events("reading_reported").await, 3);
    world.finish().await;
}
