//! Values live: out to people, in from controllers.

use std::collections::HashMap;

use chrono::TimeDelta;
use futures::{SinkExt, StreamExt, future::join_all};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message, client::IntoClientRequest, protocol::CloseFrame},
};

use super::v1::datapoints::{DATAPOINTS, event, events, listed, value};
use crate::harness::{Client, World, eventually, seconds};

const STREAM: &str = "/ws/datapoints/stream";
const TELEMETRY: &str = "/ws/controller/telemetry";

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(client: &Client, path: &str) -> Self {
        let url = format!("{}?token={}", client.socket_url(path), client.token.as_ref().unwrap());
        Self(connect_async(url).await.unwrap().0)
    }

    /// A stream that has said hello.
    async fn stream(client: &Client) -> Self {
        let mut socket = Self::open(client, STREAM).await;
        let hello = socket.message().await;
        assert_eq!(hello["type"], "connected");
        socket
    }

    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message other than a ping; fails the test if none arrives in time.
    async fn message(&mut self) -> Value {
        loop {
            match timeout(seconds(20), self.0.next()).await.expect("no message").unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// How the server closes the connection.
    async fn closed(&mut self) -> Option<CloseFrame> {
        let closing = async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Close(frame))) => return frame,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                }
            }
        };
        timeout(seconds(20), closing).await.expect("the socket stays open")
    }

    /// Reads until the newest values of all events in `expected` have been shown.
    async fn until_shown(&mut self, expected: &HashMap<String, f64>) {
        let mut shown = HashMap::new();
        while shown != *expected {
            let message = self.message().await;
            assert_eq!(message["type"], "datapoints_batch");
            for point in message["datapoints"].as_array().unwrap() {
                assert!(point["timestamp"].as_str().unwrap().ends_with("+00:00"), "{point}");
                assert!(point.get("public_id").is_none() && point.get("experiment_public_id").is_some());
                let event = point["event_public_id"].as_str().unwrap().to_owned();
                shown.insert(event, point["value"].as_f64().unwrap());
            }
        }
    }
}

#[tokio::test]
async fn a_stream_shows_what_any_gateway_takes_in() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let events = events(&world, 3).await;
    let mut sockets = vec![Socket::stream(&world.admin).await, Socket::stream(&there).await];
    let mut expected = HashMap::new();
    for round in 0..10_u32 {
        let client = if round % 2 == 0 { &world.admin } else { &there };
        let items: Vec<_> = events.iter().map(|event| value(event, f64::from(round) + 0.5)).collect();
        client.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
        expected = events.iter().map(|event| (event.clone(), f64::from(round) + 0.5)).collect();
    }
    for socket in &mut sockets {
        socket.until_shown(&expected).await;
        socket.say(json!({"type": "ping"})).await;
        assert_eq!(socket.message().await, json!({"type": "pong"}));
        // Unknown messages are ignored.
        socket.say(json!({"type": "nonsense"})).await;
        socket.0.send(Message::text("no json")).await.unwrap();
        socket.0.send(Message::binary(vec![1, 2])).await.unwrap();
        socket.say(json!({"type": "ping"})).await;
        assert_eq!(socket.message().await, json!({"type": "pong"}));
    }
    world.finish().await;
}

/// There is no other watcher, and the value arrives at once: values are gathered from the handshake on.
#[tokio::test]
async fn first_value_after_connecting_is_shown() {
    let world = World::start().await;
    let event = event(&world, "toggle").await;
    for round in 0..5 {
        let mut socket = Socket::open(&world.admin, STREAM).await;
        let number = f64::from(round);
        world.admin.post(DATAPOINTS, value(&event, number)).await.expect(201);
        assert_eq!(socket.message().await["type"], "connected");
        socket.until_shown(&HashMap::from([(event.clone(), number)])).await;
        socket.0.close(None).await.unwrap();
        assert!(socket.closed().await.is_none_or(|frame| u16::from(frame.code) == 1005));
    }
    world.finish().await;
}

