//! Plugins: packages of them, instances, and the channels that these feed and obey.

mod broker;
mod controller;
mod hostile;
mod instances;
mod packages;
mod peers;
mod secrets;

/// A weather station for the SDK of Signalbox, whose channels follow from its configuration.
pub const WEATHER: &str = r#"
from signalbox_plugins import ChannelDescriptor, ChannelDirection, DevicePlugin, Field, PluginInstanceConfig, PluginMeta

class Config(PluginInstanceConfig):
    stations: int = Field(default=1, ge=1, le=4, description="How many masts")

class Plugin(DevicePlugin):
    meta = PluginMeta(id="weather", name="Weather", version="1.2.3", vendor="Example", description="Masts")
    config_schema = Config

    def get_channels(self):
        masts = [ChannelDescriptor(id=f"t{n}", name=f"Temperature {n}", unit="°C", min_value=-40, max_value=60)
                 for n in range(self.config.stations)]
        return [*masts, ChannelDescriptor(id="heat", name="Heating", direction=ChannelDirection.OUTPUT)]

    async def _do_connect(self): pass
    async def _do_disconnect(self): pass
    async def _do_read(self, channel_id): return 1.0
    async def _do_write(self, channel_id, value): pass
"#;

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
