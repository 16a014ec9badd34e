//! The programs, and how they are started.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use signalbox_test_support::{eventually, free_address, seconds};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::{FIRST, Work};
use crate::harness::Folder;

fn place(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(path.exists(), "{} is missing: run tools/bootstrap tests", path.display());
    path
}

async fn run(mut command: Command) -> Output {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    timeout(seconds(300), output).await.expect("a client did not end within 300 s").unwrap()
}

/// The output of a program.
pub fn text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr];
    both.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Writes `work` with InfluxData's client for Python, in batches; it repeats by itself what fails.
pub async fn influxdb_client(address: SocketAddr, token: &str, work: Work, batch: usize) -> Output {
    let mut command = Command::new("python3");
    place(".tools/clients/influxdb_client");
    // python-dateutil is among the libraries of devices.
    let libraries = [place(".tools/clients"), place(".tools/devices")];
    command.env("PYTHONPATH", std::env::join_paths(libraries).unwrap()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("SIGNALBOX_TOKEN", token).arg(place("tests/clients/write_influxdb.py"));
    command.args([format!("http://{address}"), "python".to_owned()]);
    command.args([FIRST, work.series, work.values, batch as i64].map(|number| number.to_string()));
    run(command).await
}

/// A file of `work` as the `influx` command imports it.
pub fn write_import(folder: &Folder, work: Work) {
    let mut lines = "# DDL\nCREATE DATABASE plant\n# DML\n# CONTEXT-DATABASE: plant\n".to_owned();
    for (number, value, time) in work.points() {
        lines += &format!("command,number={number} v={value:?} {time}\n");
    }
    folder.write("import.txt", &lines);
}

/// Imports that file, at most 20,000 lines a second. The command repeats nothing, and ends with an error if a line was not written.
pub async fn influx(address: SocketAddr, token: &str, folder: &Folder) -> Output {
    let mut command = Command::new(place(".tools/bin/influx"));
    command.args(["-host", "127.0.0.1", "-port", &address.port().to_string()]);
    command.args(["-username", "any", "-password", token, "-import", "-precision", "s", "-pps", "20000"]);
    command.arg(format!("-path={}", folder.text("import.txt"))).env("HOME", folder.text(""));
    run(command).await
}

/// A `vmagent` that sends what it is given, and repeats it by itself.
pub struct VmAgent {
    url: String,
    http: reqwest::Client,
    _process: Child,
    _folder: Folder,
}

impl VmAgent {
    /// One that writes to the gateway at `address`, `block` samples a request.
    pub async fn start(address: SocketAddr, token: &str, block: usize) -> Self {
        let (folder, own) = (Folder::new(), free_address());
        folder.write("token", token);
        let mut command = Command::new(place(".tools/bin/vmagent"));
        command.arg(format!("-httpListenAddr={own}"));
        command.arg(format!("-remoteWrite.url=http://{address}/api/v1/prometheus/write"));
        command.arg(format!("-remoteWrite.bearerTokenFile={}", folder.text("token")));
        command.arg(format!("-remoteWrite.tmpDataPath={}", folder.text("waiting")));
        command.arg(format!("-remoteWrite.maxRowsPerBlock={block}"));
        command.args(["-remoteWrite.queues=1", "-remoteWrite.flushInterval=100ms", "-loggerLevel=ERROR"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().unwrap();
        let started = Self {
            url: format!("http://{own}"),
            http: reqwest::Client::new(),
            _process: process,
            _folder: folder,
        };
        let health = format!("{}/health", started.url);
        eventually(seconds(60), async || started.http.get(&health).send().await.is_ok()).await;
        started
    }

    /// Gives it `work`, `part` samples at a time.
    pub async fn give(&self, work: Work, part: usize) {
        let line = |(number, value, time): (i64, f64, i64)| {
            format!("vmagent{{number=\"{number}\"}} {value} {}\n", time * 1000)
        };
        let lines: Vec<_> = work.points().map(line).collect();
        for part in lines.chunks(part) {
            let request = self.http.post(format!("{}/api/v1/import/prometheus", self.url));
            let answer = request.body(part.concat()).send().await.unwrap();
            assert_eq!(answer.status(), 204);
        }
    }

    /// The sum of one of its metrics.
    pub async fn metric(&self, name: &str) -> f64 {
        let text = self.http.get(format!("{}/metrics", self.url)).send().await.unwrap().text().await.unwrap();
        let of = text.lines().filter(|line| line.starts_with(name));
        of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}