#[tokio::test]
async fn value_of_a_clock_ahead_hides_no_later_value() {
    let world = World::start().await;
    let event = event(&world, "ahead").await;
    let mut socket = Socket::stream(&world.admin).await;
    let ahead = (world.clock.now() + TimeDelta::minutes(9)).to_rfc3339();
    let item = json!({"value": 1.0, "event_public_id": event, "timestamp": ahead});
    world.admin.post(DATAPOINTS, item).await.expect(201);
    socket.until_shown(&HashMap::from([(event.clone(), 1.0)])).await;
    world.admin.post(DATAPOINTS, value(&event, 2.0)).await.expect(201);
    socket.until_shown(&HashMap::from([(event.clone(), 2.0)])).await;
    world.finish().await;
}

/// The catalog in memory knows the events: a flood of subscriptions costs the database nothing.
#[tokio::test]
async fn subscription_to_known_events_asks_no_database() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let event = event(&world, "known").await;
    let mut socket = Socket::stream(&world.admin).await;
    world.admin.post(DATAPOINTS, value(&event, 1.0)).await.expect(201);
    socket.until_shown(&HashMap::from([(event.clone(), 1.0)])).await;
    world.read_models.show_all().await;
    // One that is not known makes it look up all that there is.
    let unknown = "018f0000-0000-7000-8000-000000000000";
    socket.say(json!({"type": "subscribe", "events": [event, unknown]})).await;
    socket.say(json!({"type": "ping"})).await;
    assert_eq!(socket.message().await["type"], "pong");
    let mut locked = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    let lock = sqlx::query("LOCK TABLE read.checkpoints IN ACCESS EXCLUSIVE MODE");
    lock.execute(&mut *locked).await.unwrap();
    for _ in 0..10 {
        socket.say(json!({"type": "subscribe", "events": [event, "no id"]})).await;
    }
    socket.say(json!({"type": "ping"})).await;
    assert_eq!(socket.message().await["type"], "pong");
    locked.rollback().await.unwrap();
    world.finish().await;
}

#[tokio::test]
async fn sockets_of_a_user_are_limited() {
    let world = World::with(|config| config.limits.sockets_per_user = 3).await;
    let viewer = world.user("viewer", "viewer").await;
    let mut sockets = join_all((0..3).map(|_| Socket::stream(&viewer))).await;
    let url = format!("{}?token={}", viewer.socket_url(STREAM), viewer.token.as_ref().unwrap());
    match connect_async(&url).await {
        Err(Error::Http(response)) => {
            assert_eq!(response.status().as_u16(), 429);
            assert!(response.headers().contains_key("retry-after"));
        }
        other => panic!("{other:?}"),
    }
    // Others have places of their own, and a closed socket leaves its place.
    Socket::stream(&world.admin).await;
    sockets.pop().unwrap().0.close(None).await.unwrap();
    eventually(seconds(20), async || connect_async(&url).await.is_ok()).await;
    world.finish().await;
}

#[tokio::test]
async fn expired_token_closes_its_sockets_with_the_reason() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let operator = world.user("operator", "operator").await;
    let expires = (world.clock.now() + TimeDelta::hours(1)).to_rfc3339();
    let made = operator.post("/api/v1/tokens", json!({"name": "t", "expires_at": expires})).await.expect(201);
    let by_token = operator.with_token(made["token"].as_str().unwrap());
    let mut sockets = [Socket::stream(&by_token).await, Socket::open(&by_token, TELEMETRY).await];
    world.clock.advance(TimeDelta::hours(2));
    for socket in &mut sockets {
        let frame = socket.closed().await.unwrap();
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1008, "Token has expired"));
    }
    // The same for a login, which lasts a day.
    let mut by_login = Socket::stream(&operator).await;
    world.clock.advance(TimeDelta::hours(23));
    let frame = by_login.closed().await.unwrap();
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1008, "Token has expired"));
    world.finish().await;
}

