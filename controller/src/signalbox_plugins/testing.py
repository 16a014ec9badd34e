"""Tests that every plugin has to pass. Inherit them beside `unittest.TestCase`, or alone with pytest:

class TestMyPlugin(PluginConformanceSuite, unittest.TestCase):
    plugin_class = MyPlugin
    default_config = {"instance_name": "test", "demo_mode": True}
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from .config import PluginMeta
from .plugin import DevicePlugin, PluginState


class PluginConformanceSuite:
    """Checks, in demo mode, of the behaviour that hosts rely on."""

    plugin_class: ClassVar[type[DevicePlugin]]
    default_config: ClassVar[dict[str, Any]] = {"instance_name": "conformance", "demo_mode": True}

    def _configured(self) -> DevicePlugin:
        plugin = self.plugin_class()
        plugin.configure({**self.default_config, "demo_mode": True})
        return plugin

    def _connected(self, check: Callable[[DevicePlugin], Awaitable[None]]) -> None:
        async def run() -> None:
            async with self._configured() as plugin:
                await check(plugin)

        asyncio.run(run())

    def test_meta_names_the_plugin(self) -> None:
        meta = self.plugin_class.meta
        assert isinstance(meta, PluginMeta)
        assert meta.id and meta.name and meta.version

    def test_channels_are_unique_and_have_bounds(self) -> None:
        channels = self._configured().get_channels()
        assert channels, "a plugin has at least one channel"
        assert len({channel.id for channel in channels}) == len(channels)
        for channel in channels:
            assert math.isfinite(channel.min_value) and math.isfinite(channel.max_value)
            assert channel.safe_value is None or channel.clamp(channel.safe_value) == channel.safe_value

    def test_the_configuration_has_a_schema(self) -> None:
        schema = json.loads(json.dumps(self.plugin_class.config_schema.model_json_schema()))
        assert schema["type"] == "object"

    def test_life_goes_from_configured_to_disconnected(self) -> None:
        plugin = self._configured()
        assert plugin.state is PluginState.CONFIGURED

        async def live() -> None:
            await plugin.connect()
            assert plugin.state is PluginState.CONNECTED
            assert (await plugin.health_check()).is_healthy
            await plugin.disconnect()
            await plugin.disconnect()

        asyncio.run(live())
        assert plugin.state is PluginState.DISCONNECTED

    def test_simulated_values_lie_within_bounds(self) -> None:
        async def check(plugin: DevicePlugin) -> None:
            for _ in range(20):
                for id, value in (await plugin.read_all_inputs()).items():
                    channel = plugin.channels[id]
                    assert channel.clamp(value) == value, f"{id} is {value}"

        self._connected(check)

    def test_outputs_take_values_and_inputs_do_not(self) -> None:
        async def check(plugin: DevicePlugin) -> None:
            for channel in plugin.channels.values():
                try:
                    await plugin.write(channel.id, channel.max_value)
                except Exception:
                    assert not channel.is_writable, f"{channel.id} takes no value"
                else:
                    assert channel.is_writable, f"{channel.id} is an input and takes a value"

        self._connected(check)
