use serde_json::json;

use super::{OTA, path};
use crate::harness::World;

#[tokio::test]
async fn an_update_is_made_known_listed_compared_and_deleted() {
    let world = World::start().await;
    let own = env!("CARGO_PKG_VERSION");
    let check = async || world.admin.get("/api/v1/ota/check").await.expect(200);
    let nothing = json!({"current_version": own, "latest_version": null, "update_available": false,
        "github_latest_version": null, "github_download_url": null, "github_release_url": null,
        "github_error": null});
    assert_eq!(check().await, nothing);
    let new = json!({"version": " 1.10.0 ", "changelog": " Faster ", "status": "completed",
        "download_url": "https://example.org/f.tar.gz", "file_hash_sha256": "AB".repeat(32)});
    let answer = world.admin.post(OTA, new).await;
    let made = answer.expect(201);
    let id = made["public_id"].as_str().unwrap();
    assert_eq!(answer.header("location"), Some(path(id).as_str()));
    for (field, value) in [
        ("version", json!("1.10.0")),
        ("changelog", json!("Faster")),
        ("download_url", json!("https://example.org/f.tar.gz")),
        ("file_hash_sha256", json!("ab".repeat(32))),
        ("file_size_bytes", json!(null)),
        ("status", json!("pending")),
        ("error_message", json!(null)),
        ("started_on", json!(null)),
        ("completed_on", json!(null)),
        ("has_firmware_file", json!(false)),
        ("is_running", json!(false)),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    let again = world.admin.post(OTA, json!({"version": "1.10.0"})).await;
    assert_eq!(again.expect(409)["code"], "firmware_exists");
    for version in ["1.9.0", "0.0.1"] {
        world.admin.post(OTA, json!({ "version": version })).await.expect(201);
    }
    let found = check().await;
    assert_eq!((&found["latest_version"], &found["update_available"]), (&json!("1.10.0"), &json!(true)));
    let listed = async |query: &str| {
        let page = world.admin.get(&format!("{OTA}?{query}")).await.expect(200);
        let updates = page["data"].as_array().unwrap();
        let versions: Vec<_> = updates.iter().map(|it| it["version"].as_str().unwrap().to_owned()).collect();
        (page["total"].as_i64().unwrap(), versions)
    };
    let versions = |versions: &[&str]| versions.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(listed("").await, (3, versions(&["0.0.1", "1.9.0", "1.10.0"])));
    assert_eq!(listed("page=2&page_size=2").await, (3, versions(&["1.10.0"])));
    assert_eq!(listed("version=1.9.0").await, (1, versions(&["1.9.0"])));
    assert_eq!(listed("status=failed").await, (0, versions(&[])));
    for wrong in ["status=installed", "page=0", "page_size=101"] {
        world.admin.get(&format!("{OTA}?{wrong}")).await.error(422);
    }
    let one = world.admin.get(&path(id)).await;
    assert_eq!(one.expect(200), made);
    let etag = one.header("etag").unwrap().to_owned();
    let delete = |tag: &str| world.admin.request(reqwest::Method::DELETE, &path(id)).header("if-match", tag);
    world.admin.send(delete("\"7\"")).await.error(412);
    let gone = world.admin.send(delete(&etag)).await.expect(200);
    assert_eq!(gone["status"], "success");
    world.admin.get(&path(id)).await.error(404);
    world.admin.delete(&path(id)).await.error(404);
    assert_eq!(check().await["latest_version"], "1.9.0");
    world.admin.post(OTA, json!({"version": "1.10.0"})).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_update_is_said_and_nothing_is_recorded() {
    let world = World::with(|config| config.egress.allowed_networks.clear()).await;
    let before = world.count_all_events().await;
    let versions = ["", "1.2", "v1.2.3", "1.2.3-rc.1", "01.2.3", "../../etc", "1.2.3/..", &"1".repeat(60)];
    for version in versions {
        let message = world.admin.post(OTA, json!({ "version": version })).await.error(422);
        assert!(message.contains("1.4.0"), "{message}");
    }
    for (field, value) in [
        ("download_url", "ftp://example.org/f.tar.gz"),
        ("download_url", "https://user:geheim@example.org/f"),
        ("download_url", "http://127.0.0.1:8080/f"),
        ("download_url", "http://2130706433/f"),
        ("download_url", "http://169.254.169.254/latest"),
        ("download_url", "http://[::ffff:10.0.0.1]/f"),
        ("file_hash_sha256", "abc"),
        ("signature", "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"),
    ] {
        let mut new = json!({"version": "1.2.3"});
        new[field] = json!(value);
        let message = world.admin.post(OTA, new).await.error(422);
        assert!(message.starts_with(field) && !message.contains("geheim"), "{message}");
    }
    assert_eq!(world.count_all_events().await, before);
    let bare = world.admin.post(OTA, json!({"version": "1.2.3"})).await.expect(201);
    let apply = format!("{}/apply", path(bare["public_id"].as_str().unwrap()));
    let request = |body: &'static str| world.admin.request(reqwest::Method::POST, &apply).body(body);
    world.admin.send(request("{")).await.error(400);
    world.admin.send(request("[]")).await.error(422);
    for wrong in [
        json!({"download_url": 5}),
        json!({"download_url": "http://10.1.2.3/"}),
        json!({"file_hash_sha256": "x"}),
    ] {
        world.admin.post(&apply, wrong).await.error(422);
    }
    let message = world.admin.send(request("")).await;
    assert_eq!(message.expect(409)["code"], "no_bundle");
    assert_eq!(world.admin.post(&apply, json!({})).await.expect(409)["code"], "no_bundle");
    world.finish().await;
}