#[tokio::test]
async fn telemetry_that_is_too_long_is_refused_and_keeps_its_socket() {
    let world = World::start().await;
    let event = event(&world, "pump").await;
    let item = json!({"value": 1, "event_public_id": event});
    let mut socket = Socket::open(&world.admin, TELEMETRY).await;
    // As many as a message may hold.
    socket.say(json!({"id": "many", "datapoints": vec![item.clone(); 10_000]})).await;
    assert_eq!(
        socket.message().await,
        json!({"type": "ack", "id": "many", "accepted": 10_000, "rejected": []})
    );
    for (message, id) in [
        (json!({"id": "a", "datapoints": vec![item.clone(); 10_001]}), json!("a")),
        (json!({"id": "b", "datapoints": [item], "padding": "x".repeat(4 << 20)}), json!("b")),
        (json!({"datapoints": [item], "padding": "x".repeat(15 << 20)}), Value::Null),
    ] {
        socket.say(message).await;
        let said = socket.message().await;
        assert_eq!((&said["type"], &said["id"]), (&json!("error"), &id), "{said}");
    }
    socket.say(json!({"id": "c", "datapoints": [item]})).await;
    assert_eq!(socket.message().await["accepted"], 1);
    assert_eq!(listed(&world.admin, "").await.1, 10_001);
    // Beyond 16 MiB it is not even received.
    let long = json!({"datapoints": [item], "padding": "x".repeat(17 << 20)}).to_string();
    let (mut sink, mut frames) = socket.0.split();
    let sending = async {
        // The server reads no more of it, so that this may fail or never end.
        let _ = sink.send(Message::text(long)).await;
        std::future::pending::<()>().await;
    };
    let closed = async {
        loop {
            if let Message::Close(frame) = frames.next().await.unwrap().unwrap() {
                return frame.unwrap();
            }
        }
    };
    let frame = tokio::select! {
        () = sending => unreachable!(),
        frame = timeout(seconds(20), closed) => frame.expect("the socket stays open"),
    };
    assert_eq!(u16::from(frame.code), 1009, "{}", frame.reason);
    assert_eq!(listed(&world.admin, "").await.1, 10_001);
    world.finish().await;
}

