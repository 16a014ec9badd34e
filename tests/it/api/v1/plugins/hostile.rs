//! Wheels that are made to do harm: refused before anything is unpacked, or contained when their code runs.

use serde_json::Value;
use tokio::{net::TcpListener, time::Instant};

use super::WEATHER;
use crate::harness::{Wheel, World, seconds};

fn wheel() -> Wheel {
    Wheel::new("hostile", "signalbox.plugins", WEATHER)
}

/// Names of all that lies below the folder of the service.
fn files(world: &World) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![world.config.storage.folder.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            names.push(path.strip_prefix(&world.config.storage.folder).unwrap().display().to_string());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    names.sort();
    names
}

#[tokio::test]
async fn archives_that_do_harm_are_refused_and_leave_nothing() {
    let world = World::start().await;
    let before = files(&world);
    let crowd = (0..10_000).fold(wheel(), |wheel, number| wheel.with(&format!("hostile/{number}"), b""));
    for (what, archive) in [
        ("a path that leads out", wheel().with("../escaped", b"x")),
        ("a path that leads out later", wheel().with("hostile/../../escaped", b"x")),
        ("an absolute path", wheel().with("/tmp/escaped", b"x")),
        ("a link", wheel().with_link("hostile/link", "/etc/passwd")),
        ("10,000 files", crowd),
        ("a ratio of 1,000 to 1", wheel().with("hostile/zeros", &vec![0; 16 << 20])),
    ] {
        let refused = archive.upload(&world.admin).await;
        assert_eq!(refused.status, 422, "{what}: {}", refused.text());
        assert_eq!(files(&world), before, "{what}");
    }
    world.finish().await;
}

/// Uploads a plugin that runs `code` when it is imported; its description shows what `found` is then.
async fn upload(world: &World, code: &str) -> (u16, String) {
    let source = format!("found = 'nothing'\n{code}\n{WEATHER}");
    let source = source.replace("description=\"Masts\"", "description=str(found)");
    let answer = Wheel::new("hostile", "signalbox.plugins", &source).upload(&world.admin).await;
    let status = answer.status;
    if status != 201 {
        return (status, answer.text());
    }
    let made = answer.expect(201);
    let classes = world.admin.get("/api/v1/plugins/available").await.expect(200);
    let class = classes.as_array().unwrap().iter().find(|class| class["id"] == "weather").cloned();
    let path = format!("/api/v1/plugins/packages/{}", made["public_id"].as_str().unwrap());
    world.admin.delete(&path).await.expect(200);
    (status, class.unwrap_or(Value::Null)["description"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn code_that_loops_is_ended() {
    let world = World::start().await;
    let begun = Instant::now();
    let (status, told) = upload(&world, "while True: pass").await;
    assert_eq!(status, 500, "{told}");
    assert!(told.contains("computing time") || told.contains("longer than"), "{told}");
    let (status, told) = upload(&world, "import time; time.sleep(1000)").await;
    assert_eq!(status, 500, "{told}");
    assert!(told.contains("longer than") && begun.elapsed() < seconds(60), "{told}");
    assert_eq!(upload(&world, "").await.0, 201);
    world.finish().await;
}

#[tokio::test]
async fn code_that_takes_all_memory_fails_alone() {
    let world = World::start().await;
    let (status, told) = upload(&world, "b = bytearray(8 << 30)").await;
    assert!(status == 500 && told.contains("MemoryError"), "{status} {told}");
    assert_eq!(upload(&world, "").await.0, 201);
    world.finish().await;
}

#[tokio::test]
async fn code_cannot_start_processes() {
    let world = World::start().await;
    for code in [
        "import os\nwhile True: os.fork()",
        "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'true'])",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "import os\nos.kill(os.getppid(), 9)",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.syscall(435, 0, 0) != -1, 'no clone3'",
    ] {
        let (status, told) = upload(&world, code).await;
        assert_eq!(status, 500, "{code}: {told}");
    }
    assert_eq!(upload(&world, "").await.0, 201);
    world.finish().await;
}

#[tokio::test]
async fn code_cannot_reach_the_network() {
    let world = World::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)");
    let (status, told) = upload(&world, &code).await;
    assert!(status == 500 && told.contains("not permitted"), "{status} {told}");
    let came = tokio::time::timeout(std::time::Duration::from_millis(200), listener.accept()).await;
    assert!(came.is_err(), "somebody connected");
    world.finish().await;
}

#[tokio::test]
async fn code_sees_no_secret_and_changes_no_file() {
    let world = World::start().await;
    let folder = world.config.storage.folder.display().to_string();
    let secret = "the-password-of-the-database";
    std::fs::write(world.config.storage.folder.join("secret"), secret).unwrap();
    let (status, told) = upload(&world, "import os\nfound = dict(os.environ)").await;
    assert_eq!(status, 201, "{told}");
    assert!(!told.contains("postgres") && !told.contains("DATABASE"), "{told}");
    for path in [format!("{folder}/secret"), "/proc/1/environ".to_owned(), "/etc/passwd".to_owned()] {
        let (status, told) = upload(&world, &format!("found = open({path:?}).read()")).await;
        assert!(status == 500 && told.contains("PermissionError"), "{path}: {status} {told}");
    }
    let (_, told) = upload(&world, "import os\nfound = open(f'/proc/{os.getppid()}/environ').read()").await;
    assert!(told.contains("PermissionError"), "{told}");
    for code in [
        format!("open('{folder}/written', 'w')"),
        format!("import os\nos.unlink('{folder}/secret')"),
        format!("import os\nos.rename('{folder}/secret', '{folder}/other')"),
    ] {
        let (status, told) = upload(&world, &code).await;
        assert!(status == 500 && told.contains("Error"), "{code}: {status} {told}");
    }
    assert_eq!(std::fs::read_to_string(world.config.storage.folder.join("secret")).unwrap(), secret);
    world.finish().await;
}
