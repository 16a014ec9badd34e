//! The harness itself: isolation of tests, detection of unfinished work, and cleanup after a crash.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::{
    env,
    io::{BufRead, BufReader},
    panic::AssertUnwindSafe,
    path::Path,
    process::{Child, Command, Stdio},
};

use futures::FutureExt;
use signalbox_test_support::{TestServers, eventually, seconds};
use sqlx::Executor;

const RUNS_AS_PARENT: &str = "SIGNALBOX_TEST_HARNESS_PARENT";

#[tokio::test]
async fn every_test_has_a_migrated_database_of_its_own() {
    let (one, other) = tokio::join!(TestServers::start(), TestServers::start());
    one.pool.execute("INSERT INTO claims VALUES ('kind', 'key', 'owner')").await.unwrap();
    let claims: i64 = sqlx::query_scalar("SELECT count(*) FROM claims").fetch_one(&other.pool).await.unwrap();
    assert_eq!(claims, 0);
    one.finish().await;
    other.finish().await;
}

#[tokio::test]
async fn a_bus_reconnects_after_its_server_was_killed() {
    let servers = TestServers::start().await;
    servers.nats.kill().await;
    eventually(seconds(10), async || !servers.bus.is_connected()).await;
    servers.nats.restart().await;
    eventually(seconds(10), async || servers.bus.is_connected()).await;
    servers.finish().await;
}

#[tokio::test]
async fn work_that_is_left_behind_fails_the_test() {
    let servers = TestServers::start().await;
    servers.pool.execute("INSERT INTO read.checkpoints VALUES ('identity', 0)").await.unwrap();
    insert_event(&servers, 1, "user").await;
    let finished = AssertUnwindSafe(servers.finish()).catch_unwind().await;
    let message = *finished.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("projection identity stands at 0, its event at 1"), "{message}");
}

#[tokio::test]
async fn an_event_of_another_context_is_no_work_for_a_projection() {
    let servers = TestServers::start().await;
    servers.pool.execute("INSERT INTO read.checkpoints VALUES ('identity', 0)").await.unwrap();
    insert_event(&servers, 1, "job").await;
    servers.finish().await;
}

async fn insert_event(servers: &TestServers, position: i64, aggregate: &str) {
    let insert =
        "INSERT INTO events VALUES ($1, $2, gen_random_uuid()::text, 1, 'it_rained', '1', '{}', '{}', now())";
    let insert = sqlx::query(insert).bind(position).bind(aggregate);
    insert.execute(&servers.pool).await.unwrap();
}

/// Not a test but the process that gets killed: this test binary, started again.
#[tokio::test]
#[ignore = "started by another test as the process that is killed"]
async fn parent() {
    if env::var_os(RUNS_AS_PARENT).is_none() {
        return;
    }
    let servers = TestServers::start().await;
    let folder: String = sqlx::query_scalar("SELECT current_setting('data_directory')")
        .fetch_one(&servers.pool)
        .await
        .unwrap();
    println!("\nfolder {folder}");
    std::future::pending::<()>().await;
}

fn start_parent() -> (Child, String) {
    let mut parent = Command::new(env::current_exe().unwrap())
        .args(["--exact", "parent", "--ignored", "--nocapture"])
        .env(RUNS_AS_PARENT, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let folder = lines.filter_map(|line| line.strip_prefix("folder ").map(str::to_owned)).next().unwrap();
    (parent, folder)
}

/// Whether a process runs that names `folder` among its arguments.
fn is_used(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut arguments = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    arguments.any(|arguments| String::from_utf8_lossy(&arguments).contains(folder))
}

#[tokio::test]
async fn nothing_is_left_of_a_killed_test_process() {
    let (mut parent, cluster) = start_parent();
    let home = Path::new(&cluster).ancestors().nth(2).unwrap();
    assert!(home.exists() && is_used(home));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually(seconds(20), async || !home.exists() && !is_used(home)).await;
}
