use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// A process of ours. It is killed when this is dropped, and by the kernel when the thread that started it ends.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `program`, with its output appended to `log`. Start it from a thread that lives as long as it should.
    pub fn start(
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: &[(&str, String)],
        log: &Path,
    ) -> anyhow::Result<Self> {
        let output = fs::File::options().create(true).append(true).open(log).context("open a log")?;
        let mut command = Self::command(program, arguments, environment);
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// `program` without input, which ends with the thread that starts it.
    pub(super) fn command(
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: &[(&str, String)],
    ) -> Command {
        // setpriv becomes the program, so the number stays.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
        command.envs(environment.iter().map(|(name, value)| (*name, value))).stdin(Stdio::null());
        command
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Lets it hang, with all its connections open, until [`Program::resume`].
    pub fn pause(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::CONT);
    }

    /// Asks it to end, and waits for that.
    pub fn stop(mut self) {
        self.end(Signal::TERM);
    }

    /// Its resident memory.
    pub fn resident_mib(&self) -> anyhow::Result<f64> {
        self.status_mib("VmRSS:")
    }

    /// The most that its resident memory was since [`Program::forget_peak`].
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        self.status_mib("VmHWM:")
    }

    /// Makes the present resident memory the most that it was.
    pub fn forget_peak(&self) -> std::io::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5")
    }

    fn status_mib(&self, name: &str) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find(|line| line.starts_with(name)).context("a process without memory")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// Its last output.
    pub fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn end(&mut self, signal: Signal) {
        if self.is_running() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}
