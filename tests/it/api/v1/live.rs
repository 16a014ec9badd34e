//! Which resources change, as clients that show them follow it.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

use crate::harness::{Client, EventStream, World, eventually, seconds};

const LIVE: &str = "/api/v1/live";

struct Live(EventStream);

impl Live {
    async fn open(client: &Client, last_event_id: Option<i64>) -> Self {
        let mut stream = EventStream::open(client, LIVE, last_event_id).await;
        let start = stream.next().await.unwrap();
        assert_eq!((start.name.as_deref(), &start.data["position"]), (Some("start"), &json!(start.id)));
        Self(stream)
    }

    /// The next change and its id.
    async fn change(&mut self) -> (i64, Value) {
        loop {
            let message = self.0.next().await.expect("the stream has ended");
            match message.name.as_deref() {
                Some("change") => return (message.id, message.data),
                None => {}
                Some(other) => panic!("{other}: {message:?}"),
            }
        }
    }

    /// The next change of a resource of this type.
    async fn of(&mut self, kind: &str) -> Value {
        loop {
            let (_, change) = self.change().await;
            if change["type"] == kind {
                return change;
            }
        }
    }

    /// Types of the resources that changed, up to a change of the event `id`.
    async fn kinds_until(&mut self, id: &Value) -> HashSet<String> {
        let mut kinds = HashSet::new();
        loop {
            let (_, change) = self.change().await;
            if change["id"] == *id {
                return kinds;
            }
            // Entries about logins may be written a moment later.
            if change["type"] != "log_entry" {
                kinds.insert(change["type"].as_str().unwrap().to_owned());
            }
        }
    }
}

/// Appends the newest event of this kind `times` more, each to a stream of its own.
async fn repeat_newest(world: &World, kind: &str, times: i64) {
    let mut transaction = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    let move_head =
        "UPDATE log_head SET position = position + $1 WHERE log = 'events' RETURNING position - $1";
    let head: i64 = sqlx::query_scalar(move_head).bind(times).fetch_one(&mut *transaction).await.unwrap();
    sqlx::query(
        "INSERT INTO events (position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload, metadata,
                             recorded_at)
         SELECT $1 + number, aggregate_type, gen_random_uuid()::text, 1, event_type, event_version, payload, metadata,
                recorded_at
           FROM (SELECT * FROM events WHERE event_type = $3 ORDER BY position DESC LIMIT 1) AS newest,
                generate_series(1, $2) AS number",
    )
    .bind(head)
    .bind(times)
    .bind(kind)
    .execute(&mut *transaction)
    .await
    .unwrap();
    transaction.commit().await.unwrap();
}

async fn event(client: &Client, name: &str) -> Value {
    client.post("/api/v1/events", json!({"name": name, "type": "sensor"})).await.expect(201)["public_id"]
        .clone()
}

