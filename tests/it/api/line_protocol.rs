//! Values from clients of InfluxDB.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_datapoint_log::{Point, reserve};

use super::v1::datapoints::{DATAPOINTS, listed};
use crate::harness::{Answer, Client, World};

const WRITE: &str = "/api/v2/write";

async fn write_to(client: &Client, path: &str, lines: impl Into<reqwest::Body>) -> Answer {
    client.send(client.request(Method::POST, path).body(lines)).await
}

async fn write(client: &Client, lines: &str) -> Answer {
    write_to(client, &format!("{WRITE}?org=o&bucket=b&precision=s"), lines.to_owned()).await
}

/// A new API token of the admin.
async fn token(world: &World) -> String {
    let made = world.admin.post("/api/v1/tokens", json!({"name": "telegraf"})).await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}

/// The events with these labels, as `key:value`.
async fn events(client: &Client, labels: &[&str]) -> Vec<Value> {
    let query: Vec<_> = labels.iter().map(|label| format!("label={label}")).collect();
    let page = client.get(&format!("/api/v1/events?page_size=100&{}", query.join("&"))).await.expect(200);
    page["data"].as_array().unwrap().clone()
}

/// Times and values of the event with these labels, newest first.
async fn points(client: &Client, labels: &[&str]) -> Vec<(String, f64)> {
    let found = events(client, labels).await;
    assert_eq!(found.len(), 1, "{labels:?}");
    let id = found[0]["public_id"].as_str().unwrap();
    let page = client.get(&format!("{DATAPOINTS}?page_size=100&event_public_id={id}")).await.expect(200);
    let point =
        |point: &Value| (point["timestamp"].as_str().unwrap().to_owned(), point["value"].as_f64().unwrap());
    page["data"].as_array().unwrap().iter().map(point).collect()
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn fields_become_values_of_channels_with_their_labels() {
    let world = World::start().await;
    let lines = "cpu,host=b,core.id=1 user=1.5,idle=t,name=\"x\" 1772357400\n\n# later\ncpu,core.id=1,host=b user=2i 1772357401";
    let answer = write(&world.admin, lines).await;
    assert_eq!((answer.status, answer.text()), (204, String::new()));
    let labels = ["_measurement:cpu", "_field:user", "host:b", "core_id:1"];
    let expected = [("2026-03-01T09:30:01Z".to_owned(), 2.0), ("2026-03-01T09:30:00Z".to_owned(), 1.5)];
    assert_eq!(points(&world.admin, &labels).await, expected);
    let event = &events(&world.admin, &labels).await[0];
    assert_eq!((&event["name"], &event["type"]), (&json!("cpu.user{core_id=1,host=b}"), &json!("sensor")));
    assert_eq!(event["labels"].as_object().unwrap().len(), 4);
    assert_eq!(points(&world.admin, &["_field:idle"]).await[0].1, 1.0);
    assert!(events(&world.admin, &["_field:name"]).await.is_empty(), "texts have no channel");
    world.finish().await;
}

#[tokio::test]
async fn values_without_a_time_keep_their_order() {
    let world = World::start().await;
    assert_eq!(write(&world.admin, "m f=9\nm g=1\nm f=5\nm f=20").await.status, 204);
    let points = points(&world.admin, &["_field:f"]).await;
    assert_eq!(points.iter().map(|point| point.1).collect::<Vec<_>>(), [20.0, 5.0, 9.0], "newest first");
    assert!(points.is_sorted_by(|newer, older| newer.0 > older.0), "{points:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_channel_of_a_user_with_the_labels_takes_the_values() {
    let world = World::start().await;
    let labels = json!({"_measurement": "cpu", "_field": "user"});
    let event = json!({"name": "Prozessor", "type": "sensor", "labels": labels});
    let made = world.admin.post("/api/v1/events", event).await.expect(201);
    // The name that its channel would have belongs to another event.
    let other = json!({"name": "cpu.user{host=a}", "type": "sensor"});
    world.admin.post("/api/v1/events", other).await.expect(201);
    assert_eq!(write(&world.admin, "cpu user=1 1\ncpu,host=a user=2 1").await.status, 204);
    let id = made["public_id"].as_str().unwrap();
    assert_eq!(listed(&world.admin, &format!("event_public_id={id}")).await.0, [1.0]);
    let made = events(&world.admin, &["_field:user", "host:a"]).await;
    let name = made[0]["name"].as_str().unwrap();
    assert!(name.starts_with("cpu.user{host=a}-") && name.len() == 33, "{name}");
    world.finish().await;
}

#[tokio::test]
async fn the_same_value_again_is_one_datapoint() {
    let world = World::start().await;
    let lines = |numbers: std::ops::Range<i32>| {
        numbers.map(|number| format!("m v={number} {number}\n")).collect::<String>()
    };
    for range in [0..6, 0..6, 4..9, 0..10] {
        assert_eq!(write(&world.admin, &lines(range)).await.status, 204);
    }
    assert_eq!(write(&world.admin, "m v=9 9\nm v=9 9\nm v=9.5 9").await.status, 204);
    let (values, total) = listed(&world.admin, "").await;
    assert_eq!((values[0], values[1], total), (9.5, 9.0, 11), "another value is another datapoint");
    world.finish().await;
}

#[tokio::test]
async fn a_batch_that_its_sender_left_unfinished_is_completed() {
    let world = World::start().await;
    assert_eq!(write(&world.admin, "m v=0 0").await.status, 204);
    // As a gateway leaves it that crashes after it has reserved the values and before the log has them.
    let pool = &world.servers.pool;
    let channel: i32 = sqlx::query_scalar("SELECT number FROM read.channels").fetch_one(pool).await.unwrap();
    let left: Vec<_> = (1..=3).map(|n| Point { channel, time: n * 1_000_000, value: n as f64 }).collect();
    reserve(pool, world.clock.new_id(), &left, world.clock.now()).await.unwrap();
    assert_eq!(write(&world.admin, "m v=2 2").await.status, 204);
    assert_eq!(listed(&world.admin, "").await, (vec![3.0, 2.0, 1.0, 0.0], 4));
    world.finish().await;
}

#[tokio::test]
async fn wrong_lines_are_named_and_the_others_written() {
    let world = World::start().await;
    let far = world.clock.now().timestamp() + 1000;
    let long = "x".repeat(256);
    let tags: String = (0..19).map(|number| format!(",t{number}=x")).collect();
    for (line, reason) in [
        ("m v=".to_owned(), "missing field value"),
        ("m v=NaN 1".to_owned(), "invalid number"),
        ("m v=1 -62135596800".to_owned(), "timestamp is before 1970"),
        ("m v=1 253402300799".to_owned(), "timestamp is more than 10 minutes in the future"),
        (format!("m v=1 {far}"), "timestamp is more than 10 minutes in the future"),
        ("m v=1 1772357400000000000".to_owned(), "its time is outside of 1970 to 9999"),
        (format!("m,t={long} v=1 1"), "labels must have values of at most 255 characters"),
        (format!("m{tags} v=1 1"), "labels must hold at most 20 pairs"),
        ("m,a.b=1,a-b=1 v=1 1".to_owned(), "two of its tags have the same key"),
    ] {
        let answer = write(&world.admin, &format!("m ok=1 1\n{line}\nm ok=2 2\n{line}")).await;
        let message = answer.error(400);
        let begin = format!("partial write: unable to write line 2: {reason}");
        assert!(message.starts_with(&begin), "{message}");
        assert!(message.ends_with("2 of 4 lines were written dropped=2"), "{message}");
        assert_eq!(answer.expect(400)["code"], "invalid");
    }
    let all = write(&world.admin, "m v=").await.error(400);
    assert!(all.starts_with("unable to write line 1: "), "{all}");
    assert_eq!(listed(&world.admin, "").await, (vec![2.0, 1.0], 2));
    world.finish().await;
}

#[tokio::test]
async fn broken_lines_of_a_large_batch_leave_the_others() {
    let world = World::start().await;
    let line = |number: u32| match number % 100 {
        7 => "broken".to_owned(),
        8 => format!("m,t=a v={number} \u{1F600}"),
        9 => format!("m t=\"{}\",v={number}i {number}", "x".repeat(1 << 10)),
        _ => format!("m v={number} {number}"),
    };
    let lines: Vec<_> = (0..5000).map(line).collect();
    let message = write(&world.admin, &lines.join("\n")).await.error(400);
    assert!(message.contains("line 8: missing fields; 4900 of 5000 lines"), "{message}");
    assert_eq!(listed(&world.admin, "").await.1, 4900);
    let long = format!("m t=\"{}\",v=1 9000\nm v=9007199254740993i 9001", "x".repeat(1 << 20));
    assert_eq!(write(&world.admin, &long).await.status, 204);
    assert_eq!(listed(&world.admin, "page_size=1").await, (vec![9_007_199_254_740_992.0], 4902));
    world.finish().await;
}

#[tokio::test]
async fn bodies_may_be_zipped_and_are_bounded() {
    let world = World::start().await;
    let send = async |body: Vec<u8>, encoding: &str| {
        let request = world.admin.request(Method::POST, WRITE).header("content-encoding", encoding);
        world.admin.send(request.body(body)).await
    };
    assert_eq!(send(zipped(b"m v=1 1000"), "gzip").await.status, 204);
    assert_eq!(send(b"m v=2 2000".to_vec(), "identity").await.status, 204);
    assert_eq!(listed(&world.admin, "").await, (vec![2.0, 1.0], 2));
    let bomb = zipped(&vec![b'\n'; (16 << 20) + 1]);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(send(bomb, "gzip").await.expect(413)["code"], "request too large");
    send(vec![b'\n'; (16 << 20) + 1], "identity").await.error(413);
    send(b"m v=1 1".to_vec(), "gzip").await.error(400);
    send(b"m v=1 1".to_vec(), "br").await.error(400);
    assert_eq!(send(Vec::new(), "identity").await.status, 204);
    world.finish().await;
}

#[tokio::test]
async fn clients_present_their_token_in_their_ways() {
    let world = World::start().await;
    let token = token(&world).await;
    let anonymous = world.anonymous();
    let with = async |path: &str, header: Option<String>| {
        let request = anonymous.request(Method::POST, path).body("m v=1 1000");
        let request = match header {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        anonymous.send(request).await
    };
    let basic = {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        STANDARD.encode(format!("anybody:{token}"))
    };
    assert_eq!(with(WRITE, Some(format!("Token {token}"))).await.status, 204);
    assert_eq!(with("/write?db=telegraf&rp=a", Some(format!("Basic {basic}"))).await.status, 204);
    assert_eq!(with(&format!("/write?u=anybody&p={token}"), None).await.status, 204);
    for refused in [Some("Token wrong".to_owned()), Some("Basic ???".to_owned()), None] {
        let answer = with(WRITE, refused).await;
        assert_eq!(answer.expect(401)["code"], "unauthorized");
        assert_eq!(answer.header("www-authenticate"), Some("Token realm=\"signalbox\""));
    }
    let viewer = world.user("viewer", "viewer").await;
    assert_eq!(write(&viewer, "m v=1 1").await.expect(403)["code"], "forbidden");
    // Elsewhere these are no credentials.
    let request =
        anonymous.request(Method::GET, "/api/v1/events").header("authorization", format!("Token {token}"));
    anonymous.send(request).await.error(401);
    world.finish().await;
}

#[tokio::test]
async fn clients_find_the_database_that_they_ask_for() {
    let world = World::start().await;
    for method in [Method::GET, Method::HEAD] {
        let answer = world.anonymous().send(world.anonymous().request(method, "/ping")).await;
        assert_eq!(answer.status, 204);
        assert!(answer.header("x-influxdb-version").is_some());
    }
    let shown = world.admin.get("/query?q=SHOW+DATABASES").await.expect(200);
    assert_eq!(shown["results"][0]["series"][0]["values"], json!([["signalbox"]]));
    let form = world.admin.request(Method::POST, "/query").body("q=CREATE+DATABASE+%22telegraf%22");
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(world.admin.send(form).await.expect(200), json!({"results": [{"statement_id": 0}]}));
    world.admin.get("/query?q=SELECT+*+FROM+cpu").await.error(400);
    world.finish().await;
}

#[tokio::test]
async fn further_series_than_allowed_are_refused_and_known_ones_taken() {
    let world = World::with(|config| config.ingest.max_channels = 2).await;
    // Those of users do not count, whatever their labels.
    for field in ["x", "y", "z"] {
        let labels = json!({"_measurement": "own", "_field": field});
        let event = json!({"name": field, "type": "sensor", "labels": labels});
        world.admin.post("/api/v1/events", event).await.expect(201);
    }
    let message = write(&world.admin, "m a=1,b=1 1\nm c=1 1\nm d=1 1").await.error(400);
    let begin =
        "partial write: unable to write line 2: the series is new, and 2 channels were made for series";
    assert!(message.starts_with(begin), "{message}");
    assert!(message.ends_with("1 of 3 lines were written dropped=2"), "{message}");
    let message = write(&world.admin, "m a=0,c=1 0").await.error(400);
    assert!(message.starts_with("partial write: unable to write line 1: the series is new"), "{message}");
    let end = "its field \"c\" was left out; 1 of 1 lines were written, 1 of them in part dropped=0";
    assert!(message.ends_with(end), "{message}");
    assert_eq!(listed(&world.admin, "").await.1, 3);
    assert_eq!(write(&world.admin, "m a=2,b=2 2").await.status, 204);
    assert_eq!(listed(&world.admin, "").await.1, 5);
    // One that was deleted makes room for another, and is made anew.
    let old = events(&world.admin, &["_field:a"]).await[0]["public_id"].as_str().unwrap().to_owned();
    world.admin.delete(&format!("/api/v1/events/{old}")).await.expect(200);
    assert_eq!(write(&world.admin, "m a=3 3").await.status, 204);
    assert_ne!(events(&world.admin, &["_field:a"]).await[0]["public_id"], old.as_str());
    world.finish().await;
}

#[tokio::test]
async fn series_with_wrong_times_only_make_no_channels() {
    let world = World::start().await;
    // Milliseconds, sent as seconds.
    let message = write(&world.admin, "m a=1 1772357400000\nm b=1 -1\nm c=1 1772357400").await.error(400);
    assert!(message.contains("line 1: timestamp is more than 10 minutes in the future"), "{message}");
    let made = events(&world.admin, &["_measurement:m"]).await;
    let names: Vec<_> = made.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["m.c"]);
    assert_eq!(write(&world.admin, "m a=1 1772357400").await.status, 204);
    assert_eq!(events(&world.admin, &["_measurement:m"]).await.len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn series_without_a_channel_are_refused_where_none_is_made() {
    let world = World::with(|config| config.ingest.create_channels = false).await;
    let labels = json!({"_measurement": "m", "_field": "known"});
    let event = json!({"name": "known", "type": "sensor", "labels": labels});
    world.admin.post("/api/v1/events", event).await.expect(201);
    let message = write(&world.admin, "m known=1 1\nm unknown=1 1").await.error(400);
    assert!(message.contains("line 2: no channel has these labels"), "{message}");
    assert_eq!(listed(&world.admin, "").await.1, 1);
    world.finish().await;
}

#[tokio::test]
async fn writers_at_several_gateways_make_one_channel_of_a_series() {
    let mut world = World::start().await;
    let other = world.another_gateway().await.with_token(world.admin.token.as_ref().unwrap());
    let here = world.at_one_gateway();
    let lines: String = (0..50).map(|number| format!("m,n={number} v=1 1\n")).collect();
    let writes = (0..6).map(|number| write(if number % 2 == 0 { &here } else { &other }, &lines));
    for answer in join_all(writes).await {
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
    assert_eq!(events(&world.admin, &["_measurement:m"]).await.len(), 50);
    assert_eq!(listed(&world.admin, "").await.1, 50);
    world.finish().await;
}

#[tokio::test]
async fn a_key_makes_a_repeated_write_the_first_one() {
    let world = World::start().await;
    let token = token(&world).await;
    let anonymous = world.anonymous();
    // Values without a time get that of their arrival, so that only the key shows a repetition.
    for (path, name) in [(WRITE.to_owned(), "v2"), (format!("/write?p={token}"), "v1")] {
        let write = async |lines: String| {
            let mut request = anonymous.request(Method::POST, &path).header("idempotency-key", name);
            if name == "v2" {
                request = request.header("authorization", format!("Token {token}"));
            }
            anonymous.send(request.body(lines)).await
        };
        for _ in 0..2 {
            assert_eq!(write(format!("m,way={name} v=1")).await.status, 204);
        }
        // As if the gateway had crashed before it kept the answer.
        world.lose_kept_answers().await;
        assert_eq!(write(format!("m,way={name} v=1")).await.status, 204);
        assert_eq!(write(format!("m,way={name} v=2")).await.status, 422);
        assert_eq!(points(&world.admin, &["_measurement:m", &format!("way:{name}")]).await.len(), 1);
    }
    world.finish().await;
}
