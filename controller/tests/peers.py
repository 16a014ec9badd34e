"""Real peers of the device plugins, and instances of plugins in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ports import free_port
from signalbox_controller.buffer import Buffer
from signalbox_controller.running import Running
from signalbox_controller.service import Channel, Instance, Latest
from signalbox_controller.settings import Settings

TOOLS = Path(__file__).resolve().parent.parent.parent / ".tools"
for library in ("asyncua", "pymodbus"):
    logging.getLogger(library).setLevel(logging.CRITICAL)
QUICK = {"retry_policy": {"base_delay": 0.1, "max_delay": 0.3}}


class Mosquitto:
    """Debian's broker, with sessions on disk."""

    def __init__(self, folder: Path, *settings: str) -> None:
        """`settings`: further lines of its listener's configuration."""
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._file = folder / "mosquitto.conf"
        access = "" if any(line.startswith("password_file") for line in settings) else "allow_anonymous true\n"
        more = "".join(f"{line}\n" for line in settings)
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\n{access}{more}user root\npersistence true\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\nmax_inflight_messages 0\nlog_dest stderr\nlog_type error\n"
        )

    def start(self) -> None:
        """Starts it, and waits until it listens; it may have been started before."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(TOOLS / "lib/mosquitto")}
        command = [str(TOOLS / "bin/mosquitto"), "-c", str(self._file)]
        self._process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise AssertionError(f"the broker does not listen: {self._process.communicate()[1]!r}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Sends SIGTERM and waits for the end; sessions are written to disk then."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=10)
            self._process = None

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Proxy:
    """Between a client and a server; it can discard the bytes of the client, and those of the server (`is_silent`)."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.discards = False
        self.is_silent = False
        self.received = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def accepts(self, data: bytes) -> bool:
        """Whether these bytes of the client reach the server."""
        return not self.discards

    async def start(self) -> None:
        """Listens until the event loop ends."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes the listener and all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            pumps = [asyncio.create_task(self._up(reader, back)), asyncio.create_task(self._down(there, writer))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                back.transport.abort()
                writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.accepts(data):
                writer.write(data)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.received += len(data)
            if not self.is_silent:
                writer.write(data)


class DeviceTest(unittest.IsolatedAsyncioTestCase):
    """Base of tests of one plugin in a process of its own. Each channel `x` has the event `e-x`."""

    async def asyncSetUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.settings = Settings("http://127.0.0.1:1", "t", self.folder / "state")
        self.buffer = Buffer(self.settings.buffer_file, self.settings.buffer)
        self.addCleanup(self.buffer.close)
        self._second = 0

    def run_plugin(self, plugin: str, config: dict[str, Any], channels: list[str], most: int | None = None) -> Running:
        """Starts an instance; a channel with `!` at its end takes commands."""
        settings = self.settings
        if most is not None:
            settings = Settings(settings.url, settings.token, settings.state, buffer=most)
        linked = tuple(Channel(id.rstrip("!"), id.endswith("!"), f"e-{id.rstrip('!')}", True) for id in channels)
        instance = Instance("7", plugin, "Device", False, json.dumps({**QUICK, **config}), linked)
        self.running = Running(instance, None, settings, lambda: None)
        self.addAsyncCleanup(self.running.stop)
        return self.running

    def rows(self, channel: str) -> list[tuple[float, str]]:
        """Value and time of the buffered values of a channel, oldest first."""
        with contextlib.closing(sqlite3.connect(self.settings.buffer_file)) as database:
            query = "SELECT value, time FROM waiting WHERE event = ? ORDER BY id"
            return list(database.execute(query, (f"e-{channel}",)))

    def values(self, channel: str) -> list[float]:
        """The buffered values of a channel, oldest first."""
        return [value for value, _ in self.rows(channel)]

    async def until(self, is_so: Callable[[], Any], seconds: float = 90) -> None:
        """Waits for a condition; the status of the instance is in the error otherwise."""
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not in time; {self.running.status}: {self.running.error}") from None

    async def connected(self) -> None:
        """Waits for the connection."""
        await self.until(lambda: self.running.status == "connected")

    async def kill_host(self) -> None:
        """Kills the process of the instance; the controller starts it again."""
        process = self.running._process
        assert process is not None
        process.kill()
        await process.wait()

    def order(self, channel: str, value: float) -> None:
        """A command by a user."""
        self._second += 1
        self.running.obey({f"e-{channel}": Latest(value, f"2026-03-01T10:00:{self._second:02}Z")})
