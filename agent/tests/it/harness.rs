//! A running agent with short delays, its folder and its gateway.

use crate::{
    folder::Folder,
    gateway::{Gateway, TOKEN},
};
use signalbox_agent::{CancellationToken, Config, Terminal, run};
use std::{path::Path, time::Duration};
use tokio::{task::JoinHandle, time::timeout};

pub struct Agent {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// An agent's configuration with delays that suit a test.
pub fn config(url: &str, token: &str, root: &Path, transport: &str) -> Config {
    let mut settings = toml::Table::new();
    for (key, value) in [("url", url), ("token", token), ("transport", transport)] {
        settings.insert(key.into(), value.into());
    }
    settings.insert("roots".into(), vec![root.to_str().unwrap()].into());
    let mut config = Config::load(Some("/dev/null".as_ref()), settings).unwrap();
    let timing = &mut config.timing;
    timing.reconnect_base = Duration::from_millis(10);
    timing.reconnect_max = Duration::from_millis(100);
    timing.retry_base = Duration::from_millis(10);
    timing.retry_max = Duration::from_millis(100);
    timing.unauthorized = Duration::from_millis(50);
    timing.progress = Duration::from_millis(5);
    config
}

impl Agent {
    pub fn start(config: Config) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { run(config, Terminal::default(), stopped).await.unwrap() });
        Self { stop, task }
    }

    /// Stops the agent and waits for its end.
    pub async fn stop(self) {
        self.stop.cancel();
        timeout(Duration::from_secs(10), self.task).await.expect("the agent did not stop").unwrap();
    }
}

/// A gateway, a folder with the root `in`, and an agent that is connected.
pub struct Site {
    pub gateway: Gateway,
    pub folder: Folder,
    pub agent: Agent,
}

impl Site {
    pub async fn start(transport: &str) -> Self {
        Self::start_with(transport, |_| {}).await
    }

    pub async fn start_with(transport: &str, adjust: impl FnOnce(&mut Config)) -> Self {
        let (gateway, folder) = (Gateway::start().await, Folder::new());
        std::fs::create_dir(folder.path("in")).unwrap();
        let mut config = config(&gateway.url(), TOKEN, &folder.path("in"), transport);
        adjust(&mut config);
        let agent = Agent::start(config);
        gateway.nth("agent_info", 1).await;
        Self { gateway, folder, agent }
    }
}

/// Bytes that differ from place to place.
pub fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|place| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Polls, for conditions without a notification: files on disk.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..4_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}
