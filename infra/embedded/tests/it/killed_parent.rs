//! The signals that servers receive when their parent is interrupted or killed.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use signalbox_embedded::{Nats, NatsOptions, Postgres, PostgresOptions};

use crate::{nats, postgres, process_group, runs, wait_until};

const PLACE: &str = "SIGNALBOX_TEST_PARENT_PLACE";

/// Not a test but the parent that gets killed: this test binary, started again.
#[tokio::test]
#[ignore = "started by the other tests as the process that is killed"]
async fn parent() {
    let Ok(place) = env::var(PLACE) else { return };
    let (postgres, nats) = start_both(Path::new(&place)).await;
    postgres::write_row(&postgres).await;
    nats::publish(&nats).await;
    println!("\npids {} {}", postgres.pid(), nats.pid());
    std::future::pending::<()>().await;
}

async fn start_both(place: &Path) -> (Postgres, Nats) {
    let postgres = Postgres::start(PostgresOptions::new(place.join("postgres"))).await.unwrap();
    let nats = Nats::start(NatsOptions::new(place.join("nats"))).await.unwrap();
    (postgres, nats)
}

fn start_parent(place: &Path) -> (Child, Vec<u32>) {
    let mut parent = Command::new(env::current_exe().unwrap())
        .args(["--exact", "killed_parent::parent", "--ignored", "--nocapture"])
        .env(PLACE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.starts_with("pids ")).unwrap();
    let pids = line.split_whitespace().skip(1).map(|pid| pid.parse().unwrap()).collect();
    (parent, pids)
}

fn kill(mut parent: Child) {
    parent.kill().unwrap();
    parent.wait().unwrap();
}

#[tokio::test]
async fn ctrl_c_in_its_terminal_does_not_reach_its_servers() {
    let place = tempfile::tempdir().unwrap();
    let (postgres, nats) = start_both(place.path()).await;
    assert_eq!(process_group(postgres.pid()), postgres.pid());
    assert_eq!(process_group(nats.pid()), nats.pid());
}

#[tokio::test]
async fn its_servers_end_with_it() {
    let place = tempfile::tempdir().unwrap();
    let (parent, pids) = start_parent(place.path());
    assert!(pids.iter().all(|pid| runs(*pid)));
    kill(parent);
    wait_until("both servers are gone", || !pids.iter().any(|pid| runs(*pid))).await;
}

#[tokio::test]
async fn a_start_right_after_finds_all_data() {
    let place = tempfile::tempdir().unwrap();
    let (parent, _) = start_parent(place.path());
    kill(parent);
    let (postgres, nats) = start_both(place.path()).await;
    assert_eq!(postgres::read_row(&postgres).await, "still here");
    assert_eq!(nats::read_back(&nats).await, "still here");
}
