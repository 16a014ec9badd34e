"""Exponential backoff with jitter."""

from __future__ import annotations

import asyncio
import random

_LONGEST = 30.0


class Backoff:
    """Delays that double with every failure, randomised so that many controllers do not reconnect at once."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._next = first

    def reset(self) -> None:
        """Starts again with the first delay, after a success."""
        self._next = self._first

    def seconds(self) -> float:
        """The next delay."""
        now = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, _LONGEST)
        return now

    async def wait(self, least: float = 0.0) -> None:
        """Waits, at least `least` seconds."""
        await asyncio.sleep(max(least, self.seconds()))
