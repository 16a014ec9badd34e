//! Sessions of agents: their order, the end of everything that a revoked token does, second processes, and floods.

use std::net::SocketAddr;

use futures::{SinkExt, StreamExt, future::join_all, stream};
use reqwest::{Body, Method};
use serde_json::{Value, json};
use signalbox_domain::kernel::AgentId;
use signalbox_messaging::{MailMessage, Mailbox};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    agent::{acknowledge, open_socket},
    v1::datapoints::{DATAPOINTS, event, value},
};
use crate::harness::{
    AgentAccount, Client, Folder, RealAgent, Transport, World, bytes, eventually, eventually_some, seconds,
};

/// Another token of `account`.
async fn second_token(world: &World, account: &AgentAccount) -> AgentAccount {
    let token = json!({"name": "second", "agent_id": account.id});
    let made = world.admin.post("/api/tokens", token).await.expect(201);
    AgentAccount {
        id: account.id,
        token_id: made["token"]["id"].as_i64().unwrap(),
        token: made["value"].as_str().unwrap().to_owned(),
    }
}

async fn revoke(world: &World, account: &AgentAccount) {
    world.admin.delete(&format!("/api/tokens/{}", account.token_id)).await.expect(204);
}

async fn shown(world: &World, account: &AgentAccount) -> Value {
    world.admin.get(&format!("/api/agents/{}", account.id)).await.expect(200)
}

async fn key_of(world: &World, account: &AgentAccount) -> AgentId {
    sqlx::query_scalar("SELECT id FROM read.agents WHERE number = $1")
        .bind(account.id)
        .fetch_one(&world.servers.pool)
        .await
        .map(AgentId)
        .unwrap()
}

async fn poll(client: &Client, wait: u32) -> Vec<Value> {
    let answer = client.get(&format!("/api/agent/poll?timeout={wait}")).await;
    if answer.status == 204 { Vec::new() } else { answer.expect(200).as_array().unwrap().clone() }
}

/// The agent was `offline` while it was served: the older of two connections had ended the newer one.
#[tokio::test]
async fn of_many_quick_connections_the_one_recorded_last_stays() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let client = world.as_agent(&account);
    for _ in 0..6 {
        let sockets = join_all((0..4).map(|_| open_socket(&client))).await;
        // Each socket reads until it ends; all but one do.
        let mut reading: Vec<_> = sockets
            .into_iter()
            .map(|mut socket| {
                tokio::spawn(async move {
                    while let Some(Ok(frame)) = socket.next().await {
                        if let Message::Text(text) = frame
                            && let Ok(message) = serde_json::from_str::<Value>(&text)
                            && message["type"] == "connection_test"
                        {
                            let echo = json!({"type": "connection_test_response", "data": message["data"]});
                            let _ = socket.send(Message::text(echo.to_string())).await;
                        }
                    }
                })
            })
            .collect();
        let others_ended = async || {
            reading.retain(|reader| !reader.is_finished());
            reading.len() == 1
        };
        eventually(seconds(30), others_ended).await;
        world.until_agent(&account, "online").await;
        let test = format!("/api/agents/{}/test", account.id);
        let echoed = world.admin.post(&test, json!({})).await.expect(200);
        assert_eq!((&echoed["connected"], reading.len()), (&json!(true), 1), "{echoed}");
        assert_eq!(shown(&world, &account).await["status"], "online");
        reading.iter().for_each(|reader| reader.abort());
        world.until_agent(&account, "offline").await;
    }
    world.finish().await;
}

