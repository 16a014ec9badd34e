use serde_json::json;

use super::{OTA, apply, path, until_status};
use crate::harness::{Bundle, LostAnswers, World, eventually, seconds, sha256};

#[tokio::test]
async fn a_bundle_makes_its_update_or_joins_it() {
    let world = World::start().await;
    let admin = world.at_one_gateway();
    let bytes = Bundle::of("1.2.0");
    let upload =
        async |name: &str, fields: &[(&str, &str)]| Bundle::upload(&admin, name, &bytes, fields).await;
    let made = upload("../../tmp/webmacs-update-1.2.0.tar.gz", &[("changelog", "Faster")]).await.expect(201);
    for (field, value) in [
        ("version", json!("1.2.0")),
        ("changelog", json!("Faster")),
        ("status", json!("pending")),
        ("has_firmware_file", json!(true)),
        ("file_size_bytes", json!(bytes.len())),
        ("file_hash_sha256", json!(sha256(&bytes))),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    let message = made["message"].as_str().unwrap();
    assert!(message.starts_with("webmacs-update-1.2.0.tar.gz (") && message.contains(" bytes)"), "{message}");
    assert_eq!(upload("webmacs-update-1.2.0.tar.gz", &[]).await.expect(409)["code"], "firmware_exists");
    let known = json!({"version": "1.3.0", "changelog": "Known", "file_hash_sha256": sha256(&bytes)});
    let known = world.admin.post(OTA, known).await.expect(201);
    let joined = upload("x.tgz", &[("version", "1.3.0")]).await.expect(201);
    assert_eq!((&joined["public_id"], &joined["changelog"]), (&known["public_id"], &json!("Known")));
    assert_eq!(joined["has_firmware_file"], true);
    upload("x.tgz", &[("version", "1.3.0")]).await.error(409);
    // A deleted update leaves nothing.
    for update in [&made, &joined] {
        world.admin.delete(&path(update["public_id"].as_str().unwrap())).await.expect(200);
    }
    eventually(seconds(20), async || world.staged_files().await.is_empty()).await;
    eventually(seconds(20), async || world.count_events("firmware_files_removed").await == 2).await;
    upload("webmacs-update-1.2.0.tar.gz", &[]).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn what_is_no_bundle_is_refused_and_leaves_nothing() {
    let world = World::with(|config| config.firmware.max_file_bytes = 100_000).await;
    let admin = world.at_one_gateway();
    let bytes = Bundle::of("1.2.0");
    let upload = async |name: &str, bytes: &[u8], fields: &[(&str, &str)]| {
        Bundle::upload(&admin, name, bytes, fields).await
    };
    let fine = "firmware-1.2.0.tar.gz";
    for name in ["firmware-1.2.0.zip", "firmware-1.2.0", "", "firmware-1.2.0.tar.gz.exe"] {
        upload(name, &bytes, &[]).await.error(400);
    }
    upload(fine, b"", &[]).await.error(400);
    upload(fine, &vec![0; 100_001], &[]).await.error(413);
    upload("firmware.tar.gz", &bytes, &[]).await.error(422);
    upload(fine, &bytes, &[("version", "1.2")]).await.error(422);
    upload(fine, &bytes, &[("file_hash_sha256", "x")]).await.error(422);
    upload(fine, &bytes, &[("signature", "x")]).await.error(422);
    upload(fine, &bytes, &[("changelog", &"x".repeat(20_000))]).await.error(422);
    let message = upload(fine, &bytes, &[("file_hash_sha256", &"ab".repeat(32))]).await.error(400);
    assert!(message.contains(&sha256(&bytes)), "{message}");
    let request = |kind: &str, body: &'static str| {
        let request = admin.request(reqwest::Method::POST, "/api/v1/ota/upload");
        request.header("content-type", kind.to_owned()).body(body)
    };
    admin.send(request("text/plain", "x")).await.error(422);
    admin.send(request("multipart/form-data; boundary=b", "--b--\r\n")).await.error(422);
    let cut = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a-1.2.0.tar.gz\"\r\n\r\nabc";
    admin.send(request("multipart/form-data; boundary=b", cut)).await.error(400);
    let operator = world.user("operator", "operator").await;
    Bundle::upload(&operator, fine, &bytes, &[]).await.error(403);
    Bundle::upload(&world.anonymous(), fine, &bytes, &[]).await.error(401);
    assert_eq!(world.count_events("firmware_created").await, 0);
    eventually(seconds(20), async || world.staged_files().await.is_empty()).await;
    upload(fine, &bytes, &[("file_hash_sha256", &sha256(&bytes))]).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn a_repeated_upload_is_one() {
    let world = World::start().await;
    let admin = world.at_one_gateway();
    let bytes = Bundle::of("1.2.0");
    let upload = async |bytes: &[u8]| {
        let request = Bundle::uploading(&admin, "firmware-1.2.0.tar.gz", bytes, &[]);
        admin.send(request.header("idempotency-key", "once")).await
    };
    let first = upload(&bytes).await.expect(201);
    assert_eq!(upload(&bytes).await.expect(201), first);
    upload(&Bundle::of("other")).await.error(422);
    assert_eq!(world.count_events("firmware_created").await, 1);
    eventually(seconds(20), async || world.staged_files().await.len() == 1).await;
    world.finish().await;
}

#[tokio::test]
async fn a_bundle_stays_when_the_answer_to_its_command_is_lost() {
    let world = World::start().await;
    let admin = world.at_one_gateway();
    let lost = LostAnswers::first(&world, "fleet").await;
    let mut made = Vec::new();
    eventually(seconds(20), async || {
        let version = format!("1.{}.0", made.len());
        let name = format!("firmware-{version}.tar.gz");
        let update = Bundle::upload(&admin, &name, &Bundle::of(&version), &[]).await.expect(201);
        made.push(update["public_id"].as_str().unwrap().to_owned());
        lost.count() > 0
    })
    .await;
    drop(lost);
    for update in made {
        apply(&world.admin, &update).await.expect(202);
        until_status(&world.admin, &update, "completed").await;
    }
    world.finish().await;
}
