"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.plugin import ChannelValue, PluginState

__all__ = ["ChannelValue", "PluginState"]
