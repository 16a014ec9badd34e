use serde_json::json;
use sqlx::Executor as _;

use super::{apply, calls, current, hook, in_force, path, roll_back, until_status, uploaded, versions};
use crate::harness::{Bundle, Folder, SigningKey, World, eventually, seconds};

/// The log entries about firmware, oldest first.
async fn entries(world: &World) -> Vec<String> {
    let page = world.admin.get("/api/v1/logging?source=firmware").await.expect(200);
    let entries = page["data"].as_array().unwrap().iter().rev();
    entries
        .map(|it| format!("{}: {}", it["type"].as_str().unwrap(), it["content"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn versions_come_into_force_and_are_rolled_back() {
    let folder = Folder::new();
    let hook = hook(&folder, "readlink $FIRMWARE_FOLDER/current >> links; true");
    let world = World::with(|config| config.firmware.hook = hook).await;
    let first = uploaded(&world, "1.1.0").await;
    let begun = apply(&world.admin, &first).await.expect(202);
    // The worker may have gone on already.
    assert!(begun["status"] != "pending" && begun["status"] != "failed", "{begun}");
    let done = until_status(&world.admin, &first, "completed").await;
    assert_eq!((&done["is_running"], &done["error_message"]), (&json!(true), &json!(null)));
    assert!(done["started_on"].is_string() && done["completed_on"].is_string());
    assert_eq!(current(&world).as_deref(), Some("1.1.0"));
    let second = in_force(&world, "1.2.0").await;
    assert_eq!(
        (current(&world).as_deref(), versions(&world)),
        (Some("1.2.0"), vec!["1.1.0".into(), "1.2.0".into(), "current".into()])
    );
    let check = world.admin.get("/api/v1/ota/check").await.expect(200);
    assert_eq!((&check["current_version"], &check["update_available"]), (&json!("1.2.0"), &json!(false)));
    assert_eq!(apply(&world.admin, &second).await.expect(409)["code"], "invalid_transition");
    assert_eq!(world.admin.delete(&path(&second)).await.expect(409)["code"], "firmware_running");
    assert_eq!(roll_back(&world.admin, &first).await.expect(409)["code"], "firmware_not_running");
    assert_eq!(roll_back(&world.admin, &second).await.expect(200)["status"], "rolled_back");
    assert_eq!(current(&world).as_deref(), Some("1.1.0"));
    roll_back(&world.admin, &second).await.error(409);
    assert_eq!(world.admin.delete(&path(&first)).await.expect(409)["code"], "firmware_running");
    // A version that was rolled back may be applied again, and the oldest one is preceded by the product's own
    // firmware.
    apply(&world.admin, &second).await.expect(202);
    until_status(&world.admin, &second, "completed").await;
    roll_back(&world.admin, &second).await.expect(200);
    assert_eq!(roll_back(&world.admin, &first).await.expect(200)["is_running"], false);
    assert_eq!((current(&world), versions(&world)), (None, vec!["1.1.0".into(), "1.2.0".into()]));
    let check = world.admin.get("/api/v1/ota/check").await.expect(200);
    assert_eq!(check["current_version"], env!("CARGO_PKG_VERSION"));
    let expected = [
        "apply 1.1.0",
        "apply 1.2.0 1.1.0",
        "rollback 1.1.0 1.2.0",
        "apply 1.2.0 1.1.0",
        "rollback 1.1.0 1.2.0",
        "rollback  1.1.0",
    ];
    assert_eq!(calls(&folder), expected);
    let links = String::from_utf8(folder.read("links")).unwrap();
    assert_eq!(links.lines().collect::<Vec<_>>(), ["1.1.0", "1.2.0", "1.1.0", "1.2.0", "1.1.0"]);
    let log = eventually_six(&world).await;
    assert_eq!(log[1], "info: Firmware 1.2.0 is in force; before it was 1.1.0.");
    assert_eq!(log[5], "warning: Firmware 1.1.0 was rolled back to what came with the product.");
    for id in [&first, &second] {
        world.admin.delete(&path(id)).await.expect(200);
    }
    eventually(seconds(20), async || versions(&world).is_empty() && world.staged_files().await.is_empty())
        .await;
    eventually(seconds(20), async || world.count_events("firmware_files_removed").await == 2).await;
    world.finish().await;
}

async fn eventually_six(world: &World) -> Vec<String> {
    eventually(seconds(20), async || entries(world).await.len() == 6).await;
    entries(world).await
}

#[tokio::test]
async fn a_hook_that_fails_leaves_in_force_what_was() {
    let folder = Folder::new();
    let hook = hook(&folder, "echo the valve is open >&2; [ ! -e broken ]");
    let world = World::with(|config| config.firmware.hook = hook).await;
    let first = in_force(&world, "1.1.0").await;
    folder.write("broken", "");
    let second = uploaded(&world, "1.2.0").await;
    apply(&world.admin, &second).await.expect(202);
    let failed = until_status(&world.admin, &second, "failed").await;
    let message = failed["error_message"].as_str().unwrap();
    assert!(message.contains("exit status: 1") && message.contains("the valve is open"), "{message}");
    assert_eq!(current(&world).as_deref(), Some("1.1.0"));
    let refused = roll_back(&world.admin, &first).await;
    assert_eq!(refused.expect(409)["code"], "rollback_failed");
    assert!(refused.error(409).contains("the valve is open"));
    let first_now = world.admin.get(&path(&first)).await.expect(200);
    assert_eq!((&first_now["status"], &first_now["is_running"]), (&json!("completed"), &json!(true)));
    assert_eq!(current(&world).as_deref(), Some("1.1.0"));
    std::fs::remove_file(folder.path("broken")).unwrap();
    apply(&world.admin, &second).await.expect(202);
    let done = until_status(&world.admin, &second, "completed").await;
    assert_eq!((&done["error_message"], current(&world).as_deref()), (&json!(null), Some("1.2.0")));
    eventually(seconds(20), async || {
        let log = entries(&world).await;
        log.iter().any(|it| it.starts_with("error: Firmware 1.2.0 was not applied: the hook ended"))
            && log.iter().any(|it| it.starts_with("error: Firmware 1.1.0 was not rolled back: "))
    })
    .await;
    world.finish().await;
}

/// It was called again and again while its success could not be recorded.
#[tokio::test]
async fn a_hook_that_succeeded_is_called_once_though_its_end_waits() {
    let folder = Folder::new();
    let hook = hook(&folder, "while [ ! -e go ]; do sleep 0.05; done");
    let world = World::with(|config| config.firmware.hook = hook).await;
    let id = uploaded(&world, "1.2.0").await;
    apply(&world.admin, &id).await.expect(202);
    eventually(seconds(60), async || calls(&folder).len() == 1).await;
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql
                    AS $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$;
                CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH ROW
                    WHEN (NEW.event_type = 'firmware_completed') EXECUTE FUNCTION full_disk()";
    world.servers.pool.execute(full).await.unwrap();
    folder.write("go", "");
    let failing = "SELECT count(*) FROM ops.faults WHERE part = 'worker.firmware'";
    eventually(seconds(120), async || {
        sqlx::query_scalar::<_, i64>(failing).fetch_one(&world.servers.pool).await.unwrap() == 1
    })
    .await;
    world.servers.pool.execute("DROP TRIGGER full_disk ON events; DROP FUNCTION full_disk").await.unwrap();
    until_status(&world.admin, &id, "completed").await;
    assert_eq!(calls(&folder).len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn one_update_is_applied_at_a_time() {
    let folder = Folder::new();
    let hook = hook(&folder, "while [ ! -e go ]; do sleep 0.05; done");
    let world = World::with(|config| config.firmware.hook = hook).await;
    let (first, second) = (uploaded(&world, "1.1.0").await, uploaded(&world, "1.2.0").await);
    apply(&world.admin, &first).await.expect(202);
    until_status(&world.admin, &first, "applying").await;
    assert_eq!(apply(&world.admin, &second).await.expect(409)["code"], "update_under_way");
    assert_eq!(world.admin.get(&path(&second)).await.expect(200)["status"], "pending");
    assert_eq!(apply(&world.admin, &first).await.expect(409)["code"], "invalid_transition");
    assert_eq!(roll_back(&world.admin, &first).await.expect(409)["code"], "invalid_transition");
    assert_eq!(world.admin.delete(&path(&first)).await.expect(409)["code"], "update_under_way");
    folder.write("go", "");
    until_status(&world.admin, &first, "completed").await;
    apply(&world.admin, &second).await.expect(202);
    until_status(&world.admin, &second, "completed").await;
    // A slow rollback continues after the answer.
    std::fs::remove_file(folder.path("go")).unwrap();
    assert_eq!(roll_back(&world.admin, &second).await.expect(202)["status"], "completed");
    assert_eq!(apply(&world.admin, &first).await.expect(409)["code"], "invalid_transition");
    folder.write("go", "");
    until_status(&world.admin, &second, "rolled_back").await;
    world.finish().await;
}

#[tokio::test]
async fn a_wrong_signature_or_digest_changes_nothing() {
    let (key, other) = (SigningKey::new(1), SigningKey::new(2));
    let folder = Folder::new();
    let hook = hook(&folder, "true");
    let public_key = key.public_key();
    let world = World::with(|config| {
        config.firmware.hook = hook;
        config.firmware.public_key = public_key;
    })
    .await;
    let bytes = |version: &str| Bundle::of(version);
    let upload = async |version: &str, signature: Option<String>| {
        let name = format!("firmware-{version}.tar.gz");
        let fields: Vec<_> = signature.iter().map(|it| ("signature", it.as_str())).collect();
        let made = Bundle::upload(&world.admin, &name, &bytes(version), &fields).await.expect(201);
        made["public_id"].as_str().unwrap().to_owned()
    };
    let signed = upload("1.0.0", Some(key.sign(&bytes("1.0.0")))).await;
    apply(&world.admin, &signed).await.expect(202);
    until_status(&world.admin, &signed, "completed").await;
    let before = versions(&world);
    for (version, signature, reason) in [
        ("1.1.0", None, "has no signature"),
        ("1.2.0", Some(other.sign(&bytes("1.2.0"))), "not one of this bundle"),
        ("1.3.0", Some(key.sign(&bytes("1.0.0"))), "not one of this bundle"),
    ] {
        let id = upload(version, signature).await;
        apply(&world.admin, &id).await.expect(202);
        let failed = until_status(&world.admin, &id, "failed").await;
        let message = failed["error_message"].as_str().unwrap();
        assert!(message.contains(reason), "{version}: {message}");
        assert_eq!((versions(&world), current(&world).as_deref()), (before.clone(), Some("1.0.0")));
    }
    let id = upload("1.4.0", Some(key.sign(&bytes("1.4.0")))).await;
    let wrong = json!({"file_hash_sha256": "ab".repeat(32)});
    world.admin.post(&format!("{}/apply", path(&id)), wrong).await.expect(202);
    let failed = until_status(&world.admin, &id, "failed").await;
    assert!(failed["error_message"].as_str().unwrap().contains("SHA-256"), "{failed}");
    assert_eq!((versions(&world), current(&world).as_deref()), (before, Some("1.0.0")));
    assert_eq!(calls(&folder), ["apply 1.0.0"]);
    world.finish().await;
}
