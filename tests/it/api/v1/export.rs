//! The datapoints of an experiment as CSV.

use chrono::TimeDelta;
use serde_json::json;
use signalbox_clock::Clock;

use super::datapoints::{DATAPOINTS, event, listed, value};
use crate::harness::{World, eventually, seconds};

const EXPERIMENTS: &str = "/api/v1/experiments";

async fn start(world: &World, name: &str) -> String {
    let made = world.admin.post(EXPERIMENTS, json!({ "name": name })).await.expect(201);
    made["public_id"].as_str().unwrap().to_owned()
}

async fn rows(world: &World, id: &str) -> Vec<Vec<String>> {
    let answer = world.admin.get(&format!("{EXPERIMENTS}/{id}/export/csv")).await;
    assert_eq!((answer.status, answer.is_whole), (200, true), "{}", answer.text());
    let text = answer.text();
    assert!(text.ends_with("\r\n"));
    let mut rows = text.split("\r\n").map(|row| row.split(',').map(str::to_owned).collect());
    let header: Vec<String> = rows.next().unwrap();
    let expected = ["timestamp", "event_name", "event_public_id", "value", "unit", "datapoint_public_id"];
    assert_eq!(header, expected);
    let mut rows: Vec<Vec<String>> = rows.collect();
    rows.pop();
    rows
}

#[tokio::test]
async fn an_experiment_tags_the_datapoints_of_its_time_and_exports_them() {
    let world = World::start().await;
    let event = event(&world, "=cmd()").await;
    let record = async |number: f64| world.admin.post(DATAPOINTS, value(&event, number)).await.expect(201);
    record(1.0).await;
    let first = start(&world, "Prüfung 1/2").await;
    let tagged = record(1e22).await;
    assert_eq!(tagged["experiment_public_id"], json!(first));
    record(-0.5).await;
    // One that still runs can be exported too.
    assert_eq!(rows(&world, &first).await.len(), 2);
    world.admin.put(&format!("{EXPERIMENTS}/{first}/stop"), json!({})).await.expect(200);
    assert_eq!(record(3.0).await["experiment_public_id"], json!(null));
    let second = start(&world, "second").await;
    let other = record(4.0).await;
    assert_eq!(other["experiment_public_id"], json!(second));

    let exported = rows(&world, &first).await;
    let values: Vec<_> = exported.iter().map(|row| row[3].as_str()).collect();
    assert_eq!(values, ["1e+22", "-0.5"]);
    let [time, name, event_id, _, unit, id] = exported[0].as_slice() else { panic!("{exported:?}") };
    assert_eq!((name.as_str(), unit.as_str(), event_id), ("'=cmd()", "°C", &event));
    assert!(time.ends_with("+00:00"), "{time}");
    assert_eq!(id, tagged["public_id"].as_str().unwrap());
    let answer = world.admin.get(&format!("{EXPERIMENTS}/{first}/export/csv")).await;
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"));
    let expected = format!("attachment; filename=\"experiment_Pr_fung_1-2_{}.csv\"", &first[..8]);
    assert!(answer.header("content-disposition").unwrap().starts_with(&expected));

    let of = format!("experiment_public_id={first}");
    assert_eq!(listed(&world.admin, &of).await, (vec![-0.5, 1e22], 2));
    // Without the experiment its datapoints stay, and its tag is removed.
    world.admin.delete(&format!("{EXPERIMENTS}/{first}")).await.expect(200);
    world.admin.get(&format!("{EXPERIMENTS}/{first}/export/csv")).await.error(404);
    let path = format!("{DATAPOINTS}/{}", tagged["public_id"].as_str().unwrap());
    assert_eq!(world.admin.get(&path).await.expect(200)["experiment_public_id"], json!(null));
    assert_eq!(listed(&world.admin, "").await.1, 5);
    world.finish().await;
}

#[tokio::test]
async fn a_large_export_holds_every_datapoint_in_order() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let (one, other) = (event(&world, "one").await, event(&world, "other").await);
    let id = start(&world, "long").await;
    world.clock.advance(TimeDelta::seconds(1));
    let begun = world.clock.now();
    for batch in 0..12_i64 {
        // Late, early and equal times, all within ten minutes after the start.
        let items: Vec<_> = (0..5000_i64)
            .map(|item| {
                let seconds = (batch * 7919 + item * 104_729) % 500;
                let time = (begun + TimeDelta::seconds(seconds)).to_rfc3339();
                let event = if item % 2 == 0 { &one } else { &other };
                json!({"value": batch * 5000 + item, "event_public_id": event, "timestamp": time})
            })
            .collect();
        let made =
            world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
        assert_eq!(made["accepted"], 5000, "{}", made["rejected"][0]);
    }
    // A running experiment contains what was measured until now.
    world.clock.advance(TimeDelta::seconds(500));
    let exported = rows(&world, &id).await;
    assert!(exported.is_sorted_by_key(|row| row[0].clone()));
    let mut values: Vec<i64> =
        exported.iter().map(|row| row[3].strip_suffix(".0").unwrap().parse().unwrap()).collect();
    values.sort_unstable();
    assert_eq!(values, (0..60_000).collect::<Vec<_>>());
    world.finish().await;
}

