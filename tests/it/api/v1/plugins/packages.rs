use std::{
    fs::File,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use chrono::TimeDelta;
use futures::{future::join_all, stream};
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_blob_store::{BlobKey, BlobStore, Progress, Receive, Start};
use signalbox_test_support::S3Server;
use uuid::{NoContext, Timestamp, Uuid};

use super::{OF_WEBMACS, WEATHER};
use crate::harness::{Client, Folder, Wheel, World, eventually, in_bucket, seconds, sha256};

async fn packages(world: &World) -> Vec<Value> {
    world.admin.get("/api/v1/plugins/packages").await.expect(200).as_array().unwrap().clone()
}

#[tokio::test]
async fn a_wheel_is_installed_listed_fetched_and_uninstalled() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let bytes = Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).bytes();
    let name = "weather_plugin-1.0.0-py3-none-any.whl";
    let answer = Wheel::upload_bytes(&world.admin, &format!("../../../tmp/{name}"), &bytes).await;
    let made = answer.expect(201);
    assert_eq!((&made["status"], &made["plugin_ids"]), (&json!("success"), &json!(["weather"])));
    let size = bytes.len();
    let separated = format!("{},{:03} bytes", size / 1000, size % 1000);
    assert!(made["message"].as_str().unwrap().contains(&separated), "{made}");
    let listed = packages(&world).await;
    let [package] = listed.as_slice() else { panic!("{listed:?}") };
    for (field, value) in [
        ("package_name", json!("weather-plugin")),
        ("version", json!("1.0.0")),
        ("source", json!("uploaded")),
        ("plugin_ids", json!(["weather"])),
        ("file_name", json!(name)),
        ("file_size_bytes", json!(size)),
        ("sha256", json!(sha256(&bytes))),
        ("removable", json!(true)),
        ("public_id", made["public_id"].clone()),
    ] {
        assert_eq!(package[field], value, "{field}");
    }
    let classes = world.admin.get("/api/v1/plugins/available").await.expect(200);
    let class = classes.as_array().unwrap().iter().find(|class| class["id"] == "weather").unwrap();
    assert_eq!(
        (&class["name"], &class["version"], &class["vendor"]),
        (&json!("Weather"), &json!("1.2.3"), &json!("Example"))
    );
    let stations = &class["config_schema"]["properties"]["stations"];
    assert_eq!((&stations["type"], &stations["maximum"]), (&json!("integer"), &json!(4)));
    // Another gateway has it too, to the byte.
    let path = format!("/api/v1/plugins/packages/{}", made["public_id"].as_str().unwrap());
    let viewer = world.user("viewer", "viewer").await;
    viewer.at(&elsewhere).get(&format!("{path}/wheel")).await.expect_bytes(&bytes);
    // The same again, and the same distribution under another name.
    let again = Wheel::upload_bytes(&world.admin, name, &bytes).await.error(409);
    assert!(again.contains(name), "{again}");
    let renamed = Wheel::new("weather.plugin", "signalbox.plugins", WEATHER)
        .with("weather.plugin/x", b"")
        .upload(&world.admin)
        .await;
    assert!(renamed.error(409).contains("weather-plugin"));
    // Another distribution with the same plugin.
    let rival = Wheel::new("rival", "signalbox.plugins", WEATHER).upload(&world.admin).await;
    rival.error(409);
    assert_eq!(packages(&world).await.len(), 1);
    world.admin.delete(&path).await.expect(200);
    world.admin.delete(&path).await.error(404);
    viewer.get(&format!("{path}/wheel")).await.error(404);
    assert_eq!(packages(&world).await, Vec::<Value>::new());
    Wheel::upload_bytes(&world.admin, name, &bytes).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn a_wheel_in_a_bucket_is_given_by_a_gateway_on_another_machine() {
    let server = S3Server::shared().await;
    let (_, adjust) = in_bucket(server);
    let (mut world, machine) = (World::with(adjust).await, Folder::new());
    let other = world.gateway_elsewhere(&machine).await;
    let bytes = Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).bytes();
    let made =
        Wheel::upload_bytes(&world.admin, "weather_plugin-1.0.0-py3-none-any.whl", &bytes).await.expect(201);
    let path = format!("/api/v1/plugins/packages/{}/wheel", made["public_id"].as_str().unwrap());
    world.admin.at(&other).get(&path).await.expect_bytes(&bytes);
    world.finish().await;
}

