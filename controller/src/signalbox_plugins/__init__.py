"""The SDK for plugins of Signalbox.

A plugin is a subclass of `DevicePlugin` or `SyncDevicePlugin`, which an entry point of the group `signalbox.plugins`
names.
"""

from .channels import ChannelDescriptor, ChannelDirection, ConversionSpec, SimulationSpec, register_conversion
from .config import Field, PluginInstanceConfig, PluginMeta, RetryPolicy
from .errors import (
    CapabilityNotFoundError,
    PluginConfigError,
    PluginConnectionError,
    PluginError,
    PluginLoadError,
    PluginOutputError,
    PluginStateError,
    PluginTimeoutError,
)
from .plugin import ChannelValue, DevicePlugin, HealthReport, PluginState, SyncDevicePlugin
from .push import Delivery, Ledger, Message, PushPlugin, Reading

__all__ = [
    "CapabilityNotFoundError",
    "ChannelDescriptor",
    "ChannelDirection",
    "ChannelValue",
    "ConversionSpec",
    "Delivery",
    "DevicePlugin",
    "Field",
    "HealthReport",
    "Ledger",
    "Message",
    "PluginConfigError",
    "PluginConnectionError",
    "PluginError",
    "PluginInstanceConfig",
    "PluginLoadError",
    "PluginMeta",
    "PluginOutputError",
    "PluginState",
    "PluginStateError",
    "PluginTimeoutError",
    "PushPlugin",
    "Reading",
    "RetryPolicy",
    "SimulationSpec",
    "SyncDevicePlugin",
    "register_conversion",
]
