"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.config import PluginInstanceConfig, PluginMeta, RetryPolicy

__all__ = ["PluginInstanceConfig", "PluginMeta", "RetryPolicy"]
