"""Instances of plugins by id, as hosts of WebMACS plugins hold them."""

from __future__ import annotations

from typing import Any

from signalbox_plugins.discovery import discover_plugins
from signalbox_plugins.errors import PluginLoadError
from signalbox_plugins.plugin import ChannelValue, DevicePlugin


class PluginRegistry:
    """Makes instances of plugin classes and speaks to them."""

    def __init__(self) -> None:
        self._classes: dict[str, type[DevicePlugin]] = {}
        self._instances: dict[str, DevicePlugin] = {}

    def discover(self) -> None:
        """Takes in the classes of all installed packages."""
        self._classes.update(discover_plugins())

    def register_plugin_class(self, plugin: type[DevicePlugin]) -> None:
        """Takes in one class."""
        self._classes[plugin.meta.id] = plugin

    def get_available_plugins(self) -> dict[str, type[DevicePlugin]]:
        """All known classes by id."""
        return dict(self._classes)

    def get_plugin_class(self, plugin_id: str) -> type[DevicePlugin]:
        """The class `plugin_id`; raises `PluginLoadError` if it does not exist."""
        if plugin_id not in self._classes:
            raise PluginLoadError(plugin_id, "is not installed")
        return self._classes[plugin_id]

    def create_instance(self, plugin_id: str, config: dict[str, Any], instance_id: str) -> DevicePlugin:
        """Makes and configures an instance."""
        plugin = self.get_plugin_class(plugin_id)()
        plugin.configure(config)
        self._instances[instance_id] = plugin
        return plugin

    async def connect(self, instance_id: str) -> None:
        """Connects one instance."""
        await self._instances[instance_id].connect()

    async def disconnect(self, instance_id: str) -> None:
        """Disconnects one instance."""
        await self._instances[instance_id].disconnect()

    async def connect_all(self) -> None:
        """Connects all instances."""
        for plugin in self._instances.values():
            await plugin.connect()

    async def disconnect_all(self) -> None:
        """Disconnects all instances."""
        for plugin in self._instances.values():
            await plugin.disconnect()

    async def read(self, instance_id: str, channel_id: str) -> float | None:
        """The value of a channel."""
        return await self._instances[instance_id].read(channel_id)

    async def write(self, instance_id: str, channel_id: str, value: ChannelValue) -> None:
        """Writes a value to a channel."""
        await self._instances[instance_id].write(channel_id, value)

    async def read_all_inputs(self) -> list[dict[str, Any]]:
        """All values of all instances."""
        return [
            {"instance_id": id, "channel_id": channel, "value": value}
            for id, plugin in self._instances.items()
            for channel, value in (await plugin.read_all_inputs()).items()
        ]
