//! Connections whose clients are slow, silent or many.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::harness::{Client, PASSWORD, Separate, World, eventually, seconds};

/// A head without its end.
const HALF_A_HEAD: &[u8] = b"GET /api/info HTTP/1.1\r\nHost: x\r\nX-Slow: ";

async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// A socket of a viewer that connects from the address `from`.
async fn open_socket(address: SocketAddr, from: Ipv4Addr, viewer: &Client) -> TcpStream {
    let token = viewer.token.as_ref().unwrap();
    let request = format!(
        "GET /ws/datapoints/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    stream
}

/// All that arrives until the server closes the connection.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(seconds(30), stream.read_to_end(&mut bytes)).await;
    match read.expect("the connection stayed open for 30 s") {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(bytes).unwrap()
}

/// Whether a new connection is answered.
async fn is_served(address: SocketAddr) -> bool {
    let request = b"GET /api/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut stream = send(address, request).await;
    read_to_end(&mut stream).await.starts_with("HTTP/1.1 200")
}

/// Whether the server has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    let mut bytes = [0; 512];
    match stream.try_read(&mut bytes) {
        Ok(count) => count == 0 || bytes.starts_with(b"HTTP/1.1 503"),
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

#[tokio::test]
async fn half_open_requests_give_way_to_new_connections() {
    let world = World::with(|config| config.server.max_connections_per_address = 20).await;
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(send(world.address, HALF_A_HEAD).await);
    }
    for _ in 0..20 {
        Client::new(world.address).get("/api/info").await.expect(200);
    }
    let open = async || held.iter().filter(|stream| !is_closed(stream)).count();
    eventually(seconds(20), async || open().await <= 20).await;
    world.finish().await;
}

#[tokio::test]
async fn connections_in_all_are_limited() {
    let world = World::with(|config| config.server.max_connections = 20).await;
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(send(world.address, HALF_A_HEAD).await);
    }
    Client::new(world.address).get("/api/info").await.expect(200);
    let open = async || held.iter().filter(|stream| !is_closed(stream)).count();
    eventually(seconds(20), async || open().await <= 20).await;
    world.finish().await;
}

#[tokio::test]
async fn an_address_of_agents_has_a_higher_limit() {
    let world = World::with(|config| {
        config.server.max_connections_per_address = 10;
        config.server.max_connections_per_agent_address = 60;
    })
    .await;
    let token = world.agent("press").await.token;
    let call = |line: &str, body: &str| {
        let length = body.len();
        format!(
            "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let mut session = send(world.address, call("POST /api/agent/connect", "{}").as_bytes()).await;
    let mut answer = [0; 12];
    session.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut polls = Vec::new();
    for _ in 0..30 {
        polls.push(send(world.address, call("GET /api/agent/poll?timeout=30", "").as_bytes()).await);
    }
    // Connections are accepted in order: after this answer, all of the others have been.
    Client::new(world.address).get("/api/info").await.expect(200);
    assert!(polls.iter().all(|stream| !is_closed(stream)));
    world.finish().await;
}

#[tokio::test]
async fn connections_with_requests_do_not_give_way() {
    let world = World::with(|config| config.server.max_connections_per_address = 12).await;
    let mut sockets = Vec::new();
    for _ in 0..12 {
        sockets.push(open_socket(world.address, Ipv4Addr::LOCALHOST, &world.admin).await);
    }
    let mut refused =
        send(world.address, b"GET /api/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let answer = read_to_end(&mut refused).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    drop(sockets);
    eventually(seconds(20), async || is_served(world.address).await).await;
    world.finish().await;
}

#[tokio::test]
async fn a_trusted_proxy_has_no_limit_of_its_own() {
    let world = World::with(|config| {
        config.server.max_connections_per_address = 4;
        config.server.trusted_proxies = vec![Ipv4Addr::LOCALHOST.into()];
    })
    .await;
    let mut sockets = Vec::new();
    for _ in 0..12 {
        sockets.push(open_socket(world.address, Ipv4Addr::LOCALHOST, &world.admin).await);
    }
    Client::new(world.address).get("/api/info").await.expect(200);
    assert!(sockets.iter().all(|socket| !is_closed(socket)));
    drop(sockets);
    world.finish().await;
}

#[tokio::test]
async fn a_head_that_does_not_end_is_given_up() {
    let world = World::with(|config| config.server.header_seconds = 5).await;
    for begun in [&b""[..], b"G", HALF_A_HEAD, b"PRI * HTTP/2.0\r\n"] {
        let mut stream = send(world.address, begun).await;
        let answer = read_to_end(&mut stream).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    // Also the head of a second request.
    let mut stream = send(world.address, b"GET /api/info HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream.write_all(b"GET /").await.unwrap();
    assert!(!read_to_end(&mut stream).await.contains("HTTP/1.1 200"));
    world.finish().await;
}

#[tokio::test]
async fn a_body_that_stalls_is_answered_with_408() {
    let world = World::with(|config| config.server.stall_seconds = 5).await;
    let begun = b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"email\":";
    let mut stream = send(world.address, begun).await;
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    world.finish().await;
}

#[tokio::test]
async fn operators_are_answered_while_clients_hold_all_connections() {
    let mut service = Separate::start(&[("SIGNALBOX_SERVER__MAX_CONNECTIONS", "4")]).await;
    let address: SocketAddr = service.admin.url("").strip_prefix("http://").unwrap().parse().unwrap();
    // One address takes half of the places at most.
    let mut held = Vec::new();
    for from in [2, 2, 3, 3] {
        held.push(open_socket(address, Ipv4Addr::new(127, 0, 0, from), &service.admin).await);
    }
    eventually(seconds(20), async || !is_served(address).await).await;
    for role in ["gateway", "commands", "projections", "workers"] {
        let address = service.metrics_address(role);
        for path in ["/livez", "/readyz", "/metrics"] {
            let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
            assert_eq!(answer.status(), 200, "{role} {path}");
        }
    }
    drop(held);
    eventually(seconds(20), async || is_served(address).await).await;
    let event = json!({"name": "boiler", "type": "sensor"});
    service.admin.post("/api/v1/events", event).await.expect(201);
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
}

#[tokio::test]
async fn a_process_raises_its_limit_of_open_files() {
    let mut service = Separate::start(&[]).await;
    for (role, id) in service.process_ids() {
        let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let [soft, hard] = [3, 4].map(|column| files.split_whitespace().nth(column).unwrap());
        assert_eq!(soft, hard, "{role}");
    }
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
}

#[tokio::test]
async fn a_given_password_is_not_logged() {
    let mut service = Separate::start(&[]).await;
    for (role, _) in service.process_ids() {
        assert!(!service.log(role).contains(PASSWORD), "{role}");
    }
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
}
