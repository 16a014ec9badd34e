use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::ensure;

use super::{AgentAccount, Program};

/// How to start a process of the agent program.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Its root.
    pub folder: PathBuf,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
}

impl AgentSettings {
    /// The agent `account` of the gateway at `gateway`, with a folder called `name` below `parent` as its root.
    pub fn new(
        parent: &Path,
        name: &str,
        gateway: SocketAddr,
        account: &AgentAccount,
        transport: &str,
    ) -> anyhow::Result<Self> {
        let folder = parent.join(name);
        fs::create_dir_all(&folder)?;
        let environment = vec![
            ("SIGNALBOX_AGENT_URL", format!("http://{gateway}")),
            ("SIGNALBOX_AGENT_TOKEN", account.token.clone()),
            ("SIGNALBOX_AGENT_ROOTS", folder.display().to_string()),
            ("SIGNALBOX_AGENT_TRANSPORT", transport.to_owned()),
        ];
        Ok(Self { log: parent.join(format!("{name}.log")), folder, environment })
    }

    /// The same, with the environment variable `name` set to `value`.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Starts the process.
    pub fn start(&self) -> anyhow::Result<Program> {
        let program = Path::new(env!("CARGO_BIN_EXE_signalbox")).with_file_name("signalbox-agent");
        ensure!(program.is_file(), "signalbox-agent is not built for this profile: run `make build` first");
        Program::start(&program, &[] as &[&str], &self.environment, &self.log)
    }
}
