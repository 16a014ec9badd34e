"""The part that all devices of `run.py` share: orders and answers as lines of JSON.

    {"emit": true, "first": 0, "interval": 0.05}   emits numbers on both channels
    {"stop": true}                                 ends that after a number, then says {"done": true}
    {"value": 77}                                  emits this number
    {"report": true}                               answers {"emitted": [[0, 1770000000000], …]}: numbers and times

A command from Signalbox is said as {"commanded": value}. A device ends with its standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import Any

_LONGEST_LINE = 1 << 16


def say(**message: Any) -> None:
    """Answers."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def millis() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Device:
    """A device with the channels A and B, which carry the same numbers, and Set, which takes commands."""

    def __init__(self) -> None:
        self.emitted: list[tuple[int, int]] = []
        self.is_stopping = False

    async def start(self, settings: dict[str, Any]) -> None:
        """Listens or connects."""

    async def put(self, number: int, time: int) -> bool:
        """Gives a number to both channels; whether the device could."""
        raise NotImplementedError

    async def emit(self, first: int, interval: float) -> None:
        """Gives out numbers, at a steady pace, until it is to stop."""
        due = time.monotonic()
        for number in itertools.count(first):
            await self.emit_one(number)
            if self.is_stopping:
                return
            due += interval
            await asyncio.sleep(max(due - time.monotonic(), 0.001))

    def stop(self) -> None:
        """Makes `emit` end."""
        self.is_stopping = True

    async def emit_one(self, number: int) -> None:
        """Gives out a number as soon as the device can, with the time of the first attempt: a birth may carry it already."""
        moment = millis()
        while not await self.put(number, moment):
            await asyncio.sleep(0.02)
        self.emitted.append((number, moment))

    async def serve(self) -> None:
        """Starts, and follows orders until its input ends."""
        settings = json.loads(sys.argv[1])
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await self.start(settings)
        say(ready=True)
        emitting: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            order = json.loads(line)
            if "emit" in order:
                self.is_stopping = False
                task = asyncio.create_task(self._emit(order))
                emitting.add(task)
                task.add_done_callback(emitting.discard)
            elif "stop" in order:
                self.stop()
            elif "value" in order:
                await self.emit_one(order["value"])
                say(done=True)
            else:
                say(emitted=self.emitted)

    async def _emit(self, order: dict[str, Any]) -> None:
        await self.emit(order["first"], order["interval"])
        say(done=True)
