//! Servers of an earlier run that still use a data folder.
//!
//! When Signalbox is killed, the kernel signals its servers, but they may need a moment to stop, and on a machine
//! where that signal could not be set they stay. Two servers on one data folder would corrupt it, so a start first
//! waits for such a server and then sends stronger and stronger signals. The folder is locked by then, so a server
//! found here has no running parent.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::child;
use crate::error::EmbeddedError;

const POLL: Duration = Duration::from_millis(25);
const STEPS: [(Signal, Duration); 3] = [
    (Signal::INT, Duration::from_secs(15)),
    (Signal::QUIT, Duration::from_secs(5)),
    (Signal::KILL, Duration::from_secs(5)),
];

/// Ends every process for which `is_leftover` holds, given its folder in `/proc`.
pub(crate) async fn end(data_dir: &Path, is_leftover: impl Fn(&Path) -> bool) -> Result<(), EmbeddedError> {
    for (signal, limit) in STEPS {
        let found = find(&is_leftover);
        if found.is_empty() {
            return Ok(());
        }
        tracing::warn!(data_dir = %data_dir.display(), pids = ?found, ?signal, "ending servers of an earlier run");
        for pid in found {
            child::send(pid, signal).ok();
        }
        wait_until_gone(limit, &is_leftover).await;
    }
    match find(&is_leftover).first() {
        Some(&pid) => Err(EmbeddedError::LeftoverRemains { pid, data_dir: data_dir.to_owned() }),
        None => Ok(()),
    }
}

async fn wait_until_gone(limit: Duration, is_leftover: &impl Fn(&Path) -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < limit && !find(is_leftover).is_empty() {
        tokio::time::sleep(POLL).await;
    }
}

fn find(is_leftover: &impl Fn(&Path) -> bool) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    processes.filter(|(_, path)| is_leftover(path)).map(|(pid, _)| pid).collect()
}

/// A PostgreSQL process, main or helper, that works in `cluster`.
pub(crate) fn is_postgres_in(process: &Path, cluster: &Path) -> bool {
    fs::read_link(process.join("cwd")).is_ok_and(|folder| folder == cluster)
        && fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "postgres")
}

/// A NATS server that was started with the configuration file `config`.
pub(crate) fn is_nats_with(process: &Path, config: &Path) -> bool {
    let command_line = fs::read(process.join("cmdline")).unwrap_or_default();
    let arguments: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    arguments.windows(2).any(|pair| pair == [b"--config", config.as_os_str().as_bytes()])
}
