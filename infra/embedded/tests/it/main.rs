//! The embedded servers, driven through the crate's public face with the real programs.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod killed_parent;
mod nats;
mod postgres;

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

fn kill_dash_nine(number: u32) {
    kill_process(pid(number), Signal::KILL).unwrap();
}

/// Whether the process runs; a zombie, which only waits to be counted by its parent, does not.
fn runs(number: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    test_kill_process(pid(number)).is_ok() && !state.contains(") Z ")
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process group, third of the fields after the program's name in `/proc/<pid>/stat`.
fn process_group(number: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(2).unwrap().parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().mode() & 0o777
}
