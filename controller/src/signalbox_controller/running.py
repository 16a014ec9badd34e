"""A running instance: its process, and the messages from and to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from .service import Instance, Latest
from .settings import Settings

_LOG = logging.getLogger("signalbox.controller")
_LONGEST_LINE = 8 << 20
_STOP_SECONDS = 10.0
_MAX_DELAY = 60.0
# A process that says nothing for so long is blocked.
_SILENT_SECONDS = 30.0


class Running:
    """Runs the process of one instance, and runs it again when it ends by itself."""

    def __init__(
        self, instance: Instance, folder: Path | None, settings: Settings, arrived: Callable[[], None]
    ) -> None:
        """`arrived` is called whenever the instance has put values into the buffer."""
        self.instance = instance
        self.folder = folder
        self.status = "inactive"
        self.error: str | None = None
        self.changed = asyncio.Event()
        self._settings = settings
        self._arrived = arrived
        # The newest status that the process has said.
        self._said: tuple[str, str | None] | None = None
        self._obeyed: dict[str, tuple[float, datetime]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.create_task(self._run())

    def obey(self, orders: dict[str, Latest]) -> None:
        """Passes on new orders, given by event."""
        values = {}
        for channel in self.instance.channels:
            newest = orders.get(channel.event) if channel.event else None
            if not channel.is_output or newest is None:
                continue
            order = (newest.value, datetime.fromisoformat(newest.time))
            if self._obeyed.get(channel.id) != order:
                values[channel.id] = newest.value
                self._obeyed[channel.id] = order
        if values:
            self._say({"write": values})

    async def stop(self, is_lost: bool = False) -> None:
        """Lets the instance bring its outputs into their safe state, and ends its process. One that is lost to another
        controller leaves its outputs to that one, which would not write them again."""
        if is_lost:
            self._say({"release": True})
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        delay = 1.0
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                ended = f"the plugin's process ended with status {await self._live()}"
            except OSError as error:
                ended = f"the plugin's process cannot be run: {error}"
            except (ValueError, KeyError, TypeError):
                # A plugin can write where its process does.
                ended = "the plugin's process said what cannot be read"
            if asyncio.get_running_loop().time() - begun > _MAX_DELAY:
                delay = 1.0
            self._note("error", ended)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, _MAX_DELAY)

    async def _live(self) -> int | None:
        # The plugin is a stranger: it is not given the credential.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "signalbox_controller.host",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=_LONGEST_LINE,
            # Ctrl-C is the controller's: it stops its instances in good order.
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            self._say(self._first())
            self._obeyed.clear()
            self._said = None
            while line := await self._line(process.stdout):
                self._hear(json.loads(line))
            return await process.wait()
        finally:
            await _end(process)

    async def _line(self, output: asyncio.StreamReader) -> bytes:
        """The next line of the process, whose silence is noted."""
        while True:
            try:
                async with asyncio.timeout(_SILENT_SECONDS):
                    return await output.readline()
            except TimeoutError:
                why = f"the plugin has not answered for {_SILENT_SECONDS:.0f} s: one of its calls blocks its process"
                self._note("error", why)

    def _first(self) -> dict[str, Any]:
        """The command line of the process."""
        instance = self.instance
        config = json.loads(instance.config) if instance.config else {}
        config = {**config, "demo_mode": instance.demo, "instance_name": instance.name}
        return {
            "instance": instance.id,
            "plugin": instance.plugin,
            "folder": str(self.folder) if self.folder else None,
            "config": config,
            "events": {channel.id: channel.event for channel in instance.channels if channel.event},
            "buffer": [str(self._settings.buffer_file), self._settings.buffer],
        }

    def _say(self, message: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _hear(self, message: dict[str, Any]) -> None:
        if "status" in message:
            self._said = (message["status"], message["error"])
        if self._said is not None:
            # Also after its silence was noted.
            self._note(*self._said)
        if "kept" in message:
            self._arrived()

    def _note(self, status: str, error: str | None) -> None:
        if (status, error) != (self.status, self.error):
            _LOG.log(logging.WARNING if error else logging.INFO, "%s: %s %s", self.instance.name, status, error or "")
            self.status, self.error = status, error
            self.changed.set()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Closes the input of a process, which makes it end; one that does not is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        # Not `wait_for`, which loses the cancellation of `stop` when the process has just ended.
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