#[tokio::test]
async fn change_at_another_gateway_arrives_and_can_be_read() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let here = world.at_one_gateway();
    let mut live = Live::open(&here, None).await;
    let id = event(&there, "boiler").await;
    assert_eq!(live.of("channel").await, json!({"type": "channel", "id": id, "version": 1}));
    let path = format!("/api/v1/events/{}", id.as_str().unwrap());
    there.put(&path, json!({"unit": "V"})).await.expect(200);
    assert_eq!(live.of("channel").await["version"], 2);
    // It is not sent before reads show it.
    let read = here.get(&path).await;
    assert_eq!(read.header("etag"), Some("\"2\""));
    assert_eq!(read.expect(200)["unit"], "V");
    there.delete(&path).await.expect(200);
    assert_eq!(live.of("channel").await["version"], 3);
    here.get(&path).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn resumed_stream_misses_no_change() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let (mut made, mut seen, mut last) = (HashSet::new(), HashSet::new(), None);
    for round in 0..8 {
        // In turn at both gateways: no state that one of them keeps is needed.
        let client = if round % 2 == 0 { world.at_one_gateway() } else { there.clone() };
        let mut live = Live::open(&client, last).await;
        let id = event(&there, &format!("in {round}")).await;
        made.insert(id.as_str().unwrap().to_owned());
        while !seen.contains(id.as_str().unwrap()) {
            let (position, change) = live.change().await;
            assert!(Some(position) > last, "{position} after {last:?}");
            last = Some(position);
            if change["type"] == "channel" {
                assert!(seen.insert(change["id"].as_str().unwrap().to_owned()), "{change} twice");
            }
        }
        drop(live);
        for number in 0..3 {
            let id = event(&there, &format!("between {round} {number}")).await;
            made.insert(id.as_str().unwrap().to_owned());
        }
    }
    let mut live = Live::open(&world.admin, last).await;
    while seen.len() < made.len() {
        seen.insert(live.of("channel").await["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen, made);
    world.finish().await;
}

#[tokio::test]
async fn stream_behind_another_log_starts_again() {
    let world = World::start().await;
    let mut live = Live::open(&world.admin, Some(1_000_000)).await;
    let reset = live.0.next().await.unwrap();
    assert_eq!((reset.name.as_deref(), &reset.data["position"]), (Some("reset"), &json!(reset.id)));
    assert!(reset.id < 1_000_000);
    let id = event(&world.admin, "after").await;
    assert_eq!(live.of("channel").await["id"], id);
    for wrong in ["?after=x", "?after=1e3"] {
        world.admin.get(&format!("{LIVE}{wrong}")).await.error(422);
    }
    world.finish().await;
}

#[tokio::test]
async fn user_is_notified_of_visible_resources_alone() {
    let world = World::start().await;
    let (viewer, operator) = (world.user("viewer", "viewer").await, world.user("operator", "operator").await);
    let mut seen_by_admin = Live::open(&world.admin, None).await;
    let mut seen_by_operator = Live::open(&operator, None).await;
    let mut seen_by_viewer = Live::open(&viewer, None).await;
    let (source, target) = (world.agent("source").await, world.agent("target").await);
    let job = json!({"name": "j", "source_agent_id": source.id, "destination_agent_id": target.id,
        "source_path": "a", "destination_path": "b"});
    let job = operator.post("/api/jobs", job).await.expect(201)["id"].as_i64().unwrap();
    let boiler = event(&operator, "boiler").await;
    let rule = json!({"name": "r", "event_public_id": boiler, "operator": "gt", "threshold": 1, "action_type": "log"});
    world.admin.post("/api/v1/rules", rule).await.expect(201);
    let dashboard = operator.post("/api/v1/dashboards", json!({"name": "own"})).await.expect(201);
    let dashboard = dashboard["public_id"].as_str().unwrap();
    viewer.post("/api/v1/tokens", json!({"name": "mine"})).await.expect(201);
    let end = event(&operator, "end").await;
    // The boiler's change is one that ends nothing.
    let shared = ["agent", "agent_token", "channel"];
    let kinds = async |live: &mut Live| live.kinds_until(&end).await;
    let of = |more: &[&str]| shared.iter().chain(more).map(|kind| (*kind).to_owned()).collect::<HashSet<_>>();
    assert_eq!(kinds(&mut seen_by_viewer).await, of(&["api_token"]));
    assert_eq!(kinds(&mut seen_by_operator).await, of(&["job", "dashboard"]));
    assert_eq!(kinds(&mut seen_by_admin).await, of(&["rule", "api_token"]));

    // Shared, everybody hears of it, and of its becoming private again; of nothing after that.
    let path = format!("/api/v1/dashboards/{dashboard}");
    for is_global in [true, false] {
        operator.put(&path, json!({ "is_global": is_global })).await.expect(200);
        assert_eq!(seen_by_viewer.of("dashboard").await["id"], dashboard);
        assert_eq!(seen_by_operator.of("dashboard").await["id"], dashboard);
    }
    operator.put(&path, json!({"name": "private"})).await.expect(200);
    operator.delete(&format!("/api/jobs/{job}")).await.expect(204);
    assert_eq!(seen_by_operator.of("dashboard").await["version"], 4);
    assert_eq!(seen_by_operator.of("job").await, json!({"type": "job", "id": job.to_string(), "version": 2}));
    let end = event(&operator, "second end").await;
    assert_eq!(seen_by_viewer.kinds_until(&end).await, HashSet::new());
    world.finish().await;
}

#[tokio::test]
async fn role_is_that_of_the_moment() {
    let world = World::start().await;
    let here = world.at_one_gateway();
    let second = world.user("second", "admin").await.at(&here);
    let me = second.get("/api/v1/auth/me").await.expect(200)["public_id"].clone();
    let boiler = event(&world.admin, "boiler").await;
    let mut live = Live::open(&second, None).await;
    let rule = async |name: &str| {
        let rule = json!({"name": name, "event_public_id": boiler, "operator": "gt", "threshold": 1, "action_type": "log"});
        world.admin.post("/api/v1/rules", rule).await.expect(201);
    };
    rule("seen").await;
    live.of("rule").await;
    let path = format!("/api/v1/users/{}", me.as_str().unwrap());
    world.admin.put(&path, json!({"role": "viewer"})).await.expect(200);
    live.of("user").await;
    eventually(seconds(20), async || second.get("/api/v1/rules").await.status == 403).await;
    rule("not seen").await;
    let end = event(&world.admin, "end").await;
    assert_eq!(live.kinds_until(&end).await, HashSet::new());
    world.finish().await;
}

#[tokio::test]
async fn revoked_token_ends_the_stream() {
    let world = World::start().await;
    let token = world.admin.post("/api/v1/tokens", json!({"name": "follower"})).await.expect(201);
    let client = world.admin.with_token(token["token"].as_str().unwrap());
    let mut live = Live::open(&client, None).await;
    let path = format!("/api/v1/tokens/{}", token["public_id"].as_str().unwrap());
    world.admin.delete(&path).await.expect(200);
    live.0.ended().await;
    assert_eq!(client.stream(LIVE).send().await.unwrap().status(), 401);
    world.finish().await;
}

/// Neither the messages nor the connection of a client that reads nothing are kept.
#[tokio::test]
async fn client_that_reads_nothing_is_cut() {
    // More bytes than the kernel takes for a connection.
    const CHANGES: i64 = 45_000;
    let world = World::with(|config| {
        config.server.stall_seconds = 2;
        config.limits.sockets_per_user = 1;
    })
    .await;
    let client = world.at_one_gateway();
    client
        .post("/api/v1/logging", json!({"content": "copied", "type": "info", "source": "test"}))
        .await
        .expect(201);
    repeat_newest(&world, "log_entry_written", CHANGES).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut silent = socket.connect(world.address).await.unwrap();
    let token = client.token.clone().unwrap();
    let request = format!("GET {LIVE}?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    silent.write_all(request.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    silent.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    let status = async || client.stream(LIVE).send().await.unwrap().status().as_u16();
    assert_eq!(status().await, 429, "its place is taken");
    // And then it is free again, while the client is still there.
    eventually(seconds(30), async || status().await == 200).await;
    drop(silent);
    world.finish().await;
}
