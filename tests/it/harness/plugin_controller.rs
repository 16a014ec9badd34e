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
    /// Starts it against the service at `url`, with delays that suit a test and with `options`; it keeps its buffer
    /// below `state`.
    pub fn start(url: &str, token: &str, state: &Path, options: &[&str]) -> Self {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = ["controller/src", ".tools/python", ".tools/devices"].map(|folder| top.join(folder));
        let path = std::env::join_paths(path).unwrap();
        let mut command = Command::new("python3");
        command.args(["-m", "signalbox_controller", "--url", url, "--poll", "0.1", "--sync", "0.3"]);
        command.args(options).arg("--state").arg(state).env("PYTHONPATH", path).env("SIGNALBOX_TOKEN", token);
        Self(command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap())
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(mut self) {
        let pid = Pid::from_raw(self.0.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = timeout(seconds(20), self.0.wait()).await.expect("the controller did not stop").unwrap();
        assert!(status.success(), "{status}");
    }

    /// Kills it, as when its machine fails; its instances see that it is gone.
    pub async fn kill(mut self) {
        self.0.kill().await.unwrap();
    }
}
