//! The whole way: a wheel, an instance, a controller, values, and orders back.

use std::path::{Path, PathBuf};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use tempfile::TempDir;
use tokio::time::timeout;

use super::OF_WEBMACS;
use crate::harness::{
    Client, Plug, PluginController, RealGateway, Wheel, World, eventually, seconds, webmacs::Browser,
};

/// A device that counts its readings, and records in a file its readings and the values written to it.
const COUNTER: &str = r#"
import os
from signalbox_plugins import ChannelDescriptor, ChannelDirection, DevicePlugin, PluginInstanceConfig, PluginMeta

class Config(PluginInstanceConfig):
    file: str
    inputs: int = 1

class Plugin(DevicePlugin):
    meta = PluginMeta(id="counter", name="Counter", version="1.0.0")
    config_schema = Config

    def get_channels(self):
        counts = [ChannelDescriptor(f"count{n}", f"Count {n}", max_value=1e9) for n in range(self.config.inputs)]
        return [*counts, ChannelDescriptor("lamp", "Lamp", ChannelDirection.OUTPUT, safe_value=0.0)]

    def note(self, what, value):
        with open(self.config.file, "a") as file:
            file.write(f"{what} {value}\n")

    async def _do_connect(self):
        with open(self.config.file, "a+") as file:
            file.seek(0)
            self.count = sum(line.startswith("read") for line in file)

    async def _do_disconnect(self):
        self.note("let_go", 0)

    async def _do_read(self, channel_id):
        if os.path.exists(self.config.file + ".broken"):
            raise OSError("the cable is cut")
        self.count += 1
        self.note("read", self.count)
        return self.count

    async def _do_write(self, channel_id, value):
        self.note("written", value)
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
        Self::with_inputs(1).await
    }

    /// One whose instance has so many inputs.
    async fn with_inputs(inputs: usize) -> Self {
        Self::at(Clock::system(), inputs).await
    }

    async fn at(clock: Clock, inputs: usize) -> Self {
        let world = World::at(clock, |_| {}).await;
        let folder = TempDir::new().unwrap();
        Wheel::new("counter_plugin", "signalbox.plugins", COUNTER).upload(&world.admin).await.expect(201);
        let config = json!({"file": folder.path().join("notes"), "inputs": inputs, "poll_interval_ms": 50});
        let config = config.to_string();
        let instance = json!({"plugin_id": "counter", "instance_name": "Bench", "config_json": config});
        let instance = world.admin.post("/api/v1/plugins", instance).await.expect(201);
        let operator = world.user("controller", "operator").await;
        let token = operator.post("/api/v1/tokens", json!({"name": "controller"})).await.expect(201);
        let token = token["token"].as_str().unwrap().to_owned();
        Self { world, folder, token, instance }
    }

    fn start(&self, url: &str) -> PluginController {
        self.start_with(url, "state", &[])
    }

    /// A controller that keeps its things in `state` and has `options`.
    fn start_with(&self, url: &str, state: &str, options: &[&str]) -> PluginController {
        PluginController::start(url, &self.token, &self.folder.path().join(state), options)
    }

    fn event(&self, channel: usize) -> String {
        self.instance["channel_mappings"][channel]["event_public_id"].as_str().unwrap().to_owned()
    }

    fn notes(&self, what: &str) -> Vec<String> {
        let path: PathBuf = Path::new(self.folder.path()).join("notes");
        let notes = std::fs::read_to_string(path).unwrap_or_default();
        let notes = notes.lines().filter_map(|line| line.split_once(' ')).filter(|(found, _)| *found == what);
        notes.map(|(_, value)| value.to_owned()).collect()
    }

    async fn status(&self) -> Value {
        let path = format!("/api/v1/plugins/{}", self.instance["public_id"].as_str().unwrap());
        self.world.admin.get(&path).await.expect(200)["status"].clone()
    }

    /// All values of the counter with their times, oldest first.
    async fn points(&self) -> Vec<(DateTime<Utc>, f64)> {
        let mut points = Vec::new();
        for page in 1.. {
            let answer = self.world.admin.get(&format!("/api/v1/datapoints?page_size=100&page={page}")).await;
            let data = answer.expect(200)["data"].as_array().unwrap().clone();
            points.extend(data.iter().map(|point| {
                let time = point["timestamp"].as_str().unwrap().parse().unwrap();
                (time, point["value"].as_f64().unwrap())
            }));
            if data.len() < 100 {
                break;
            }
        }
        points.sort_by_key(|(time, _)| *time);
        points
    }

    async fn recorded(&self) -> Vec<f64> {
        self.points().await.into_iter().map(|(_, value)| value).collect()
    }

    /// How many values were recorded.
    async fn count(&self) -> usize {
        let page = self.world.admin.get("/api/v1/datapoints?page_size=1").await.expect(200);
        usize::try_from(page["total"].as_u64().unwrap()).unwrap()
    }

    /// Whether a batch has come over HTTP: only those are noted there.
    async fn has_used_http(&self) -> bool {
        let count = "SELECT count(*) FROM ops.idempotent_requests WHERE key NOT LIKE $1 || '%'";
        let count = sqlx::query_scalar::<_, i64>(count).bind(Client::KEYS);
        count.fetch_one(&self.world.servers.pool).await.unwrap() > 0
    }

    /// The readings of the device, in order.
    fn readings(&self) -> Vec<f64> {
        self.notes("read").iter().map(|count| count.parse().unwrap()).collect()
    }

    /// Whether two controllers read the device at the same time: each counts on from where it began.
    fn is_read_twice(&self) -> bool {
        !self.readings().is_sorted_by(|one, next| one < next)
    }

    /// Fails unless everything that the device was read is recorded, once and in order.
    async fn assert_complete(&self) {
        assert_eq!(self.recorded().await, self.readings());
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
    for value in [42.0, 8.0, 9.0, 7.0] {
        let order = json!({"event_public_id": bench.event(1), "value": value});
        bench.world.admin.post("/api/v1/datapoints", order).await.expect(201);
        eventually(seconds(10), async || bench.notes("written").last() == Some(&format!("{value:?}"))).await;
    }
    // A change takes effect without a restart.
    let path = format!("/api/v1/plugins/{}", bench.instance["public_id"].as_str().unwrap());
    bench.world.admin.put(&path, json!({"demo_mode": true})).await.expect(200);
    eventually(seconds(10), async || bench.status().await == "demo").await;
    assert_eq!(bench.notes("written").last().unwrap(), "0.0", "the safe state");
    bench.world.admin.put(&path, json!({"demo_mode": false})).await.expect(200);
    eventually(seconds(10), async || bench.notes("written").last() == Some(&"7.0".to_owned())).await;
    controller.stop().await;
    assert_eq!(bench.notes("written").last().unwrap(), "0.0", "the safe state");
    assert_eq!(bench.status().await, "inactive");
    page.close();
    bench.world.finish().await;
}

