//! Files in a bucket: gateways and workers on machines that share nothing but the servers.

use futures::{StreamExt, stream};
use reqwest::{Body, Method};
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_domain::kernel::AgentId;
use signalbox_messaging::Mailbox;
use signalbox_test_support::S3Server;

use super::transfers::pair::Pair;
use crate::harness::{
    Folder,
    Transport::{Polling, Websocket},
    World, bytes, eventually, eventually_some, in_bucket, seconds, segments, sha256, signalbox,
};

#[tokio::test]
async fn what_one_machine_takes_another_gives() {
    let server = S3Server::shared().await;
    let (prefix, adjust) = in_bucket(server);
    let (mut world, machine) = (World::with(adjust).await, Folder::new());
    let other = world.gateway_elsewhere(&machine).await;
    let pair = Pair::new(&world).await;
    let content = bytes(5_000_000);
    pair.source.write("big", &content);
    for index in 0..12 {
        pair.source.write(&format!("tree/ü {index}"), bytes(index * 1000));
    }
    let from = pair.start_source(&world.anonymous().url(""), Websocket);
    let to = pair.start_target(&other.url(""), Polling);
    let (single, tree) =
        (pair.transfer(&world, "big", "big").await, pair.transfer(&world, "tree/", "tree").await);
    for id in [single, tree] {
        let done = world.until_ended(id).await;
        assert_eq!((&done["status"], &done["proven"]), (&json!("completed"), &json!(true)), "{done}");
    }
    assert!(pair.target.read("big") == content);
    assert_eq!(pair.target.list("tree"), pair.source.list("tree"));
    assert!(world.local_files().is_empty(), "{:?}", world.local_files());
    assert_eq!(machine.list("blobs"), Vec::<String>::new());
    assert!(segments(server, &prefix).await.len() >= 5 + 11);
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn an_interrupted_upload_resumes_at_another_gateway() {
    let server = S3Server::shared().await;
    let (prefix, adjust) = in_bucket(server);
    let (mut world, machine) = (World::with(adjust).await, Folder::new());
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let id = world.transfer(&from, &to, "/in/f", "/out").await;
    world.until_phase(id, "dispatched").await;
    let other = world.gateway_elsewhere(&machine).await.with_token(&from.token);
    let content = bytes(4_000_000);
    let path = format!("/api/files/{id}/upload?filename=f");

    let (first, broken) = (content[..2_500_000].to_vec(), std::io::Error::other("the wire broke"));
    let body = Body::wrap_stream(stream::iter([Ok(first), Err(broken)]));
    let put = reqwest::Client::new().put(world.anonymous().url(&path)).bearer_auth(&from.token);
    assert!(put.body(body).send().await.is_err());

    let part = async |range: String, body: &[u8]| {
        let put = other.request(Method::PUT, &path).header("content-range", range).body(body.to_vec());
        other.send(put).await
    };
    // Until the first gateway has taken in all that the wire had carried, there may be more than it had said: then it is asked
    // again, as agents do.
    let whole = eventually_some(seconds(30), async || {
        let asked = part("bytes */4000000".to_owned(), b"").await;
        let next = asked.header("range")?.strip_prefix("bytes=0-")?.parse::<usize>().ok()? + 1;
        assert!(next <= 2_500_000, "{next}");
        // A segment is kept at least.
        if next < 1 << 20 {
            return None;
        }
        let sent = part(format!("bytes {next}-3999999/4000000"), &content[next..]).await;
        (![409, 416].contains(&sent.status)).then(|| sent.expect(200))
    })
    .await;
    assert_eq!((&whole["size"], &whole["sha256"]), (&json!(4_000_000), &json!(sha256(&content))));

    let report = json!({"type": "transfer_complete", "data": {"transfer_id": id.to_string(), "duration": 1}});
    world.as_agent(&from).post("/api/agent/messages", report).await.expect(200);
    world.until_phase(id, "staged").await;
    let target = world.as_agent(&to);
    let download = format!("/api/files/{id}/download");
    let ranged = target.request(Method::GET, &download).header("range", "bytes=1048570-2100000");
    let part = target.send(ranged).await;
    assert!(part.status == 206 && part.body == content[1_048_570..=2_100_000], "{}", part.status);
    let head = target.send(target.request(Method::HEAD, &download)).await;
    assert_eq!((head.status, head.header("content-length")), (200, Some("4000000")));

    // Files of a cancelled transfer are deleted.
    assert!(!segments(server, &prefix).await.is_empty());
    world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
    eventually(seconds(30), async || segments(server, &prefix).await.is_empty()).await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_document_is_read_on_another_machine_than_the_one_that_took_it() {
    let server = S3Server::shared().await;
    let (prefix, adjust) = in_bucket(server);
    let adjust = |config: &mut Config| {
        adjust(config);
        config.extraction.parsers = 1;
    };
    let (mut world, machine) = (World::without_workers(Clock::system(), adjust).await, Folder::new());
    world.another_process_in(machine.path("")).await.work().await;
    let client = world.user("owner", "operator").await;
    let form = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n\
                written here, read there\r\n--b--\r\n";
    let request = client.request(Method::POST, "/api/v1/jobs");
    let request = request.header("content-type", "multipart/form-data; boundary=b").body(form);
    let submitted = client.send(request).await.expect(202);
    let path = format!("/api/v1/jobs/{}", submitted["job_id"].as_str().unwrap());
    let done = client.until(path.clone(), |job| job["status"] == "completed").await;
    assert_eq!(done["result_content"], "written here, read there");
    // The document is deleted when the job has finished; its text and the cached one stay.
    eventually(seconds(30), async || segments(server, &prefix).await.len() == 2).await;
    client.delete(&path).await;
    world.finish().await;
}

#[tokio::test]
async fn a_transfer_outlives_the_death_of_the_server_in_its_middle() {
    let server = S3Server::start().await;
    let (prefix, adjust) = in_bucket(&server);
    let world = World::with(adjust).await;
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let id = world.transfer(&from, &to, "/in/f", "/out").await;
    world.until_phase(id, "dispatched").await;
    let source = world.as_agent(&from);
    let content = bytes(6_000_000);
    let path = format!("/api/files/{id}/upload?filename=f");

    // The second half is sent when the server is gone.
    let (gone, mut is_gone) = tokio::sync::watch::channel(false);
    let (first, second) = (content[..3_000_000].to_vec(), content[3_000_000..].to_vec());
    let rest = stream::once(async move {
        is_gone.wait_for(|gone| *gone).await.unwrap();
        Ok::<_, std::io::Error>(second)
    });
    let body = Body::wrap_stream(stream::iter([Ok(first)]).chain(rest));
    let uploading = source.send(source.request(Method::PUT, &path).body(body));
    let breaking = async {
        eventually(seconds(30), async || segments(&server, &prefix).await.len() >= 2).await;
        server.kill().await;
        gone.send_replace(true);
    };
    let (answer, ()) = tokio::join!(uploading, breaking);
    assert!(answer.error(503).contains("storage of files cannot be reached"));
    let asked = source.request(Method::PUT, &path).header("content-range", "bytes */6000000");
    source.send(asked).await.error(503);

    server.restart().await;
    let asked = source.request(Method::PUT, &path).header("content-range", "bytes */6000000");
    let answer = source.send(asked).await;
    assert_eq!(answer.status, 308, "it is not there half");
    let next: usize =
        answer.header("range").unwrap().strip_prefix("bytes=0-").unwrap().parse::<usize>().unwrap() + 1;
    assert!(next >= 1 << 20, "{next}");
    let rest =
        source.request(Method::PUT, &path).header("content-range", format!("bytes {next}-5999999/6000000"));
    let whole = source.send(rest.body(content[next..].to_vec())).await.expect(200);
    assert_eq!(whole["sha256"], sha256(&content));
    world.finish_with_mail().await;
}

#[tokio::test]
async fn real_agents_wait_for_a_restarted_server() {
    let server = S3Server::start().await;
    let (_, adjust) = in_bucket(&server);
    let world = World::with(adjust).await;
    let pair = Pair::new(&world).await;
    let content = bytes(3_000_000);
    pair.source.write("f", &content);
    server.kill().await;
    let agents = pair.start(&world, Websocket, Websocket);
    let id = pair.transfer(&world, "f", "g").await;
    world.until_phase(id, "uploading").await;
    server.restart().await;
    let done = world.until_ended(id).await;
    assert_eq!(done["status"], "completed", "{done}");
    assert!(pair.target.read("g") == content);
    agents.stop().await;
    world.finish().await;
}

/// Each waited for the removals before it, which take 10 s while the bucket is away.
#[tokio::test]
async fn cancelled_agents_are_notified_while_the_bucket_is_away() {
    let server = S3Server::start().await;
    let (_, adjust) = in_bucket(&server);
    let world = World::with(adjust).await;
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let mut transfers = Vec::new();
    for index in 0..8 {
        let id = world.transfer(&from, &to, &format!("/in/{index}"), "/out").await;
        world.until_phase(id, "dispatched").await;
        transfers.push(id);
    }
    server.kill().await;
    for id in &transfers {
        world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
    }
    let agent: uuid::Uuid = sqlx::query_scalar("SELECT id FROM read.agents WHERE number = $1")
        .bind(from.id)
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    let mailbox = Mailbox::open(&world.servers.bus).await.unwrap();
    let are_notified = async || {
        for id in &transfers {
            if mailbox.find(AgentId(agent), &format!("cancel.{id}")).await.unwrap().is_none() {
                return false;
            }
        }
        true
    };
    eventually(seconds(35), are_notified).await;
    server.restart().await;
    eventually(seconds(60), async || world.count_events("staged_bytes_deleted").await == 8).await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn the_doctor_looks_at_the_bucket_and_says_how_to_mend_it() {
    let server = S3Server::shared().await;
    let (_, adjust) = in_bucket(server);
    let mut world = World::with(adjust).await;
    let bucket = async |config: &Config| {
        let said = signalbox(config, &["doctor"]).await.out;
        said.lines().skip_while(|line| !line.contains(" bucket ")).take(2).collect::<Vec<_>>().join("\n")
    };
    let found = bucket(&world.config).await;
    assert!(
        found.starts_with("ok ") && found.contains("can be written, read, listed and deleted"),
        "{found}"
    );
    world.config.storage.secret_access_key = signalbox_config::Secret::new("a wrong key".to_owned());
    let found = bucket(&world.config).await;
    assert!(found.starts_with("FAILURE ") && found.contains("not possible to write"), "{found}");
    assert!(
        found.contains("→ see that storage.endpoint answers") && !found.contains("a wrong key"),
        "{found}"
    );
    world.config.storage.endpoint = "http://127.0.0.1:1".to_owned();
    let found = bucket(&world.config).await;
    assert!(found.contains("not possible to write") && found.contains("→ see that"), "{found}");
    world.finish().await;
}
