use chrono::TimeDelta;
use reqwest::Method;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_projections::monitoring::series::rebuild_series;

use super::{DATAPOINTS, event, events, listed, record_ago, value, values};
use crate::{
    api::prometheus::reading::all_as_chunks,
    harness::{World, encode, eventually, seconds},
};

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
    // When the newest one is deleted, the one before it is shown.
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

/// The earlier of device time and arrival counts.
#[tokio::test]
async fn clock_ahead_hides_no_later_value() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let event = event(&world, "ahead").await;
    let latest = async || values(&world.admin.get(&format!("{DATAPOINTS}/latest")).await.expect(200));
    record_ago(&world, &event, 1.0, -540).await;
    assert_eq!(latest().await, [1.0]);
    world.clock.advance(TimeDelta::seconds(1));
    let second = record_ago(&world, &event, 2.0, 0).await;
    // Late values are not the newest.
    record_ago(&world, &event, 3.0, 100).await;
    for _ in 0..2 {
        assert_eq!(latest().await, [2.0]);
        folded(&world).await;
    }
    assert_eq!(rebuild_series(&world.servers.pool).await.unwrap().differences, 0);
    assert_eq!(latest().await, [2.0]);
    // When it is deleted, the one before it is the newest: that of the clock ahead, which arrived before.
    let path = format!("{DATAPOINTS}/{}", second["public_id"].as_str().unwrap());
    world.admin.delete(&path).await.expect(200);
    for _ in 0..2 {
        assert_eq!(latest().await, [1.0]);
        folded(&world).await;
    }
    assert_eq!(rebuild_series(&world.servers.pool).await.unwrap().differences, 0);
    // A series is in order of device time.
    let series = json!({"event_public_ids": [event], "minutes": 60});
    let series = world.admin.post(&format!("{DATAPOINTS}/series"), series).await.expect(200);
    assert_eq!(values(&series[&event]), [3.0, 1.0]);
    world.finish().await;
}

#[tokio::test]
async fn latest_leaves_deleted_events_out() {
    let world = World::start().await;
    let events = events(&world, 3).await;
    for (event, number) in events.iter().zip([1.0, 2.0, 3.0]) {
        world.admin.post(DATAPOINTS, value(event, number)).await.expect(201);
    }
    world.admin.delete(&format!("/api/v1/events/{}", events[1])).await.expect(200);
    for _ in 0..2 {
        let latest = world.admin.get(&format!("{DATAPOINTS}/latest")).await.expect(200);
        assert_eq!(values(&latest), [1.0, 3.0]);
        folded(&world).await;
    }
    // Its datapoints stay in the list.
    assert_eq!(listed(&world.admin, "").await.1, 3);
    world.finish().await;
}

#[tokio::test]
async fn forged_ids_name_no_datapoint() {
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

#[tokio::test]
async fn answers_without_an_unreadable_row_say_so() {
    let world = World::start().await;
    let event = event(&world, "one").await;
    let experiment = world.admin.post("/api/v1/experiments", json!({ "name": "run" })).await.expect(201);
    record_ago(&world, &event, 1.0, 0).await;
    let list = format!("{DATAPOINTS}?event_public_id={event}");
    let export =
        format!("/api/v1/experiments/{}/export/csv", experiment["public_id"].as_str().unwrap_or_default());
    let latest = format!("{DATAPOINTS}/latest");
    let before = [&list, &latest, &export];
    let mut bodies = Vec::new();
    for path in before {
        let answer = world.admin.get(path).await;
        assert_eq!((answer.status, answer.header("incomplete")), (200, None), "{path}");
        bodies.push(answer.text());
    }
    sqlx::query(
        "WITH head AS (UPDATE log_head SET position = position + 1, points = points + 5
                        WHERE log = 'datapoints' RETURNING position, points)
         INSERT INTO datapoint_log (position, day, recorded_at, kind, points, total, payload)
         SELECT position, $1::date, $1, 1, 5, points, '\\x0badc0de' FROM head",
    )
    .bind(world.clock.now())
    .execute(&world.servers.pool)
    .await
    .unwrap();
    for _ in 0..2 {
        for (path, body) in before.iter().zip(&bodies) {
            let answer = world.admin.get(path).await;
            assert_eq!(
                (answer.status, answer.header("incomplete")),
                (200, Some("datapoints; rows=1")),
                "{path}"
            );
            assert_eq!(answer.text(), *body, "{path}");
        }
        let window = json!({ "event_public_ids": [event], "minutes": 5 });
        let answer = world.admin.post(&format!("{DATAPOINTS}/series"), window).await;
        assert_eq!((answer.status, answer.header("incomplete")), (200, Some("datapoints; rows=1")));
        let answer = all_as_chunks(&world.admin).await;
        assert_eq!((answer.status, answer.header("incomplete")), (200, Some("datapoints; rows=1")));
        assert!(answer.is_whole, "the stream was broken off");
        // The same from the chunks.
        folded(&world).await;
    }
    // Values that come later are taken, folded and shown.
    record_ago(&world, &event, 2.0, 0).await;
    folded(&world).await;
    assert_eq!(listed(&world.admin, "").await.1, 2);
    let faults = signalbox_database::faults(&world.servers.pool).await.unwrap();
    assert!(faults.iter().any(|fault| fault.part == "datapoints.rows"), "{faults:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_user_with_too_many_slow_queries_waits_and_is_refused() {
    let world = World::with(|config| config.limits.reads_per_user = 1).await;
    let other = world.user("ada", "viewer").await;
    event(&world, "one").await;
    let pool = &world.servers.pool;
    let mut blocker = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE series.hours IN ACCESS EXCLUSIVE MODE").execute(&mut *blocker).await.unwrap();
    let waiting = async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%series.hours%'";
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(pool).await.unwrap()
    };
    for method in [Method::GET, Method::HEAD] {
        let admin = world.admin.clone();
        let slow = tokio::spawn(async move { admin.send(admin.request(method, DATAPOINTS)).await.status });
        eventually(seconds(10), async || waiting().await == 1).await;
        let refused = world.admin.get(DATAPOINTS).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
        assert_eq!(other.get("/api/v1/events").await.status, 200);
        // The client hangs up, and the server's work ends with it.
        slow.abort();
        eventually(seconds(6), async || waiting().await == 0).await;
    }
    blocker.rollback().await.unwrap();
    eventually(seconds(10), async || world.admin.get(DATAPOINTS).await.status == 200).await;
    world.finish().await;
}
