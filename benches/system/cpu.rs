//! Time that processes have spent on the processors.

use std::{collections::HashMap, fs};

use anyhow::Context as _;

/// Ticks of the kernel in a second, on every Linux of today.
const TICKS: f64 = 100.0;

struct Stat {
    parent: u32,
    /// Of itself, and of its children that have ended.
    seconds: f64,
}

/// Seconds of the process `pid` and its descendants, also of those that have ended.
pub fn seconds(pid: u32) -> anyhow::Result<f64> {
    let mut known = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(number) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process may end meanwhile.
        if let Ok(stat) = stat(number) {
            known.insert(number, stat);
        }
    }
    let mut found = known.get(&pid).context("the process has ended")?.seconds;
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for (number, stat) in known.iter().filter(|(_, stat)| stat.parent == parent) {
            found += stat.seconds;
            parents.push(*number);
        }
    }
    Ok(found)
}

/// Seconds of this process, without its children.
pub fn own_seconds() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    Ok((field(&text, 11)? + field(&text, 12)?) / TICKS)
}

fn stat(pid: u32) -> anyhow::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut ticks = 0.0;
    for place in 11..=14 {
        ticks += field(&text, place)?;
    }
    Ok(Stat { parent: field(&text, 1)? as u32, seconds: ticks / TICKS })
}

/// A number behind the name in the text of `/proc/…/stat`, by its place from the state on.
fn field(text: &str, place: usize) -> anyhow::Result<f64> {
    // The name may contain anything.
    let (_, rest) = text.rsplit_once(')').context("a process without a name")?;
    Ok(rest.split_whitespace().nth(place).context("too few fields")?.parse()?)
}
