//! Bytes of transfers: uploads, downloads, resuming, limits.

use futures::stream;
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::harness::{
    AgentAccount, Answer, Client, World, bytes, encode, eventually, eventually_some, seconds, sha256,
};

/// A transfer that waits for its upload, and its two agents.
struct Staging {
    id: i64,
    from: AgentAccount,
    to: AgentAccount,
    source: Client,
    target: Client,
}

impl Staging {
    async fn new(world: &World, source_path: &str) -> Self {
        let (from, to) = (world.agent("source").await, world.agent("destination").await);
        let id = world.transfer(&from, &to, source_path, "/out").await;
        world.until_phase(id, "dispatched").await;
        let (source, target) = (world.as_agent(&from), world.as_agent(&to));
        Self { id, from, to, source, target }
    }

    fn put(&self, client: &Client, name: &str) -> RequestBuilder {
        client.request(Method::PUT, &format!("/api/files/{}/upload?filename={}", self.id, encode(name)))
    }

    async fn upload(&self, name: &str, content: &[u8]) -> Answer {
        self.source.send(self.put(&self.source, name).body(content.to_vec())).await
    }

    async fn report(&self, client: &Client, kind: &str) {
        let data = json!({"transfer_id": self.id.to_string(), "duration": 1, "error": "e"});
        client.post("/api/agent/messages", json!({"type": kind, "data": data})).await.expect(200);
    }

    async fn stage(&self, world: &World, name: &str, content: &[u8]) {
        self.upload(name, content).await.expect(200);
        self.report(&self.source, "transfer_complete").await;
        world.until_phase(self.id, "staged").await;
    }

    fn download(&self, client: &Client) -> RequestBuilder {
        client.request(Method::GET, &self.path("download"))
    }

    fn path(&self, what: &str) -> String {
        format!("/api/files/{}/{what}", self.id)
    }
}

#[tokio::test]
async fn an_upload_says_what_has_arrived() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let content = bytes(100_000);
    let out = staging.upload("f ü.bin", &content).await.expect(200);
    assert_eq!(
        out,
        json!({"transfer_id": staging.id, "filename": "f ü.bin", "size": 100_000, "agent_id": staging.from.id,
        "sha256": sha256(&content)})
    );
    let again = staging.upload("f ü.bin", &content).await.expect(200);
    assert_eq!(again, out);
    // Another name would be a second file.
    staging.upload("g", b"x").await.error(409);
    let shown = world.admin.get(&format!("/api/transfers/{}", staging.id)).await.expect(200);
    assert_eq!((&shown["phase"], &shown["files"][0]["name"]), (&json!("uploading"), &json!("f ü.bin")));
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_directory_entry_with_a_body_is_refused() {
    let world = World::start().await;
    let tree = Staging::new(&world, "/in/").await;
    let chunked = Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>("x")]));
    let ranged = tree.put(&tree.source, "a/").header("content-range", "bytes 0-0/1").body("x");
    for put in [tree.put(&tree.source, "a/").body("x"), tree.put(&tree.source, "a/").body(chunked), ranged] {
        let error = tree.source.send(put).await.error(400);
        assert!(error.contains("directory"), "{error}");
    }
    tree.upload("a/", b"").await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_transfer_shows_the_bytes_of_its_file_and_its_aliases() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let show = async || world.admin.get(&format!("/api/transfers/{}", staging.id)).await.expect(200);
    let new = show().await;
    let fields = ["size", "bytes_transferred", "proven", "start_time", "end_time"];
    assert_eq!(
        fields.map(|field| &new[field]),
        [&json!(0), &json!(0), &Value::Null, &Value::Null, &Value::Null]
    );
    staging.stage(&world, "f", &bytes(1000)).await;
    let staged = show().await;
    assert_eq!((&staged["size"], &staged["bytes_transferred"]), (&json!(1000), &json!(1000)), "{staged}");
    assert_eq!((&staged["progress"], &staged["proven"]), (&json!(0.5), &Value::Null), "{staged}");
    staging.target.send(staging.download(&staging.target)).await.expect_bytes(&bytes(1000));
    staging.report(&staging.target, "transfer_complete").await;
    let done = world.until_ended(staging.id).await;
    assert_eq!((&done["size"], &done["bytes_transferred"]), (&json!(1000), &json!(1000)), "{done}");
    assert_eq!((&done["proven"], &done["status"]), (&json!(true), &json!("completed")), "{done}");
    assert_eq!((&done["start_time"], &done["end_time"]), (&done["started_at"], &done["finished_at"]));
    assert!(done["end_time"].is_string());
    world.finish_with_mail().await;
}

