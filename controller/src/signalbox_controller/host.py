"""The process of one plugin instance: `python -m signalbox_controller.host`.

A plugin that hangs, crashes or brings modules that clash with another's harms its own instance alone. The controller
sends it lines of JSON: first the instance (`instance`, `plugin`, `folder`, `config`) and the destination of values
(`events` by channel, `buffer`), then `{"write": {channel: value}}`. It writes values to the buffer before it reports
them, and answers with `{"status": …, "error": …}` and `{"kept": number of values}`; `{"alive": true}` says that no call
of the plugin blocks it. When its input ends, also because the controller was killed, it brings its outputs into their
safe state and ends. After `{"release": true}` it ends and leaves the outputs as they are, since another controller
writes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from signalbox_plugins import (
    CapabilityNotFoundError,
    Delivery,
    DevicePlugin,
    PluginInstanceConfig,
    PluginOutputError,
    PushPlugin,
)
from signalbox_plugins.discovery import built_in_plugins, discover_plugins

from .buffer import Buffer, Origin, Value
from .ledger import InstanceLedger

_LONGEST_LINE = 8 << 20
# Values of one transaction, about.
_MOST_AT_ONCE = 500
_STATUS_SECONDS = 0.5
_ALIVE_SECONDS = 2.0
# After so long, values are written again that an output did not take.
_WRITE_AGAIN_SECONDS = 5.0
# Outputs whose refusals are shown.
_MOST_REFUSED = 5
# Every so many status checks, the time of the connection is written to disk.
_CHECKS_PER_NOTE = 10
_SHOWN_GAP = timedelta(hours=1)
# So that the message stays within the bound of the service.
_MOST_GAPS = 5
# Shorter gaps are not reported: values are about as far apart.
_LEAST_GAP = timedelta(seconds=1)


class Host:
    """Runs one plugin and reports its status."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._plugin: DevicePlugin | None = None
        self._instance = ""
        self._events: dict[str, str] = {}
        self._shared: frozenset[str] = frozenset()
        self._buffer: Buffer
        self._most_at_once = _MOST_AT_ONCE
        self._ledger: InstanceLedger
        self._newest: dict[str, tuple[str, float]] = {}
        self._requested: dict[str, float] = {}
        self._written: dict[str, float] = {}
        # Outputs that did not take their newest value, and why.
        self._refused: dict[str, str] = {}
        self._is_proven = False
        self._changed = asyncio.Event()
        self._reported: tuple[str, str | None] | None = None
        self._gaps: list[tuple[datetime, datetime]] = []
        self._is_full = False

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Runs until the input ends."""
        first = json.loads(await lines.readline())
        live = asyncio.create_task(self._live(first))
        alive = asyncio.create_task(self._be_alive())
        is_released = False
        try:
            while not is_released and (line := await lines.readline()):
                message = json.loads(line)
                is_released = "release" in message
                if not is_released:
                    self._requested.update(message["write"])
                    self._changed.set()
        finally:
            live.cancel()
            alive.cancel()
            await asyncio.gather(live, alive, return_exceptions=True)
            if self._plugin is not None:
                await (self._plugin.release() if is_released else self._plugin.disconnect())

    async def _live(self, first: dict[str, Any]) -> None:
        """Connects, and connects again when the device is lost."""
        try:
            self._plugin = plugin = _load(first)
        except Exception as error:
            self._report("error", str(error) or type(error).__name__)
            return
        self._open_buffer(first, plugin)
        policy = plugin.config.retry_policy if isinstance(plugin.config, PluginInstanceConfig) else None
        base, most, factor = (
            (policy.base_delay, policy.max_delay, policy.backoff_factor) if policy else (1.0, 60.0, 2.0)
        )
        delay = base
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                self._is_proven = False
                await plugin.connect()
                if isinstance(plugin, PushPlugin) and not plugin.is_demo_mode:
                    self._be_connected(plugin)
                self._requested = self._to_restore(plugin) | self._requested
                await self._work(plugin)
            except Exception as error:
                self._report("error", str(error) or type(error).__name__)
                await plugin.disconnect()
            if asyncio.get_running_loop().time() - begun > most:
                delay = base
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * factor, most)

    def _open_buffer(self, first: dict[str, Any], plugin: DevicePlugin) -> None:
        path, most = first["buffer"]
        self._instance, self._events = first["instance"], first["events"]
        both = (channel.id for channel in plugin.channels.values() if channel.is_readable and channel.is_writable)
        self._shared = frozenset(self._events[id] for id in both if id in self._events)
        self._most_at_once = min(_MOST_AT_ONCE, most)
        self._buffer = Buffer(Path(path), most, is_synced=isinstance(plugin, PushPlugin))
        self._newest = self._buffer.newest(self._instance)
        self._ledger = InstanceLedger(self._buffer, self._instance)
        plugin.instance_id = self._instance
        if isinstance(plugin, PushPlugin):
            plugin.ledger = self._ledger

    async def _work(self, plugin: DevicePlugin) -> None:
        """Reads and writes until the device is lost. Raises the reason."""
        if isinstance(plugin, PushPlugin) and not plugin.is_demo_mode:
            jobs = [self._take_always(plugin), self._write_always(plugin)]
        else:
            jobs = [self._poll_always(plugin)]
        tasks = [asyncio.create_task(job) for job in (*jobs, self._report_always(plugin))]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Devices that are polled.

    async def _poll_always(self, plugin: DevicePlugin) -> None:
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
                if not failures and not self._is_proven:
                    self._be_connected(plugin)
                if failures >= 3:
                    raise RuntimeError(plugin.last_error or "the device does not answer")
                due = max(due + interval, clock())
            # Not `wait_for`, which loses the cancellation at the end when an order has just arrived.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(due - clock(), 0.0)):
                    await self._changed.wait()

    async def _read(self, plugin: DevicePlugin, channels: list[str]) -> int:
        """Reads the channels, buffers their values and returns their number."""
        values: list[tuple[str, float, str]] = []
        try:
            async with asyncio.timeout(plugin.reading_seconds):
                await plugin.begin_reading()
                for channel in channels:
                    value = await plugin.read(channel)
                    if value is not None:
                        values.append((channel, value, _now()))
        finally:
            # Also after a timeout or a stop: values that were read by then are kept.
            linked = [Value(self._events[id], value, time) for id, value, time in values if id in self._events]
            self._keep(linked, Origin(self._instance, (), self._shared))
        return len(values)

    # Devices that send.

    async def _take_always(self, plugin: PushPlugin) -> None:
        while True:
            deliveries = await plugin.next_deliveries(self._most_at_once)
            new = [one for one in deliveries if one.message is None or not self._ledger.has(one.message)]
            values = self._values(plugin, new)
            messages = [one.message for one in deliveries if one.message is not None]
            origin = Origin(self._instance, tuple((one.number, one.digest) for one in messages), self._shared)
            # Unacknowledged messages stay with their sender until there is room.
            while not self._keep(values, origin, only_if_room=bool(messages)):
                self._is_full = True
                await asyncio.sleep(_STATUS_SECONDS)
            self._is_full = False
            self._newest |= {value.event: (value.time, value.value) for value in values}
            await plugin.acknowledge(messages)

    def _values(self, plugin: PushPlugin, deliveries: list[Delivery]) -> list[Value]:
        """The values of readings, without repetitions: devices send their present values after each connection."""
        arrival, newest, found = datetime.now(UTC), dict[str, tuple[str, float]](), list[Value]()
        for reading in (reading for delivery in deliveries for reading in delivery.readings):
            event, value = self._events.get(reading.channel), plugin.displayed(reading.channel, reading.value)
            if event is None or value is None:
                continue
            time = (reading.time or arrival).astimezone(UTC).isoformat()
            if newest.get(event, self._newest.get(event)) != (time, value):
                newest[event] = (time, value)
                found.append(Value(event, value, time))
        return found

    async def _write_always(self, plugin: DevicePlugin) -> None:
        while True:
            await self._write(plugin)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WRITE_AGAIN_SECONDS if self._requested else None):
                    await self._changed.wait()

    # Both kinds.

    def _keep(self, values: list[Value], origin: Origin, only_if_room: bool = False) -> bool:
        """Adds values to the buffer; False if they have no room."""
        if (values or origin.messages) and not self._buffer.add(values, origin, only_if_room):
            return False
        if values:
            self._send(kept=len(values))
        return True

    async def _write(self, plugin: DevicePlugin) -> None:
        self._changed.clear()
        for channel in list(self._requested):
            value = self._requested[channel]
            try:
                await plugin.write(channel, value)
            except (CapabilityNotFoundError, PluginOutputError) as error:
                # The device stays connected: nothing would be read meanwhile.
                self._refused[channel] = str(error)
                if isinstance(error, PluginOutputError) and error.is_passing:
                    continue
            else:
                self._written[channel] = value
                self._refused.pop(channel, None)
            # Only now, so that a lost device gets the value after the next connection.
            if self._requested.get(channel) == value:
                del self._requested[channel]

    def _to_restore(self, plugin: DevicePlugin) -> dict[str, float]:
        """The last written values of outputs that a lost connection has put into their safe state. Other readable
        outputs keep their value, which may have been changed at the device since."""
        channels = plugin.channels
        return {
            id: value
            for id, value in self._written.items()
            if channels[id].safe_value is not None or not channels[id].is_readable
        }

    # Status.

    async def _be_alive(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_SECONDS)
            self._send(alive=True)

    async def _report_always(self, plugin: DevicePlugin) -> None:
        for check in itertools.count():
            if check % _CHECKS_PER_NOTE == 0 and self._is_proven:
                self._ledger.remember("connected", _now())
            await asyncio.sleep(_STATUS_SECONDS)
            if self._is_proven:
                self._report_status(plugin)

    def _be_connected(self, plugin: DevicePlugin) -> None:
        """Shows the device as connected. One that is polled has answered by then: an open connection alone proves nothing."""
        self._is_proven = True
        self._note_gap(plugin)
        self._report_status(plugin)

    def _report_status(self, plugin: DevicePlugin) -> None:
        if plugin.is_demo_mode:
            self._report("demo", None)
        elif self._is_full:
            self._report("error", "the controller's buffer is full: the broker keeps further values")
        else:
            refused = "; ".join(list(self._refused.values())[:_MOST_REFUSED])
            parts = [plugin.problem, refused, plugin.remark, self._shown_gaps()]
            is_wrong = any(parts[:2])
            self._report("error" if is_wrong else "connected", "; ".join(part for part in parts if part) or None)

    def _note_gap(self, plugin: DevicePlugin) -> None:
        """Records the time without a connection, for the status; on disk, since the next process shows it, too."""
        gaps = [(_time(begun), _time(ended)) for begun, ended in json.loads(self._ledger.recall("gaps") or "[]")]
        last, now = self._ledger.recall("connected"), datetime.now(UTC)
        if last is not None and not plugin.is_demo_mode and not plugin.keeps_values:
            # The device may have held values back at that time.
            begun = _time(last) - plugin.delivery_delay
            if now - begun > _LEAST_GAP:
                if gaps and begun <= gaps[-1][1]:
                    begun = min(begun, gaps.pop()[0])
                gaps.append((begun, now))
        self._gaps = [gap for gap in gaps if now - gap[1] <= _SHOWN_GAP][-_MOST_GAPS:]
        self._ledger.remember(
            "gaps", json.dumps([(begun.isoformat(), ended.isoformat()) for begun, ended in self._gaps])
        )

    def _shown_gaps(self) -> str | None:
        now = datetime.now(UTC)
        times = [
            f"between {begun:%Y-%m-%d %H:%M:%S} and {ended:%Y-%m-%d %H:%M:%S} UTC"
            for begun, ended in reversed(self._gaps)
            if now - ended <= _SHOWN_GAP
        ]
        return f"values {', '.join(times)} may be missing: there was no connection" if times else None

    def _report(self, status: str, error: str | None) -> None:
        if self._reported != (status, error):
            self._reported = (status, error)
            self._send(status=status, error=error)

    def _send(self, **message: Any) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


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
