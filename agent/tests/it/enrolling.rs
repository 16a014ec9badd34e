//! The program itself: enrolling, starting, stopping.

use crate::{
    folder::Folder,
    gateway::{Gateway, TOKEN},
};
use axum::{Router, routing::any};
use std::{fs, os::unix::fs::PermissionsExt, process::Output, time::Duration};
use tokio::{net::TcpListener, process::Command, time::timeout};

fn program(folder: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox-agent"));
    command.env_clear().current_dir(folder.path("")).kill_on_drop(true);
    command
}

async fn enroll(folder: &Folder, url: &str, token: &str, file: &str) -> Output {
    let root = folder.text("in");
    let arguments = ["enroll", "--url", url, "--token", token, "--root", &root, "--config", file];
    timeout(Duration::from_secs(20), program(folder).args(arguments).output()).await.unwrap().unwrap()
}

fn folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("in")).unwrap();
    folder
}

#[tokio::test]
async fn enrolling_writes_a_private_file_that_the_agent_runs_with() {
    let (gateway, folder) = (Gateway::start().await, folder());
    let output = enroll(&folder, &gateway.url(), TOKEN, "etc/agent.toml").await;
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("run --config etc/agent.toml") && !printed.contains(TOKEN), "{printed}");
    let mode = fs::metadata(folder.path("etc/agent.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let agent =
        program(&folder).args(["--config", "etc/agent.toml"]).stderr(std::process::Stdio::piped()).spawn();
    let agent = agent.unwrap();
    gateway.nth("agent_info", 2).await;
    let id = agent.id().unwrap().to_string();
    Command::new("kill").args(["-TERM", &id]).status().await.unwrap();
    let output = timeout(Duration::from_secs(10), agent.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("agent stopped") && !log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn enrolling_again_keeps_other_settings() {
    let (gateway, folder) = (Gateway::start().await, folder());
    folder.write("agent.toml", "token = 'old'\nparallel_files = 2\n");
    assert!(enroll(&folder, &gateway.url(), TOKEN, "agent.toml").await.status.success());
    let written = String::from_utf8(folder.read("agent.toml")).unwrap();
    assert!(written.contains(TOKEN) && written.contains("parallel_files = 2"), "{written}");
}

#[tokio::test]
async fn enrolling_faults_are_reported_in_one_sentence() {
    let (gateway, folder) = (Gateway::start().await, folder());
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stranger_url = format!("http://{}", stranger.local_addr().unwrap());
    let app = Router::new().fallback(any(async || "Welcome to something else"));
    tokio::spawn(async move { axum::serve(stranger, app).await.unwrap() });
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let tls_url = gateway.url().replace("http", "https");
    let good = gateway.url();
    folder.write("file", "");
    for (url, token, file, part) in [
        (good.as_str(), "wrong", "a.toml", "refused the token"),
        (good.as_str(), "two words", "a.toml", "one word"),
        ("http://name.invalid:80", TOKEN, "a.toml", "cannot be resolved"),
        (closed_url.as_str(), TOKEN, "a.toml", "refused (is the gateway running"),
        (tls_url.as_str(), TOKEN, "a.toml", "TLS"),
        (stranger_url.as_str(), TOKEN, "a.toml", "no Signalbox gateway"),
        ("ftp://x", TOKEN, "a.toml", "must begin with http"),
        (good.as_str(), TOKEN, "file/a.toml", "cannot be written"),
    ] {
        let output = enroll(&folder, url, token, file).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{url}: {text}");
        assert!(text.contains(part) && text.trim_end().lines().count() == 1, "{url}: {text}");
        assert!(!text.contains(TOKEN), "{text}");
    }
    assert_eq!(folder.list(""), ["file", "in/"]);
}

#[tokio::test]
async fn settings_come_from_the_environment_and_flags_win() {
    let (gateway, folder) = (Gateway::start().await, folder());
    let mut agent = program(&folder)
        .args(["run", "--transport", "polling"])
        .env("SIGNALBOX_AGENT_URL", gateway.url())
        .env("SIGNALBOX_AGENT_TOKEN", TOKEN)
        .env("SIGNALBOX_AGENT_ROOTS", format!("{}:{}", folder.text("in"), folder.text("")))
        .env("SIGNALBOX_AGENT_TRANSPORT", "websocket")
        .spawn()
        .unwrap();
    assert_eq!(gateway.nth("agent_info", 1).await["transport_mode"], "polling");
    agent.kill().await.unwrap();
}

#[tokio::test]
async fn a_start_that_cannot_work_ends_with_one_sentence() {
    let folder = folder();
    for (arguments, part) in [
        (vec!["run", "--config", "missing.toml"], "missing.toml cannot be read"),
        (vec!["--token", "x", "--root", "nowhere", "--config", "/dev/null"], "The root nowhere"),
        (vec!["--config", "/dev/null"], "No agent token"),
    ] {
        let output = program(&folder).args(arguments).output().await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn completions_and_manual_pages_are_printed_and_show_nothing_of_the_environment() {
    let folder = folder();
    let run = async |arguments: &[&str]| {
        let mut command = program(&folder);
        command.env("SIGNALBOX_AGENT_TOKEN", TOKEN).env("SIGNALBOX_AGENT_URL", "http://planted.example");
        let output = command.args(arguments).output().await.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains(TOKEN) && !text.contains("planted"), "{arguments:?}: {text}");
        text
    };
    assert!(run(&["completions", "bash"]).await.contains("enroll"));
    assert!(run(&["man"]).await.contains("signalbox\\-agent"));
    run(&["man", "--out", "pages"]).await;
    let page = fs::read_to_string(folder.path("pages").join("signalbox-agent-enroll.1")).unwrap();
    assert!(page.contains("SYNOPSIS") && !page.contains(TOKEN), "{page}");
}
