//! Wheels that are made to do harm: refused before anything is unpacked, or contained when their code runs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

use super::WEATHER;
use crate::harness::{Wheel, World, eventually, seconds};

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

/// The sizes that it states are made smaller; the unpacked bytes are counted.
#[tokio::test]
async fn an_archive_that_lies_about_its_sizes_is_refused_and_leaves_nothing() {
    let world = World::start().await;
    let before = files(&world);
    let mut bytes = wheel().with("hostile/zeros", &vec![0; 16 << 20]).bytes();
    let honest = u32::to_le_bytes(16 << 20);
    let places: Vec<_> = (0..bytes.len() - 4).filter(|place| bytes[*place..*place + 4] == honest).collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place..place + 4].copy_from_slice(&u32::to_le_bytes(1 << 10));
    }
    let refused = Wheel::upload_bytes(&world.admin, "hostile.whl", &bytes).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let left = files(&world).into_iter().filter(|file| !before.contains(file));
    assert_eq!(left.collect::<Vec<_>>(), ["plugins", "plugins/environments"]);
    world.finish().await;
}

#[tokio::test]
async fn what_a_wheel_brings_replaces_neither_the_library_nor_the_sdk() {
    let world = World::start().await;
    let source = format!("import json\nfound = json.__file__\n{WEATHER}");
    let source = source.replace("description=\"Masts\"", "description=str(found)");
    let mut wheel = Wheel::new("hostile", "signalbox.plugins", &source);
    let harm = b"raise SystemExit('harm')";
    for name in ["json/__init__.py", "signalbox_plugins/__init__.py", "sitecustomize.py", "usercustomize.py"]
    {
        wheel = wheel.with(name, harm);
    }
    wheel.with("hostile.pth", b"import os; os._exit(7)\n").upload(&world.admin).await.expect(201);
    let classes = world.admin.get("/api/v1/plugins/available").await.expect(200);
    let class = classes.as_array().unwrap().iter().find(|class| class["id"] == "weather").unwrap().clone();
    assert!(!class["description"].as_str().unwrap().contains("environments"), "{class}");
    world.finish().await;
}

/// While a package does its worst, other requests are answered as ever.
#[tokio::test]
async fn other_users_are_not_affected() {
    let world = World::start().await;
    let event = world.admin.post("/api/v1/events", json!({"name": "e", "type": "sensor"})).await.expect(201);
    let done = AtomicBool::new(false);
    let harm = async {
        for code in [
            "while True: pass",
            "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
            "import threading\nwhile True: threading.Thread(target=lambda: [0] * 10**7).start()",
        ] {
            let (status, message) = upload(&world, code).await;
            assert_eq!(status, 500, "{code}: {message}");
        }
        done.store(true, Ordering::Relaxed);
    };
    let others = async {
        let mut slowest = Duration::ZERO;
        while !done.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let point = json!({"event_public_id": event["public_id"], "value": 1});
            world.admin.post("/api/v1/datapoints", point).await.expect(201);
            world.admin.get("/api/v1/datapoints/latest").await.expect(200);
            eventually(seconds(20), async || world.anonymous().get("/readyz").await.status == 200).await;
            slowest = slowest.max(begun.elapsed());
            sleep(Duration::from_millis(50)).await;
        }
        slowest
    };
    let (slowest, ()) = tokio::join!(others, harm);
    println!("slowest three requests beside hostile code: {slowest:?}");
    assert!(slowest < seconds(30), "{slowest:?}");
    world.finish().await;
}

