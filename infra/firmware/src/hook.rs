use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use signalbox_domain::kernel::ReleaseVersion;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};

use crate::Occasion;

/// How much of a hook's words is kept: the last ones, in bytes.
const TAIL: usize = 2000;
/// A finished hook may leave its pipes to child processes, which are not waited for.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// Where a hook finds the usual programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program of the operator's that brings the machine to the version that is in force.
#[derive(Debug)]
pub(crate) struct Hook {
    pub(crate) program: PathBuf,
    pub(crate) limit: Duration,
}

/// Why a version is not in force although the link leads to it.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It cannot be run.
    #[error("the hook cannot be started: {0}; check firmware.hook")]
    Start(io::Error),
    /// It took too long and was killed.
    #[error("the hook was ended after {seconds} s{}", said(.tail))]
    Slow {
        /// Its time limit.
        seconds: u64,
        /// Its last words.
        tail: String,
    },
    /// Its exit status is a failure.
    #[error("the hook ended with {status}{}", said(.tail))]
    Failed {
        status: ExitStatus,
        /// Its last words.
        tail: String,
    },
}

fn said(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!(": {tail}") }
}

/// The last words of a process; readers of both of its pipes share it.
#[derive(Debug, Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    async fn follow(self, mut pipe: impl AsyncRead + Unpin) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(&buffer[..count]);
            let surplus = kept.len().saturating_sub(TAIL);
            kept.drain(..surplus);
        }
    }

    fn text(&self) -> String {
        let kept: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept).replace(|c: char| c.is_control() && c != '\n', " ");
        text.trim().to_owned()
    }
}

/// Runs `hook` in `folder`. It sees nothing of this process's environment, where secrets are.
pub(crate) async fn run(
    hook: &Hook,
    folder: &Path,
    occasion: Occasion,
    version: Option<ReleaseVersion>,
    previous: Option<ReleaseVersion>,
) -> Result<(), HookError> {
    let word = match occasion {
        Occasion::Apply => "apply",
        Occasion::Rollback => "rollback",
    };
    let text = |version: Option<ReleaseVersion>| version.map(String::from).unwrap_or_default();
    let mut command = Command::new(&hook.program);
    command.args([word, &text(version)]).current_dir(folder);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C.UTF-8");
    command.env("FIRMWARE_ACTION", word).env("FIRMWARE_FOLDER", folder);
    command.env("FIRMWARE_VERSION", text(version)).env("FIRMWARE_PREVIOUS_VERSION", text(previous));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(HookError::Start)?;
    let (tail, mut readers) = (Tail::default(), JoinSet::new());
    if let Some(pipe) = child.stdout.take() {
        readers.spawn(tail.clone().follow(pipe));
    }
    if let Some(pipe) = child.stderr.take() {
        readers.spawn(tail.clone().follow(pipe));
    }
    let ended = timeout(hook.limit, child.wait()).await;
    let status = match ended {
        Ok(status) => Some(status.map_err(HookError::Start)?),
        Err(_) => {
            kill(&mut child).await;
            None
        }
    };
    let _ = timeout(AFTERWARDS, async { while readers.join_next().await.is_some() {} }).await;
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(HookError::Failed { status, tail: tail.text() }),
        None => Err(HookError::Slow { seconds: hook.limit.as_secs(), tail: tail.text() }),
    }
}

/// Kills the hook and its child processes.
async fn kill(child: &mut Child) {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(Err(error)) = group.map(|group| kill_process_group(group, Signal::KILL)) {
        tracing::warn!(%error, "a hook cannot be ended");
    }
    if let Err(error) = child.wait().await {
        tracing::warn!(%error, "the end of a hook was not seen");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use signalbox_test_support::write_program;

    use super::*;

    async fn run_script(script: &str, milliseconds: u64) -> (Result<(), HookError>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        write_program(&program, &format!("#!/bin/sh\n{script}\n"));
        let hook = Hook { program, limit: Duration::from_millis(milliseconds) };
        let version = Some("1.2.0".parse().unwrap());
        let ended = run(&hook, folder.path(), Occasion::Apply, version, None).await;
        (ended, folder)
    }

    #[tokio::test]
    async fn a_hook_receives_the_change_and_no_secret() {
        let (ended, folder) = run_script("echo \"$1 $2\" > seen; env >> seen; cat >> seen", 60_000).await;
        ended.unwrap();
        let seen = fs::read_to_string(folder.path().join("seen")).unwrap();
        assert!(seen.starts_with("apply 1.2.0\n") && seen.contains("FIRMWARE_PREVIOUS_VERSION=\n"), "{seen}");
        // Cargo has given this test plenty of variables.
        assert!(!seen.contains("CARGO"), "{seen}");
    }

    #[tokio::test]
    async fn the_end_of_its_words_is_kept_when_it_fails() {
        let (ended, _folder) = run_script("seq 1 100000; echo to stderr >&2; exit 3", 60_000).await;
        let message = ended.unwrap_err().to_string();
        assert!(message.contains("exit status: 3") && message.contains("to stderr"), "{message}");
        assert!(message.len() < 3000 && !message.contains("\n10\n"), "{message}");
    }

    #[tokio::test]
    async fn it_is_ended_with_what_it_has_started() {
        let begun = std::time::Instant::now();
        let (ended, folder) = run_script("sleep 1000 & echo $! > pid; echo waiting; wait", 2000).await;
        let error = ended.unwrap_err();
        assert!(matches!(&error, HookError::Slow { tail, .. } if tail == "waiting"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        // A process that was killed may take a moment to be gone, and longer for its new parent to notice.
        let gone = async {
            while !state().is_empty() && !state().contains(") Z ") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.unwrap();
    }

    #[tokio::test]
    async fn what_it_leaves_running_is_not_waited_for() {
        let (ended, folder) = run_script("sleep 1000 & echo $! > pid", 60_000).await;
        ended.unwrap();
        let pid = fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_said_so() {
        let hook = Hook { program: "/nowhere/hook".into(), limit: Duration::from_secs(1) };
        let ended = run(&hook, Path::new("/"), Occasion::Rollback, None, None).await;
        assert!(ended.unwrap_err().to_string().contains("firmware.hook"));
    }
}