#[tokio::test]
async fn a_wheel_of_the_webmacs_family_is_installed_as_it_is() {
    let world = World::start().await;
    let needs = ["webmacs-plugins-core>=1.0.0", "structlog>=24.0", "pydantic>=2.0"];
    let wheel = Wheel::that_needs("webmacs_plugin_meter", "webmacs.plugins", OF_WEBMACS, &needs);
    let made = wheel.upload(&world.admin).await.expect(201);
    assert_eq!(made["plugin_ids"], json!(["meter"]));
    let classes = world.admin.get("/api/v1/plugins/available").await.expect(200);
    let class = classes.as_array().unwrap().iter().find(|class| class["id"] == "meter").unwrap();
    assert_eq!(class["config_schema"]["properties"]["port"]["maximum"], 65535);
    assert_eq!(class["channels"][1]["direction"], "bidirectional");
    world.finish().await;
}

#[tokio::test]
async fn what_is_no_wheel_with_plugins_is_refused() {
    let world = World::start().await;
    let upload = async |name: &str, bytes: &[u8]| Wheel::upload_bytes(&world.admin, name, bytes).await;
    let fine = || Wheel::new("fine", "signalbox.plugins", WEATHER);
    upload("fine.zip", &fine().bytes()).await.error(400);
    upload("", b"x").await.error(400);
    let refused = upload("a.whl", b"not an archive").await.expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/file", "{refused}");
    let without = Wheel::bare("a").with("a/__init__.py", b"").bytes();
    assert!(upload("a.whl", &without).await.error(422).contains("METADATA"));
    let scripts = Wheel::new("a", "console_scripts", WEATHER).bytes();
    assert!(upload("a.whl", &scripts).await.error(422).contains("a.whl"));
    upload("big.whl", &vec![0; (50 << 20) + 1]).await.error(413);
    let request = world.admin.request(reqwest::Method::POST, "/api/v1/plugins/packages/upload");
    world.admin.send(request.body("x")).await.error(422);
    let operator = world.user("operator", "operator").await;
    fine().upload(&operator).await.error(403);
    for (source, reason) in [
        ("import a_library_that_is_not_there", "a_library_that_is_not_there"),
        ("class Plugin: pass", "subclass of DevicePlugin"),
        ("x = 1", "cannot be loaded"),
    ] {
        let message = Wheel::new("broken", "signalbox.plugins", source).upload(&world.admin).await.error(500);
        assert!(message.contains(reason), "{message}");
    }
    let built_in = WEATHER.replace("id=\"weather\"", "id=\"simulated\"");
    Wheel::new("imitation", "signalbox.plugins", &built_in).upload(&world.admin).await.error(409);
    assert_eq!(packages(&world).await, Vec::<Value>::new());
    // A failed upload leaves no obstacle.
    fine().upload(&world.admin).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn a_wheel_with_missing_requirements_is_refused_with_their_names() {
    let world = World::start().await;
    let upload = async |needs: &[&str]| {
        let wheel = Wheel::that_needs("weather_plugin", "signalbox.plugins", WEATHER, needs);
        wheel.upload(&world.admin).await
    };
    let refused = upload(&[
        "pymodbus-that-is-not-there (>=3.0)",
        "another-one[serial]>=1; python_version >= '3.8'",
        "signalbox-controller",
    ])
    .await;
    let message = refused.error(422);
    assert!(
        message.contains("pymodbus-that-is-not-there (>=3.0)") && message.contains("another-one"),
        "{message}"
    );
    assert!(!message.contains("signalbox-controller") && packages(&world).await.is_empty(), "{message}");
    // The SDK in all its names, libraries that it stands in for, other machines, extras.
    upload(&[
        "webmacs-plugins-core>=1.0.0",
        "signalbox_plugins",
        "pydantic>=2",
        "structlog",
        "pywin32; sys_platform == 'win32'",
        "tomli>=2; python_version < '3.11'",
        "pytest; extra == 'test'",
    ])
    .await
    .expect(201);
    world.finish().await;
}

#[tokio::test]
async fn a_wheel_may_hold_what_it_needs() {
    let world = World::start().await;
    let source = format!("import vendored\n{WEATHER}");
    Wheel::that_needs("weather_plugin", "signalbox.plugins", &source, &["vendored==2.*"])
        .with("vendored/__init__.py", b"")
        .with("vendored-2.1.dist-info/METADATA", b"Metadata-Version: 2.1\nName: vendored\nVersion: 2.1\n")
        .upload(&world.admin)
        .await
        .expect(201);
    world.finish().await;
}

#[tokio::test]
async fn an_upload_with_a_key_that_is_repeated_is_one() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let name = "weather_plugin-1.0.0-py3-none-any.whl";
    let wheel = |plugin: &str| Wheel::new("weather_plugin", "signalbox.plugins", plugin).bytes();
    let upload = async |client: &Client, key: &str, bytes: &[u8]| {
        let request = client.request(Method::POST, "/api/v1/plugins/packages/upload");
        Wheel::upload_by(client, request.header("idempotency-key", key), name, bytes).await
    };
    let (bytes, there) = (wheel(WEATHER), world.admin.at(&elsewhere));
    let made = upload(&world.admin, "one", &bytes).await.expect(201);
    assert_eq!(upload(&there, "one", &bytes).await.expect(201), made);
    world.lose_kept_answers().await;
    assert_eq!(upload(&there, "one", &bytes).await.expect(201), made);
    let path = format!("/api/v1/plugins/packages/{}/wheel", made["public_id"].as_str().unwrap());
    world.admin.get(&path).await.expect_bytes(&bytes);
    upload(&world.admin, "one", &wheel(&WEATHER.replace("1.2.3", "1.2.4"))).await.error(422);
    upload(&world.admin, "two", &bytes).await.error(409);
    assert_eq!(packages(&world).await.len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn equal_uploads_at_once_over_two_gateways_are_one() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let bytes = Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).bytes();
    let clients = [world.at_one_gateway(), world.admin.at(&elsewhere)];
    let upload = async |client: &Client| {
        let request = client.request(Method::POST, "/api/v1/plugins/packages/upload");
        let request = request.header("idempotency-key", "once");
        Wheel::upload_by(client, request, "weather_plugin-1.0.0-py3-none-any.whl", &bytes).await
    };
    let sent = (0..6).map(|index| upload(&clients[index % 2]));
    for answer in join_all(sent).await {
        // Of two concurrent uploads the newer one continues.
        assert!([201, 503].contains(&answer.status), "{}", answer.text());
    }
    let made = upload(&clients[0]).await.expect(201);
    let path = format!("/api/v1/plugins/packages/{}/wheel", made["public_id"].as_str().unwrap());
    world.admin.get(&path).await.expect_bytes(&bytes);
    assert_eq!(world.count_events("plugin_package_installed").await, 1);
    world.finish().await;
}

