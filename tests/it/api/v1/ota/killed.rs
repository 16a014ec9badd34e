//! Processes that are killed while they work on an update: another one does what is left.

use signalbox_clock::Clock;
use signalbox_domain::fleet::{Firmware, FirmwareBundle, FirmwareCommand};
use signalbox_test_support::metadata;
use uuid::Uuid;

use super::{
    announced, apply, calls, current, hook, path, roll_back, until, until_status, uploaded, versions,
};
use crate::harness::{Bundle, Folder, Reply, StandIn, WorkerProcess, World, eventually, seconds};

/// A hook that ends when the file `go` is there.
const PATIENT: &str = "while [ ! -e go ]; do sleep 0.05; done";

async fn world(folder: &Folder, script: &str) -> World {
    let hook = hook(folder, script);
    World::without_workers(Clock::system(), |config| config.firmware.hook = hook).await
}

#[tokio::test]
async fn a_download_whose_worker_is_killed_is_begun_again() {
    let folder = Folder::new();
    let world = world(&folder, "true").await;
    let half = Bundle::of("1.2.0")[..40].to_vec();
    let server = StandIn::start(move |_| Reply::Stuck(half.clone())).await;
    let id = announced(&world, "1.2.0", &server.url).await;
    apply(&world.admin, &id).await.expect(202);
    let worker = WorkerProcess::start(&world);
    eventually(seconds(60), async || server.seen("GET").len() == 1).await;
    worker.kill();
    assert_eq!(world.admin.get(&path(&id)).await.expect(200)["status"], "downloading");
    server.behave(|_| Reply::Bytes(Bundle::of("1.2.0")));
    let _worker = WorkerProcess::start(&world);
    until_status(&world.admin, &id, "completed").await;
    assert_eq!((current(&world).as_deref(), calls(&folder)), (Some("1.2.0"), vec!["apply 1.2.0".into()]));
    world.finish().await;
}

#[tokio::test]
async fn what_a_worker_left_to_be_verified_is_verified_and_applied() {
    let folder = Folder::new();
    let world = world(&folder, "true").await;
    let id = uploaded(&world, "1.2.0").await;
    apply(&world.admin, &id).await.expect(202);
    let shown = world.admin.get(&path(&id)).await.expect(200);
    let (key, claim) = (id.parse::<Uuid>().unwrap(), world.clock.new_id());
    let blob: Uuid = sqlx::query_scalar("SELECT blob_id FROM read.firmware_updates WHERE id = $1")
        .bind(key)
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    let bundle = FirmwareBundle {
        blob,
        size: shown["file_size_bytes"].as_u64().unwrap(),
        sha256: shown["file_hash_sha256"].as_str().unwrap().parse().unwrap(),
    };
    let say = async |command: FirmwareCommand| {
        world.servers.bus.send::<Firmware>(key, None, &metadata(), &command).await
    };
    say(FirmwareCommand::Begin { claim }).await.unwrap();
    say(FirmwareCommand::RecordDownload { claim, bundle }).await.unwrap();
    until_status(&world.admin, &id, "verifying").await;
    // The remains of the process that was killed while it unpacked.
    let updates = world.config.storage.folder.join("updates");
    std::fs::create_dir_all(updates.join("1.2.0.partial/half")).unwrap();
    let _worker = WorkerProcess::start(&world);
    until_status(&world.admin, &id, "completed").await;
    assert_eq!(
        (current(&world).as_deref(), versions(&world)),
        (Some("1.2.0"), vec!["1.2.0".into(), "current".into()])
    );
    let late = say(FirmwareCommand::Complete { claim }).await.unwrap_err();
    assert_eq!(late.code, "claim_ended");
    world.finish().await;
}

#[tokio::test]
async fn an_update_whose_worker_is_killed_in_the_hook_is_finished_by_another_one() {
    let folder = Folder::new();
    let world = world(&folder, PATIENT).await;
    let id = uploaded(&world, "1.2.0").await;
    apply(&world.admin, &id).await.expect(202);
    let worker = WorkerProcess::start(&world);
    eventually(seconds(60), async || calls(&folder).len() == 1).await;
    worker.kill();
    until_status(&world.admin, &id, "applying").await;
    let _worker = WorkerProcess::start(&world);
    eventually(seconds(60), async || calls(&folder).len() == 2).await;
    folder.write("go", "");
    until_status(&world.admin, &id, "completed").await;
    assert_eq!(current(&world).as_deref(), Some("1.2.0"));
    assert_eq!(calls(&folder), ["apply 1.2.0", "apply 1.2.0"]);
    world.finish().await;
}

#[tokio::test]
async fn a_rollback_whose_worker_is_killed_is_finished_by_another_one() {
    let folder = Folder::new();
    let world = world(&folder, PATIENT).await;
    folder.write("go", "");
    let first = uploaded(&world, "1.1.0").await;
    let second = uploaded(&world, "1.2.0").await;
    let worker = WorkerProcess::start(&world);
    for id in [&first, &second] {
        apply(&world.admin, id).await.expect(202);
        until_status(&world.admin, id, "completed").await;
    }
    std::fs::remove_file(folder.path("go")).unwrap();
    roll_back(&world.admin, &second).await.expect(202);
    eventually(seconds(60), async || calls(&folder).len() == 3).await;
    worker.kill();
    folder.write("go", "");
    let _worker = WorkerProcess::start(&world);
    until_status(&world.admin, &second, "rolled_back").await;
    assert_eq!(current(&world).as_deref(), Some("1.1.0"));
    let first = world.admin.get(&path(&first)).await.expect(200);
    assert_eq!(first["is_running"], true);
    world.finish().await;
}

#[tokio::test]
async fn an_update_that_no_worker_survives_fails_and_what_was_in_force_is() {
    let folder = Folder::new();
    // It kills the process that runs it, as one that restarts the machine too early would.
    let world = world(&folder, "[ -e harmless ] || kill -9 $PPID").await;
    folder.write("harmless", "");
    let first = uploaded(&world, "1.1.0").await;
    apply(&world.admin, &first).await.expect(202);
    let worker = WorkerProcess::start(&world);
    until_status(&world.admin, &first, "completed").await;
    std::fs::remove_file(folder.path("harmless")).unwrap();
    let second = uploaded(&world, "1.2.0").await;
    apply(&world.admin, &second).await.expect(202);
    let mut dead = vec![worker];
    for attempt in 2..=3 {
        eventually(seconds(60), async || calls(&folder).len() == attempt).await;
        dead.push(WorkerProcess::start(&world));
    }
    eventually(seconds(60), async || calls(&folder).len() == 4).await;
    let _worker = WorkerProcess::start(&world);
    let failed = until(&world.admin, &second, |update| update["status"] == "failed").await;
    assert!(failed["error_message"].as_str().unwrap().contains("3 times"), "{failed}");
    assert_eq!(current(&world).as_deref(), Some("1.1.0"));
    assert_eq!(calls(&folder).len(), 4, "it is not run a fourth time");
    world.finish().await;
}