#[tokio::test]
async fn a_subscription_shows_only_its_events() {
    let world = World::start().await;
    let events = events(&world, 2).await;
    let mut socket = Socket::stream(&world.admin).await;
    socket.say(json!({"type": "subscribe", "events": [events[1], "unknown"]})).await;
    socket.say(json!({"type": "ping"})).await;
    assert_eq!(socket.message().await["type"], "pong");
    for (event, number) in [(&events[0], 1.0), (&events[1], 2.0)] {
        world.admin.post(DATAPOINTS, value(event, number)).await.expect(201);
    }
    let shown = socket.message().await;
    assert_eq!(shown["datapoints"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(shown["datapoints"][0]["event_public_id"], json!(events[1]));
    socket.say(json!({"type": "subscribe"})).await;
    socket.say(json!({"type": "ping"})).await;
    assert_eq!(socket.message().await["type"], "pong");
    world.admin.post(DATAPOINTS, value(&events[0], 3.0)).await.expect(201);
    socket.until_shown(&HashMap::from([(events[0].clone(), 3.0)])).await;
    world.finish().await;
}

/// One reads nothing for a long while; the others are undisturbed, and it sees the newest values in the end.
#[tokio::test]
async fn a_slow_reader_gets_the_newest_values_and_delays_none() {
    let world = World::start().await;
    let events = events(&world, 40).await;
    let mut slow = Socket::stream(&world.admin).await;
    let mut quick = Socket::stream(&world.admin).await;
    let mut expected = HashMap::new();
    for round in 0..60_u32 {
        let items: Vec<_> = (0..2000_u32)
            .map(|item| value(&events[item as usize % 40], f64::from(round * 2000 + item) / 2.0))
            .collect();
        expected = items[1960..]
            .iter()
            .map(|item| {
                (item["event_public_id"].as_str().unwrap().to_owned(), item["value"].as_f64().unwrap())
            })
            .collect();
        world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
    }
    quick.until_shown(&expected).await;
    slow.until_shown(&expected).await;
    world.finish().await;
}

#[tokio::test]
async fn sockets_open_only_with_a_valid_credential_wherever_it_stands() {
    let world = World::start().await;
    let viewer = world.user("viewer", "viewer").await;
    let token = viewer.token.clone().unwrap();
    let refused = async |path: &str, query: &str| match connect_async(viewer.socket_url(path) + query).await {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{other:?}"),
    };
    for path in [STREAM, TELEMETRY] {
        assert_eq!(refused(path, "").await, 401);
        assert_eq!(refused(path, "?token=garbage").await, 401);
    }
    // A viewer only looks.
    assert_eq!(refused(TELEMETRY, &format!("?token={token}")).await, 403);
    for (name, header) in
        [("authorization", format!("Bearer {token}")), ("sec-websocket-protocol", format!("bearer.{token}"))]
    {
        let mut request = viewer.socket_url(STREAM).into_client_request().unwrap();
        request.headers_mut().insert(name, header.parse().unwrap());
        let (socket, response) = connect_async(request).await.unwrap();
        if name == "sec-websocket-protocol" {
            assert_eq!(response.headers()[name], header);
        }
        assert_eq!(Socket(socket).message().await["type"], "connected");
    }
    viewer.get(STREAM).await.error(400);
    let plain = viewer.anonymous().get(&format!("{STREAM}?token={token}")).await;
    assert_eq!(plain.status, 401, "an address without a socket carries no credential");
    world.finish().await;
}

#[tokio::test]
async fn a_credential_that_becomes_void_closes_its_sockets() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let operator = world.user("operator", "operator").await;
    let there = operator.at(&other);
    let made = operator.post("/api/v1/tokens", json!({"name": "controller"})).await.expect(201);
    let by_token = there.with_token(made["token"].as_str().unwrap());
    let mut by_tokens = [Socket::stream(&by_token).await, Socket::open(&by_token, TELEMETRY).await];
    let mut by_login = [Socket::stream(&operator).await, Socket::open(&there, TELEMETRY).await];
    let mut untouched = Socket::stream(&world.admin).await;
    operator.delete(&format!("/api/v1/tokens/{}", made["public_id"].as_str().unwrap())).await.expect(200);
    for socket in &mut by_tokens {
        let frame = socket.closed().await.unwrap();
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1008, "Token has been revoked"));
    }
    // A user who may no longer write loses the writing sockets, and keeps the reading ones.
    let me = operator.get("/api/v1/auth/me").await.expect(200);
    let path = format!("/api/v1/users/{}", me["public_id"].as_str().unwrap());
    world.admin.put(&path, json!({"role": "viewer"})).await.expect(200);
    assert!(by_login[1].closed().await.is_some());
    by_login[0].say(json!({"type": "ping"})).await;
    assert_eq!(by_login[0].message().await["type"], "pong");
    operator.post("/api/v1/auth/logout", json!({})).await.expect(200);
    assert!(by_login[0].closed().await.is_some());
    untouched.say(json!({"type": "ping"})).await;
    assert_eq!(untouched.message().await["type"], "pong");
    world.finish().await;
}

#[tokio::test]
async fn a_controller_sends_values_and_hears_only_what_is_wrong() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let event = event(&world, "pump").await;
    let mut socket = Socket::open(&operator, TELEMETRY).await;
    let item = |number: Value| json!({"value": number, "event_public_id": event});
    // 50 messages a second lose nothing.
    for number in 0..100 {
        socket.say(json!({"datapoints": [item(json!(number)), item(json!(format!("{number}.5")))]})).await;
    }
    eventually(seconds(20), async || listed(&world.admin, "").await.1 == 200).await;
    assert_eq!(listed(&world.admin, "page_size=2").await.0, [99.5, 99.0]);
    for misshapen in [item(json!(1)), json!("x")] {
        socket.say(json!({"datapoints": misshapen})).await;
        let complaint = socket.message().await;
        assert!(complaint["message"].as_str().unwrap().contains("datapoints must be a list"), "{complaint}");
    }
    socket.say(json!({"datapoints": []})).await;
    socket.say(json!({"other": 1})).await;
    let wrong = json!([item(json!("NaN")), item(json!(true)), {"value": 1, "event_public_id": "unknown"}, 5]);
    socket.say(json!({"datapoints": wrong})).await;
    let complaint = socket.message().await;
    assert!(complaint["message"].as_str().unwrap().contains("No valid datapoints"), "{complaint}");
    socket.say(json!({"datapoints": [item(json!("inf")), item(json!(7))]})).await;
    let complaint = socket.message().await;
    assert_eq!((&complaint["type"], &complaint["accepted"]), (&json!("error"), &json!(1)));
    assert_eq!(complaint["rejected"], json!([{"index": 0, "reason": "not a datapoint"}]));
    let many: Vec<_> = (0..10_001).map(|number| item(json!(number))).collect();
    socket.say(json!({"datapoints": many})).await;
    let complaint = socket.message().await["message"].as_str().unwrap().to_owned();
    assert!(complaint.contains("10001") && complaint.contains("10000"), "{complaint}");
    socket.0.send(Message::text("no json")).await.unwrap();
    assert_eq!(socket.message().await["type"], "error");
    // The socket still works.
    socket.say(json!({"datapoints": [item(json!(8))]})).await;
    eventually(seconds(20), async || listed(&world.admin, "page_size=2").await == (vec![8.0, 7.0], 202))
        .await;
    world.finish().await;
}

