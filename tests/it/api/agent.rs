//! The agents' side: WebSocket and long polling, with agents that know no extension.

use std::sync::Arc;

use chrono::TimeDelta;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_domain::transfer::{Transfer, TransferCommand};
use signalbox_test_support::metadata;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message, client::IntoClientRequest},
};
use uuid::Uuid;

use crate::harness::{
    AgentAccount, Client, FileFlux, Folder, Habits, World, bytes, eventually, eventually_some, seconds,
};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A bare WebSocket of the agent whose token `client` has.
pub async fn open_socket(client: &Client) -> Socket {
    try_open(client, "/ws/agent").await.unwrap()
}

async fn try_open(client: &Client, path: &str) -> Result<Socket, tungstenite::Error> {
    let mut request = client.socket_url(path).into_client_request().unwrap();
    if let Some(token) = &client.token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    connect_async(request).await.map(|(socket, _)| socket)
}

/// Answers the connection test of `data`.
async fn answer_test(socket: &mut Socket, data: Value) {
    let echo = json!({"type": "connection_test_response", "data": data});
    socket.send(Message::text(echo.to_string())).await.unwrap();
}

/// The next data frame of `kind`.
async fn next_of(socket: &mut Socket, kind: &str) -> Value {
    let found = async {
        loop {
            if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["type"] == kind {
                    return message["data"].clone();
                }
            }
        }
    };
    tokio::time::timeout(seconds(35), found).await.expect(kind)
}

async fn poll(client: &Client, wait: u32) -> Vec<Value> {
    let answer = client.get(&format!("/api/agent/poll?timeout={wait}")).await;
    match answer.status {
        204 => Vec::new(),
        _ => answer.expect(200).as_array().unwrap().clone(),
    }
}

/// Says that it has the mail `ids`; again as long as that cannot be noted, as agents do.
pub async fn acknowledge(client: &Client, ids: &Value) {
    let noted = async || {
        let answer = client.post("/api/agent/ack", json!({ "message_ids": ids })).await;
        if answer.status != 503 {
            answer.expect(200);
            return true;
        }
        false
    };
    eventually(seconds(20), noted).await;
}

/// Two agents of the FileFlux family with a folder each.
struct Family {
    from: (AgentAccount, Arc<Folder>),
    to: (AgentAccount, Arc<Folder>),
}

impl Family {
    async fn new(world: &World) -> Self {
        let new = async |name| (world.agent(name).await, Arc::new(Folder::new()));
        Self { from: new("source").await, to: new("destination").await }
    }

    async fn start(&self, world: &World, polling: bool, habits: Habits) -> [FileFlux; 2] {
        let mut agents = Vec::new();
        for (account, folder) in [&self.from, &self.to] {
            let (client, habits) = (world.as_agent(account), habits.clone());
            agents.push(match polling {
                true => FileFlux::polling(client, folder.clone(), habits).await,
                false => FileFlux::websocket(client, folder.clone(), habits).await,
            });
        }
        agents.try_into().ok().unwrap()
    }

    async fn transfer(&self, world: &World, from: &str, to: &str) -> i64 {
        world.transfer(&self.from.0, &self.to.0, &self.from.1.text(from), &self.to.1.text(to)).await
    }
}

#[tokio::test]
async fn agents_without_extensions_move_files_over_both_transports() {
    let world = World::start().await;
    let family = Family::new(&world).await;
    family.from.1.write("Bücher 1.bin", bytes(500_000));
    family.from.1.write("empty", b"");
    for polling in [false, true] {
        let agents = family.start(&world, polling, Habits::default()).await;
        for (name, size) in [("Bücher 1.bin", 500_000), ("empty", 0)] {
            let target = format!("{polling}/{name}");
            let id = family.transfer(&world, name, &target).await;
            let done = world.until_ended(id).await;
            assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(1)), "{done}");
            assert_eq!((&done["size"], &done["proven"]), (&json!(size), &json!(true)), "{done}");
            assert_eq!(family.to.1.read(&target), bytes(size));
        }
        for agent in agents {
            assert!(agent.is_connected());
            assert_eq!(agent.received("transfer_request").len(), 2);
            assert!(agent.sent("transfer_error").is_empty());
            agent.stop();
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn reports_that_come_twice_change_nothing() {
    let world = World::start().await;
    let family = Family::new(&world).await;
    family.from.1.write("f", bytes(1000));
    let habits = Habits { reports_twice: true, ..Habits::default() };
    let agents = family.start(&world, false, habits).await;
    let id = family.transfer(&world, "f", "g").await;
    let done = world.until_ended(id).await;
    let events = world.events_of("transfer").await;
    assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(1)), "{events}");
    eventually(seconds(30), async || agents[1].sent("transfer_complete").len() == 2).await;
    eventually(seconds(30), async || world.late_reports(&family.to.0).await == 1).await;
    // The source repeats itself long before the end, unless it was slow.
    assert!(world.late_reports(&family.from.0).await <= 1);
    let after = world.admin.get(&format!("/api/transfers/{id}")).await.expect(200);
    assert_eq!((&after["status"], &after["finished_at"]), (&done["status"], &done["finished_at"]));
    assert_eq!(world.count_events("transfer_completed").await, 1);
    let _ = agents.map(FileFlux::stop);
    world.finish().await;
}

