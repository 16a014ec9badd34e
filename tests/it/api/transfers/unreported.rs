//! Legs whose agents do not report, and requests that agents take without beginning them.

use std::{net::SocketAddr, pin::pin, time::Duration};

use async_nats::jetstream::{self, consumer::pull};
use chrono::TimeDelta;
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::AgentId,
    transfer::{Transfer, TransferCommand},
};
use signalbox_test_support::metadata;
use signalbox_workers::{Dispatcher, Parts, Reconciler, StallSweep, Worker};
use sqlx::Executor as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use uuid::Uuid;

use super::pair::Pair;
use crate::{
    api::agent::acknowledge,
    harness::{
        AgentAccount, Client, Transport::Websocket, World, bytes, eventually, eventually_some, seconds,
    },
};

const SIZE: usize = 1 << 20;

/// A transfer with one attempt, and its two agents, which poll and list no capabilities.
pub(super) struct Silent {
    pub(super) id: i64,
    to: AgentAccount,
    pub(super) source: Client,
    pub(super) target: Client,
}

impl Silent {
    pub(super) async fn new(world: &World) -> Self {
        let (from, to) = (world.agent("source").await, world.agent("destination").await);
        let job = json!({"name": "j", "source_agent_id": from.id, "destination_agent_id": to.id, "source_path": "/a",
            "destination_path": "/b", "retry": {"max_attempts": 1, "backoff_seconds": 0}});
        let job = world.admin.post("/api/jobs", job).await.id();
        let id = world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await.id();
        let (source, target) = (world.as_agent(&from), world.as_agent(&to));
        connect(&source, json!({})).await;
        connect(&target, json!({})).await;
        Self { id, to, source, target }
    }

    /// Uploads the file and lets the destination take its request; the dispatcher runs by itself or is stepped here.
    pub(super) async fn stage(&self, world: &World, stepped: Option<&Parts>) {
        step(stepped).await;
        world.until_phase(self.id, "dispatched").await;
        take_request(&self.source).await;
        let put = self.source.request(Method::PUT, &format!("/api/files/{}/upload?filename=a", self.id));
        self.source.send(put.body(bytes(SIZE))).await.expect(200);
        let data = json!({"transfer_id": self.id.to_string(), "duration": 1});
        let report = json!({"type": "transfer_complete", "data": data});
        self.source.post("/api/agent/messages", report).await.expect(200);
        world.until_phase(self.id, "staged").await;
        step(stepped).await;
        take_request(&self.target).await;
    }

    /// Asks for the file on a connection of its own.
    async fn download(&self, world: &World) -> TcpStream {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        ask(&mut stream, &self.to, &format!("/api/files/{}/download", self.id)).await;
        stream
    }

    /// Polls as long as the transfer is in progress; returns it.
    async fn poll_until_ended(&self, world: &World) -> Value {
        let polls = async {
            loop {
                self.target.get("/api/agent/poll?timeout=1").await;
            }
        };
        tokio::select! {
            ended = world.until_ended(self.id) => ended,
            () = polls => unreachable!("polls go on"),
        }
    }

    async fn shown(&self, world: &World) -> Value {
        world.admin.get(&format!("/api/transfers/{}", self.id)).await.expect(200)
    }

    async fn phase(&self, world: &World) -> Value {
        self.shown(world).await["phase"].clone()
    }
}

async fn step(parts: Option<&Parts>) {
    if let Some(Parts { context, mailbox, .. }) = parts {
        Dispatcher::new(mailbox.clone()).step(context).await.unwrap();
    }
}

async fn connect(agent: &Client, info: Value) {
    agent.post("/api/agent/connect", json!({ "system_info": info })).await.expect(200);
}

/// The requests that a short poll brings.
async fn poll(agent: &Client) -> Vec<Value> {
    let answer = agent.get("/api/agent/poll?timeout=1").await;
    if answer.status == 204 { Vec::new() } else { answer.expect(200).as_array().unwrap().clone() }
}

async fn take_request(agent: &Client) {
    let mail = eventually_some(seconds(30), async || poll(agent).await.pop()).await;
    acknowledge(agent, &json!([mail["id"]])).await;
}

