//! Chromium without a window, driven by the DevTools protocol: <https://chromedevtools.github.io/devtools-protocol/>.

use std::{net::SocketAddr, path::PathBuf, process::Stdio};

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

use super::{eventually_some, seconds};

const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub struct Browser {
    page: WebSocketStream<MaybeTlsStream<TcpStream>>,
    sent: u64,
    child: Child,
    profile: TempDir,
}

impl Browser {
    /// One that finds `host` at `address`.
    pub async fn start(host: &str, address: SocketAddr) -> Self {
        let profile = TempDir::new().unwrap();
        let child = Command::new(program())
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-features=HttpsUpgrades"])
            .args(["--remote-debugging-port=0", &format!("--host-resolver-rules=MAP {host} {address}")])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let file = profile.path().join("DevToolsActivePort");
        let port = eventually_some(seconds(60), async || {
            let text = std::fs::read_to_string(&file).ok()?;
            text.lines().next()?.parse::<u16>().ok()
        });
        let new = format!("http://127.0.0.1:{}/json/new?about:blank", port.await);
        let target = reqwest::Client::new().put(new).send().await.unwrap().text().await.unwrap();
        let target: Value = serde_json::from_str(&target).unwrap();
        let (page, _) = connect_async(target["webSocketDebuggerUrl"].as_str().unwrap()).await.unwrap();
        Self { page, sent: 0, child, profile }
    }

    /// Starts to load `url`.
    pub async fn open(&mut self, url: &str) {
        let answer = self.call("Page.navigate", json!({ "url": url })).await;
        assert!(answer["result"]["errorText"].is_null(), "{url}: {answer}");
    }

    /// The value of `script` in the page, once it is truthy.
    pub async fn until(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let mut last = Value::Null;
        let found = async {
            loop {
                // A page that is just being left has no answer.
                last = self.call("Runtime.evaluate", params.clone()).await;
                let value = &last["result"]["result"]["value"];
                if !value.is_null() && *value != json!(false) {
                    return value.clone();
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        match timeout(seconds(60), found).await {
            Ok(value) => value,
            Err(_) => panic!("timed out: {script}: {last}"),
        }
    }

    /// Ends it, and waits until it writes no more.
    pub async fn close(mut self) {
        self.child.kill().await.unwrap();
        drop(self.profile);
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let command = json!({"id": self.sent, "method": method, "params": params});
        self.page.send(Message::text(command.to_string())).await.unwrap();
        let answered = timeout(seconds(60), async {
            loop {
                let message = self.page.next().await.unwrap().unwrap();
                let Ok(text) = message.to_text() else { continue };
                let answer: Value = serde_json::from_str(text).unwrap_or_default();
                if answer["id"] == self.sent {
                    return answer;
                }
            }
        });
        answered.await.expect("the browser does not answer")
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| PROGRAMS.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    found.expect("chromium is needed: install it with tools/bootstrap")
}
