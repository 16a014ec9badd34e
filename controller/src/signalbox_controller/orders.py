"""Finds orders: values of an output's event that were not measured at its device."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from .buffer import Buffer
from .service import Channel, Latest, Service

# Orders may be recorded out of the order of their times by so much.
_OVERLAP = timedelta(seconds=5)


class Orders:
    """Polls the newest values of outputs. The event of a readable output holds orders and measured values: when the
    newest value is a measured one, orders before it are searched."""

    def __init__(self, service: Service, buffer: Buffer) -> None:
        self._service = service
        self._buffer = buffer
        self._seen: dict[str, str] = {}
        self._polled: datetime | None = None

    async def poll(self, channels: Iterable[Channel]) -> dict[str, Latest]:
        """The newest order of each output's event since the last poll."""
        latest, now = await asyncio.to_thread(self._service.latest)
        orders: dict[str, Latest] = {}
        for channel in channels:
            event, newest = channel.event, latest.get(channel.event or "")
            if not channel.is_output or event is None or newest is None:
                continue
            if not (channel.is_input and self._is_own(event, newest)):
                orders[event] = newest
            elif self._seen.get(event) != newest.time and event in self._seen and self._polled is not None:
                since = self._polled - _OVERLAP
                found = await asyncio.to_thread(self._service.since, event, since)
                given = [one for one in found if not self._is_own(event, one)]
                if given:
                    orders[event] = max(given, key=lambda one: datetime.fromisoformat(one.time))
            self._seen[event] = newest.time
        self._polled = now
        return orders

    def _is_own(self, event: str, value: Latest) -> bool:
        return self._buffer.is_own(event, datetime.fromisoformat(value.time).astimezone(UTC).isoformat())
