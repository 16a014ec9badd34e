//! The whole way: a wheel, an instance, a controller, values, and orders back.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Plug, PluginController, Wheel, World, eventually, seconds, webmacs::Browser};

/// A device that counts its readings, and notes in a file what it reads and what it is told.
const COUNTER: &str = r#"
from signalbox_plugins import ChannelDescriptor, ChannelDirection, DevicePlugin, PluginInstanceConfig, PluginMeta

class Config(PluginInstanceConfig):
    file: str

class Plugin(DevicePlugin):
    meta = PluginMeta(id="counter", name="Counter", version="1.0.0")
    config_schema = Config

    def get_channels(self):
        return [ChannelDescriptor("count", "Count", max_value=1e9),
                ChannelDescriptor("lamp", "Lamp", ChannelDirection.OUTPUT, safe_value=0.0)]

    def note(self, what, value):
        with open(self.config.file, "a") as file:
            file.write(f"{what} {value}\n")

    async def _do_connect(self):
        self.count = 0

    async def _do_disconnect(self): pass

    async def _do_read(self, channel_id):
        self.count += 1
        self.note("read", self.count)
        return self.count

    async def _do_write(self, channel_id, value):
        self.note("told", value)
"#;

struct Bench {
    world: World,
    folder: TempDir,
    token: String,
    instance: Value,
}

impl Bench {
    /// A service with the wheel and an instance of its plugin, which reads twenty times a second.
    async fn new() -> Self {
        let world = World::start().await;
        let folder = TempDir::new().unwrap();
        Wheel::new("counter_plugin", "signalbox.plugins", COUNTER).upload(&world.admin).await.expect(201);
        let config = json!({"file": folder.path().join("notes"), "poll_interval_ms": 50}).to_string();
        let instance = json!({"plugin_id": "counter", "instance_name": "Bench", "config_json": config});
        let instance = world.admin.post("/api/v1/plugins", instance).await.expect(201);
        let operator = world.user("controller", "operator").await;
        let token = operator.post("/api/v1/tokens", json!({"name": "controller"})).await.expect(201);
        let token = token["token"].as_str().unwrap().to_owned();
        Self { world, folder, token, instance }
    }

    fn start(&self, url: &str) -> PluginController {
        PluginController::start(url, &self.token, &self.folder.path().join("state"))
    }

    fn event(&self, channel: usize) -> String {
        self.instance["channel_mappings"][channel]["event_public_id"].as_str().unwrap().to_owned()
    }

    fn notes(&self, what: &str) -> Vec<String> {
        let path: PathBuf = Path::new(self.folder.path()).join("notes");
        let notes = std::fs::read_to_string(path).unwrap_or_default();
        let wanted =
            notes.lines().filter_map(|line| line.split_once(' ')).filter(|(found, _)| *found == what);
        wanted.map(|(_, value)| value.to_owned()).collect()
    }

    async fn status(&self) -> Value {
        let path = format!("/api/v1/plugins/{}", self.instance["public_id"].as_str().unwrap());
        self.world.admin.get(&path).await.expect(200)["status"].clone()
    }

    /// All values of the counter, oldest first.
    async fn recorded(&self) -> Vec<f64> {
        let mut points = Vec::new();
        for page in 1.. {
            let path =
                format!("/api/v1/datapoints?event_public_id={}&page_size=100&page={page}", self.event(0));
            let answer = self.world.admin.get(&path).await.expect(200);
            let data = answer["data"].as_array().unwrap();
            points.extend(data.iter().map(|point| point["value"].as_f64().unwrap()));
            if data.len() < 100 {
                break;
            }
        }
        points.reverse();
        points
    }
}

#[tokio::test]
async fn values_flow_and_an_actuator_is_switched() {
    let bench = Bench::new().await;
    let page = Browser::open(&bench.world.admin).await;
    let controller = bench.start(&bench.world.admin.url(""));
    let latest = async || {
        let latest = bench.world.admin.get("/api/v1/datapoints/latest").await.expect(200);
        let mut points = latest.as_array().unwrap().iter();
        points
            .find(|point| point["event_public_id"] == bench.event(0))
            .and_then(|point| point["value"].as_f64())
    };
    eventually(seconds(30), async || latest().await.is_some_and(|value| value > 3.0)).await;
    eventually(seconds(10), async || page.points() > 3).await;
    eventually(seconds(10), async || bench.status().await == "connected").await;
    for value in [42.0, 7.0] {
        let order = json!({"event_public_id": bench.event(1), "value": value});
        bench.world.admin.post("/api/v1/datapoints", order).await.expect(201);
        eventually(seconds(10), async || bench.notes("told").last() == Some(&format!("{value:?}"))).await;
    }
    // What changes is followed without a restart.
    let path = format!("/api/v1/plugins/{}", bench.instance["public_id"].as_str().unwrap());
    bench.world.admin.put(&path, json!({"demo_mode": true})).await.expect(200);
    eventually(seconds(10), async || bench.status().await == "demo").await;
    assert_eq!(bench.notes("told").last().unwrap(), "0.0", "the safe state");
    bench.world.admin.put(&path, json!({"demo_mode": false})).await.expect(200);
    eventually(seconds(10), async || bench.notes("told").last() == Some(&"7.0".to_owned())).await;
    controller.stop().await;
    assert_eq!(bench.notes("told").last().unwrap(), "0.0", "the safe state");
    assert_eq!(bench.status().await, "inactive");
    page.close();
    bench.world.finish().await;
}

#[tokio::test]
async fn a_controller_that_is_unplugged_loses_no_value_and_keeps_the_order() {
    let bench = Bench::new().await;
    let plug = Plug::to(bench.world.address).await;
    let controller = bench.start(&plug.url());
    for round in 1..=3 {
        let before = bench.notes("read").len();
        eventually(seconds(30), async || bench.recorded().await.len() > before + 5).await;
        plug.pull_out();
        let away = bench.notes("read").len();
        let recorded = bench.recorded().await.len();
        eventually(seconds(30), async || bench.notes("read").len() > away + 20 * round).await;
        assert!(bench.recorded().await.len() < recorded + 10, "it was plugged in");
        plug.put_in();
        eventually(seconds(30), async || bench.recorded().await.len() > away + 20 * round).await;
    }
    controller.stop().await;
    let recorded = bench.recorded().await;
    let counted: Vec<_> = (1..=recorded.len()).map(|count| count as f64).collect();
    assert_eq!(recorded, counted);
    bench.world.finish().await;
}

#[tokio::test]
async fn an_instance_that_cannot_be_run_says_why() {
    let bench = Bench::new().await;
    let packages = bench.world.admin.get("/api/v1/plugins/packages").await.expect(200);
    let package = format!("/api/v1/plugins/packages/{}", packages[0]["public_id"].as_str().unwrap());
    bench.world.admin.delete(&package).await.expect(200);
    let controller = bench.start(&bench.world.admin.url(""));
    eventually(seconds(30), async || bench.status().await == "error").await;
    let path = format!("/api/v1/plugins/{}", bench.instance["public_id"].as_str().unwrap());
    let shown = bench.world.admin.get(&path).await.expect(200);
    assert!(shown["error_message"].as_str().unwrap().contains("counter"), "{shown}");
    // As soon as the package is back, it runs.
    Wheel::new("counter_plugin", "signalbox.plugins", COUNTER).upload(&bench.world.admin).await.expect(201);
    eventually(seconds(30), async || bench.status().await == "connected").await;
    controller.stop().await;
    bench.world.finish().await;
}
