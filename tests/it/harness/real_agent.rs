//! The agent program itself, in a runtime of its own, so that it can be killed like a process.

use signalbox_agent::{CancellationToken, Config, Terminal, run};
use std::time::Duration;
use tokio::{runtime::Runtime, task::JoinHandle, time::timeout};

use super::{Folder, seconds};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Auto,
    Websocket,
    Polling,
}

pub struct RealAgent {
    runtime: Option<Runtime>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RealAgent {
    /// Starts an agent with the root `folder` and delays that suit a test.
    pub fn start(url: &str, token: &str, folder: &Folder, transport: Transport) -> Self {
        Self::with(url, token, folder, transport, |_| {})
    }

    pub fn with(
        url: &str,
        token: &str,
        folder: &Folder,
        transport: Transport,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let mut settings = toml::Table::new();
        let transport = format!("{transport:?}").to_lowercase();
        for (key, value) in [("url", url), ("token", token), ("transport", &transport)] {
            settings.insert(key.into(), value.into());
        }
        settings.insert("roots".into(), vec![folder.text("")].into());
        let mut config = Config::load(Some("/dev/null".as_ref()), settings).unwrap();
        let timing = &mut config.timing;
        timing.reconnect_base = Duration::from_millis(20);
        timing.reconnect_max = Duration::from_millis(200);
        timing.retry_base = Duration::from_millis(10);
        timing.retry_max = Duration::from_millis(100);
        // The same total time as with the delays of a plant, so that a service that moves to another node costs no
        // attempt.
        timing.retry_tries = 300;
        timing.unauthorized = Duration::from_millis(50);
        timing.poll = seconds(2);
        timing.websocket_probe = Duration::from_millis(100);
        adjust(&mut config);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = runtime.spawn(async move { run(config, Terminal::default(), stopped).await.unwrap() });
        Self { runtime: Some(runtime), stop, task }
    }

    /// Stops the agent in good order.
    pub async fn stop(mut self) {
        self.stop.cancel();
        timeout(seconds(10), &mut self.task).await.expect("the agent did not stop").unwrap();
    }

    /// Ends it as SIGKILL would: nothing is said to anybody.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for RealAgent {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