#[tokio::test]
async fn names_are_taken_as_names_and_never_as_paths() {
    let world = World::start().await;
    for (given, kept) in
        [("../../etc/passwd", Some("passwd")), ("/abs", Some("abs")), ("..", None), ("a/", None), ("", None)]
    {
        let staging = Staging::new(&world, "/in/f").await;
        let answer = staging.upload(given, b"x").await;
        match kept {
            Some(name) => assert_eq!(answer.expect(200)["filename"], name, "{given}"),
            None => drop(answer.error(400)),
        }
    }
    let staging = Staging::new(&world, "/in/f").await;
    let put = staging.source.request(Method::PUT, &staging.path("upload")).body("x");
    assert_eq!(staging.source.send(put).await.expect(200)["filename"], "file.dat");
    let tree = Staging::new(&world, "/in/").await;
    for odd in ["../x", "a/../b", "/abs", "a//b", ".", "a/./b", "", &"x/".repeat(3000)] {
        tree.upload(odd, b"x").await.error(400);
    }
    tree.upload("a/b.txt", b"x").await.expect(200);
    let part = |bytes| "x".repeat(bytes);
    for (staging, long) in
        [(&staging, part(256)), (&tree, part(256)), (&tree, format!("{}/", part(255)).repeat(16) + "a")]
    {
        let error = staging.upload(&long, b"x").await.error(400);
        assert!(error.contains("bytes"), "{error}");
    }
    let longest = format!("{}/", part(255)).repeat(15) + &part(255);
    tree.upload(&longest, b"x").await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn only_the_agents_of_a_transfer_reach_its_bytes() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let stranger = world.as_agent(&world.agent("stranger").await);
    let unknown = stranger.get("/api/files/999999/download").await.error(404);
    for client in [&staging.target, &stranger] {
        let refused = client.send(staging.put(client, "f").body("x")).await;
        assert_eq!(refused.error(404), unknown);
    }
    assert!(world.staged_files().await.is_empty());
    staging.stage(&world, "f", b"secret").await;
    for what in ["download", "manifest"] {
        assert_eq!(stranger.get(&staging.path(what)).await.error(404), unknown);
    }
    // Its source may read the files that it sent; that does not start a download.
    assert_eq!(staging.source.get(&staging.path("download")).await.body, b"secret");
    assert_eq!(
        world.admin.get(&format!("/api/transfers/{}", staging.id)).await.expect(200)["phase"],
        "staged"
    );
    assert_eq!(staging.target.get(&staging.path("download")).await.body, b"secret");
    world.until_phase(staging.id, "downloading").await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn bytes_are_taken_in_their_phase_alone() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    staging.target.get(&staging.path("download")).await.error(409);
    staging.stage(&world, "f", b"x").await;
    staging.upload("f", b"y").await.error(409);
    staging.target.get(&staging.path("download")).await.expect_bytes(b"x");
    staging.report(&staging.target, "transfer_complete").await;
    assert_eq!(world.until_ended(staging.id).await["status"], "completed");
    staging.upload("f", b"y").await.error(409);
    staging.target.get(&staging.path("download")).await.expect_bytes(b"x");
    // A transfer that has not been dispatched, because its job waits between two attempts.
    let job = json!({"name": "j", "source_agent_id": staging.from.id, "destination_agent_id": staging.to.id,
        "source_path": "/a", "destination_path": "/b", "retry": {"max_attempts": 2, "backoff_seconds": 3600}});
    let job = world.admin.post("/api/jobs", job).await.id();
    let id = world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await.id();
    world.until_phase(id, "dispatched").await;
    let waiting = Staging { id, ..staging };
    waiting.report(&waiting.source, "transfer_error").await;
    world.until_phase(id, "queued").await;
    waiting.upload("f", b"y").await.error(409);
    waiting.target.get(&waiting.path("download")).await.error(409);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_wrong_checksum_keeps_nothing() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let right = sha256(b"content");
    let base64_of_zeros = format!("sha-256={}=", "A".repeat(43));
    for (header, value) in [
        ("x-content-sha256", "0".repeat(64)),
        ("x-content-sha256", "nonsense".to_owned()),
        ("digest", base64_of_zeros.clone()),
        ("digest", "sha-256=short".to_owned()),
    ] {
        let put = staging.put(&staging.source, "f").header(header, &value).body("content");
        staging.source.send(put).await.error(400);
        assert!(world.staged_files().await.is_empty(), "{header}: {value}");
    }
    let both = staging.put(&staging.source, "f").header("x-content-sha256", &right);
    staging.source.send(both.header("digest", &base64_of_zeros).body("content")).await.error(400);
    assert_eq!(world.count_events("files_staged").await, 0);
    let put =
        staging.put(&staging.source, "f").header("x-content-sha256", right.to_uppercase()).body("content");
    assert_eq!(staging.source.send(put).await.expect(200)["sha256"], right);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn an_interrupted_upload_continues_where_it_ended() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let content = bytes(1000);
    let part = async |range: &str, body: &[u8]| {
        let put = staging.put(&staging.source, "f").header("content-range", range).body(body.to_vec());
        staging.source.send(put).await
    };
    let nothing = part("bytes */1000", b"").await;
    assert_eq!((nothing.status, nothing.header("range")), (308, None));
    let first = part("bytes 0-399/1000", &content[..400]).await;
    assert_eq!((first.status, first.header("range")), (308, Some("bytes=0-399")));
    let moves = |transfer: &Value| transfer["phase"] == "uploading" && transfer["bytes_transferred"] == 400;
    world.until_transfer(staging.id, moves).await;
    let asked = part("bytes */1000", b"").await;
    assert_eq!((asked.status, asked.header("range")), (308, Some("bytes=0-399")));
    for (wrong, length) in
        [("bytes 500-999/1000", 500), ("bytes 300-999/1000", 700), ("bytes 0-99/1000", 100)]
    {
        let answer = part(wrong, &content[..length]).await;
        assert!([308, 416].contains(&answer.status), "{wrong}: {}", answer.status);
        if answer.status == 308 {
            assert_eq!(wrong, "bytes 0-99/1000");
            let back = part("bytes 100-399/1000", &content[100..400]).await;
            assert_eq!(back.status, 308, "{}", back.text());
        }
    }
    for malformed in ["bytes 9-5/10", "bytes 0-1000/1000", "lines 0-1/2", "bytes 400-999/*"] {
        part(malformed, b"x").await.error(400);
    }
    for length in [99, 101] {
        part("bytes 400-499/1000", &content[400..400 + length]).await.error(400);
    }
    let whole = part("bytes 400-999/1000", &content[400..]).await.expect(200);
    assert_eq!((&whole["size"], &whole["sha256"]), (&json!(1000), &json!(sha256(&content))));
    let complete = part("bytes */1000", b"").await.expect(200);
    assert_eq!(complete, whole);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_keeps_what_came() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let content = bytes(4_000_000);
    let (first, broken) = (content[..3_000_000].to_vec(), std::io::Error::other("the wire broke"));
    let body = Body::wrap_stream(stream::iter([Ok(first), Err(broken)]));
    let url = staging.source.url(&format!("{}?filename=f", staging.path("upload")));
    let request = reqwest::Client::new().put(url).bearer_auth(&staging.from.token).body(body);
    assert!(request.send().await.is_err());
    let asked = async || {
        let put = staging.put(&staging.source, "f").header("content-range", "bytes */4000000");
        staging.source.send(put).await
    };
    // Until the gateway has taken in all that the wire had carried, there may be more than it had said.
    let whole = eventually_some(seconds(30), async || {
        let range = asked().await.header("range")?.to_owned();
        let next = range.strip_prefix("bytes=0-").unwrap().parse::<usize>().unwrap() + 1;
        assert!(next <= 3_000_000, "{range}");
        let rest = staging
            .put(&staging.source, "f")
            .header("content-range", format!("bytes {next}-3999999/4000000"));
        let sent = staging.source.send(rest.body(content[next..].to_vec())).await;
        (![409, 416].contains(&sent.status)).then(|| sent.expect(200))
    })
    .await;
    assert_eq!(whole["sha256"], sha256(&content));
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_file_above_the_limit_is_refused_as_soon_as_it_is_known() {
    let world = World::with(|config| config.transfer.max_file_bytes = 1000).await;
    let staging = Staging::new(&world, "/in/f").await;
    let chunked = |length: usize| {
        let chunks: Vec<_> =
            bytes(length).chunks(100).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
        Body::wrap_stream(stream::iter(chunks))
    };
    staging.upload("f", &bytes(1001)).await.error(413);
    let put = staging.put(&staging.source, "f").body(chunked(1100));
    staging.source.send(put).await.error(413);
    let put = staging.put(&staging.source, "f").header("content-range", "bytes 0-9/1001").body(vec![0; 10]);
    staging.source.send(put).await.error(413);
    assert!(world.staged_files().await.is_empty(), "{:?}", world.staged_files().await);
    let put = staging.put(&staging.source, "f").body(chunked(1000));
    assert_eq!(staging.source.send(put).await.expect(200)["size"], 1000);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_download_takes_ranges_and_names_the_file() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    let content = bytes(1000);
    staging.stage(&world, "Ä \"1\".txt", &content).await;
    let get = async |headers: &[(&str, &str)]| {
        let mut request = staging.download(&staging.target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        staging.target.send(request).await
    };
    let tag = format!("\"{}\"", sha256(&content));
    let whole = get(&[]).await;
    whole.expect_bytes(&content);
    assert_eq!(whole.header("etag"), Some(tag.as_str()));
    assert_eq!(
        (whole.header("content-length"), whole.header("accept-ranges")),
        (Some("1000"), Some("bytes"))
    );
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    assert_eq!(
        whole.header("content-disposition"),
        Some("attachment; filename=\"_ _1_.txt\"; filename*=UTF-8''%C3%84%20%221%22.txt")
    );
    for (range, from, to) in [
        ("bytes=0-99", 0, 100),
        ("bytes=900-", 900, 1000),
        ("bytes=-10", 990, 1000),
        ("bytes=990-5000", 990, 1000),
    ] {
        let part = get(&[("range", range)]).await;
        assert_eq!((part.status, part.body.as_slice()), (206, &content[from..to]), "{range}");
        assert_eq!(part.header("content-range"), Some(format!("bytes {from}-{}/1000", to - 1).as_str()));
    }
    for range in ["bytes=1000-", "bytes=5000-6000"] {
        let outside = get(&[("range", range)]).await;
        outside.error(416);
        assert_eq!(outside.header("content-range"), Some("bytes */1000"), "{range}");
    }
    for ignored in ["bytes=5-1", "bytes=0-1,4-5", "lines=1-2", "bytes=x"] {
        assert_eq!(get(&[("range", ignored)]).await.status, 200, "{ignored}");
    }
    assert_eq!(get(&[("range", "bytes=0-9"), ("if-range", &tag)]).await.status, 206);
    assert_eq!(get(&[("range", "bytes=0-9"), ("if-range", "\"other\"")]).await.status, 200);
    let head = staging.target.request(Method::HEAD, &staging.path("download"));
    let head = staging.target.send(head).await;
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, Some("1000")));
    assert_eq!(head.header("etag"), Some(tag.as_str()));
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_tree_is_downloaded_as_an_archive_or_by_entry() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/Bäume/").await;
    let entries =
        [("a.txt", bytes(10)), ("tief/ö b.txt", bytes(700)), ("leer/", Vec::new()), ("zero", Vec::new())];
    for (name, content) in &entries {
        staging.upload(name, content).await.expect(200);
    }
    let partial = staging.target.get(&staging.path("manifest")).await.expect(200);
    assert_eq!((&partial["sha256"], partial["files"].as_array().unwrap().len()), (&Value::Null, 4));
    staging.report(&staging.source, "transfer_complete").await;
    world.until_phase(staging.id, "staged").await;
    let manifest = staging.target.get(&staging.path("manifest")).await.expect(200);
    let names: Vec<_> =
        manifest["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a.txt", "leer/", "tief/ö b.txt", "zero"]);
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort();
    let lines: String =
        sorted.iter().map(|(name, content)| format!("{}  {name}\n", sha256(content))).collect();
    assert_eq!(manifest["sha256"], sha256(lines.as_bytes()));
    let archive = staging.target.get(&staging.path("download")).await;
    assert_eq!((archive.status, archive.header("content-type")), (200, Some("application/x-tar")));
    let mut unpacked = Vec::new();
    for entry in tar::Archive::new(archive.body.as_slice()).entries().unwrap() {
        use std::io::Read;
        let mut entry = entry.unwrap();
        let (name, mut content) = (entry.path().unwrap().to_string_lossy().into_owned(), Vec::new());
        entry.read_to_end(&mut content).unwrap();
        unpacked.push((name, content));
    }
    let expected: Vec<_> =
        sorted.iter().map(|(name, content)| ((*name).to_owned(), content.clone())).collect();
    assert_eq!(unpacked, expected);
    for (name, content) in &entries {
        let path = format!("{}?filename={}", staging.path("download"), encode(name));
        staging.target.get(&path).await.expect_bytes(content);
    }
    staging.target.get(&format!("{}?filename=nothing", staging.path("download"))).await.error(404);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn staged_bytes_go_when_they_have_been_kept_long_enough() {
    let world = World::with(|config| config.transfer.retention_hours = 0).await;
    let staging = Staging::new(&world, "/in/f").await;
    staging.stage(&world, "f", b"x").await;
    staging.target.get(&staging.path("download")).await.expect_bytes(b"x");
    assert_eq!(world.staged_files().await.len(), 1);
    staging.report(&staging.target, "transfer_complete").await;
    assert_eq!(world.until_ended(staging.id).await["status"], "completed");
    eventually(seconds(20), async || world.count_events("staged_bytes_deleted").await == 1).await;
    assert!(world.staged_files().await.is_empty());
    eventually(seconds(30), async || staging.target.get(&staging.path("download")).await.status == 404).await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_report_without_a_digest_counts_only_after_the_whole_file() {
    let world = World::start().await;
    let content = bytes(100_000);
    for (place, range) in [None, Some("bytes=0-9"), Some("bytes=50000-")].into_iter().enumerate() {
        let staging = Staging::new(&world, &format!("/in/{place}")).await;
        staging.stage(&world, "f", &content).await;
        let asked = match range {
            None => staging.target.request(Method::HEAD, &staging.path("download")),
            Some(range) => staging.download(&staging.target).header("range", range),
        };
        staging.target.send(asked).await;
        staging.report(&staging.target, "transfer_complete").await;
        eventually(seconds(30), async || {
            let shown = world.admin.get(&format!("/api/transfers/{}", staging.id)).await.expect(200);
            shown["error"].as_str().is_some_and(|text| text.contains("of 100000 bytes"))
        })
        .await;
    }
    assert_eq!(world.count_events("transfer_completed").await, 0);
    // Ranges that make up the file do.
    let staging = Staging::new(&world, "/in/whole").await;
    staging.stage(&world, "f", &content).await;
    for range in ["bytes=0-59999", "bytes=60000-"] {
        let asked = staging.download(&staging.target).header("range", range);
        assert_eq!(staging.target.send(asked).await.status, 206);
    }
    staging.report(&staging.target, "transfer_complete").await;
    assert_eq!(world.until_ended(staging.id).await["status"], "completed");
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_download_that_starts_again_from_nothing_is_progress() {
    let world = World::start().await;
    let staging = Staging::new(&world, "/in/f").await;
    staging.stage(&world, "f", &bytes(100_000)).await;
    let noted = async |bytes: &str| -> i64 {
        let noted = sqlx::query_scalar(
            "SELECT count(*) FROM events WHERE event_type = 'transfer_progressed'
                AND payload->>'leg' = 'download' AND payload->>'bytes' = $1",
        );
        noted.bind(bytes).fetch_one(&world.servers.pool).await.unwrap()
    };
    for count in 1..=2 {
        assert_eq!(staging.target.send(staging.download(&staging.target)).await.status, 200);
        eventually(seconds(20), async || noted("0").await == count).await;
        eventually(seconds(20), async || noted("100000").await == count).await;
        let shown = "SELECT count(*) FROM read.transfers WHERE downloaded = 100000";
        eventually(seconds(20), async || {
            sqlx::query_scalar::<_, i64>(shown).fetch_one(&world.servers.pool).await.unwrap() == 1
        })
        .await;
    }
    world.finish_with_mail().await;
}
