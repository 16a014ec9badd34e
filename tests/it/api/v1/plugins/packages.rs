use serde_json::{Value, json};

use super::WEATHER;
use crate::harness::{Wheel, World, sha256};

/// A plugin as those of the WebMACS family are written, with the libraries that they use.
const OF_WEBMACS: &str = r#"
from __future__ import annotations
from typing import TYPE_CHECKING, ClassVar
import structlog
from pydantic import Field
from webmacs_plugins_core.base import SyncDevicePlugin
from webmacs_plugins_core.channels import ChannelDescriptor, ChannelDirection, ConversionSpec, SimulationSpec
from webmacs_plugins_core.config import PluginInstanceConfig, PluginMeta
if TYPE_CHECKING:
    from webmacs_plugins_core.types import ChannelValue

logger = structlog.get_logger()

class MeterConfig(PluginInstanceConfig):
    host: str = Field(default="192.168.1.1", min_length=1, description="Address", json_schema_extra={"ui_order": 10})
    port: int = Field(default=502, ge=1, le=65535)

class Plugin(SyncDevicePlugin):
    meta = PluginMeta(id="meter", name="Meter", version="0.3.0", protocol="modbus", tags=["a"])
    config_schema: ClassVar[type[PluginInstanceConfig]] = MeterConfig

    def get_channels(self) -> list[ChannelDescriptor]:
        return [ChannelDescriptor(id="power", name="Power", direction=ChannelDirection.input, unit="kW",
                    read_conversion=ConversionSpec(type="linear", params={"scale": 0.1}),
                    simulation=SimulationSpec(profile="random_walk", base_value=5, amplitude=2)),
                ChannelDescriptor(id="limit", name="Limit", direction=ChannelDirection.bidirectional, safe_value=0.0)]

    def connect_sync(self) -> None: logger.info("meter_connected", host=self.config.host)
    def disconnect_sync(self) -> None: ...
    def read_sync(self, channel_id: str) -> ChannelValue | None: return 50
    def write_sync(self, channel_id: str, value: ChannelValue) -> None: ...
"#;

async fn packages(world: &World) -> Vec<Value> {
    world.admin.get("/api/v1/plugins/packages").await.expect(200).as_array().unwrap().clone()
}

