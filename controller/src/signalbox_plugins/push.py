"""The base class of plugins whose device sends values unasked, and the types of what it delivers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from .errors import PluginConnectionError
from .plugin import ChannelValue, DevicePlugin

# Readings in memory. A device that sends faster than the disk writes is disconnected, so that its sender keeps them.
_MOST_WAITING = 100_000


@dataclass(frozen=True)
class Reading:
    """A raw value of a channel with its time of measurement; `None`: the time of arrival."""

    channel: str
    value: ChannelValue
    time: datetime | None = None


@dataclass(frozen=True)
class Message:
    """Identity of a message that its sender repeats until it is acknowledged.

    `number` is the sender's packet id, which it reuses after the acknowledgement; `digest` is of topic and payload.
    """

    number: int
    digest: bytes
    is_repetition: bool


@dataclass(frozen=True)
class Delivery:
    """Readings that arrived together, and their message if it has to be acknowledged."""

    readings: tuple[Reading, ...]
    message: Message | None = None


class Ledger:
    """State of an instance that survives restarts of its process. This one is in memory; hosts use one on disk."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}

    def forget(self, messages: Iterable[Message] | None) -> None:
        """Removes messages whose numbers the sender may reuse from now on; `None`: all."""

    def recall(self, name: str) -> str | None:
        """The note of this name."""
        return self._notes.get(name)

    def remember(self, name: str, note: str) -> None:
        """Keeps a short note."""
        self._notes[name] = note


class PushPlugin(DevicePlugin):
    """For devices that send values unasked: the plugin calls `deliver` for values, `fail` when the device is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._deliveries: asyncio.Queue[Delivery | Exception] = asyncio.Queue()
        self._waiting = 0
        self._is_lost = False

    # Implemented by plugins.

    async def _do_acknowledge(self, messages: list[Message]) -> None:  # noqa: B027
        """Acknowledges messages to the sender."""

    # Used by plugins, in the thread of the event loop.

    def deliver(self, delivery: Delivery) -> None:
        """Queues readings for the buffer. After a failure none is taken: a device that sends on would keep its
        connection, and fill the memory while the buffer is full."""
        if self._is_lost:
            return
        if self._waiting >= _MOST_WAITING:
            self.fail(PluginConnectionError(self.meta.id, "values arrive faster than the disk writes them"))
            return
        self._waiting += len(delivery.readings)
        self._deliveries.put_nowait(delivery)

    def fail(self, error: Exception) -> None:
        """Reports that the device is lost, after the deliveries before it; the first reason counts."""
        if not self._is_lost:
            self._is_lost = True
            self._deliveries.put_nowait(error)

    # Used by hosts.

    async def next_deliveries(self, most: int) -> list[Delivery]:
        """Waits for deliveries and returns the queued ones, up to about `most` readings. Raises the error given to
        `fail`."""
        taken = [_of(await self._deliveries.get())]
        count = len(taken[0].readings)
        while count < most and not self._deliveries.empty():
            item = self._deliveries.get_nowait()
            if isinstance(item, Exception):
                # Raised by the next call, after the deliveries before it.
                self._deliveries.put_nowait(item)
                break
            taken.append(item)
            count += len(item.readings)
        self._waiting -= count
        return taken

    async def acknowledge(self, messages: list[Message]) -> None:
        """Acknowledges messages whose values are on disk."""
        if messages:
            await self._do_acknowledge(messages)

    async def connect(self) -> None:
        """Connects, and drops deliveries of the connection before: their sender repeats them."""
        self._deliveries = asyncio.Queue()
        self._waiting, self._is_lost = 0, False
        await super().connect()

    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        return None


def _of(item: Delivery | Exception) -> Delivery:
    if isinstance(item, Exception):
        raise item
    return item
