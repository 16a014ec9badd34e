//! Clients that are generated from the description do the main job of each service: move a file, record a value, read a
//! document.

use std::{fs, os::unix::fs::symlink, path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};

use crate::harness::{ADMIN, Folder, PASSWORD, RealAgent, Transport, World, description, seconds};

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `command` with the settings of a client at its end, and checks what that has done.
async fn does_the_main_jobs(mut command: Command) {
    let world = World::with(|config| config.extraction.parsers = 1).await;
    let (source, destination) = (world.agent("source").await, world.agent("destination").await);
    let (from, to) = (Folder::new(), Folder::new());
    from.write("report.csv", "1;2;3\n");
    let url = world.admin.url("");
    let agents = [
        RealAgent::start(&url, &source.token, &from, Transport::Auto),
        RealAgent::start(&url, &destination.token, &to, Transport::Auto),
    ];
    let settings = json!({"url": url, "email": ADMIN, "password": PASSWORD, "source": source.id,
        "destination": destination.id, "source_path": from.text("report.csv"),
        "destination_path": to.text("copy.csv")});
    command.arg(settings.to_string()).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(seconds(120), command.output()).await.expect("the client did not end").unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["files"], "completed");
    assert_eq!(done["sensors"], 1.25);
    assert_eq!(done["documents"].as_str().unwrap().trim(), "# Minutes\n\nAll agreed.");
    assert_eq!(to.read("copy.csv"), b"1;2;3\n");
    for agent in agents {
        agent.stop().await;
    }
    world.finish().await;
}

#[tokio::test]
async fn a_generated_python_client_does_the_main_jobs() {
    let tools = Path::new(TOP).join(".tools/clients");
    assert!(
        tools.join("openapi_python_client").exists(),
        "the generator is missing: run tools/bootstrap tests"
    );
    let folder = Folder::new();
    folder.make("client");
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", tools).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(Path::new(TOP).join("tests/clients/main_jobs.py"));
    command.arg(folder.path("client"));
    does_the_main_jobs(command).await;
}

#[tokio::test]
async fn a_generated_typescript_client_does_the_main_jobs() {
    // As it is used, beside the packages that it needs.
    let folder = Folder::new();
    for file in
        ["clients/typescript/index.ts", "clients/typescript/schema.d.ts", "console/tests/main-jobs.ts"]
    {
        folder.write(file, fs::read(Path::new(TOP).join(file)).unwrap());
    }
    symlink(Path::new(TOP).join("console/node_modules"), folder.path("node_modules")).unwrap();
    let mut command = Command::new(Path::new(TOP).join(".tools/node/bin/node"));
    command.arg(folder.path("console/tests/main-jobs.ts"));
    does_the_main_jobs(command).await;
}

#[test]
fn the_committed_description_is_current() {
    let committed = std::fs::read(Path::new(TOP).join("console/openapi.json")).unwrap();
    let committed: Value = serde_json::from_slice(&committed).unwrap();
    assert!(&committed == description(), "console/openapi.json is not current: run make openapi");
}
