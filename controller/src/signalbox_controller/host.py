"""The process of one plugin instance: `python -m signalbox_controller.host`.

A plugin that hangs, crashes or brings modules that clash with another's harms its own instance alone. The controller
speaks to it in lines of JSON: first what to run (`plugin`, `folder`, `config`) and where values go (`events` by
channel, `buffer`), then `{"write": {channel: value}}`. It puts what it reads into the buffer, before anybody hears of
it, and answers with `{"status": …, "error": …}` and `{"kept": [[channel, time], …]}`. When its input ends, also because
the controller was killed, it brings its outputs into their safe state and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from signalbox_plugins import DevicePlugin, PluginInstanceConfig
from signalbox_plugins.discovery import built_in_plugins, discover_plugins

from .buffer import Buffer, Value

_LONGEST_LINE = 8 << 20
_READ_LIMIT = 30.0


class Host:
    """Runs one plugin and talks about it."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._plugin: DevicePlugin | None = None
        self._events: dict[str, str] = {}
        self._buffer: Buffer | None = None
        self._requested: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Runs until the input ends."""
        first = json.loads(await lines.readline())
        path, most = first["buffer"]
        self._events, self._buffer = first["events"], Buffer(Path(path), most)
        live = asyncio.create_task(self._live(first))
        try:
            while line := await lines.readline():
                self._requested.update(json.loads(line)["write"])
                self._changed.set()
        finally:
            live.cancel()
            await asyncio.gather(live, return_exceptions=True)
            if self._plugin is not None:
                await self._plugin.disconnect()

    async def _live(self, first: dict[str, Any]) -> None:
        """Connects, and connects again when the device is lost."""
        try:
            self._plugin = plugin = _load(first)
        except Exception as error:
            self._send(status="error", error=str(error) or type(error).__name__)
            return
        policy = plugin.config.retry_policy if isinstance(plugin.config, PluginInstanceConfig) else None
        base, most, factor = (
            (policy.base_delay, policy.max_delay, policy.backoff_factor) if policy else (1.0, 60.0, 2.0)
        )
        delay = base
        while True:
            try:
                await plugin.connect()
                self._send(status="demo" if plugin.is_demo_mode else "connected", error=None)
                delay = base
                # A device that was lost is in its safe state.
                self._requested = {**self._written, **self._requested}
                await self._work(plugin)
            except Exception as error:
                self._send(status="error", error=str(error) or type(error).__name__)
                await plugin.disconnect()
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * factor, most)

    async def _work(self, plugin: DevicePlugin) -> None:
        """Reads and writes until too many readings in a row fail."""
        interval = getattr(plugin.config, "poll_interval_ms", 1000) / 1000
        clock = asyncio.get_running_loop().time
        due, failures = clock(), 0
        readable = [channel.id for channel in plugin.channels.values() if channel.is_readable]
        while True:
            await self._write(plugin)
            if clock() >= due:
                errors = plugin.error_count
                count = await self._read(plugin, readable)
                failures = failures + 1 if plugin.error_count > errors and not count else 0
                if failures >= 3:
                    raise RuntimeError(plugin.last_error or "the device does not answer")
                due = max(due + interval, clock())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(due - clock(), 0.0))

    async def _read(self, plugin: DevicePlugin, channels: list[str]) -> int:
        """Reads the channels and keeps their values; gives back how many there were."""
        values: list[tuple[str, float, str]] = []
        try:
            async with asyncio.timeout(_READ_LIMIT):
                for channel in channels:
                    value = await plugin.read(channel)
                    if value is not None:
                        values.append((channel, value, datetime.now(UTC).isoformat()))
        finally:
            # Also what was read before the time was up, or before the controller ended.
            self._keep(values)
        return len(values)

    def _keep(self, values: list[tuple[str, float, str]]) -> None:
        linked = [
            Value(self._events[channel], value, time) for channel, value, time in values if channel in self._events
        ]
        if linked and self._buffer is not None:
            self._buffer.add(linked)
            self._send(kept=[[channel, time] for channel, _, time in values])

    async def _write(self, plugin: DevicePlugin) -> None:
        self._changed.clear()
        for channel in list(self._requested):
            value = self._requested[channel]
            await plugin.write(channel, value)
            self._written[channel] = value
            # Kept until it was written, so that a lost device gets it later.
            if self._requested.get(channel) == value:
                del self._requested[channel]

    def _send(self, **message: Any) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()


def _load(first: dict[str, Any]) -> DevicePlugin:
    folder = first["folder"]
    plugins = built_in_plugins() if folder is None else discover_plugins([Path(folder)])
    if first["plugin"] not in plugins:
        raise LookupError(f"the plugin {first['plugin']} is not in its package")
    plugin = plugins[first["plugin"]]()
    plugin.configure(first["config"])
    return plugin


async def _main() -> None:
    # Plugins print to the log, not to the controller.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await Host(out).run(reader)


def main() -> None:
    """Runs until standard input ends."""
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_main())


if __name__ == "__main__":
    main()
