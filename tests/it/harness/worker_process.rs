//! A process of the service that runs workers, to be killed.

use std::process::{Child, Stdio};

use super::{World, program};

pub struct WorkerProcess(Child);

impl WorkerProcess {
    /// Starts one for `world`.
    pub fn start(world: &World) -> Self {
        let mut command = program(&world.config).into_std();
        command.args(["serve", "--role", "workers"]).env("SIGNALBOX_EXTRACTION__PARSERS", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.end();
    }
}
