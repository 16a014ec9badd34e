"""The base class of plugins whose device sends values by itself, and the words in which it hands them over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from .errors import PluginConnectionError
from .plugin import ChannelValue, DevicePlugin

# Values that wait for the disk. A device that is quicker for so long is disconnected, so that its sender holds them.
_MOST_WAITING = 100_000


@dataclass(frozen=True)
class Reading:
    """A raw value of a channel and the time at which it was measured; without one, that of its arrival."""

    channel: str
    value: ChannelValue
    time: datetime | None = None


@dataclass(frozen=True)
class Message:
    """What tells a message from others, for senders that repeat one until it is acknowledged.

    `number` is the sender's, and used again for others once it was acknowledged; `digest` is of what it says.
    """

    number: int
    digest: bytes
    is_repetition: bool


@dataclass(frozen=True)
class Delivery:
    """Readings that arrived together, and the message that they were in, if it is to be acknowledged."""

    readings: tuple[Reading, ...]
    message: Message | None = None


class Ledger:
    """What an instance remembers over restarts of its process. This one forgets; hosts have one on disk."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}

    def forget(self, messages: Iterable[Message] | None) -> None:
        """The sender knows that these messages have arrived, or has forgotten all of them (`None`): their numbers may
        come again for others."""

    def recall(self, name: str) -> str | None:
        """The note of this name."""
        return self._notes.get(name)

    def remember(self, name: str, note: str) -> None:
        """Keeps a short note."""
        self._notes[name] = note


class PushPlugin(DevicePlugin):
    """For devices that send values by themselves: `deliver` takes them in, `fail` says that the device is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._deliveries: asyncio.Queue[Delivery | Exception] = asyncio.Queue()
        self._waiting = 0

    # Implemented by plugins.

    async def _do_acknowledge(self, messages: list[Message]) -> None:  # noqa: B027
        """Tells the sender that these messages are safe."""

    # Used by plugins, in the thread of the event loop.

    def deliver(self, delivery: Delivery) -> None:
        """Hands over what has arrived."""
        if self._waiting >= _MOST_WAITING:
            self.fail(PluginConnectionError(self.meta.id, "values arrive faster than they can be kept"))
            return
        self._waiting += len(delivery.readings)
        self._deliveries.put_nowait(delivery)

    def fail(self, error: Exception) -> None:
        """Says that the device is lost; after what was delivered before."""
        self._deliveries.put_nowait(error)

    # Used by hosts.

    async def next_deliveries(self, most: int) -> list[Delivery]:
        """Waits for deliveries and takes those that are there, with about `most` readings. Raises why the device is
        lost."""
        taken = [_of(await self._deliveries.get())]
        count = len(taken[0].readings)
        while count < most and not self._deliveries.empty():
            item = self._deliveries.get_nowait()
            if isinstance(item, Exception):
                # Raised when what came before it was taken.
                self._deliveries.put_nowait(item)
                break
            taken.append(item)
            count += len(item.readings)
        self._waiting -= count
        return taken

    async def acknowledge(self, messages: list[Message]) -> None:
        """The values of these messages are safe."""
        if messages:
            await self._do_acknowledge(messages)

    async def connect(self) -> None:
        """Reaches for the device, and forgets what was left of the connection before."""
        self._deliveries = asyncio.Queue()
        self._waiting = 0
        await super().connect()

    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        return None


def _of(item: Delivery | Exception) -> Delivery:
    if isinstance(item, Exception):
        raise item
    return item