#[tokio::test]
async fn an_export_that_meets_a_damaged_chunk_is_broken_off() {
    let world = World::start().await;
    let event = event(&world, "one").await;
    let id = start(&world, "damaged").await;
    world.admin.post(DATAPOINTS, value(&event, 1.0)).await.expect(201);
    let damage = "UPDATE series.chunks SET points = '\\x0badc0de'";
    eventually(seconds(20), async || {
        sqlx::query(damage).execute(&world.servers.pool).await.unwrap().rows_affected() > 0
    })
    .await;
    let answer = world.admin.get(&format!("{EXPERIMENTS}/{id}/export/csv")).await;
    assert_eq!((answer.status, answer.is_whole), (200, false), "{}", answer.text());
    world.finish().await;
}

/// Lines of the answer, which must be whole.
async fn exported(world: &World, query: &str) -> Vec<String> {
    let answer = world.admin.get(&format!("{DATAPOINTS}/export?{query}")).await;
    assert_eq!((answer.status, answer.is_whole), (200, true), "{}", answer.text());
    answer.text().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn datapoints_are_exported_by_time_and_label_and_continue_behind_one() {
    let world = World::start().await;
    let (one, other) = (event(&world, "one").await, event(&world, "other").await);
    let path = format!("/api/v1/events/{one}");
    world.admin.put(&path, json!({"labels": {"line": "2"}})).await.expect(200);
    let at = |event: &str, second: u32, number: f64| json!({"event_public_id": event, "value": number, "timestamp": format!("2020-02-02T10:00:{second:02}Z")});
    // Two of one instant, and out of order.
    let items =
        [at(&one, 3, 3.0), at(&other, 1, 1.0), at(&one, 1, 1.5), at(&one, 9, 9.0), at(&other, 9, 9.5)];
    world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
    let parsed = |lines: &[String]| -> Vec<serde_json::Value> {
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = parsed(&exported(&world, "format=ndjson").await);
    let numbers = |points: &[serde_json::Value]| -> Vec<f64> {
        points.iter().map(|point| point["value"].as_f64().unwrap()).collect()
    };
    // Equal times in the order of the log, in which a batch is sorted by channel.
    assert_eq!(numbers(&all), [1.5, 1.0, 3.0, 9.0, 9.5]);
    let shown = format!("{DATAPOINTS}/{}", all[0]["public_id"].as_str().unwrap());
    assert_eq!(world.admin.get(&shown).await.expect(200), all[0], "as everywhere else");
    for (number, point) in all.iter().enumerate() {
        let after = format!("format=ndjson&after={}", point["public_id"].as_str().unwrap());
        assert_eq!(parsed(&exported(&world, &after).await), all[number + 1..], "behind {number}");
    }
    let labelled = parsed(&exported(&world, "format=ndjson&label=line:2").await);
    assert_eq!(numbers(&labelled), [1.5, 3.0, 9.0]);
    assert_eq!(exported(&world, "format=ndjson&label=line:3").await, [""; 0]);
    let range = "from=2020-02-02T10:00:01Z&to=2020-02-02T10:00:09Z";
    let csv = exported(&world, range).await;
    assert_eq!(csv[0], "timestamp,event_name,event_public_id,value,unit,datapoint_public_id");
    let of_csv: Vec<_> = csv[1..].iter().map(|row| row.split(',').nth(3).unwrap().to_owned()).collect();
    assert_eq!(of_csv, ["1.5", "1.0", "3.0"]);
    // Behind a datapoint that was deleted since.
    world.admin.delete(&shown).await.expect(200);
    let after = format!("format=ndjson&after={}", all[0]["public_id"].as_str().unwrap());
    assert_eq!(parsed(&exported(&world, &after).await), all[1..]);
    for wrong in ["format=xml", "from=x", "after=x", "label=line", &format!("after={one}")] {
        world.admin.get(&format!("{DATAPOINTS}/export?{wrong}")).await.error(422);
    }
    let reversed = "from=2020-02-03T00:00:00Z&to=2020-02-02T00:00:00Z";
    world.admin.get(&format!("{DATAPOINTS}/export?{reversed}")).await.error(422);
    world.finish().await;
}
