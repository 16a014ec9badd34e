//! The controller program itself, as a process.

use std::{path::Path, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::seconds;

/// A running controller.
pub struct PluginController(Child);

impl PluginController {
    /// Starts it against the service at `url`, with pauses that suit a test; it keeps its buffer below `state`.
    pub fn start(url: &str, token: &str, state: &Path) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("controller/src");
        let mut command = Command::new("python3");
        command.args([
            "-m",
            "signalbox_controller",
            "--url",
            url,
            "--poll",
            "0.1",
            "--sync",
            "0.3",
            "--state",
        ]);
        command.arg(state).env("PYTHONPATH", sources).env("SIGNALBOX_TOKEN", token);
        Self(command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap())
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(mut self) {
        let pid = Pid::from_raw(self.0.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = timeout(seconds(20), self.0.wait()).await.expect("the controller did not stop").unwrap();
        assert!(status.success(), "{status}");
    }
}