#[tokio::test]
async fn a_held_poll_ends_with_its_own_token_in_any_session() {
    let world = World::start().await;
    let opener = world.agent("one").await;
    let poller = second_token(&world, &opener).await;
    world.as_agent(&opener).post("/api/agent/connect", json!({})).await.expect(200);
    let client = world.as_agent(&poller);
    let held = tokio::spawn(async move { client.get("/api/agent/poll?timeout=120").await.status });
    let polls = async || shown(&world, &opener).await["status"] == "online";
    eventually(seconds(20), polls).await;
    // The poll may still be on its way to the gateway: then it is refused at the door, with the same status.
    revoke(&world, &poller).await;
    let status = tokio::time::timeout(seconds(40), held).await.expect("the poll was held").unwrap();
    assert_eq!(status, 401);
    let id = world.transfer(&opener, &opener, "/a", "/b").await;
    world.until_phase(id, "dispatched").await;
    assert_eq!(world.as_agent(&poller).get("/api/agent/poll?timeout=1").await.status, 401);
    let mail = eventually_some(seconds(30), async || poll(&world.as_agent(&opener), 5).await.pop()).await;
    assert_eq!(mail["message"]["data"]["transfer"]["id"], id.to_string());
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_polling_agent_is_offline_when_its_token_is_revoked() {
    let world = World::start().await;
    let account = world.agent("one").await;
    world.as_agent(&account).post("/api/agent/connect", json!({})).await.expect(200);
    world.until_agent(&account, "online").await;
    revoke(&world, &account).await;
    // The sweep would do it after 45 s.
    world.until_agent(&account, "offline").await;
    let reason: Value =
        sqlx::query_scalar("SELECT payload FROM events WHERE event_type = 'agent_disconnected'")
            .fetch_one(&world.servers.pool)
            .await
            .unwrap();
    assert!(reason["reason"].as_str().unwrap().contains("revoked"), "{reason}");
    world.finish().await;
}

/// An upload, a download, polls and a socket are in progress at once, and each would go on for minutes by itself.
#[tokio::test]
async fn everything_of_a_token_ends_when_it_is_revoked() {
    let world = World::start().await;
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let upload = world.transfer(&from, &to, "/in/slow", "/out").await;
    world.until_phase(upload, "dispatched").await;
    let spare = second_token(&world, &from).await;
    let client = world.as_agent(&from);
    let put = client.request(Method::PUT, &format!("/api/files/{upload}/upload?filename=slow"));
    let running = tokio::spawn(async move { put.body(endless("")).send().await });
    world.until_phase(upload, "uploading").await;
    // A download that is read slowly.
    let content = bytes(48_000_000);
    let download = staged(&world, &spare, &to, &content).await;
    let target = world.as_agent(&to);
    let mut body = target.stream(&format!("/api/files/{download}/download")).send().await.unwrap();
    assert_eq!(body.status(), 200);
    let mut read = body.chunk().await.unwrap().unwrap().len();
    let mut socket = open_socket(&client).await;
    let polls = tokio::spawn(poll_until_refused(target.clone()));
    let untouched = world.agent("bystander").await;
    let others = tokio::spawn(poll_until_refused(world.as_agent(&untouched)));
    for agent in [&from, &to, &untouched] {
        world.until_agent(agent, "online").await;
    }
    revoke(&world, &from).await;
    revoke(&world, &to).await;
    let ended = tokio::time::timeout(seconds(40), running).await.expect("the upload went on").unwrap();
    assert!(ended.is_err() || ended.is_ok_and(|answer| answer.status() == 401));
    let status = tokio::time::timeout(seconds(40), polls).await.expect("the poll was held").unwrap();
    assert_eq!(status, 401);
    // Only now: a revocation takes effect within a second, and a quick reader could have it all before that.
    let rest = async {
        while let Ok(Some(piece)) = body.chunk().await {
            read += piece.len();
        }
    };
    tokio::time::timeout(seconds(40), rest).await.expect("the download stands still");
    assert!(read < content.len(), "the whole file was given out");
    let closed = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::time::timeout(seconds(40), closed).await.expect("the socket stays open");
    for agent in [&from, &to] {
        world.until_agent(agent, "offline").await;
    }
    assert!(!others.is_finished(), "another agent's poll was ended");
    others.abort();
    world.finish_with_mail().await;
}

/// A transfer whose file, with `content`, `from` has uploaded.
async fn staged(world: &World, from: &AgentAccount, to: &AgentAccount, content: &[u8]) -> i64 {
    let id = world.transfer(from, to, "/in/f", "/out").await;
    world.until_phase(id, "dispatched").await;
    let client = world.as_agent(from);
    let put = client.request(Method::PUT, &format!("/api/files/{id}/upload?filename=f"));
    client.send(put.body(content.to_vec())).await.expect(200);
    let done = json!({"transfer_id": id.to_string(), "duration": 1});
    let done = json!({"type": "transfer_complete", "data": done});
    client.post("/api/agent/messages", done).await.expect(200);
    world.until_phase(id, "staged").await;
    id
}

/// The gateway looked at the credential only when it could write more, so that these stayed for `stall_seconds`.
#[tokio::test]
async fn unread_answers_end_with_their_credential() {
    let world = World::with(|config| config.server.stall_seconds = 600).await;
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let transfer = staged(&world, &from, &to, &bytes(48_000_000)).await;
    let user = world.user("anna", "operator").await;
    let experiment = json!({"name": "unread"});
    let experiment = world.admin.post("/api/v1/experiments", experiment).await.expect(201);
    let item = value(&event(&world, "boiler").await, 1.0);
    let batch = json!({"datapoints": vec![item; 10_000]});
    for _ in 0..8 {
        world.admin.post(&format!("{DATAPOINTS}/batch"), batch.clone()).await.expect(201);
    }
    let export = format!("/api/v1/experiments/{}/export/csv", experiment["public_id"].as_str().unwrap());
    let download = ask_without_reading(&world, &to.token, &format!("/api/files/{transfer}/download")).await;
    let export = ask_without_reading(&world, user.token.as_ref().unwrap(), &export).await;
    assert!(is_held_by_server(&download) && is_held_by_server(&export));
    revoke(&world, &to).await;
    user.post("/api/v1/auth/logout", json!({})).await.expect(200);
    for stream in [&download, &export] {
        eventually(seconds(10), async || !is_held_by_server(stream)).await;
    }
    world.finish_with_mail().await;
}

/// Reads the status of the answer to a GET, and nothing more.
async fn ask_without_reading(world: &World, token: &str, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(world.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

/// Whether the server has not closed its end of the connection. The client cannot know before it has read everything, but
/// the kernel's table has the state of both ends.
fn is_held_by_server(stream: &TcpStream) -> bool {
    const ESTABLISHED: &str = "01";
    let ends = [stream.peer_addr().unwrap(), stream.local_addr().unwrap()].map(|address| match address {
        SocketAddr::V4(address) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
        }
        SocketAddr::V6(address) => panic!("{address} is not IPv4"),
    });
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().any(|line| {
        let columns: Vec<_> = line.split_whitespace().skip(1).take(3).collect();
        columns == [ends[0].as_str(), ends[1].as_str(), ESTABLISHED]
    })
}

/// Polls as an agent does; returns the status that ends it.
async fn poll_until_refused(client: Client) -> u16 {
    loop {
        match client.get("/api/agent/poll?timeout=120").await.status {
            200 | 204 => {}
            status => return status,
        }
    }
}

/// The body of an upload that starts with `head` and never ends.
fn endless(head: &'static str) -> Body {
    let pieces = stream::unfold(Some(head.as_bytes().to_vec()), async |head| {
        let piece = match head {
            Some(head) => head,
            None => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                vec![7u8; 1024]
            }
        };
        Some((Ok::<_, std::io::Error>(piece), None))
    });
    Body::wrap_stream(pieces)
}

#[tokio::test]
async fn a_users_running_upload_ends_with_the_session() {
    let world = World::with(|config| config.extraction.parsers = 1).await;
    let user = world.user("anna", "operator").await;
    let head = "--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.pdf\"\r\n\
                Content-Type: application/pdf\r\n\r\n%PDF-1.7\n";
    let post = user.request(Method::POST, "/api/v1/extract/raw");
    let post = post.header("content-type", "multipart/form-data; boundary=limit");
    let mut running = tokio::spawn(async move { post.body(endless(head)).send().await });
    let early = tokio::time::timeout(seconds(2), &mut running).await;
    assert!(early.is_err(), "{early:?}");
    user.post("/api/v1/auth/logout", json!({})).await.expect(200);
    let answer = tokio::time::timeout(seconds(30), running).await.expect("the upload went on").unwrap();
    assert_eq!(answer.unwrap().status(), 401);
    world.finish().await;
}

/// The role was checked before the body only, so that a demoted admin could still create firmware.
#[tokio::test]
async fn a_running_upload_ends_when_the_role_no_longer_suffices() {
    let world = World::start().await;
    let admin = world.user("anna", "admin").await.at(&world.at_one_gateway());
    let head = "--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a-1.2.0.tar.gz\"\r\n\
                Content-Type: application/gzip\r\n\r\n";
    let post = admin.request(Method::POST, "/api/v1/ota/upload");
    let post = post.header("content-type", "multipart/form-data; boundary=limit");
    let mut running = tokio::spawn(async move { post.body(endless(head)).send().await });
    let early = tokio::time::timeout(seconds(2), &mut running).await;
    assert!(early.is_err(), "{early:?}");
    let me = admin.get("/api/v1/auth/me").await.expect(200);
    let account = format!("/api/v1/users/{}", me["public_id"].as_str().unwrap());
    world.admin.put(&account, json!({"role": "viewer"})).await.expect(200);
    let answer = tokio::time::timeout(seconds(30), running).await.expect("the upload went on").unwrap();
    assert_eq!(answer.unwrap().status(), 403);
    assert_eq!(world.count_events("firmware_created").await, 0);
    eventually(seconds(20), async || world.staged_files().await.is_empty()).await;
    world.finish().await;
}

#[tokio::test]
async fn two_processes_with_one_token_are_shown_as_a_warning() {
    let world = World::start().await;
    let account = world.agent("press").await;
    let client = world.as_agent(&account);
    assert_eq!(shown(&world, &account).await["warning"], Value::Null);
    // A program that reconnects has given up its old connection.
    for _ in 0..2 {
        let mut socket = open_socket(&client).await;
        world.until_agent(&account, "online").await;
        let _ = socket.close(None).await;
        drop(socket);
        world.until_agent(&account, "offline").await;
    }
    assert_eq!(shown(&world, &account).await["warning"], Value::Null);
    let mut first = open_socket(&client).await;
    world.until_agent(&account, "online").await;
    let reading = tokio::spawn(async move { while let Some(Ok(_)) = first.next().await {} });
    let second = open_socket(&client).await;
    let warned = async || shown(&world, &account).await["warning"].is_string();
    eventually(seconds(30), warned).await;
    assert_eq!(shown(&world, &account).await["status"], "online");
    reading.await.unwrap();
    drop(second);
    let entries = async || {
        let logs = world.admin.get("/api/v1/logging?page_size=100").await.expect(200);
        let entries = logs["data"].as_array().unwrap().clone();
        let of_agents =
            |entry: &Value| entry["content"].as_str().is_some_and(|text| text.contains("'press'"));
        entries.into_iter().filter(of_agents).count() == 1
    };
    eventually(seconds(30), entries).await;
    world.finish().await;
}

/// The agent closed a replaced socket before its part of the closing handshake was written.
#[tokio::test]
async fn two_agent_programs_with_one_token_are_shown_as_a_warning() {
    let world = World::start().await;
    let account = world.agent("press").await;
    let (first, second, url) = (Folder::new(), Folder::new(), world.anonymous().url(""));
    let start = |folder| RealAgent::start(&url, &account.token, folder, Transport::Websocket);
    let programs = [start(&first), start(&second)];
    eventually(seconds(60), async || shown(&world, &account).await["warning"].is_string()).await;
    for program in programs {
        program.stop().await;
    }
    world.until_agent(&account, "offline").await;
    world.finish().await;
}

#[tokio::test]
async fn replaced_sockets_that_close_without_an_answer_show_a_second_process() {
    let world = World::start().await;
    let account = world.agent("press").await;
    let client = world.as_agent(&account).at(&world.at_one_gateway());
    let mut socket = open_socket(&client).await;
    world.until_agent(&account, "online").await;
    for replaced in 1..=3 {
        assert_eq!(shown(&world, &account).await["warning"], Value::Null, "{replaced}");
        // Not read any further, so that the reply to the close frame is never written.
        let closed = tokio::spawn(async move {
            while let Some(Ok(frame)) = socket.next().await {
                if matches!(frame, Message::Close(_)) {
                    return;
                }
            }
        });
        socket = open_socket(&client).await;
        closed.await.unwrap();
    }
    eventually(seconds(30), async || shown(&world, &account).await["warning"].is_string()).await;
    socket.close(None).await.unwrap();
    world.until_agent(&account, "offline").await;
    world.finish().await;
}

#[tokio::test]
async fn an_acknowledged_request_is_repeated_only_when_the_agent_is_free() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let client = world.as_agent(&account);
    let key = key_of(&world, &account).await;
    let mailbox = Mailbox::open(&world.servers.bus).await.unwrap();
    // As the service posts it again; the transfer does not exist, so that nothing else does.
    let post = async |attempt: u32| {
        let message = MailMessage {
            kind: "transfer_request".to_owned(),
            data: json!({"transfer": {"id": "900"}, "extensions": {}}),
        };
        mailbox.post(key, &format!("transfer.900.{attempt}.upload"), &message).await.unwrap();
    };
    let take = async || {
        let mail = eventually_some(seconds(40), async || poll(&client, 5).await.pop()).await;
        acknowledge(&client, &json!([mail["id"]])).await;
    };
    let connect = async |capabilities: Value| {
        let info = json!({"system_info": {"capabilities": capabilities}});
        client.post("/api/agent/connect", info).await.expect(200);
    };
    // Without capabilities: not in the same session, in a later one.
    connect(json!([])).await;
    post(1).await;
    take().await;
    // Another attempt is the same work to it.
    post(2).await;
    assert_eq!(poll(&client, 2).await, Vec::<Value>::new());
    connect(json!([])).await;
    take().await;
    // With capabilities: another attempt at once, the same one after a minute.
    connect(json!(["ack"])).await;
    post(3).await;
    take().await;
    post(3).await;
    assert_eq!(poll(&client, 2).await, Vec::<Value>::new());
    sqlx::query("UPDATE ops.agent_requests SET taken_at = taken_at - interval '60 seconds'")
        .execute(&world.servers.pool)
        .await
        .unwrap();
    take().await;
    world.finish_with_mail().await;
}

