"""Which values of outputs are orders: those that did not come from the device itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from .buffer import Buffer
from .service import Channel, Latest, Service

# An order may have been recorded so long before the answer in which the one before was seen.
_OVERLAP = timedelta(seconds=5)


class Orders:
    """Looks at the newest values of outputs. One that also reads its device has the values of both: behind a newer one of
    the device, an order is looked for."""

    def __init__(self, service: Service, buffer: Buffer) -> None:
        self._service = service
        self._buffer = buffer
        self._seen: dict[str, str] = {}
        self._looked: datetime | None = None

    async def look(self, channels: Iterable[Channel]) -> dict[str, Latest]:
        """The newest order of each output's event, as far as one was given since the look before."""
        latest, now = await asyncio.to_thread(self._service.latest)
        orders: dict[str, Latest] = {}
        for channel in channels:
            event, newest = channel.event, latest.get(channel.event or "")
            if not channel.is_output or event is None or newest is None:
                continue
            if not (channel.is_input and self._is_own(event, newest)):
                orders[event] = newest
            elif self._seen.get(event) != newest.time and event in self._seen and self._looked is not None:
                since = self._looked - _OVERLAP
                found = await asyncio.to_thread(self._service.since, event, since)
                given = [one for one in found if not self._is_own(event, one)]
                if given:
                    orders[event] = max(given, key=lambda one: datetime.fromisoformat(one.time))
            self._seen[event] = newest.time
        self._looked = now
        return orders

    def _is_own(self, event: str, value: Latest) -> bool:
        return self._buffer.is_own(event, datetime.fromisoformat(value.time).astimezone(UTC).isoformat())
