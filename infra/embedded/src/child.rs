//! A running server: its signals, its end, and its output.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{path::PathBuf, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::EmbeddedError;
use crate::keeper;
use crate::log::Log;

const POLL: Duration = Duration::from_millis(15);
/// Time without output after which a server counts as stuck. A server that recovers after a crash may take longer,
/// but writes to its log.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
const DROP_LIMIT: Duration = Duration::from_secs(3);

/// A child in a process group of its own, so that the terminal's Ctrl-C reaches only the parent, which drains first.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    program: &'static str,
    child: Child,
    log: Arc<Log>,
    on_drop: Signal,
}

impl ServerProcess {
    /// Starts `command` with its output going to `log_path`; `on_drop` is the quickest signal that spares its data.
    pub(crate) fn spawn(
        program: &'static str,
        mut command: Command,
        log_path: PathBuf,
        on_drop: Signal,
    ) -> Result<Self, EmbeddedError> {
        let (log, file) = Log::open(log_path.clone()).map_err(EmbeddedError::file("open", &log_path))?;
        let errors = file.try_clone().map_err(EmbeddedError::file("open", &log_path))?;
        command.process_group(0).stdin(Stdio::null()).stdout(file).stderr(errors);
        let log = Arc::new(log);
        let child = keeper::spawn(command, &log).map_err(EmbeddedError::run(program))?;
        Ok(Self { program, child, log, on_drop })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` returns true; fails if the server ends first or writes nothing for too long.
    pub(crate) async fn wait_ready<F>(&mut self, ready: impl Fn(u32) -> F) -> Result<(), EmbeddedError>
    where
        F: Future<Output = bool>,
    {
        let mut said = self.log.length();
        let mut heard = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Err(self.exited(status));
            }
            if ready(self.pid()).await {
                return Ok(());
            }
            if self.log.length() != said {
                (said, heard) = (self.log.length(), Instant::now());
            }
            if heard.elapsed() > SILENCE_LIMIT {
                return Err(self.not_ready());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn exited(&self, status: ExitStatus) -> EmbeddedError {
        EmbeddedError::Exited {
            program: self.program,
            status: status.to_string(),
            log: self.log.path().to_owned(),
            tail: self.log.tail(),
        }
    }

    fn not_ready(&self) -> EmbeddedError {
        EmbeddedError::NotReady {
            program: self.program,
            waited_seconds: SILENCE_LIMIT.as_secs(),
            log: self.log.path().to_owned(),
            tail: self.log.tail(),
        }
    }

    /// Sends each signal in turn, giving the server the time beside it to end, and kills it after the last.
    pub(crate) async fn stop(mut self, steps: &[(Signal, Duration)]) {
        for &(signal, limit) in steps {
            self.signal(signal);
            if self.wait_ended(limit).await {
                return;
            }
            tracing::warn!(
                server.name = self.program,
                waited_s = limit.as_secs(),
                "a server did not stop in time and is pressed harder"
            );
        }
        self.kill();
    }

    async fn wait_ended(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        while self.ended().is_none() {
            if begun.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.ended().is_none()
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    fn signal(&self, signal: Signal) {
        send(self.pid(), signal).ok();
    }

    fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        self.signal(self.on_drop);
        let begun = Instant::now();
        while self.ended().is_none() {
            if begun.elapsed() > DROP_LIMIT {
                return self.kill();
            }
            thread::sleep(POLL);
        }
    }
}

/// Sends a signal to a process that exists or existed a moment ago.
pub(crate) fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}