/// It waited for a minute and a half when its agent had taken the same request before.
#[tokio::test]
async fn a_request_of_a_transfer_that_has_ended_leaves_the_mailbox() {
    let world = World::start().await;
    let accounts = [world.agent("one").await, world.agent("two").await];
    let client = world.as_agent(&accounts[0]);
    client.post("/api/agent/connect", json!({"system_info": {"capabilities": ["ack"]}})).await.expect(200);
    let number = world.transfer(&accounts[0], &accounts[1], "/f", "/f").await;
    let taken = eventually_some(seconds(40), async || poll(&client, 5).await.pop()).await;
    acknowledge(&client, &json!([taken["id"]])).await;
    world.admin.post(&format!("/api/transfers/{number}/cancel"), json!({})).await.expect(200);
    let cancel = eventually_some(seconds(40), async || poll(&client, 5).await.pop()).await;
    acknowledge(&client, &json!([cancel["id"]])).await;
    let key = key_of(&world, &accounts[0]).await;
    let message = MailMessage { kind: "transfer_request".to_owned(), data: json!({"transfer": {}}) };
    let mailbox = Mailbox::open(&world.servers.bus).await.unwrap();
    let name = format!("transfer.{number}.1.upload");
    mailbox.post(key, &name, &message).await.unwrap();
    assert_eq!(poll(&client, 2).await, Vec::<Value>::new());
    eventually(seconds(10), async || mailbox.find(key, &name).await.unwrap().is_none()).await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_flood_of_descriptions_records_the_last_and_few_others() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let mut socket = open_socket(&world.as_agent(&account)).await;
    let begun = tokio::time::Instant::now();
    for number in 0..2_000 {
        let info =
            json!({"type": "agent_info", "data": {"hostname": format!("host {number}"), "os_name": "linux"}});
        socket.send(Message::text(info.to_string())).await.unwrap();
    }
    let host = async |name: &str| shown(&world, &account).await["hostname"] == name;
    // Each is carried out in its turn, most without effect.
    eventually(seconds(120), async || host("host 1999").await).await;
    let described = world.count_events("agent_described").await;
    assert!(described as u64 <= begun.elapsed().as_secs() + 2, "{described}");
    // Values that are empty erase nothing.
    let empty = json!({"type": "agent_info", "data": {"hostname": "", "os_name": null, "version": "2"}});
    socket.send(Message::text(empty.to_string())).await.unwrap();
    eventually(seconds(30), async || shown(&world, &account).await["version"] == "2").await;
    let agent = shown(&world, &account).await;
    assert_eq!((&agent["hostname"], &agent["system"]), (&json!("host 1999"), &json!("linux")));
    socket.close(None).await.unwrap();
    world.until_agent(&account, "offline").await;
    world.finish().await;
}
