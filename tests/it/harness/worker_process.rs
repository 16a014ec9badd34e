//! A process of the service that runs workers, to be killed.

use std::process::{Child, Command, Stdio};

use super::{World, storage_variables};

pub struct WorkerProcess(Child);

impl WorkerProcess {
    /// Starts one for `world`, with the world's settings that matter to firmware.
    pub fn start(world: &World) -> Self {
        let config = &world.config;
        let mut command = Command::new(env!("CARGO_BIN_EXE_signalbox"));
        command.args(["serve", "--role", "workers"]);
        command.env("DATABASE_URL", config.database.url.expose()).env("NATS_URL", config.nats.url.expose());
        command.envs(storage_variables(&config.storage));
        command.env("SIGNALBOX_NATS__REPLICAS", config.nats.replicas.to_string());
        command.env("SIGNALBOX_EGRESS__ALLOWED_NETWORKS", config.egress.allowed_networks.join(","));
        command.env("SIGNALBOX_FIRMWARE__HOOK", &config.firmware.hook);
        command.env("SIGNALBOX_EXTRACTION__PARSERS", "1");
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