/// As many values as arrive in ten minutes at one a second are read while there is no service; the service started
/// then is killed in the middle of the backlog.
async fn unplugged(telemetry: &str) {
    const BACKLOG: usize = 600;
    let bench = Bench::with_inputs(10).await;
    let (first, second) =
        (RealGateway::start(&bench.world.config).await, RealGateway::start(&bench.world.config).await);
    let plug = Plug::to(first.address).await;
    let controller = bench.start_with(&plug.url(), "state", &["--telemetry", telemetry, "--batch", "20"]);
    eventually(seconds(60), async || bench.count().await > 20).await;
    plug.pull_out();
    let (left, before) = (bench.world.clock.now(), bench.notes("read").len());
    let (recorded, enough) = (bench.count().await, before + BACKLOG);
    eventually(seconds(60), async || bench.notes("read").len() > enough).await;
    assert!(bench.count().await < recorded + 100, "it was plugged in");
    let back = bench.world.clock.now();
    plug.put_in();
    eventually(seconds(60), async || bench.count().await > recorded + 100).await;
    first.kill().await;
    let interrupted = bench.count().await;
    plug.put_into(second.address);
    eventually(seconds(60), async || bench.count().await > interrupted + 100).await;
    // Values that a controller cannot send while it stops are kept for its next start: then in batches so large that
    // it sends faster than it reads, however busy the machine.
    controller.stop().await;
    let controller = bench.start_with(&plug.url(), "state", &["--telemetry", telemetry, "--batch", "1000"]);
    let known = bench.notes("read").len();
    eventually(seconds(60), async || {
        let read = bench.notes("read").len();
        read > known && bench.count().await + 100 > read
    })
    .await;
    controller.stop().await;
    bench.assert_complete().await;
    assert!(interrupted < enough, "it was too late for the middle of the backlog");
    let away = bench.points().await.into_iter().filter(|(time, _)| (left..back).contains(time)).count();
    assert!(away >= BACKLOG - 10, "{away} values have the time at which they were measured");
    bench.world.finish().await;
}