/// A plugin can also do its worst when it is asked for its channels.
#[tokio::test]
async fn code_that_loops_when_an_instance_is_made_is_ended() {
    let world = World::start().await;
    let source = WEATHER.replace(
        "    def get_channels(self):",
        "    def get_channels(self):\n        while self.config.stations == 4: pass",
    );
    Wheel::new("hostile", "signalbox.plugins", &source).upload(&world.admin).await.expect(201);
    let make = async |name: &str, stations: u32| {
        let config = json!({ "stations": stations }).to_string();
        let body = json!({"plugin_id": "weather", "instance_name": name, "config_json": config});
        world.admin.post("/api/v1/plugins", body).await
    };
    let message = make("one", 4).await.error(422);
    assert!(message.contains("computing time") || message.contains("longer than"), "{message}");
    assert_eq!(world.admin.get("/api/v1/events").await.expect(200)["total"], 0);
    make("two", 3).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn code_that_loops_is_ended() {
    let world = World::start().await;
    let begun = Instant::now();
    let (status, message) = upload(&world, "while True: pass").await;
    assert_eq!(status, 500, "{message}");
    assert!(message.contains("computing time") || message.contains("longer than"), "{message}");
    let (status, message) = upload(&world, "import time; time.sleep(1000)").await;
    assert_eq!(status, 500, "{message}");
    assert!(message.contains("longer than") && begun.elapsed() < seconds(180), "{message}");
    assert_eq!(upload(&world, "").await.0, 201);
    world.finish().await;
}

#[tokio::test]
async fn code_that_takes_all_memory_fails_alone() {
    let world = World::start().await;
    let (status, message) = upload(&world, "b = bytearray(8 << 30)").await;
    assert!(status == 500 && message.contains("MemoryError"), "{status} {message}");
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
        let (status, message) = upload(&world, code).await;
        assert_eq!(status, 500, "{code}: {message}");
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
    let (status, message) = upload(&world, &code).await;
    assert!(status == 500 && message.contains("not permitted"), "{status} {message}");
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
    let (status, message) = upload(&world, "import os\nfound = dict(os.environ)").await;
    assert_eq!(status, 201, "{message}");
    assert!(!message.contains("postgres") && !message.contains("DATABASE"), "{message}");
    let server = std::process::id();
    for path in [
        format!("{folder}/secret"),
        "/proc/1/environ".to_owned(),
        "/etc/passwd".to_owned(),
        format!("/proc/{server}/environ"),
        format!("/proc/{server}/cmdline"),
        format!("/proc/{server}/mem"),
        format!("/proc/{server}/maps"),
    ] {
        let (status, message) = upload(&world, &format!("found = open({path:?}).read()")).await;
        assert!(status == 500 && message.contains("PermissionError"), "{path}: {status} {message}");
    }
    let (_, message) =
        upload(&world, "import os\nfound = open(f'/proc/{os.getppid()}/environ').read()").await;
    assert!(message.contains("PermissionError"), "{message}");
    // Nor of the memory of the server, or over the socket of its database.
    for code in [
        format!("import ctypes\nassert ctypes.CDLL(None).ptrace(16, {server}, 0, 0) == 0, 'Error'"),
        format!(
            "import ctypes\nassert ctypes.CDLL(None).process_vm_readv({server}, 0, 0, 0, 0, 0) == 0, 'Error'"
        ),
        "import socket\nsocket.socket(socket.AF_UNIX)".to_owned(),
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'cat /etc/passwd'])".to_owned(),
        format!("open('{folder}/written', 'w')"),
        format!("import os\nos.unlink('{folder}/secret')"),
        format!("import os\nos.rename('{folder}/secret', '{folder}/other')"),
    ] {
        let (status, message) = upload(&world, &code).await;
        assert!(status == 500 && !message.contains("root:"), "{code}: {status} {message}");
    }
    assert_eq!(std::fs::read_to_string(world.config.storage.folder.join("secret")).unwrap(), secret);
    world.finish().await;
}

#[tokio::test]
async fn code_signals_no_other_process_and_empties_no_file() {
    let world = World::start().await;
    assert_eq!(upload(&world, "").await.0, 201);
    let server = std::process::id();
    let plugins = world.config.storage.folder.join("plugins");
    let sdk = std::fs::read_dir(&plugins).unwrap().map(|entry| entry.unwrap().path());
    let sdk = sdk.into_iter().find(|path| path.display().to_string().contains("/sdk-")).unwrap();
    let text = || std::fs::read_to_string(sdk.join("signalbox_plugins/__init__.py")).unwrap();
    let before = text();
    assert!(!before.is_empty());
    let call = "import ctypes, platform\ntgkill = 234 if platform.machine() == 'x86_64' else 131\n";
    for code in [
        format!("{call}assert ctypes.CDLL(None).syscall(tgkill, {server}, {server}, 0) == 0, 'Error'"),
        "import os, signalbox_plugins\nos.open(signalbox_plugins.__file__, os.O_RDONLY | os.O_TRUNC)"
            .to_owned(),
        "import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)".to_owned(),
        "import os, signalbox_plugins\nos.truncate(signalbox_plugins.__file__, 0)".to_owned(),
    ] {
        let (status, message) = upload(&world, &code).await;
        assert_eq!(status, 500, "{code}: {message}");
    }
    assert_eq!(text(), before);
    // A change that affects all runs alike is repaired before the next description.
    std::fs::write(sdk.join("signalbox_plugins/__init__.py"), "raise SystemExit('harm')").unwrap();
    assert_eq!(upload(&world, "").await.0, 201);
    assert_eq!(text(), before);
    world.finish().await;
}
