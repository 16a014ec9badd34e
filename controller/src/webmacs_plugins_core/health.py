"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.plugin import HealthReport

__all__ = ["HealthReport"]
