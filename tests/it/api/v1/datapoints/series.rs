use serde_json::{Value, json};

use super::{DATAPOINTS, event, events, record_ago, value, values};
use crate::harness::World;

async fn series(world: &World, body: Value) -> Value {
    world.admin.post(&format!("{DATAPOINTS}/series"), body).await.expect(200)
}

#[tokio::test]
async fn every_event_that_is_asked_for_is_there_oldest_first() {
    let world = World::start().await;
    let events = events(&world, 2).await;
    for (number, ago) in [(1.0, 10), (2.0, 120), (3.0, 7200)] {
        record_ago(&world, &events[0], number, ago).await;
    }
    let asked = [events[0].as_str(), &events[1], "unknown", &events[0]];
    let found = series(&world, json!({"event_public_ids": asked})).await;
    assert_eq!(found.as_object().unwrap().len(), 3);
    assert_eq!(values(&found[&events[0]]), [2.0, 1.0]);
    assert_eq!((&found[&events[1]], &found["unknown"]), (&json!([]), &json!([])));
    let point = &found[&events[0]][0];
    assert_eq!(point["event_public_id"], json!(events[0]));
    let path = format!("{DATAPOINTS}/{}", point["public_id"].as_str().unwrap());
    assert_eq!(&world.admin.get(&path).await.expect(200), point);
    let day = series(&world, json!({"event_public_ids": [&events[0]], "minutes": 1440})).await;
    assert_eq!(values(&day[&events[0]]), [3.0, 2.0, 1.0]);
    world.finish().await;
}

#[tokio::test]
async fn points_are_thinned_evenly_and_the_latest_is_kept() {
    let world = World::start().await;
    let event = event(&world, "busy").await;
    let items: Vec<_> = (0..27).map(|number| value(&event, f64::from(number))).collect();
    world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
    let found = series(&world, json!({"event_public_ids": [&event], "max_points": 10})).await;
    assert_eq!(values(&found[&event]), [0.0, 2.0, 5.0, 8.0, 10.0, 13.0, 16.0, 18.0, 21.0, 26.0]);
    let aggregated = async |aggregate: &str| {
        let body = json!({"event_public_ids": [&event], "max_points": 10, "aggregate": aggregate});
        values(&series(&world, body).await[&event])
    };
    assert_eq!(aggregated("none").await, values(&found[&event]));
    for aggregate in ["avg", "min", "max", "minmax"] {
        assert_eq!(
            aggregated(aggregate).await.last(),
            Some(&26.0),
            "{aggregate}: the newest value stays last"
        );
    }
    assert_eq!(aggregated("min").await.first(), Some(&0.0));
    assert_eq!(aggregated("avg").await.len(), 10);
    let both = aggregated("minmax").await;
    assert_eq!((both.len(), both[0]), (8, 0.0));
    world.finish().await;
}