#[tokio::test]
async fn a_controller_with_a_socket_that_is_unplugged_loses_no_value_and_keeps_the_order() {
    unplugged("websocket").await;
}

#[tokio::test]
async fn a_controller_over_http_that_is_unplugged_loses_no_value_and_keeps_the_order() {
    unplugged("http").await;
}

#[tokio::test]
async fn values_go_over_a_socket_where_there_is_one_and_over_http_otherwise() {
    let bench = Bench::new().await;
    let controller = bench.start(&bench.world.admin.url(""));
    eventually(seconds(60), async || bench.count().await > 20).await;
    assert!(!bench.has_used_http().await);
    controller.stop().await;
    let controller = bench.start_with(&bench.world.admin.url(""), "state", &["--telemetry", "http"]);
    eventually(seconds(60), async || bench.has_used_http().await).await;
    controller.stop().await;
    bench.assert_complete().await;
    bench.world.finish().await;
}

#[tokio::test]
async fn a_controller_that_is_killed_loses_nothing_that_was_read_and_leaves_outputs_safe() {
    let bench = Bench::with_inputs(5).await;
    let plug = Plug::to(bench.world.address).await;
    let mut controller = bench.start(&plug.url());
    let order = json!({"event_public_id": bench.event(5), "value": 42.0});
    bench.world.admin.post("/api/v1/datapoints", order).await.expect(201);
    eventually(seconds(60), async || bench.notes("written").last() == Some(&"42.0".to_owned())).await;
    for _ in 0..3 {
        let before = bench.count().await;
        eventually(seconds(60), async || bench.count().await > before).await;
        plug.pull_out();
        let read = bench.notes("read").len();
        eventually(seconds(60), async || bench.notes("read").len() > read + 50).await;
        controller.kill().await;
        eventually(seconds(30), async || bench.notes("written").last() == Some(&"0.0".to_owned())).await;
        plug.put_in();
        controller = bench.start(&plug.url());
        eventually(seconds(60), async || bench.notes("written").last() == Some(&"42.0".to_owned())).await;
    }
    let read = bench.notes("read").len();
    eventually(seconds(60), async || bench.count().await > read).await;
    controller.stop().await;
    let (mut recorded, mut read) = (bench.recorded().await, bench.readings());
    // The order of somebody at a page is recorded too.
    read.push(42.0);
    recorded.sort_by(f64::total_cmp);
    read.sort_by(f64::total_cmp);
    assert_eq!(recorded, read);
    bench.world.finish().await;
}

