"""Errors of plugins."""

from __future__ import annotations


class PluginError(Exception):
    """Any failure of one plugin."""

    def __init__(self, plugin_id: str, message: str) -> None:
        super().__init__(f"{plugin_id}: {message}")
        self.plugin_id = plugin_id


class PluginLoadError(PluginError):
    """The plugin's code cannot be loaded."""


class MissingRequirementsError(PluginError):
    """A package needs others that are neither in it nor installed for this Python."""

    def __init__(self, missing: list[str]) -> None:
        needed = ", ".join(missing)
        super().__init__("package", f"it needs {needed}: install them for the Python that runs plugins")
        self.missing = missing


class PluginConfigError(PluginError):
    """The configuration is not one that the plugin takes."""


class PluginConnectionError(PluginError):
    """The device cannot be reached."""


class PluginTimeoutError(PluginError):
    """The device did not answer in time."""


class PluginStateError(PluginError):
    """The plugin is in a state that does not allow the call."""


class PluginOutputError(PluginStateError):
    """A value cannot be written to one output, while the connection stands. `is_passing`: it may be later."""

    def __init__(self, plugin_id: str, message: str, is_passing: bool = False) -> None:
        super().__init__(plugin_id, message)
        self.is_passing = is_passing


class CapabilityNotFoundError(PluginError):
    """The plugin has no such channel."""
