//! The agent's description of its machine.

use crate::{
    address::Address,
    protocol::{CAPABILITIES, TransferId},
};
use serde_json::{Value, json};
use std::{fs, net::UdpSocket, thread};

/// The data of `agent_info`.
pub fn agent_info(address: &Address, transport: &str, active: &[TransferId]) -> Value {
    json!({
        "hostname": hostname(),
        "os_name": std::env::consts::OS,
        "os_version": os_version(),
        "arch": std::env::consts::ARCH,
        "ip_address": local_address(address).unwrap_or_default(),
        "num_cpu": thread::available_parallelism().map_or(1, |count| count.get()),
        "total_mem_mb": total_memory_mb(),
        "version": env!("CARGO_PKG_VERSION"),
        "transport_mode": transport,
        "capabilities": CAPABILITIES,
        "active_transfers": active,
    })
}

/// The machine's name, by which messages name the agent.
pub fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| fs::read_to_string("/etc/hostname"))
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

fn os_version() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    pretty.unwrap_or_default().trim_matches('"').to_owned()
}

fn total_memory_mb() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// The address that leads to the gateway. Connecting a UDP socket chooses the route and sends nothing.
fn local_address(address: &Address) -> Option<String> {
    let target = address.host_and_port()?;
    let any = if target.0.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