async fn ask(stream: &mut TcpStream, agent: &AgentAccount, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", agent.token);
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// Reads the whole answer to a download.
async fn read_file(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    loop {
        let read = stream.read_buf(&mut answer).await.unwrap();
        assert!(read > 0, "the connection ended after {} bytes", answer.len());
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
        if head.is_some_and(|head| answer.len() == head + 4 + SIZE) {
            return;
        }
    }
}

fn fast(config: &mut signalbox_config::Config) {
    config.transfer.stall_seconds = 1;
}

#[tokio::test]
async fn a_file_that_the_agent_never_reads_is_not_completed() {
    let world = World::with(fast).await;
    let silent = Silent::new(&world).await;
    silent.stage(&world, None).await;
    let unread = silent.download(&world).await;
    let ended = silent.poll_until_ended(&world).await;
    assert_eq!((&ended["status"], &ended["proven"]), (&json!("failed"), &json!(false)), "{ended}");
    drop(unread);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_file_whose_connection_breaks_is_not_completed() {
    let world = World::with(fast).await;
    let silent = Silent::new(&world).await;
    silent.stage(&world, None).await;
    let mut stream = silent.download(&world).await;
    stream.read_exact(&mut [0; 1000]).await.unwrap();
    // Closed with unread bytes: the kernel resets it.
    drop(stream);
    let ended = silent.poll_until_ended(&world).await;
    assert_eq!((&ended["status"], &ended["proven"]), (&json!("failed"), &json!(false)), "{ended}");
    assert!(ended["error"].as_str().unwrap().contains("ended the connection"), "{ended}");
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_file_that_may_wait_in_a_buffer_on_the_way_is_not_completed() {
    let world = World::with(fast).await;
    let silent = Silent::new(&world).await;
    silent.stage(&world, None).await;
    // As through a proxy: everything is acknowledged, and the connection is neither used again nor closed.
    let mut proxy = silent.download(&world).await;
    read_file(&mut proxy).await;
    let ended = silent.poll_until_ended(&world).await;
    assert_eq!((&ended["status"], &ended["proven"]), (&json!("failed"), &json!(false)), "{ended}");
    drop(proxy);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_file_that_reached_a_silent_agent_completes_without_proof() {
    let world = World::start().await;
    for closes in [true, false] {
        let silent = Silent::new(&world).await;
        silent.stage(&world, None).await;
        let mut stream = silent.download(&world).await;
        read_file(&mut stream).await;
        if closes {
            stream.shutdown().await.unwrap();
        } else {
            ask(&mut stream, &silent.to, "/api/agent/poll?timeout=1").await;
        }
        let done = silent.poll_until_ended(&world).await;
        assert_eq!(
            (&done["status"], &done["proven"]),
            (&json!("completed"), &json!(false)),
            "{closes}: {done}"
        );
        assert_eq!(done["attempts"], 1, "{closes}: {done}");
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_file_that_reached_an_ended_session_is_not_completed() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::without_workers(clock.clone(), |_| {}).await;
    let parts = world.worker_parts().await;
    for reconnects in [false, true] {
        let silent = Silent::new(&world).await;
        silent.stage(&world, Some(&parts)).await;
        let mut stream = silent.download(&world).await;
        read_file(&mut stream).await;
        stream.shutdown().await.unwrap();
        let noted = "SELECT count(*) FROM ops.transfer_legs l JOIN read.transfers t ON t.id = l.transfer_id
                      WHERE t.number = $1 AND l.arrived_in IS NOT NULL";
        eventually(seconds(30), async || {
            let count = sqlx::query_scalar::<_, i64>(noted).bind(silent.id).fetch_one(&world.servers.pool);
            count.await.unwrap() == 1
        })
        .await;
        if reconnects {
            connect(&silent.target, json!({})).await;
        }
        poll(&silent.target).await;
        // The last thing that changes the transfer by itself: from then on it stands still.
        eventually(seconds(30), async || silent.shown(&world).await["bytes_transferred"] == SIZE).await;
        let sweep = StallSweep::new(&parts.config.transfer);
        world.read_models.show_all().await;
        sweep.step(&parts.context).await.unwrap();
        clock.advance(TimeDelta::seconds(20));
        sweep.step(&parts.context).await.unwrap();
        if !reconnects {
            let done = world.until_ended(silent.id).await;
            assert_eq!((&done["status"], &done["proven"]), (&json!("completed"), &json!(false)), "{done}");
            continue;
        }
        assert_eq!(silent.phase(&world).await, "downloading");
        clock.advance(TimeDelta::seconds(60));
        sweep.step(&parts.context).await.unwrap();
        let ended = world.until_ended(silent.id).await;
        assert!(ended["error"].as_str().unwrap().contains("connected again"), "{ended}");
    }
    world.finish_with_mail().await;
}

/// It was refused for good in the moment in which the read model had caught up, and the leg waited a minute.
#[tokio::test]
async fn an_upload_that_waits_for_the_read_model_is_taken_when_it_has_caught_up() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let silent = Silent::new(&world).await;
    let mut held = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    held.execute("LOCK TABLE read.transfers IN EXCLUSIVE MODE").await.unwrap();
    let id = sqlx::query_scalar("SELECT id FROM read.transfers WHERE number = $1").bind(silent.id);
    let id = id.fetch_one(&world.servers.pool).await.unwrap();
    world.servers.bus.send::<Transfer>(id, None, &metadata(), &TransferCommand::Dispatch).await.unwrap();
    let put = silent.source.request(Method::PUT, &format!("/api/files/{}/upload?filename=a", silent.id));
    let mut sending = pin!(silent.source.send(put.body(bytes(SIZE))));
    // It has read that the transfer is queued, and waits for what was recorded since.
    assert!(timeout(seconds(3), &mut sending).await.is_err(), "the read model is held");
    held.rollback().await.unwrap();
    sending.await.expect(200);
    world.admin.post(&format!("/api/transfers/{}/cancel", silent.id), json!({})).await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_request_that_is_never_given_out_is_posted_anew() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::without_workers(clock.clone(), |_| {}).await;
    let parts = world.worker_parts().await;
    let silent = Silent::new(&world).await;
    step(Some(&parts)).await;
    world.until_phase(silent.id, "dispatched").await;
    let source: Uuid = sqlx::query_scalar("SELECT source_agent_id FROM read.transfers WHERE number = $1")
        .bind(silent.id)
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    leave_behind(&world, source).await;
    assert!(poll(&silent.source).await.is_empty());
    let request = async || {
        let key = format!("transfer.{}.1.upload", silent.id);
        parts.mailbox.find(AgentId(source), &key).await.unwrap().unwrap()
    };
    let before = request().await;
    let reconciler = Reconciler::new(parts.mailbox.clone());
    // The first look is the twentieth second's.
    for (seconds, is_posted) in [(20, false), (50, false), (50, false), (19, false), (1, true)] {
        clock.advance(TimeDelta::seconds(seconds));
        reconciler.step(&parts.context).await.unwrap();
        assert_eq!(request().await != before, is_posted);
    }
    take_request(&silent.source).await;
    world.admin.post(&format!("/api/transfers/{}/cancel", silent.id), json!({})).await.expect(200);
    world.finish_with_mail().await;
}

/// Leaves the messages of `agent` where its consumer neither gives them out nor holds them back.
async fn leave_behind(world: &World, agent: Uuid) {
    let forgetful = pull::Config {
        durable_name: Some(format!("agent-{agent}")),
        filter_subject: format!("mail.agent.{agent}.>"),
        ack_wait: Duration::from_millis(100),
        max_deliver: 1,
        ..pull::Config::default()
    };
    let jetstream = jetstream::new(world.servers.nats.client().await);
    let consumer = jetstream.create_consumer_on_stream(forgetful, "MAIL").await.unwrap();
    let given: Vec<_> = consumer.fetch().max_messages(9).messages().await.unwrap().collect().await;
    assert_eq!(given.len(), 1);
    eventually(seconds(10), async || consumer.get_info().await.unwrap().num_ack_pending == 0).await;
    assert_eq!(consumer.get_info().await.unwrap().num_pending, 0);
}

#[tokio::test]
async fn a_begun_leg_is_taken_up_again_when_its_agent_came_back_without_it() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::without_workers(clock.clone(), |_| {}).await;
    let parts = world.worker_parts().await;
    // Neither again within its session, nor when the agent names it; at once when the agent leaves it out.
    for (info, idle, taken_up) in [
        (None, 60, false),
        (None, 601, true),
        (Some(json!({})), 61, true),
        (Some(json!({"capabilities": ["ack"], "active_transfers": ["ID"]})), 61, false),
        (Some(json!({"capabilities": ["ack"], "active_transfers": []})), 0, true),
    ] {
        let silent = Silent::new(&world).await;
        step(Some(&parts)).await;
        take_request(&silent.source).await;
        let data = json!({"transfer_id": silent.id.to_string(), "current_bytes": 1, "total_bytes": 9});
        let progress = json!({"type": "transfer_progress", "data": data});
        silent.source.post("/api/agent/messages", progress).await.expect(200);
        world.until_phase(silent.id, "uploading").await;
        clock.advance(TimeDelta::seconds(1));
        if let Some(info) = &info {
            let text = info.to_string().replace("ID", &silent.id.to_string());
            connect(&silent.source, serde_json::from_str(&text).unwrap()).await;
        }
        let sweep = StallSweep::new(&parts.config.transfer);
        world.read_models.show_all().await;
        sweep.step(&parts.context).await.unwrap();
        clock.advance(TimeDelta::seconds(idle));
        sweep.step(&parts.context).await.unwrap();
        if taken_up {
            world.until_ended(silent.id).await;
        } else {
            assert_eq!(silent.phase(&world).await, "uploading", "{info:?} after {idle} s");
            world.admin.post(&format!("/api/transfers/{}/cancel", silent.id), json!({})).await.expect(200);
        }
    }
    world.finish_with_mail().await;
}

/// Idle time was the difference of two machines' clocks: a worker eleven minutes ahead ended each leg that outlasted a sweep.
#[tokio::test]
async fn a_leg_is_not_idle_because_the_clock_of_the_worker_is_ahead() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let mut parts = world.worker_parts().await;
    let silent = Silent::new(&world).await;
    step(Some(&parts)).await;
    take_request(&silent.source).await;
    let data = json!({"transfer_id": silent.id.to_string(), "current_bytes": 1, "total_bytes": 9});
    let progress = json!({"type": "transfer_progress", "data": data});
    silent.source.post("/api/agent/messages", progress).await.expect(200);
    world.until_phase(silent.id, "uploading").await;
    parts.context.clock = Clock::shifted(TimeDelta::minutes(11));
    let sweep = StallSweep::new(&parts.config.transfer);
    for _ in 0..2 {
        sweep.step(&parts.context).await.unwrap();
        world.read_models.show_all().await;
    }
    assert_eq!(silent.phase(&world).await, "uploading");
    world.admin.post(&format!("/api/transfers/{}/cancel", silent.id), json!({})).await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_leg_that_ends_without_a_control_connection_counts() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(300_000));
    let wire = Wire::to(world.address).await;
    let from = pair.start_source(&world.anonymous().url(""), Websocket);
    let to = pair.start_target(&wire.url(), Websocket);
    world.until_agent(&pair.to, "online").await;
    let job = pair.job(&world, "f", "g", json!({})).await;
    let id = pair.run(&world, job).await;
    wire.has_download.subscribe().wait_for(|has| *has).await.unwrap();
    wire.is_cut.send_replace(true);
    eventually(seconds(20), async || pair.target.path("g").exists()).await;
    world.until_agent(&pair.to, "offline").await;
    wire.is_cut.send_replace(false);
    let done = world.until_ended(id).await;
    assert_eq!((&done["status"], &done["attempts"]), (&json!("completed"), &json!(1)), "{done}");
    assert_eq!(done["proven"], true);
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

/// A wire between an agent and the gateway whose control connections can be cut. Downloads wait until they are.
struct Wire {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    has_download: watch::Sender<bool>,
}

impl Wire {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, has_download) = (watch::Sender::new(false), watch::Sender::new(false));
        let (cut, download) = (is_cut.clone(), has_download.clone());
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                tokio::spawn(carry(agent, target, cut.subscribe(), download.clone()));
            }
        });
        Self { address, is_cut, has_download }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn carry(
    mut agent: TcpStream,
    target: SocketAddr,
    mut is_cut: watch::Receiver<bool>,
    has_download: watch::Sender<bool>,
) {
    let mut head = [0; 200];
    while !head.contains(&b'\n') {
        if agent.peek(&mut head).await.unwrap_or_default() == 0 {
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    let is_control = line.contains("/ws/agent");
    if is_control && *is_cut.borrow() {
        return;
    }
    if line.contains("/download") {
        has_download.send_replace(true);
        let _ = is_cut.wait_for(|cut| *cut).await;
    }
    let Ok(mut gateway) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut agent, &mut gateway) => {}
        _ = is_cut.wait_for(|cut| *cut), if is_control => {}
    }
}

/// Otherwise the session of the agent ends with each report, until the process is upgraded.
#[tokio::test]
async fn progress_in_a_phase_of_a_newer_release_is_left_aside() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let silent = Silent::new(&world).await;
    let phase = async |phase: &str| {
        let set = sqlx::query("UPDATE read.transfers SET phase = $1 WHERE number = $2");
        set.bind(phase).bind(silent.id).execute(&world.servers.pool).await.unwrap();
    };
    phase("verifying").await;
    let data = json!({"transfer_id": silent.id.to_string(), "current_bytes": 1, "total_bytes": 2});
    let progress = json!({"type": "transfer_progress", "data": data});
    silent.source.post("/api/agent/messages", progress).await.expect(200);
    phase("queued").await;
    assert_eq!(world.count_events("transfer_progressed").await, 0);
    world.finish_with_mail().await;
}