#[tokio::test]
async fn of_two_controllers_one_runs_an_instance_and_the_other_takes_over() {
    let clock = Clock::manual(Clock::system().now().trunc_subsecs(6));
    let bench = Bench::at(clock.clone(), 1).await;
    let url = bench.world.admin.url("");
    let plug = Plug::to(bench.world.address).await;
    let first = bench.start_with(&plug.url(), "first", &[]);
    eventually(seconds(60), async || bench.status().await == "connected").await;
    let second = bench.start_with(&url, "second", &[]);
    let read = bench.notes("read").len();
    eventually(seconds(60), async || bench.notes("read").len() > read + 40).await;
    assert!(!bench.is_read_twice());
    // One that stops in good order makes room at once; one that is cut off, after half a minute.
    plug.pull_out();
    // A claim that was under way when the plug was pulled counts from the new time: then it ends half a minute later.
    for _ in 0..2 {
        clock.advance(TimeDelta::seconds(31));
        if timeout(seconds(30), eventually(seconds(60), async || bench.is_read_twice())).await.is_ok() {
            break;
        }
    }
    assert!(bench.is_read_twice(), "the other one has not taken over");
    let before = bench.notes("let_go").len();
    plug.put_in();
    // The first one finds that it was replaced, and lets go; the outputs are the second one's.
    let written = bench.notes("written");
    eventually(seconds(60), async || bench.notes("let_go").len() > before).await;
    assert_eq!(bench.notes("written"), written);
    eventually(seconds(60), async || bench.status().await == "connected").await;
    second.stop().await;
    eventually(seconds(60), async || bench.status().await == "connected").await;
    first.stop().await;
    assert_eq!(bench.status().await, "inactive");
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
    assert!(shown["error_message"].as_str().unwrap().contains("no package"), "{shown}");
    // As soon as the package is back, it runs.
    Wheel::new("counter_plugin", "signalbox.plugins", COUNTER).upload(&bench.world.admin).await.expect(201);
    eventually(seconds(30), async || bench.status().await == "connected").await;
    // The same when its device fails, and is back.
    let broken = bench.folder.path().join("notes.broken");
    std::fs::write(&broken, "").unwrap();
    eventually(seconds(30), async || bench.status().await == "error").await;
    let shown = bench.world.admin.get(&path).await.expect(200);
    assert!(shown["error_message"].as_str().unwrap().contains("the cable is cut"), "{shown}");
    std::fs::remove_file(&broken).unwrap();
    eventually(seconds(60), async || bench.status().await == "connected").await;
    controller.stop().await;
    bench.world.finish().await;
}

#[tokio::test]
async fn a_plugin_of_the_webmacs_family_runs_as_it_is() {
    let bench = Bench::new().await;
    let admin = &bench.world.admin;
    let needs = ["webmacs-plugins-core>=1.0.0", "structlog>=24.0", "pydantic>=2.0"];
    let wheel = Wheel::that_needs("webmacs_plugin_meter", "webmacs.plugins", OF_WEBMACS, &needs);
    wheel.upload(admin).await.expect(201);
    let config = json!({"host": "meter", "poll_interval_ms": 50}).to_string();
    let meter = json!({"plugin_id": "meter", "instance_name": "Meter", "config_json": config});
    let meter = admin.post("/api/v1/plugins", meter).await.expect(201);
    let power = meter["channel_mappings"][0]["event_public_id"].as_str().unwrap();
    let path = format!("/api/v1/plugins/{}", meter["public_id"].as_str().unwrap());
    let newest = async || {
        let page = format!("/api/v1/datapoints?event_public_id={power}&page_size=1");
        admin.get(&page).await.expect(200)["data"][0]["value"].as_f64()
    };
    let controller = bench.start(&admin.url(""));
    // The raw 50, converted.
    eventually(seconds(60), async || newest().await == Some(5.0)).await;
    eventually(seconds(30), async || admin.get(&path).await.expect(200)["status"] == "connected").await;
    admin.put(&path, json!({"demo_mode": true})).await.expect(200);
    eventually(seconds(60), async || {
        newest().await.is_some_and(|value| value != 5.0 && (3.0..=7.0).contains(&value))
    })
    .await;
    controller.stop().await;
    bench.world.finish().await;
}
