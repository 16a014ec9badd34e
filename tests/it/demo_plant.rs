//! `make demo-plant`, which a first visitor starts, and what it leaves.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::harness::{ADMIN, Folder, PASSWORD, World, eventually, seconds};

/// Lists of everything that it makes, and of what becomes of it.
const LISTS: [&str; 13] = [
    "/api/agents",
    "/api/tokens",
    "/api/jobs",
    "/api/transfers",
    "/api/v1/events",
    "/api/v1/datapoints",
    "/api/v1/experiments",
    "/api/v1/dashboards",
    "/api/v1/rules",
    "/api/v1/contacts",
    "/api/v1/webhooks",
    "/api/v1/jobs",
    "/api/v1/documents",
];

struct Plant {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Plant {
    async fn start(world: &World, notes: &Path) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_signalbox"));
        let target = program.ancestors().nth(2).unwrap();
        let mut child = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/demo-plant"))
            .env("SIGNALBOX_URL", world.anonymous().url(""))
            .env("SIGNALBOX_ADMIN_EMAIL", ADMIN)
            .env("SIGNALBOX_ADMIN_PASSWORD", PASSWORD)
            .env("SIGNALBOX_PLANT_NOTES", notes)
            .env("CARGO_TARGET_DIR", target)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut plant = Self { child, lines };
        timeout(seconds(300), plant.until_running()).await.expect("the plant runs");
        plant
    }

    async fn until_running(&mut self) {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            if line.starts_with("The plant runs") {
                return;
            }
        }
        panic!("the plant has ended: {:?}", self.child.wait().await);
    }

    /// With its agents, as if the machine had stopped.
    async fn kill(mut self) {
        let group = format!("-{}", self.child.id().unwrap());
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().await.unwrap().success());
        self.child.wait().await.unwrap();
    }

    /// As Ctrl-C does.
    async fn stop(mut self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().await.unwrap().success());
        let status = timeout(seconds(300), self.child.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.code(), Some(130));
    }
}

async fn count(world: &World, list: &str) -> u64 {
    let answer = world.admin.get(list).await.expect(200);
    answer["total"].as_u64().or(answer.as_array().map(|rows| rows.len() as u64)).unwrap()
}

async fn has_ended_transfer(world: &World) -> bool {
    let transfers = world.admin.get("/api/transfers?status=completed").await.expect(200);
    transfers.as_array().is_some_and(|rows: &Vec<Value>| !rows.is_empty())
}

#[tokio::test]
async fn a_plant_is_taken_away_without_a_trace_but_that_of_the_log() {
    let world = World::with(|config| config.extraction.parsers = 1).await;
    let folder = Folder::new();
    let notes = folder.path("notes");
    // One that was killed is removed by the next one.
    Plant::start(&world, &notes).await.kill().await;
    let agents = count(&world, "/api/agents").await;
    let plant = Plant::start(&world, &notes).await;
    assert_eq!(count(&world, "/api/agents").await, agents, "the first one's are gone");
    eventually(seconds(60), async || has_ended_transfer(&world).await).await;
    assert!(count(&world, "/api/v1/datapoints").await > 10_000);
    plant.stop().await;
    for list in LISTS {
        eventually(seconds(60), async || count(&world, list).await == 0).await;
    }
    eventually(seconds(60), async || world.staged_files().await.is_empty()).await;
    assert!(world.count_events("channel_deleted").await >= 20, "the log keeps it");
    world.finish_with_mail().await;
}