#[tokio::test]
async fn moved_bytes_stand_in_for_lost_reports() {
    let world = World::start().await;
    let family = Family::new(&world).await;
    family.from.1.write("f", bytes(70_000));
    let habits = Habits { loses_reports: true, ..Habits::default() };
    let agents = family.start(&world, true, habits).await;
    let id = family.transfer(&world, "f", "g").await;
    let done = world.until_ended(id).await;
    assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(1)), "{done}");
    assert_eq!(done["proven"], json!(false));
    assert_eq!(family.to.1.read("g"), bytes(70_000));
    assert!(agents.iter().all(|agent| agent.sent("transfer_complete").is_empty()));
    let _ = agents.map(FileFlux::stop);
    world.finish().await;
}

#[tokio::test]
async fn a_destination_that_ends_in_a_slash_is_a_folder() {
    let world = World::start().await;
    let family = Family::new(&world).await;
    family.from.1.write("f ", bytes(10));
    let agents = family.start(&world, false, Habits::default()).await;
    let id = family.transfer(&world, "f ", "in/").await;
    let done = world.until_ended(id).await;
    assert_eq!((&done["status"], &done["filename"]), (&json!("completed"), &json!("f ")), "{done}");
    assert_eq!(family.to.1.read("in/f "), bytes(10));
    let _ = agents.map(FileFlux::stop);
    world.finish().await;
}

#[tokio::test]
async fn one_agent_of_the_family_may_be_source_and_destination() {
    let world = World::start().await;
    let (account, folder) = (world.agent("one").await, Arc::new(Folder::new()));
    folder.write("f", bytes(1000));
    let agent = FileFlux::websocket(world.as_agent(&account), folder.clone(), Habits::default()).await;
    let id = world.transfer(&account, &account, &folder.text("f"), &folder.text("g")).await;
    let done = world.until_ended(id).await;
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(folder.read("g"), bytes(1000));
    agent.stop();
    world.finish().await;
}

