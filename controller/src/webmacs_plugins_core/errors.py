"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.errors import (
    CapabilityNotFoundError,
    PluginConfigError,
    PluginConnectionError,
    PluginError,
    PluginLoadError,
    PluginStateError,
    PluginTimeoutError,
)

__all__ = [
    "CapabilityNotFoundError",
    "PluginConfigError",
    "PluginConnectionError",
    "PluginError",
    "PluginLoadError",
    "PluginStateError",
    "PluginTimeoutError",
]
