use serde_json::json;

use super::{announced, apply, current, path, until_status, versions};
use crate::harness::{Bundle, Reply, StandIn, World, eventually, is_once, seconds, sha256};

#[tokio::test]
async fn a_bundle_is_fetched_when_it_is_applied() {
    let world = World::start().await;
    let bytes = Bundle::of("1.2.0");
    let served = bytes.clone();
    let server = StandIn::start(move |_| Reply::Bytes(served.clone())).await;
    let id = announced(&world, "1.2.0", &format!("{}/f.tar.gz", server.url)).await;
    apply(&world.admin, &id).await.expect(202);
    let done = until_status(&world.admin, &id, "completed").await;
    assert_eq!(done["file_hash_sha256"], sha256(&bytes));
    assert_eq!((&done["file_size_bytes"], &done["has_firmware_file"]), (&json!(bytes.len()), &json!(true)));
    assert_eq!(current(&world).as_deref(), Some("1.2.0"));
    let seen = server.seen("GET /f.tar.gz");
    assert!(is_once(seen.len() as u64) && seen[0].header("authorization").is_empty());
    world.finish().await;
}

#[tokio::test]
async fn a_hindered_update_is_continued_and_not_counted_as_crashed() {
    let world = World::start().await;
    let server = StandIn::start(|_| Reply::Bytes(Bundle::of("1.2.0"))).await;
    let id = announced(&world, "1.2.0", &server.url).await;
    // A file stands where the folder of the bundle would be made.
    let blobs = world.config.storage.folder.join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let obstacle = blobs.join(&id);
    std::fs::write(&obstacle, "").unwrap();
    apply(&world.admin, &id).await.expect(202);
    eventually(seconds(60), async || server.seen("GET").len() > 4).await;
    assert_eq!(world.admin.get(&path(&id)).await.expect(200)["status"], "downloading");
    std::fs::remove_file(&obstacle).unwrap();
    until_status(&world.admin, &id, "completed").await;
    assert!(is_once(world.count_events("firmware_claimed").await as u64));
    world.finish().await;
}

#[tokio::test]
async fn what_cannot_be_fetched_fails_with_the_reason_and_may_be_tried_again() {
    let world = World::with(|config| config.firmware.max_file_bytes = 100_000).await;
    let elsewhere = StandIn::start(|_| Reply::Bytes(Bundle::of("1.2.0"))).await;
    let server = StandIn::start(|_| Reply::Status(404)).await;
    let id = announced(&world, "1.2.0", &server.url).await;
    let away = elsewhere.url.clone();
    for (number, (reply, reason)) in [
        (Reply::Status(404), "404"),
        (Reply::Away(away), "redirects are not followed"),
        (Reply::Bytes(Vec::new()), "empty"),
        (Reply::Bytes(vec![0; 100_001]), "larger than"),
        (Reply::Text("no archive".to_owned()), "not a valid .tar.gz"),
    ]
    .into_iter()
    .enumerate()
    {
        server.behave(move |_| reply.clone());
        apply(&world.admin, &id).await.expect(202);
        let failed = until_status(&world.admin, &id, "failed").await;
        let message = failed["error_message"].as_str().unwrap();
        assert!(message.contains(reason), "{reason}: {message}");
        assert_eq!(message.starts_with("download_failed:"), number < 4, "{message}");
        assert_eq!((&failed["has_firmware_file"], versions(&world)), (&json!(false), Vec::new()));
    }
    assert_eq!(elsewhere.seen("").len(), 0);
    eventually(seconds(20), async || world.staged_files().await.is_empty()).await;
    // Another address, and what is to come from there.
    let wrong = json!({"download_url": elsewhere.url, "file_hash_sha256": "ab".repeat(32)});
    world.admin.post(&format!("{}/apply", path(&id)), wrong).await.expect(202);
    let failed = until_status(&world.admin, &id, "failed").await;
    assert!(failed["error_message"].as_str().unwrap().contains("SHA-256"), "{failed}");
    assert_eq!(versions(&world), Vec::<String>::new());
    let right = json!({"file_hash_sha256": sha256(&Bundle::of("1.2.0"))});
    world.admin.post(&format!("{}/apply", path(&id)), right).await.expect(202);
    until_status(&world.admin, &id, "completed").await;
    assert_eq!(current(&world).as_deref(), Some("1.2.0"));
    world.finish().await;
}

#[tokio::test]
async fn a_name_that_leads_into_the_own_network_is_not_fetched_from() {
    let world = World::with(|config| config.egress.allowed_networks.clear()).await;
    let server = StandIn::start(|_| Reply::Bytes(Bundle::of("1.2.0"))).await;
    let by_name = server.url.replace("127.0.0.1", "localhost");
    let id = announced(&world, "1.2.0", &by_name).await;
    apply(&world.admin, &id).await.expect(202);
    let failed = until_status(&world.admin, &id, "failed").await;
    assert!(failed["error_message"].as_str().unwrap().contains("may not be reached"), "{failed}");
    assert_eq!((server.seen("").len(), versions(&world)), (0, Vec::new()));
    world.finish().await;
}
