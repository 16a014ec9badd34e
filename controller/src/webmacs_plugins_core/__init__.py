"""The names that plugins of WebMACS import, so that their wheels run on Signalbox as they are."""

from signalbox_plugins import compat

compat.install()

from .base import DevicePlugin, SyncDevicePlugin  # noqa: E402
from .channels import ChannelDescriptor, ChannelDirection, ConversionSpec, SimulationSpec  # noqa: E402
from .config import PluginInstanceConfig, PluginMeta, RetryPolicy  # noqa: E402
from .discovery import discover_plugins  # noqa: E402
from .errors import (  # noqa: E402
    CapabilityNotFoundError,
    PluginConfigError,
    PluginConnectionError,
    PluginError,
    PluginLoadError,
    PluginStateError,
    PluginTimeoutError,
)
from .health import HealthReport  # noqa: E402
from .registry import PluginRegistry  # noqa: E402
from .types import ChannelValue, PluginState  # noqa: E402

__all__ = [
    "CapabilityNotFoundError",
    "ChannelDescriptor",
    "ChannelDirection",
    "ChannelValue",
    "ConversionSpec",
    "DevicePlugin",
    "HealthReport",
    "PluginConfigError",
    "PluginConnectionError",
    "PluginError",
    "PluginInstanceConfig",
    "PluginLoadError",
    "PluginMeta",
    "PluginRegistry",
    "PluginState",
    "PluginStateError",
    "PluginTimeoutError",
    "RetryPolicy",
    "SimulationSpec",
    "SyncDevicePlugin",
    "discover_plugins",
]
