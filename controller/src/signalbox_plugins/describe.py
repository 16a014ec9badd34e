"""Describes plugins to a program that does not run them: `python -m signalbox_plugins.describe`.

Reads one JSON object from standard input and writes one to standard output. `{"folder": …}` asks for all classes of the
package there, without `folder` for those that come with Signalbox; `"plugin_id"` and `"config"` beside it ask for the
channels that this class has with this configuration.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from .channels import ChannelDescriptor
from .discovery import built_in_plugins, discover_plugins
from .errors import MissingRequirementsError, PluginConfigError
from .plugin import DevicePlugin


def describe_class(plugin: type[DevicePlugin]) -> dict[str, Any]:
    """A class as plain values, with the channels that it has when nothing is configured: none, if it has to be."""
    meta = plugin.meta
    try:
        channels = describe_channels(plugin, {})
    except PluginConfigError:
        channels = []
    return {
        "id": meta.id,
        "name": meta.name,
        "version": meta.version,
        "vendor": meta.vendor,
        "description": meta.description,
        "url": meta.url,
        "config_schema": json.dumps(plugin.config_schema.model_json_schema()),
        "channels": channels,
    }


def describe_channels(plugin: type[DevicePlugin], config: dict[str, Any]) -> list[dict[str, Any]]:
    """The channels of an instance with this configuration."""
    instance = plugin()
    instance.configure(config)
    return [_channel(channel) for channel in instance.channels.values()]


def _channel(channel: ChannelDescriptor) -> dict[str, Any]:
    return {
        "id": channel.id,
        "name": channel.name,
        "direction": channel.direction.value,
        "unit": channel.unit,
        "min_value": float(channel.min_value),
        "max_value": float(channel.max_value),
    }


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to one question."""
    folder = question.get("folder")
    plugins = built_in_plugins() if folder is None else discover_plugins([Path(folder)])
    if "plugin_id" not in question:
        return {"classes": [describe_class(plugin) for plugin in plugins.values()]}
    return {"channels": describe_channels(plugins[question["plugin_id"]], question["config"])}


def main() -> None:
    # Output of plugins is not part of the answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        found = answer(json.load(sys.stdin))
    except MissingRequirementsError as error:
        found = {"missing": error.missing}
    except Exception as error:
        found = {"error": str(error)[:1000] or type(error).__name__}
    json.dump(found, out)
    out.flush()


if __name__ == "__main__":
    main()