#[tokio::test]
async fn what_was_not_acknowledged_is_held_back_and_an_idle_socket_hears_data() {
    let world = World::start().await;
    let (polls, socket) = (world.agent("polls").await, world.agent("socket").await);
    let client = world.as_agent(&polls);
    client.post("/api/agent/connect", json!({})).await.expect(200);
    let id = world.transfer(&polls, &polls, "/a", "/b").await;
    let held_back = async {
        world.until_phase(id, "dispatched").await;
        let delivered = tokio::time::Instant::now();
        let first = poll(&client, 20).await;
        assert_eq!(first.len(), 1, "{first:?}");
        assert!(first[0]["id"].as_i64().unwrap() > 0);
        assert_eq!(first[0]["message"]["type"], "transfer_request");
        // The inner data, exactly as in the envelope of a WebSocket.
        assert_eq!(first[0]["message"]["data"]["transfer"]["id"], id.to_string());
        let again = eventually_some(seconds(45), async || poll(&client, 10).await.pop()).await;
        assert!(delivered.elapsed() > seconds(25), "after {:?}", delivered.elapsed());
        assert_eq!(again, first[0]);
        for _ in 0..2 {
            acknowledge(&client, &json!([again["id"], 987_654, -1, 0])).await;
        }
    };
    let idle = async {
        let mut socket = open_socket(&world.as_agent(&socket)).await;
        for _ in 0..2 {
            let begun = tokio::time::Instant::now();
            let data = next_of(&mut socket, "connection_test").await;
            assert!(begun.elapsed() <= seconds(80) && data["request_id"].is_string());
        }
        socket.close(None).await.unwrap();
    };
    tokio::join!(held_back, idle);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_poll_without_mail_ends_with_204_at_its_time() {
    let world = World::start().await;
    let client = world.as_agent(&world.agent("one").await);
    let connected = json!({"system_info": {"os_name": "linux", "version": "1.0.0"}, "transport": "polling"});
    let connected = client.post("/api/agent/connect", connected).await.expect(200);
    assert_eq!((&connected["status"], &connected["mode"]), (&json!("connected"), &json!("polling")));
    for wait in [1, 2] {
        let begun = tokio::time::Instant::now();
        let answer = client.get(&format!("/api/agent/poll?timeout={wait}")).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        assert!(begun.elapsed() > seconds(wait) * 9 / 10 && begun.elapsed() < seconds(wait + 20));
    }
    // The raw token, and a registration without a body, are tolerated.
    let raw = client.anonymous().request(reqwest::Method::POST, "/api/agent/connect");
    let raw = raw.header("authorization", client.token.clone().unwrap());
    client.send(raw).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn agents_cannot_take_or_acknowledge_what_is_anothers() {
    let world = World::start().await;
    let (one, other) = (world.agent("one").await, world.agent("other").await);
    let (mine, theirs) = (world.as_agent(&one), world.as_agent(&other));
    for client in [&mine, &theirs] {
        client.post("/api/agent/connect", json!({})).await.expect(200);
    }
    let id = world.transfer(&one, &one, "/a", "/b").await;
    world.until_phase(id, "dispatched").await;
    assert!(poll(&theirs, 1).await.is_empty());
    let ids: Vec<_> = (1..50).collect();
    acknowledge(&theirs, &json!(ids)).await;
    let before = world.count_all_events().await;
    for kind in ["transfer_complete", "transfer_error", "transfer_progress"] {
        for transfer in [json!(id), json!(id.to_string()), json!(0), json!("x"), Value::Null, json!(999_999)]
        {
            let data =
                json!({"transfer_id": transfer, "error": "not mine", "current_bytes": 5, "total_bytes": 9});
            theirs.post("/api/agent/messages", json!({"type": kind, "data": data})).await.expect(200);
        }
    }
    for odd in [
        json!({"type": "unknown"}),
        json!({"type": "agent_info", "data": 5}),
        json!({"type": "ack", "data": []}),
    ] {
        theirs.post("/api/agent/messages", odd).await.expect(200);
    }
    assert_eq!(world.count_all_events().await, before);
    assert_eq!(poll(&mine, 20).await.len(), 1);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn unacknowledged_mail_survives_a_change_of_transport() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let client = world.as_agent(&account);
    client.post("/api/agent/connect", json!({})).await.expect(200);
    let first = world.transfer(&account, &account, "/a", "/b").await;
    world.until_phase(first, "dispatched").await;
    // Left in the mailbox, then taken by the socket.
    let mut socket = open_socket(&client).await;
    let request = next_of(&mut socket, "transfer_request").await;
    assert_eq!(request["transfer"]["id"], first.to_string());
    drop(socket);
    world.until_agent(&account, "offline").await;
    let second = world.transfer(&account, &account, "/a", "/c").await;
    // The first one may come again before it.
    let second = second.to_string();
    let is_second = |mail: &Value| mail["message"]["data"]["transfer"]["id"] == second.as_str();
    eventually(seconds(20), async || poll(&client, 2).await.iter().any(is_second)).await;
    world.finish_with_mail().await;
}

/// The agent may connect between the dispatch and the posting of its request, or lose the request when it is restarted.
#[tokio::test]
async fn a_dispatched_leg_that_never_began_costs_no_attempt() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::without_workers(clock.clone(), |_| {}).await;
    let account = world.agent("one").await;
    let number = world.transfer(&account, &account, "/a", "/b").await;
    let id: Uuid = sqlx::query_scalar("SELECT id FROM read.transfers WHERE number = $1")
        .bind(number)
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    world.servers.bus.send::<Transfer>(id, None, &metadata(), &TransferCommand::Dispatch).await.unwrap();
    world.until_phase(number, "dispatched").await;
    let connect = async || {
        let known = json!({"active_transfers": []});
        world.as_agent(&account).post("/api/agent/connect", json!({"system_info": known})).await.expect(200);
        world.count_events("transfer_requeued").await
    };
    assert_eq!(connect().await, 0);
    clock.advance(TimeDelta::days(1));
    assert_eq!(connect().await, 0);
    world.finish().await;
}

#[tokio::test]
async fn the_end_of_an_old_session_leaves_the_new_one() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let account = world.agent("one").await;
    let client = world.as_agent(&account);
    let mut old = open_socket(&client).await;
    world.until_agent(&account, "online").await;
    // The second connection, on another gateway, closes the first.
    let mut new = open_socket(&client.at(&other)).await;
    let closed = async {
        while let Some(Ok(frame)) = old.next().await {
            if frame.is_close() {
                break;
            }
        }
    };
    tokio::time::timeout(seconds(30), closed).await.expect("the old socket was closed");
    drop(old);
    let id = world.transfer(&account, &account, "/a", "/b").await;
    let request = next_of(&mut new, "transfer_request").await;
    assert_eq!(request["transfer"]["id"], id.to_string());
    world.until_agent(&account, "online").await;
    // The new session does not know of the end: it still carries a connection test.
    let answering = async {
        loop {
            let data = next_of(&mut new, "connection_test").await;
            answer_test(&mut new, data).await;
        }
    };
    let test = format!("/api/agents/{}/test", account.id);
    let connected = async || world.admin.post(&test, json!({})).await.expect(200)["connected"] == true;
    tokio::select! {
        () = eventually(seconds(20), connected) => {}
        () = answering => {}
    }
    world.finish_with_mail().await;
}