#[tokio::test]
async fn a_wheel_is_installed_listed_fetched_and_uninstalled() {
    let mut world = World::start().await;
    let elsewhere = world.another_gateway().await;
    let bytes = Wheel::new("weather_plugin", "signalbox.plugins", WEATHER).bytes();
    let name = "weather_plugin-1.0.0-py3-none-any.whl";
    let answer = Wheel::upload_bytes(&world.admin, &format!("../../../tmp/{name}"), &bytes).await;
    let made = answer.expect(201);
    assert_eq!((&made["status"], &made["plugin_ids"]), (&json!("success"), &json!(["weather"])));
    let size = bytes.len();
    let separated = format!("{},{:03} bytes", size / 1000, size % 1000);
    assert!(made["message"].as_str().unwrap().contains(&separated), "{made}");
    let listed = packages(&world).await;
    let [package] = listed.as_slice() else { panic!("{listed:?}") };
    for (field, value) in [
        ("package_name", json!("weather-plugin")),
        ("version", json!("1.0.0")),
        ("source", json!("uploaded")),
        ("plugin_ids", json!(["weather"])),
        ("file_name", json!(name)),
        ("file_size_bytes", json!(size)),
        ("sha256", json!(sha256(&bytes))),
        ("removable", json!(true)),
        ("public_id", made["public_id"].clone()),
    ] {
        assert_eq!(package[field], value, "{field}");
    }
    let classes = world.admin.get("/api/v1/plugins/available").await.expect(200);
    let class = classes.as_array().unwrap().iter().find(|class| class["id"] == "weather").unwrap();
    assert_eq!(
        (&class["name"], &class["version"], &class["vendor"]),
        (&json!("Weather"), &json!("1.2.3"), &json!("Example"))
    );
    let stations = &class["config_schema"]["properties"]["stations"];
    assert_eq!((&stations["type"], &stations["maximum"]), (&json!("integer"), &json!(4)));
    // Another gateway has it too, to the byte.
    let path = format!("/api/v1/plugins/packages/{}", made["public_id"].as_str().unwrap());
    let viewer = world.user("viewer", "viewer").await;
    viewer.at(&elsewhere).get(&format!("{path}/wheel")).await.expect_bytes(&bytes);
    // The same again, and the same distribution under another name.
    let again = Wheel::upload_bytes(&world.admin, name, &bytes).await.error(409);
    assert!(again.contains(name), "{again}");
    let renamed = Wheel::new("weather.plugin", "signalbox.plugins", WEATHER)
        .with("weather.plugin/x", b"")
        .upload(&world.admin)
        .await;
    assert!(renamed.error(409).contains("weather-plugin"));
    // Another distribution with the same plugin.
    let rival = Wheel::new("rival", "signalbox.plugins", WEATHER).upload(&world.admin).await;
    rival.error(409);
    assert_eq!(packages(&world).await.len(), 1);
    world.admin.delete(&path).await.expect(200);
    world.admin.delete(&path).await.error(404);
    viewer.get(&format!("{path}/wheel")).await.error(404);
    assert_eq!(packages(&world).await, Vec::<Value>::new());
    Wheel::upload_bytes(&world.admin, name, &bytes).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn a_wheel_of_the_webmacs_family_is_installed_as_it_is() {
    let world = World::start().await;
    let wheel = Wheel::new("webmacs_plugin_meter", "webmacs.plugins", OF_WEBMACS);
    let made = wheel.upload(&world.admin).await.expect(201);
    assert_eq!(made["plugin_ids"], json!(["meter"]));
    let classes = world.admin.get("/api/v1/plugins/available").await.expect(200);
    let class = classes.as_array().unwrap().iter().find(|class| class["id"] == "meter").unwrap();
    assert_eq!(class["config_schema"]["properties"]["port"]["maximum"], 65535);
    assert_eq!(class["channels"][1]["direction"], "bidirectional");
    world.finish().await;
}

#[tokio::test]
async fn what_is_no_wheel_with_plugins_is_refused() {
    let world = World::start().await;
    let upload = async |name: &str, bytes: &[u8]| Wheel::upload_bytes(&world.admin, name, bytes).await;
    let fine = || Wheel::new("fine", "signalbox.plugins", WEATHER);
    upload("fine.zip", &fine().bytes()).await.error(400);
    upload("", b"x").await.error(400);
    upload("a.whl", b"not an archive").await.error(422);
    let without = Wheel::bare("a").with("a/__init__.py", b"").bytes();
    assert!(upload("a.whl", &without).await.error(422).contains("METADATA"));
    let scripts = Wheel::new("a", "console_scripts", WEATHER).bytes();
    assert!(upload("a.whl", &scripts).await.error(422).contains("a.whl"));
    upload("big.whl", &vec![0; (50 << 20) + 1]).await.error(413);
    let request = world.admin.request(reqwest::Method::POST, "/api/v1/plugins/packages/upload");
    world.admin.send(request.body("x")).await.error(422);
    let operator = world.user("operator", "operator").await;
    fine().upload(&operator).await.error(403);
    for (source, reason) in [
        ("import a_library_that_is_not_there", "a_library_that_is_not_there"),
        ("class Plugin: pass", "subclass of DevicePlugin"),
        ("x = 1", "cannot be loaded"),
    ] {
        let told = Wheel::new("broken", "signalbox.plugins", source).upload(&world.admin).await.error(500);
        assert!(told.contains(reason), "{told}");
    }
    let built_in = WEATHER.replace("id=\"weather\"", "id=\"simulated\"");
    Wheel::new("imitation", "signalbox.plugins", &built_in).upload(&world.admin).await.error(409);
    assert_eq!(packages(&world).await, Vec::<Value>::new());
    // What failed has left nothing in the way.
    fine().upload(&world.admin).await.expect(201);
    world.finish().await;
}
