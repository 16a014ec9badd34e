"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.testing import PluginConformanceSuite

__all__ = ["PluginConformanceSuite"]
