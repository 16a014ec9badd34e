//! Programs of others, as `tools/bootstrap tests` fetches them, with the settings that their packages have, each in a folder of
//! its own.

use std::{fs, net::SocketAddr, path::Path, path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{Program, free_address, wait_until};

const START: Duration = Duration::from_secs(60);
/// The slowest question takes a while when the machine has other work.
const LIMIT: Duration = Duration::from_secs(120);

/// A running program; it ends with this.
#[derive(Debug)]
pub struct Peer {
    /// Where it takes requests.
    pub address: SocketAddr,
    client: reqwest::Client,
    process: Program,
}

impl Peer {
    /// InfluxDB 1.x with an empty database `bench`. It writes its log of changes through to the disk before it answers
    /// (`wal-fsync-delay` is 0), as its package has it.
    pub async fn influx(parent: &Path) -> anyhow::Result<Self> {
        let (rpc, folder) = (free_address()?, parent.join("influx"));
        let address = free_address()?;
        let place = |name: &str| folder.join(name).display().to_string();
        let settings = format!(
            "reporting-disabled = true\nbind-address = \"{rpc}\"\n[meta]\n  dir = \"{}\"\n[data]\n  dir = \"{}\"\n  wal-dir = \"{}\"\n  query-log-enabled = false\n[http]\n  bind-address = \"{address}\"\n  log-enabled = false\n[monitor]\n  store-enabled = false\n",
            place("meta"),
            place("data"),
            place("wal"),
        );
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("influx.conf"), settings)?;
        let arguments = ["-config".to_owned(), place("influx.conf")];
        let peer = Self::start("influxd", address, &arguments, &folder, "/ping").await?;
        peer.post("/query", &[("q", "CREATE DATABASE bench")]).await?;
        Ok(peer)
    }

    /// VictoriaMetrics with an empty storage. It answers before what it took is on the disk.
    pub async fn victoria(parent: &Path) -> anyhow::Result<Self> {
        let (address, folder) = (free_address()?, parent.join("victoria"));
        let arguments = [
            format!("-storageDataPath={}", folder.join("data").display()),
            format!("-httpListenAddr={address}"),
            "-retentionPeriod=100y".to_owned(),
            "-search.latencyOffset=0s".to_owned(),
            "-loggerLevel=ERROR".to_owned(),
        ];
        fs::create_dir_all(&folder)?;
        Self::start("victoria-metrics", address, &arguments, &folder, "/health").await
    }

    /// Prometheus without samples, which reads those that `url` gives to the owner of `token`.
    pub async fn prometheus(parent: &Path, url: &str, token: &str) -> anyhow::Result<Self> {
        let (address, folder) = (free_address()?, parent.join("prometheus"));
        let settings = format!(
            "remote_read:\n  - url: {url}\n    read_recent: true\n    authorization: {{ credentials: {token:?} }}\n"
        );
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("prometheus.yml"), settings)?;
        let arguments = [
            format!("--config.file={}", folder.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
            "--log.level=error".to_owned(),
        ];
        Self::start("prometheus", address, &arguments, &folder, "/-/ready").await
    }

    async fn start(
        name: &str,
        address: SocketAddr,
        arguments: &[String],
        folder: &Path,
        ready: &str,
    ) -> anyhow::Result<Self> {
        let process = Program::start(&program(name)?, arguments, &[], &folder.join("log"))?;
        let client = reqwest::Client::builder().no_proxy().timeout(LIMIT).build()?;
        let peer = Self { address, client, process };
        let url = format!("http://{address}{ready}");
        let is_ready = || async {
            Ok(peer.client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()))
        };
        wait_until(&format!("the start of {name}"), START, is_ready).await?;
        Ok(peer)
    }

    /// Seconds of the processors that it has spent.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        super::seconds(self.process.pid())
    }

    /// The answer to `GET path` with these parameters, to its last byte, in bytes.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
        let request = self.client.get(self.url(path, query)?);
        read(request, path).await
    }

    /// The answer to `POST path` with these parameters.
    pub async fn post(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
        let request = self.client.post(self.url(path, query)?);
        read(request, path).await
    }

    /// The answer to `GET path` as JSON.
    pub async fn get_json(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.get(path, query).await?)?)
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<reqwest::Url> {
        let mut url: reqwest::Url = format!("http://{}{path}", self.address).parse()?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

async fn read(request: reqwest::RequestBuilder, path: &str) -> anyhow::Result<Vec<u8>> {
    let answer = request.send().await?;
    let status = answer.status();
    let body = answer.bytes().await?;
    ensure!(status.is_success(), "{path} was answered with {status}: {}", String::from_utf8_lossy(&body));
    Ok(body.into())
}

fn program(name: &str) -> anyhow::Result<PathBuf> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin").join(name);
    program.canonicalize().with_context(|| format!("{name} is missing: run tools/bootstrap tests"))
}
