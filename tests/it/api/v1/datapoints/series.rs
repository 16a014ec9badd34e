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
async fn limits_hold() {
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
        json!({"event_public_ids": ["x"], "aggregate": "sum"}),
        json!({}),
    ] {
        world.admin.post(&format!("{DATAPOINTS}/series"), wrong).await.error(422);
    }
    world.finish().await;
}
