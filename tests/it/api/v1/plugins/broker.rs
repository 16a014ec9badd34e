//! Values and commands from end to end: a device, mosquitto, the controller, the service.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Stdio,
};

use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::harness::{PluginController, World, eventually, seconds};

const VALUES: usize = 400;

/// Confirms commands; the first one starts a stream of values, each of which reaches the broker once.
const DEVICE: &str = r#"
import json, sys, threading, time
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

def confirm(client, _, message):
    client.publish("valve/state", message.payload, qos=1)
    commanded.set()

commanded = threading.Event()
client = Client(CallbackAPIVersion.VERSION2, client_id="device", clean_session=False)
client.on_message = confirm
client.on_connect = lambda *_: client.subscribe("valve/set", qos=1)
while True:
    try:
        client.connect("127.0.0.1", int(sys.argv[1]))
        break
    except OSError:
        time.sleep(0.05)
client.loop_start()
commanded.wait()
for n in range(int(sys.argv[2])):
    client.publish("oven", json.dumps({"value": n, "time": 1770000000000 + 1000 * n}), qos=2)
    time.sleep(0.01)
threading.Event().wait()
"#;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn broker(folder: &Path) -> (u16, Child) {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let file = folder.join("mosquitto.conf");
    let settings = format!("listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nlog_type none\n");
    std::fs::write(&file, settings).unwrap();
    let mut command = Command::new(top().join(".tools/bin/mosquitto"));
    command.arg("-c").arg(file).env("LD_LIBRARY_PATH", top().join(".tools/lib/mosquitto"));
    (port, command.stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap())
}

fn device(port: u16) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", DEVICE, &port.to_string(), &VALUES.to_string()]);
    command.env("PYTHONPATH", top().join(".tools/devices")).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
async fn a_killed_controller_loses_and_repeats_no_value_of_a_broker() {
    let world = World::start().await;
    let folder = TempDir::new().unwrap();
    let (port, _broker) = broker(folder.path());
    let _device = device(port);
    let topics = json!([{"channel": "oven", "topic": "oven", "value": "/value", "time": "/time"},
        {"channel": "valve", "topic": "valve/state", "command_topic": "valve/set"}]);
    let config = json!({"port": port, "topics": topics}).to_string();
    let instance = json!({"plugin_id": "mqtt", "instance_name": "Hall", "config_json": config});
    let instance = world.admin.post("/api/v1/plugins", instance).await.expect(201);
    let event = |channel: usize| {
        let mapping = &instance["channel_mappings"][channel];
        mapping["event_public_id"].as_str().unwrap_or_else(|| panic!("{instance}"))
    };
    let operator = world.user("controller", "operator").await;
    let token = operator.post("/api/v1/tokens", json!({"name": "controller"})).await.expect(201);
    let token = token["token"].as_str().unwrap();
    let start = || PluginController::start(&world.admin.url(""), token, &folder.path().join("state"), &[]);
    let page = async |channel: usize, page: usize| {
        let path = format!("/api/v1/datapoints?event_public_id={}&page_size=100&page={page}", event(channel));
        world.admin.get(&path).await.expect(200)
    };
    let count = async |channel: usize| page(channel, 1).await["total"].as_u64().unwrap();

    let controller = start();
    let path = format!("/api/v1/plugins/{}", instance["public_id"].as_str().unwrap());
    eventually(seconds(60), async || world.admin.get(&path).await.expect(200)["status"] == "connected").await;
    let command = json!({"event_public_id": event(1), "value": 7.0});
    world.admin.post("/api/v1/datapoints", command).await.expect(201);
    // The command and its confirmation by the device.
    eventually(seconds(60), async || count(1).await == 2).await;
    eventually(seconds(60), async || count(0).await > 50).await;
    controller.kill().await;
    let controller = start();
    eventually(seconds(60), async || count(0).await >= VALUES as u64).await;
    controller.stop().await;
    let mut values = Vec::new();
    for number in 1..=VALUES.div_ceil(100) + 1 {
        let found = page(0, number).await;
        values.extend(found["data"].as_array().unwrap().iter().map(|point| point["value"].as_f64().unwrap()));
    }
    values.sort_by(f64::total_cmp);
    let expected: Vec<_> = (0..VALUES).map(|n| f64::from(u32::try_from(n).unwrap())).collect();
    assert_eq!(values, expected);
    world.finish().await;
}
