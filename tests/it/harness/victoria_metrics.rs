//! Debian's VictoriaMetrics as a process. It has no remote read, so it is given its own copy of the samples.

use std::process::{Child, Stdio};

use serde_json::Value;
use signalbox_test_support::{eventually, free_address, seconds};

use super::{Folder, prometheus::program};

pub struct VictoriaMetrics {
    url: String,
    _folder: Folder,
    child: Child,
}

impl VictoriaMetrics {
    /// One that holds the samples of `text`, a line each as Prometheus shows them, with milliseconds.
    pub async fn start(text: String) -> Self {
        let (folder, address) = (Folder::new(), free_address());
        let child = program("victoria-metrics")
            .arg(format!("-storageDataPath={}", folder.text("data")))
            .arg(format!("-httpListenAddr={address}"))
            .args(["-retentionPeriod=100y", "-search.latencyOffset=0s", "-loggerLevel=ERROR"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("victoria-metrics is installed by tools/bootstrap tests");
        let started = Self { url: format!("http://{address}"), _folder: folder, child };
        let health = format!("{}/health", started.url);
        eventually(seconds(60), async || reqwest::get(&health).await.is_ok()).await;
        let import = reqwest::Client::new().post(format!("{}/api/v1/import/prometheus", started.url));
        assert_eq!(import.body(text).send().await.unwrap().status(), 204);
        let flushed = reqwest::get(format!("{}/internal/force_flush", started.url)).await.unwrap();
        assert!(flushed.status().is_success());
        started
    }

    /// Its answer to a request of its interface.
    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Value {
        let mut url = reqwest::Url::parse(&format!("{}/api/v1/{path}", self.url)).unwrap();
        url.query_pairs_mut().extend_pairs(query).append_pair("nocache", "1");
        reqwest::get(url).await.unwrap().json().await.unwrap()
    }
}

impl Drop for VictoriaMetrics {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