#[tokio::test]
async fn what_uploads_leave_behind_that_are_cut_off_is_swept() {
    let mut world = World::start().await;
    let made =
        Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).upload(&world.admin).await.expect(201);
    let folder = &world.config.storage.folder;
    let id = |hours: i64| {
        let made = world.clock.now() - TimeDelta::hours(hours);
        Uuid::new_v7(Timestamp::from_unix(NoContext, made.timestamp().unsigned_abs(), 0))
    };
    let wheels = BlobStore::configured(&world.config.storage, "wheels").unwrap();
    let (old, new) = (id(26), id(1));
    for id in [old, new] {
        let receive = Receive { start: Start::Anew, limit: 10, expected_sha256: None, total: None };
        let bytes = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"x"))]);
        wheels.receive(&BlobKey::new(id, "wheel"), receive, bytes, |_| ()).await.unwrap();
    }
    let environments = folder.join("plugins/environments");
    let known = environments.join(packages(&world).await[0]["sha256"].as_str().unwrap());
    let left = environments.join("0".repeat(64));
    std::fs::create_dir(&left).unwrap();
    for folder in [&known, &left] {
        let yesterday = SystemTime::now() - Duration::from_secs(24 * 3600);
        File::open(folder).unwrap().set_modified(yesterday).unwrap();
    }
    // A gateway sweeps when it starts, and now and then.
    world.another_gateway().await;
    eventually(seconds(20), async || !left.exists()).await;
    let installed: Uuid = made["public_id"].as_str().unwrap().parse().unwrap();
    let is_kept =
        async |id: Uuid| wheels.received(&BlobKey::new(id, "wheel")).await.unwrap() != Progress::Nothing;
    eventually(seconds(20), async || !is_kept(old).await).await;
    assert!(is_kept(new).await && is_kept(installed).await);
    assert!(known.exists());
    world.finish().await;
}
