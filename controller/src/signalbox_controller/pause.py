"""Pauses between tries."""

from __future__ import annotations

import asyncio
import random

_LONGEST = 30.0


class Pause:
    """Pauses that grow with every failure, never alike, so that many controllers do not come back at once."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._next = first

    def reset(self) -> None:
        """It worked: the next pause is the first again."""
        self._next = self._first

    def seconds(self) -> float:
        """How long the next pause is."""
        now = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, _LONGEST)
        return now

    async def wait(self, least: float = 0.0) -> None:
        """Waits, at least `least` seconds."""
        await asyncio.sleep(max(least, self.seconds()))
