//! A client that is refused before it has sent its whole body still gets the answer.

use std::{net::SocketAddr, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::{sleep, timeout},
};

use crate::harness::{World, description, seconds};

/// More than the kernel holds for both ends of a connection.
const LARGE: usize = 12 << 20;
/// Clients that lose an answer when the connection is reset while they send: httpx, aiohttp, and fetch.
const CLIENTS: [(&str, &str); 3] = [
    ("python3", "tests/clients/refused.py"),
    ("python3", "tests/clients/refused_aiohttp.py"),
    ("node", "tests/clients/refused.mjs"),
];
const METHODS: [&str; 4] = ["post", "put", "patch", "delete"];

/// Sends the whole body first, as simple clients do, and only then reads the answer; returns its status line.
async fn send_then_read(address: SocketAddr, head: &str, bytes: usize) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b'x'; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(piece.len());
        stream.write_all(&piece[..count]).await?;
        left -= count;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

fn head(method: &str, path: &str, more: &str, bytes: usize) -> String {
    let method = method.to_uppercase();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}Content-Length: {bytes}\r\n\r\n"
    )
}

#[tokio::test]
async fn every_route_answers_a_refused_body() {
    let world = World::start().await;
    let mut found = Vec::new();
    let mut routes = 0;
    for (path, item) in description()["paths"].as_object().unwrap() {
        for method in METHODS.iter().filter(|method| item[**method]["requestBody"].is_object()) {
            routes += 1;
            let path = path.replace("{id}", "1").replace(['{', '}'], "x");
            let head = head(method, &path, "Content-Type: application/json\r\n", LARGE);
            let answer = timeout(seconds(60), send_then_read(world.address, &head, LARGE)).await;
            match answer {
                // No documents are read in this test.
                Ok(Ok(status)) if status.starts_with("HTTP/1.1 4") || status.starts_with("HTTP/1.1 503") => {}
                other => found.push(format!("{method} {path}: {other:?}")),
            }
        }
    }
    assert!(routes > 50, "{routes}");
    assert!(found.is_empty(), "{found:#?}");
    world.finish().await;
}

#[tokio::test]
async fn a_body_announced_as_too_large_is_refused_before_it_is_sent() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = head("post", "/api/auth/login", "Content-Type: application/json\r\n", 99_999_999_999);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"{").await.unwrap();
    let mut status = [0; 12];
    // A body that stands still is given up after 30 s.
    timeout(seconds(15), stream.read_exact(&mut status)).await.expect("it waits for the body").unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");
    world.finish().await;
}

#[tokio::test]
async fn a_refusal_arrives_twenty_times_of_twenty() {
    let world = World::with(|config| config.limits.anonymous_extractions_per_minute = 10_000).await;
    let agent = world.agent("press").await;
    let url = format!("http://{}", world.address);
    let token = format!("Authorization=Bearer {}", agent.token);
    for (program, script) in CLIENTS {
        for (method, path, header, status) in [
            ("PUT", "/api/files/1/upload", "X-Nothing=1", "401"),
            ("PUT", "/api/files/1/upload", token.as_str(), "404"),
            ("POST", "/api/v1/extract", "Content-Type=text/plain", "503"),
            ("POST", "/api/v1/ota/upload", "X-Nothing=1", "401"),
            ("POST", "/api/auth/login", "Content-Type=application/json", "413"),
            ("POST", "/api/nothing", "X-Nothing=1", "404"),
        ] {
            let (url, bytes) = (format!("{url}{path}"), LARGE.to_string());
            let answers = run(program, script, &[method, &url, &bytes, "20", header]).await;
            assert_eq!(answers, vec![status; 20], "{script}: {method} {path}");
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn the_largest_discarded_body_keeps_its_answer() {
    let world = World::start().await;
    let bytes = 64 << 20;
    let url = format!("http://{}/api/files/1/upload", world.address);
    for (program, script) in CLIENTS {
        let answers = run(program, script, &["PUT", &url, &bytes.to_string(), "2"]).await;
        assert_eq!(answers, ["401", "401"], "{script}");
    }
    world.finish().await;
}

/// Sends a body more slowly than a connection that is being closed is read.
async fn send_slowly(address: SocketAddr, head: &str, bytes: usize) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b'x'; bytes / 20];
    for _ in 0..20 {
        stream.write_all(&piece).await?;
        sleep(Duration::from_millis(250)).await;
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn proxied_client_is_answered_while_another_withholds_bodies() {
    let world =
        World::with(|config| config.server.trusted_proxies = vec!["127.0.0.1".parse().unwrap()]).await;
    let from =
        |client: &str| head("PUT", "/api/files/1/upload", &format!("X-Forwarded-For: {client}\r\n"), LARGE);
    let mut held = Vec::new();
    for _ in 0..70 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(from("192.0.2.1").as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 401");
        held.push(stream);
    }
    let answer = timeout(seconds(60), send_slowly(world.address, &from("192.0.2.2"), LARGE)).await;
    assert_eq!(answer.unwrap().unwrap(), "HTTP/1.1 401");
    drop(held);
    world.finish().await;
}

#[tokio::test]
async fn a_client_that_awaits_leave_to_send_is_answered_at_once() {
    let world = World::start().await;
    let agent = world.agent("press").await;
    let mut refused = TcpStream::connect(world.address).await.unwrap();
    let asked = head("PUT", "/api/files/1/upload", "Expect: 100-continue\r\n", LARGE);
    refused.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(seconds(20), refused.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    // One that may send is asked to.
    let (from, to) = (agent, world.agent("to").await);
    let transfer = world.transfer(&from, &to, "/a", "/b").await;
    world.until_phase(transfer, "dispatched").await;
    let more = format!("Authorization: Bearer {}\r\nExpect: 100-continue\r\n", from.token);
    let asked = head("PUT", &format!("/api/files/{transfer}/upload?filename=a"), &more, 3);
    let mut taken = TcpStream::connect(world.address).await.unwrap();
    taken.write_all(asked.as_bytes()).await.unwrap();
    let mut leave = [0; 25];
    taken.read_exact(&mut leave).await.unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    taken.write_all(b"abc").await.unwrap();
    let mut answer = String::new();
    taken.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    world.finish_with_mail().await;
}

/// The output of a client of `tests/clients`, a line for each request.
async fn run(program: &str, script: &str, arguments: &[&str]) -> Vec<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(top.join(".tools/clients/httpx").exists(), "httpx is missing: run tools/bootstrap tests");
    let mut command = Command::new(program);
    command.arg(top.join(script)).args(arguments).env("PYTHONPATH", top.join(".tools/clients"));
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(seconds(300), output).await.expect("a client did not end within 300 s").unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    text.lines().map(str::to_owned).collect()
}
