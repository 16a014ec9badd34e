//! Files that the owner of a transfer uploads to an agent, without an agent at the source.

use std::io;

use futures::{StreamExt, stream};
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};
use signalbox_domain::transfer::{Transfer, TransferCommand};
use signalbox_test_support::metadata;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{
    AgentAccount, Client, Folder, RealAgent, Transport, World, bytes, encode, eventually, seconds, sha256,
};

async fn request(client: &Client, to: &AgentAccount, more: Value) -> i64 {
    let mut transfer =
        json!({"source_agent_id": null, "destination_agent_id": to.id, "destination_path": "in/Bücher.bin"});
    transfer.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    client.post("/api/transfers", transfer).await.expect(201)["id"].as_i64().unwrap()
}

fn put(client: &Client, id: i64, name: &str) -> RequestBuilder {
    client.request(Method::PUT, &format!("/api/transfers/{id}/content?filename={}", encode(name)))
}

#[tokio::test]
async fn uploaded_file_arrives_at_the_agent() {
    let world = World::start().await;
    let (to, folder) = (world.agent("press").await, Folder::new());
    let operator = world.user("operator", "operator").await;
    let agent = RealAgent::start(&world.admin.url(""), &to.token, &folder, Transport::Auto);
    let content = bytes(300_000);
    for (name, size) in [("Bücher.bin", 300_000), ("empty", 0)] {
        let id = request(&operator, &to, json!({"filename": name, "destination_path": format!("in/{name}")}))
            .await;
        let path = format!("/api/transfers/{id}");
        let waiting = operator.get(&path).await.expect(200);
        assert_eq!(
            (&waiting["source_agent_id"], &waiting["filename"], &waiting["phase"]),
            (&Value::Null, &json!(name), &json!("dispatched"))
        );
        let stored = operator.send(put(&operator, id, name).body(content[..size].to_vec())).await.expect(200);
        let digest = sha256(&content[..size]);
        assert_eq!(stored, json!({"transfer_id": id, "filename": name, "size": size, "sha256": digest}));
        let done = operator.until(path, |transfer| transfer["phase"] == "done").await;
        assert_eq!(
            (&done["status"], &done["proven"], &done["sha256"]),
            (&json!("completed"), &json!(true), &json!(digest))
        );
        assert_eq!(folder.read(&format!("in/{name}")), &content[..size]);
        // A transfer whose file has arrived accepts no other.
        operator.send(put(&operator, id, name).body("more")).await.error(409);
    }
    agent.stop().await;
    world.finish().await;
}

/// The wake-up of a cancellation may be lost on its way to the gateway.
#[tokio::test]
async fn upload_of_a_cancelled_transfer_is_cut_without_a_wakeup() {
    let world = World::start().await;
    let to = world.agent("press").await;
    let id = request(&world.admin, &to, json!({})).await;
    world.until_phase(id, "dispatched").await;
    let begun = stream::iter([Ok::<_, io::Error>(vec![0; 1000])]).chain(stream::pending());
    let upload = world.admin.send(put(&world.admin, id, "f").body(Body::wrap_stream(begun)));
    let cancel = async {
        eventually(seconds(10), async || !world.staged_files().await.is_empty()).await;
        let key = sqlx::query_scalar("SELECT id FROM read.transfers WHERE number = $1").bind(id);
        let key = key.fetch_one(&world.servers.pool).await.unwrap();
        let cancel = TransferCommand::Cancel;
        world.servers.bus.send::<Transfer>(key, None, &metadata(), &cancel).await.unwrap();
    };
    let (cut, ()) = tokio::join!(timeout(seconds(30), upload), cancel);
    let refusal = cut.expect("the upload was not cut").error(409);
    assert!(refusal.contains("has ended"), "{refusal}");
    world.finish_with_mail().await;
}

/// Sends the head of a request with a body of 6,000 bytes, and half of it.
async fn send_half(client: &Client, world: &World, target: &str, half: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "{target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 6000\r\n\r\n",
        client.token.as_deref().unwrap_or_default()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(half).await.unwrap();
    stream
}