#[tokio::test]
async fn out_of_range_series_parameters_are_rejected() {
    let world = World::start().await;
    let many = |count: usize| (0..count).map(|index| format!("event-{index}")).collect::<Vec<_>>();
    assert_eq!(series(&world, json!({"event_public_ids": many(20)})).await.as_object().unwrap().len(), 20);
    for wrong in [
        json!({"event_public_ids": []}),
        json!({"event_public_ids": many(21)}),
        json!({"event_public_ids": ["x".repeat(256)]}),
        json!({"event_public_ids": ["x"], "minutes": 0}),
        json!({"event_public_ids": ["x"], "minutes": 14_401}),
        json!({"event_public_ids": ["x"], "max_points": 9}),
        json!({"event_public_ids": ["x"], "max_points": 2001}),
        json!({"event_public_ids": ["x"], "aggregate": "median"}),
        json!({"event_public_ids": ["x"], "minutes": 5, "from": "2026-01-01T00:00:00Z"}),
        json!({"event_public_ids": ["x"], "to": "2026-01-01T00:00:00Z"}),
        json!({"event_public_ids": ["x"], "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}),
        json!({"event_public_ids": ["x"], "from": "2026-01-01T00:00:00Z", "aggregate": "avg", "step_seconds": 1}),
        json!({"event_public_ids": ["x"], "aggregate": "avg", "step_seconds": 60, "max_points": 10}),
        json!({}),
    ] {
        world.admin.post(&format!("{DATAPOINTS}/series"), wrong).await.error(422);
    }
    world.finish().await;
}

/// Values of long ago, and their aggregates by the hour.
#[tokio::test]
async fn ranges_of_the_past_are_shown_in_buckets() {
    let world = World::start().await;
    let event = event(&world, "old").await;
    let item = |time: &str, number: f64| json!({"event_public_id": event, "value": number, "timestamp": format!("2019-05-01T{time}Z")});
    let items = [
        item("10:59:59.999999", 1.0),
        item("11:00:00", 2.0),
        item("11:20:00", -4.0),
        item("11:40:00", 8.0),
        item("13:00:00", 16.0),
        item("14:00:00", 32.0),
    ];
    world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
    let (from, to) = ("2019-05-01T11:00:00Z", "2019-05-01T14:00:00Z");
    let hourly = async |aggregate: &str| {
        let body = json!({"event_public_ids": [&event], "from": from, "to": to, "aggregate": aggregate, "step_seconds": 3600});
        series(&world, body).await[&event].clone()
    };
    for (aggregate, expected) in [
        ("sum", [6.0, 16.0]),
        ("count", [3.0, 1.0]),
        ("avg", [2.0, 16.0]),
        ("min", [-4.0, 16.0]),
        ("max", [8.0, 16.0]),
        ("first", [2.0, 16.0]),
        ("last", [8.0, 16.0]),
    ] {
        assert_eq!(values(&hourly(aggregate).await), expected, "{aggregate}");
    }
    assert_eq!(values(&hourly("minmax").await), [-4.0, 8.0, 16.0]);
    let sums = hourly("sum").await;
    assert_eq!((&sums[0]["public_id"], &sums[0]["event_public_id"]), (&Value::Null, &json!(event)));
    assert_eq!(
        (&sums[0]["timestamp"], &sums[1]["timestamp"]),
        (&json!(from), &json!("2019-05-01T13:00:00Z"))
    );
    // Without a step: three hours in ten points are half-hours, which begin at the full one before.
    let body = json!({"event_public_ids": [&event], "from": "2019-05-01T10:45:00Z", "to": to, "aggregate": "count", "max_points": 10});
    let counts = series(&world, body).await[&event].clone();
    assert_eq!(values(&counts), [1.0, 2.0, 1.0, 1.0]);
    assert_eq!(counts[0]["timestamp"], "2019-05-01T10:30:00Z");
    // Points as they are, but for those outside.
    let body = json!({"event_public_ids": [&event], "from": from, "to": to});
    let points = series(&world, body).await[&event].clone();
    assert_eq!(values(&points), [2.0, -4.0, 8.0, 16.0]);
    assert!(points[0]["public_id"].is_string());
    world.finish().await;
}

#[tokio::test]
async fn buckets_of_the_last_minutes_have_all_points_once() {
    let world = World::start().await;
    let event = event(&world, "now").await;
    for (number, ago) in [(1.0, 30), (2.0, 90), (4.0, 150), (8.0, 7200)] {
        record_ago(&world, &event, number, ago).await;
    }
    let body = json!({"event_public_ids": [&event], "minutes": 10, "aggregate": "sum"});
    let sums = values(&series(&world, body).await[&event]);
    assert_eq!(sums.iter().sum::<f64>(), 7.0, "{sums:?}");
    let body = json!({"event_public_ids": [&event], "minutes": 10, "aggregate": "avg", "step_seconds": 600});
    let mean = series(&world, body).await[&event].clone();
    assert_eq!((values(&mean), &mean[0]["public_id"]), (vec![7.0 / 3.0], &Value::Null));
    world.finish().await;
}
