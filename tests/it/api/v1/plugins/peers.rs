//! Devices by foreign libraries: pysparkplug, sparkplug-client, asyncua, node-opcua, pymodbus, and paho-mqtt behind mosquitto.

use std::{path::Path, process::Stdio};

use signalbox_test_support::time_limit;
use tokio::{process::Command, time::timeout};

use crate::harness::seconds;

/// In short what `make plugin-peers` does.
#[tokio::test]
async fn foreign_devices_lose_no_value_when_parts_are_killed() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg(top.join("tests/device_peers/run.py")).arg(env!("CARGO_BIN_EXE_signalbox"));
    command.args(["--values", "100", "--kills", "1", "--short"]);
    command.env("SIGNALBOX_TEST_SLOWNESS", time_limit(seconds(1)).as_secs().to_string());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output =
        timeout(time_limit(seconds(300)), command.output()).await.expect("it takes too long").unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
