//! InfluxDB 1.x as Debian installs it, in a folder of its own.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    load::Connection,
    system::{Program, free_address, wait_until},
};

/// A running InfluxDB; it ends with this.
pub struct Influx {
    /// Where it takes requests.
    pub address: SocketAddr,
    _process: Program,
}

/// Starts it with an empty database; `None` when it is not installed.
pub async fn start(parent: &Path) -> anyhow::Result<Option<Influx>> {
    let mut version = Command::new("influxd");
    version.arg("version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_err() {
        return Ok(None);
    }
    let (address, rpc, folder) = (free_address()?, free_address()?, parent.join("influx"));
    fs::create_dir_all(&folder)?;
    let place = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "reporting-disabled = true\nbind-address = \"{rpc}\"\n[meta]\n  dir = \"{}\"\n[data]\n  dir = \"{}\"\n  wal-dir = \"{}\"\n  query-log-enabled = false\n[http]\n  bind-address = \"{address}\"\n  log-enabled = false\n[monitor]\n  store-enabled = false\n",
        place("meta"),
        place("data"),
        place("wal"),
    );
    fs::write(folder.join("influx.conf"), config)?;
    let arguments = ["-config".to_owned(), place("influx.conf")];
    let process = Program::start(Path::new("influxd"), &arguments, &[], &folder.join("log"))?;
    let create = || async move {
        let request =
            b"POST /query?q=CREATE+DATABASE+bench HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n";
        let made = Connection::open(address).and_then(|mut connection| {
            connection.send(request)?;
            connection.answer()
        });
        Ok(made.is_ok_and(|answer| answer.status == 200))
    };
    wait_until("the start of InfluxDB", Duration::from_secs(30), create).await?;
    Ok(Some(Influx { address, _process: process }))
}

/// Requests that write the same points, each at a time of its own.
pub fn requests(events: &[String], count: usize) -> Vec<Vec<u8>> {
    let line = |nth: usize| {
        let (event, time) = (&events[nth % events.len()], 1_760_000_000_000_000_000 + nth as i64 * 1000);
        format!("points,event={event} value={} {time}\n", super::points::value(nth))
    };
    let batch = |first: usize| {
        let lines: String = (first..(first + super::points::BATCH).min(count)).map(line).collect();
        let head = format!(
            "POST /write?db=bench HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n",
            lines.len()
        );
        format!("{head}{lines}").into_bytes()
    };
    (0..count).step_by(super::points::BATCH).map(batch).collect()
}
