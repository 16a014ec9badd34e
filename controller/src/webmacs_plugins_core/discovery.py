"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.discovery import discover_plugins

__all__ = ["discover_plugins"]