/// The socket of an agent that was replaced a moment ago had taken the message with it.
#[tokio::test]
async fn a_connection_test_that_a_session_lost_is_repeated() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let mut socket = open_socket(&world.as_agent(&account)).await;
    world.until_agent(&account, "online").await;
    let test = format!("/api/agents/{}/test", account.id);
    let echoing = async {
        let mut is_lost = false;
        loop {
            let data = next_of(&mut socket, "connection_test").await;
            // Those that keep the connection alive belong to no test.
            if data["request_id"] == "keep-alive" {
                continue;
            }
            if !is_lost {
                is_lost = true;
                continue;
            }
            answer_test(&mut socket, data).await;
        }
    };
    tokio::select! {
        tested = world.admin.post(&test, json!({})) => assert_eq!(tested.expect(200)["connected"], true),
        () = echoing => {}
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_message_that_is_too_long_closes_the_socket_with_a_reason() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let mut socket = open_socket(&world.as_agent(&account)).await;
    let padding = "x".repeat(1 << 20);
    let message = json!({"type": "heartbeat", "data": {"padding": padding}}).to_string();
    // The gateway reads no more of it, so that this may fail.
    let _ = socket.send(Message::text(message)).await;
    let closed = async {
        loop {
            if let Message::Close(frame) = socket.next().await.unwrap().unwrap() {
                return frame.unwrap();
            }
        }
    };
    let frame = tokio::time::timeout(seconds(20), closed).await.expect("the socket stays open");
    assert_eq!(u16::from(frame.code), 1009, "{}", frame.reason);
    world.until_agent(&account, "offline").await;
    world.finish().await;
}

#[tokio::test]
async fn a_socket_is_opened_only_by_a_valid_token_and_bears_nonsense() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let client = world.as_agent(&account);
    for path in ["/ws/agent", "/api/agent/ws", "/ws/agent/"] {
        for refused in [world.anonymous(), world.admin.clone(), world.anonymous().with_token("garbage")] {
            match try_open(&refused, path).await {
                Err(tungstenite::Error::Http(answer)) => assert_eq!(answer.status(), 401, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(client.get(path).await.status, 400, "{path}");
    }
    let mut socket = try_open(&client, "/api/agent/ws").await.unwrap();
    world.until_agent(&account, "online").await;
    for nonsense in
        ["", "{", "[]", "5", r#"{"type": 5}"#, r#"{"type": "later", "data": {}}"#, r#"{"data": {}}"#]
    {
        socket.send(Message::text(nonsense)).await.unwrap();
    }
    socket.send(Message::binary(vec![0xff; 100])).await.unwrap();
    let info = json!({"type": "agent_info", "data": {"hostname": "still there", "os_name": "linux"}});
    socket.send(Message::text(info.to_string())).await.unwrap();
    let path = format!("/api/agents/{}", account.id);
    eventually(seconds(30), async || world.admin.get(&path).await.expect(200)["hostname"] == "still there")
        .await;
    socket.close(None).await.unwrap();
    world.until_agent(&account, "offline").await;
    world.finish().await;
}
