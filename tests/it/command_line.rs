//! Behaviour of all commands: completions, manual pages, exit codes.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::harness::{eventually, seconds};

fn signalbox(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
    for name in ["SIGNALBOX_CONFIG", "DATABASE_URL", "NATS_URL"] {
        command.env_remove(name);
    }
    command.args(arguments).env("SIGNALBOX_STORAGE__FOLDER", "/nowhere").output().unwrap()
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output of `program`, unless it is not installed.
fn if_installed(program: &str, arguments: &[&str]) -> Option<Output> {
    Command::new(program).args(arguments).output().ok()
}

/// Bash's completions after `words`, the last of which is incomplete.
fn offered(script: &Path, words: &[&str]) -> Vec<String> {
    let (last, before) = words.split_last().unwrap();
    let line = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _signalbox signalbox '{last}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.join(" "),
        words.len() - 1,
        before.last().unwrap(),
    );
    let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
    text(output).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("signalbox.bash");
    fs::write(&script, text(signalbox(&["completions", "bash"]))).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&script).output().unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    for (words, expected) in [
        (vec!["signalbox", "lo"], vec!["log"]),
        (vec!["signalbox", "log", "ver"], vec!["verify"]),
        (vec!["signalbox", "user", "re"], vec!["revoke"]),
        (vec!["signalbox", "serve", "--ro"], vec!["--role"]),
        (vec!["signalbox", "serve", "--role", "g"], vec!["gateway"]),
        (vec!["signalbox", "projections", "rebuild", "tr"], vec!["transfer"]),
    ] {
        assert_eq!(offered(&script, &words), expected, "{words:?}");
    }
}

#[test]
fn other_shells_accept_their_completions() {
    let folder = TempDir::new().unwrap();
    for (shell, first) in [("zsh", "#compdef signalbox"), ("fish", "#")] {
        let script = text(signalbox(&["completions", shell]));
        assert!(script.starts_with(first) && script.contains("projections"), "{shell}: {script}");
        let path = folder.path().join(shell);
        fs::write(&path, script).unwrap();
        let checked = if_installed(shell, &["-n", path.to_str().unwrap()]);
        assert!(checked.is_none_or(|checked| checked.status.success()), "{shell}");
    }
}

#[test]
fn there_is_a_manual_page_of_every_command_that_renders_without_a_warning() {
    let folder = TempDir::new().unwrap();
    text(signalbox(&["man", "--out", folder.path().to_str().unwrap()]));
    fs::write(folder.path().join("whole.1"), text(signalbox(&["man"]))).unwrap();
    for name in ["signalbox", "signalbox-log", "signalbox-log-verify", "signalbox-user-revoke", "whole"] {
        assert!(folder.path().join(format!("{name}.1")).is_file(), "{name}");
    }
    assert!(!folder.path().join("signalbox-parse-documents.1").exists(), "it is for this program alone");
    for page in fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap().path();
        let page = page.to_str().unwrap();
        let Some(rendered) = if_installed("groff", &["-man", "-Kutf8", "-Tutf8", "-ww", page]) else {
            return;
        };
        assert!(rendered.status.success() && rendered.stderr.is_empty(), "{page}: {rendered:?}");
        assert!(!rendered.stdout.is_empty(), "{page}");
    }
}

#[test]
fn what_is_typed_wrong_ends_with_2_and_what_fails_with_1() {
    for wrong in [
        vec![],
        vec!["nonsense"],
        vec!["log", "tail", "-n", "many"],
        vec!["serve", "--role", "king"],
        vec!["projections", "rebuild", "nonsense"],
        vec!["token", "revoke", "no-key"],
        vec!["log", "show", "transfer", "no-key"],
        vec!["log", "verify", "--public-key", "x"],
    ] {
        let output = signalbox(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}");
    }
    for failing in [
        vec!["log", "tail"],
        vec!["log", "verify"],
        vec!["projections", "status"],
        vec!["projections", "poison", "list"],
        vec!["user", "list", "--json"],
        vec!["token", "list"],
        vec!["doctor"],
    ] {
        let output = signalbox(&failing);
        assert_eq!(output.status.code(), Some(1), "{failing:?}");
    }
}

#[tokio::test]
async fn a_service_that_is_asked_to_stop_while_it_starts_ends_well() {
    // It accepts connections and never answers, so that the service does not finish its start.
    let database = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://signalbox@{}/signalbox", database.local_addr().unwrap());
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_signalbox"));
    command.args(["serve", "--role", "workers"]).env_remove("SIGNALBOX_CONFIG").env("DATABASE_URL", url);
    let mut starting = command.kill_on_drop(true).spawn().unwrap();
    let id = starting.id().unwrap();
    let handles_signals = async || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (15 - 1)) != 0
    };
    eventually(seconds(30), handles_signals).await;
    Command::new("kill").args(["-TERM", &id.to_string()]).status().unwrap();
    let ended = tokio::time::timeout(seconds(10), starting.wait()).await;
    assert!(ended.expect("it starts on").unwrap().success());
}
