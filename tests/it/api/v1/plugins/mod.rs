//! Plugins: packages of them, instances, and the channels that these feed and obey.

mod controller;
mod hostile;
mod instances;
mod packages;

/// A weather station for the SDK of Signalbox, whose channels follow from its configuration.
const WEATHER: &str = r#"
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