#[tokio::test]
async fn a_repeated_message_with_an_id_is_confirmed_and_applied_once() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let event = event(&world, "pump").await;
    let item =
        |number: f64| json!({"value": number, "event_public_id": event, "timestamp": "2026-03-01T10:00:00Z"});
    let batch = json!([item(1.0), item(2.0), {"value": 3, "event_public_id": "unknown"}]);
    let rejected = json!([{"index": 2, "reason": "unknown event"}]);
    let ack = json!({"type": "ack", "id": "a", "accepted": 2, "rejected": rejected});
    let mut socket = Socket::open(&operator, TELEMETRY).await;
    socket.say(json!({"id": "a", "datapoints": batch})).await;
    assert_eq!(socket.message().await, ack);
    // The answer was lost: over another socket, and over HTTP.
    let mut socket = Socket::open(&operator, TELEMETRY).await;
    socket.say(json!({"id": "a", "datapoints": batch})).await;
    assert_eq!(socket.message().await, ack);
    let request = operator.request(reqwest::Method::POST, &format!("{DATAPOINTS}/batch"));
    let request = request.header("idempotency-key", "a").json(&json!({ "datapoints": batch }));
    assert_eq!(operator.send(request).await.expect(201)["rejected"], rejected);
    assert_eq!(listed(&world.admin, "").await.1, 2);
    // Other values are another batch, also under the same id; so are the same of somebody else.
    socket.say(json!({"id": "a", "datapoints": [item(3.0)]})).await;
    assert_eq!(socket.message().await["accepted"], 1);
    let mut another = Socket::open(&world.admin, TELEMETRY).await;
    another.say(json!({"id": "a", "datapoints": batch})).await;
    assert_eq!(another.message().await, ack);
    eventually(seconds(20), async || listed(&world.admin, "").await.1 == 5).await;
    for (message, kind) in [
        (json!({"id": "b", "datapoints": []}), "ack"),
        (json!({"id": "b"}), "ack"),
        (json!({"id": 5, "datapoints": [item(1.0)]}), "error"),
        (json!({"id": "with blanks", "datapoints": [item(1.0)]}), "error"),
        (json!({"id": "c", "datapoints": vec![item(1.0); 10_001]}), "error"),
    ] {
        socket.say(message.clone()).await;
        let said = socket.message().await;
        assert_eq!((&said["type"], &said["id"]), (&json!(kind), &message["id"]), "{said}");
    }
    assert_eq!(listed(&world.admin, "").await.1, 5);
    world.finish().await;
}

#[tokio::test]
async fn many_sockets_see_the_newest_value_of_every_event() {
    let world = World::start().await;
    let events = events(&world, 30).await;
    let sockets = join_all((0..100).map(|_| Socket::stream(&world.admin))).await;
    let mut expected = HashMap::new();
    for round in 0..20_u32 {
        let items: Vec<_> = events.iter().map(|event| value(event, f64::from(round))).collect();
        world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
        expected = events.iter().map(|event| (event.clone(), f64::from(round))).collect();
    }
    let expected = &expected;
    join_all(sockets.into_iter().map(|mut socket| async move { socket.until_shown(expected).await })).await;
    world.finish().await;
}
