"""Names under which plugins of WebMACS import them."""

from signalbox_plugins.plugin import DevicePlugin, SyncDevicePlugin

__all__ = ["DevicePlugin", "SyncDevicePlugin"]