/// The body is short, so that it would arrive at once from a client that is not slow.
#[tokio::test]
async fn short_bodies_end_with_their_session() {
    let world = World::start().await;
    let (to, user) = (world.agent("press").await, world.user("anna", "operator").await);
    let id = request(&user, &to, json!({})).await;
    user.until(format!("/api/transfers/{id}"), |transfer| transfer["phase"] == "dispatched").await;
    let upload = format!("PUT /api/transfers/{id}/content?filename=f");
    let upload = send_half(&user, &world, &upload, &[7; 3000]).await;
    let entry = send_half(&user, &world, "POST /api/v1/logging", b"{\"content\": \"").await;
    eventually(seconds(10), async || !world.staged_files().await.is_empty()).await;
    user.post("/api/v1/auth/logout", json!({})).await.expect(200);
    for mut stream in [upload, entry] {
        let mut answer = vec![0; 12];
        let read = timeout(seconds(10), stream.read_exact(&mut answer)).await;
        read.expect("the body was not cut").unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 401");
        // The other half changes nothing. It may be refused already.
        let _ = stream.write_all(&[7; 3000]).await;
    }
    assert_eq!(world.count_events("files_staged").await, 0);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn transfers_to_a_deleted_agent_fail_before_the_upload() {
    let world = World::start().await;
    let (from, to) = (world.agent("press").await, world.agent("store").await);
    let transfers = [request(&world.admin, &to, json!({})).await, world.transfer(&from, &to, "a", "b").await];
    for id in transfers {
        world.until_phase(id, "dispatched").await;
    }
    world.admin.delete(&format!("/api/agents/{}", to.id)).await.expect(204);
    sqlx::query("UPDATE read.transfers SET active_at = active_at - interval '1 minute'")
        .execute(&world.servers.pool)
        .await
        .unwrap();
    for id in transfers {
        let failed = world.until_ended(id).await;
        let expected = format!("agent {} has been deleted", to.id);
        assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!(expected)));
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn upload_is_the_owners_alone() {
    let world = World::start().await;
    let (to, other) = (world.agent("press").await, world.agent("store").await);
    let (operator, viewer) = (world.user("operator", "operator").await, world.user("viewer", "viewer").await);
    let id = request(&operator, &to, json!({})).await;
    operator.send(put(&world.admin, id, "f").body("x")).await.error(404);
    operator.send(put(&operator, id + 1000, "f").body("x")).await.error(404);
    viewer.send(put(&viewer, id, "f").body("x")).await.error(403);
    world.anonymous().send(put(&world.anonymous(), id, "f").body("x")).await.error(401);
    // Routes of agents are for agents, and the destination is not the source.
    for agent in [&to, &other] {
        let agent = world.as_agent(agent);
        agent.send(put(&agent, id, "f").body("x")).await.error(401);
        let upload = agent.request(Method::PUT, &format!("/api/files/{id}/upload")).body("x");
        agent.send(upload).await.error(404);
    }
    let upload = operator.request(Method::PUT, &format!("/api/files/{id}/upload")).body("x");
    operator.send(upload).await.error(401);
    // A transfer between agents takes no file from its owner.
    let between = world.transfer(&other, &to, "a", "b").await;
    let refused = world.admin.send(put(&world.admin, between, "a").body("x")).await.error(409);
    assert!(refused.contains("source agent"), "{refused}");
    operator.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
    operator.send(put(&operator, id, "f").body("x")).await.error(409);
    world.admin.post(&format!("/api/transfers/{between}/cancel"), json!({})).await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn limits_and_digests_are_those_of_agents() {
    let world = World::with(|config| config.transfer.max_file_bytes = 1000).await;
    let to = world.agent("press").await;
    let id = request(&world.admin, &to, json!({"size": 1000})).await;
    let admin = world.at_one_gateway();
    admin.send(put(&admin, id, "f").body(vec![0; 1001])).await.error(413);
    let digest = sha256(b"other bytes");
    admin.send(put(&admin, id, "f").header("x-content-sha256", digest).body("bytes")).await.error(400);
    for name in ["", "..", "a/.."] {
        admin.send(put(&admin, id, name).body("x")).await.error(400);
    }
    // In two parts, as after an interruption.
    let content = bytes(1000);
    let part = |range: &str, bytes: &[u8]| {
        put(&admin, id, "f").header("content-range", format!("bytes {range}/1000")).body(bytes.to_vec())
    };
    let first = admin.send(part("0-599", &content[..600])).await;
    assert_eq!((first.status, first.header("range")), (308, Some("bytes=0-599")));
    let asked = admin.send(put(&admin, id, "f").header("content-range", "bytes */1000")).await;
    assert_eq!((asked.status, asked.header("range")), (308, Some("bytes=0-599")));
    let last = admin.send(part("600-999", &content[600..])).await.expect(200);
    assert_eq!(last["sha256"], sha256(&content));
    world.until_phase(id, "staged").await;
    let ask = |total: usize| put(&admin, id, "f").header("content-range", format!("bytes */{total}"));
    assert_eq!(admin.send(ask(1000)).await.expect(200), last);
    admin.send(ask(999)).await.error(409);
    world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn source_agent_is_null_or_required() {
    let world = World::start().await;
    let to = world.agent("press").await;
    let transfer = |more: Value| {
        let mut transfer = json!({"destination_agent_id": to.id, "destination_path": "in/f"});
        transfer.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        transfer
    };
    let missing = world.admin.post("/api/transfers", transfer(json!({"source_path": "f"}))).await.error(400);
    assert!(missing.contains("source_agent_id"), "{missing}");
    let tree = transfer(json!({"source_agent_id": null, "source_path": "f/"}));
    world.admin.post("/api/transfers", tree).await.error(400);
    let id = request(&world.admin, &to, json!({})).await;
    let shown = world.admin.get(&format!("/api/transfers/{id}")).await.expect(200);
    assert_eq!((&shown["filename"], &shown["source_path"]), (&json!("Bücher.bin"), &json!("Bücher.bin")));
    // Of a job, null is nothing: its agents stand in.
    let job = json!({"name": "j", "source_agent_id": to.id, "destination_agent_id": to.id, "source_path": "a",
        "destination_path": "b"});
    let job = world.admin.post("/api/jobs", job).await.expect(201)["id"].clone();
    let of_job = json!({"job_id": job, "source_agent_id": null});
    let of_job = world.admin.post("/api/transfers", of_job).await.expect(201);
    assert_eq!(of_job["source_agent_id"], to.id);
    for transfer in [id, of_job["id"].as_i64().unwrap()] {
        world.admin.post(&format!("/api/transfers/{transfer}/cancel"), json!({})).await.expect(200);
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn file_that_is_not_uploaded_fails_the_transfer_after_a_day() {
    let world = World::start().await;
    let to = world.agent("press").await;
    let id = request(&world.admin, &to, json!({})).await;
    let phase = async || world.admin.get(&format!("/api/transfers/{id}")).await.expect(200);
    assert_eq!(phase().await["phase"], "dispatched");
    sqlx::query("UPDATE read.transfers SET active_at = active_at - interval '25 hours'")
        .execute(&world.servers.pool)
        .await
        .unwrap();
    eventually(seconds(30), async || phase().await["status"] == "failed").await;
    assert_eq!(phase().await["error"], "its file was not uploaded within a day");
    world.finish().await;
}
