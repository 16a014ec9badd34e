use chrono::TimeDelta;
use serde_json::json;
use signalbox_projections::monitoring::series::rebuild_series;

use super::{DATAPOINTS, event, events, listed, record_ago, value, values};
use crate::harness::{World, encode, eventually, seconds};

/// Waits until everything is folded.
async fn folded(world: &World) {
    let behind =
        "SELECT h.position - p.position FROM log_head h, series.progress p WHERE h.log = 'datapoints'";
    eventually(seconds(20), async || {
        sqlx::query_scalar::<_, i64>(behind)
            .fetch_one(&world.servers.pool)
            .await
            .is_ok_and(|behind| behind == 0)
    })
    .await;
}

#[tokio::test]
async fn the_list_is_filtered_by_event_and_time() {
    let world = World::start().await;
    let events = events(&world, 2).await;
    for (number, ago) in [(1.0, 30), (2.0, 7200), (3.0, 90_000), (4.0, 20)] {
        record_ago(&world, &events[0], number, ago).await;
    }
    record_ago(&world, &events[1], 5.0, 60).await;
    let ago = |hours| encode(&(world.clock.now() - TimeDelta::hours(hours)).to_rfc3339());
    for _ in 0..2 {
        assert_eq!(listed(&world.admin, "").await, (vec![4.0, 1.0, 5.0, 2.0, 3.0], 5));
        let of = format!("event_public_id={}", events[0]);
        assert_eq!(listed(&world.admin, &of).await, (vec![4.0, 1.0, 2.0, 3.0], 4));
        assert_eq!(listed(&world.admin, &format!("{of}&page_size=2&page=2")).await, (vec![2.0, 3.0], 4));
        assert_eq!(listed(&world.admin, &format!("from={}", ago(3))).await.0, [4.0, 1.0, 5.0, 2.0]);
        assert_eq!(listed(&world.admin, &format!("from={}&to={}", ago(30), ago(1))).await.0, [2.0, 3.0]);
        assert_eq!(listed(&world.admin, "event_public_id=unknown").await, (vec![], 0));
        assert_eq!(listed(&world.admin, "page=9").await, (vec![], 5));
        // The same from the chunks.
        folded(&world).await;
    }
    for wrong in ["page=0", "page_size=0", "page_size=101", "from=yesterday", "to=5"] {
        world.admin.get(&format!("{DATAPOINTS}?{wrong}")).await.error(422);
    }
    world.finish().await;
}

#[tokio::test]
async fn the_latest_of_each_event_is_shown_also_after_a_rebuild() {
    let world = World::start().await;
    let events = events(&world, 3).await;
    record_ago(&world, &events[0], 1.0, 10).await;
    record_ago(&world, &events[0], 2.0, 500).await;
    let batch = json!({"datapoints": [value(&events[1], 10.0), value(&events[1], 20.0)]});
    world.admin.post(&format!("{DATAPOINTS}/batch"), batch).await.expect(201);
    let latest = async || world.admin.get(&format!("{DATAPOINTS}/latest")).await.expect(200);
    let first = latest().await;
    assert_eq!(values(&first), [1.0, 20.0]);
    folded(&world).await;
    assert_eq!(latest().await, first);
    assert_eq!(rebuild_series(&world.servers.pool).await.unwrap().differences, 0);
    assert_eq!(latest().await, first);
    // When the newest goes, the one before it shows.
    world
        .admin
        .delete(&format!("{DATAPOINTS}/{}", first[0]["public_id"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(values(&latest().await), [2.0, 20.0]);
    folded(&world).await;
    assert_eq!(values(&latest().await), [2.0, 20.0]);
    world.finish().await;
}

#[tokio::test]
async fn ids_that_nobody_was_given_name_nothing() {
    let world = World::start().await;
    let event = event(&world, "one").await;
    let made = world.admin.post(DATAPOINTS, value(&event, 1.0)).await.expect(201);
    let id = made["public_id"].as_str().unwrap();
    // The neighbours of a known id.
    for place in [0, 7, 20, 28, 35] {
        let mut guessed = id.to_owned();
        let digit = if &id[place..=place] == "1" { "2" } else { "1" };
        guessed.replace_range(place..=place, digit);
        world.admin.get(&format!("{DATAPOINTS}/{guessed}")).await.error(404);
        world.admin.delete(&format!("{DATAPOINTS}/{guessed}")).await.error(404);
    }
    world.admin.get(&format!("{DATAPOINTS}/{id}")).await.expect(200);
    world.finish().await;
}
