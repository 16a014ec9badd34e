"""Finds plugin classes: those that come with Signalbox, and those of packages by their entry points."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import compat
from .config import PluginMeta
from .errors import MissingRequirementsError, PluginLoadError
from .plugin import DevicePlugin
from .requirements import missing_requirements

GROUPS = ("signalbox.plugins", "webmacs.plugins")


def built_in_plugins() -> dict[str, type[DevicePlugin]]:
    """The classes that need no package, by id. They import the libraries of their protocols when they connect."""
    from .builtin.modbus import ModbusPlugin
    from .builtin.mqtt import MqttPlugin
    from .builtin.opcua import OpcUaPlugin
    from .builtin.simulated import SimulatedPlugin
    from .builtin.system import SystemPlugin

    plugins = (SimulatedPlugin, SystemPlugin, MqttPlugin, OpcUaPlugin, ModbusPlugin)
    return {plugin.meta.id: plugin for plugin in plugins}


def discover_plugins(folders: Iterable[Path] | None = None) -> dict[str, type[DevicePlugin]]:
    """The classes of the packages in `folders`, or of all that are installed, by id. Raises `PluginLoadError` for the
    first entry point that does not lead to one, and `MissingRequirementsError`."""
    compat.install()
    paths = None if folders is None else [str(folder) for folder in folders]
    for path in paths or []:
        if path not in sys.path:
            # Behind the standard library, which a package must not replace.
            sys.path.append(path)
    missing = missing_requirements(paths or [])
    if missing:
        raise MissingRequirementsError(missing)
    found: dict[str, type[DevicePlugin]] = {}
    for entry in _entry_points(paths):
        plugin = _load(entry)
        found[plugin.meta.id] = plugin
    return found


def _entry_points(paths: list[str] | None) -> Iterator[importlib.metadata.EntryPoint]:
    if paths is None:
        distributions = importlib.metadata.distributions()
    else:
        distributions = importlib.metadata.distributions(path=paths)
    for distribution in distributions:
        for entry in distribution.entry_points:
            if entry.group in GROUPS:
                yield entry


def _load(entry: importlib.metadata.EntryPoint) -> type[DevicePlugin]:
    try:
        plugin = entry.load()
    except Exception as error:
        raise PluginLoadError(entry.name, f"cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(plugin, type) and issubclass(plugin, DevicePlugin)):
        raise PluginLoadError(entry.name, "is not a subclass of DevicePlugin")
    meta = getattr(plugin, "meta", None)
    if not isinstance(meta, PluginMeta) or not meta.id or not meta.version:
        raise PluginLoadError(entry.name, "has no meta with an id and a version")
    return plugin
