//! Debian's Prometheus as a process, which answers PromQL from its own storage or from what it reads elsewhere.

use std::process::{Child, Command, Stdio};

use serde_json::Value;
use signalbox_test_support::{eventually, free_address, seconds};

use super::Folder;

pub struct Prometheus {
    url: String,
    _folder: Folder,
    child: Child,
}

pub(super) fn program(name: &str) -> Command {
    Command::new(format!("{}/.tools/bin/{name}", env!("CARGO_MANIFEST_DIR")))
}

impl Prometheus {
    /// One whose own storage holds what `openmetrics` says, if that is not empty; with `settings` as its configuration.
    pub async fn start(openmetrics: &str, settings: &str) -> Self {
        let folder = Folder::new();
        folder.write("prometheus.yml", settings);
        if !openmetrics.is_empty() {
            folder.write("values.txt", openmetrics);
            let (values, data) = (folder.text("values.txt"), folder.text("data"));
            let mut command = program("promtool");
            command.args(["tsdb", "create-blocks-from", "openmetrics", "--quiet", &values, &data]);
            let made = command.output().expect("promtool is installed by tools/bootstrap tests");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        let address = free_address();
        let child = program("prometheus")
            .arg(format!("--config.file={}", folder.text("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", folder.text("data")))
            .arg(format!("--web.listen-address={address}"))
            .args(["--storage.tsdb.retention.time=10y", "--log.level=error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed by tools/bootstrap tests");
        let started = Self { url: format!("http://{address}"), _folder: folder, child };
        let ready = format!("{}/-/ready", started.url);
        eventually(seconds(60), async || {
            reqwest::get(&ready).await.is_ok_and(|answer| answer.status().is_success())
        })
        .await;
        started
    }

    /// Its answer to a request of its interface.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Value {
        let mut url = reqwest::Url::parse(&format!("{}/api/v1/{path}", self.url)).unwrap();
        url.query_pairs_mut().extend_pairs(query);
        reqwest::get(url).await.unwrap().json().await.unwrap()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
