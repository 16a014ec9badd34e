"""Values that are on their way, on disk: what was measured survives a service that is away and a controller that ends.

A batch is fixed before it is sent and sent again as it is until it is answered, with the same key, so that the service
takes it once. Values leave in the order in which they came.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Value:
    """A value of an event at a time (ISO 8601)."""

    event: str
    value: float
    time: str


@dataclass(frozen=True)
class Batch:
    """Values that are sent together, and the key under which they are taken once."""

    key: str
    last: int
    values: list[Value]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS waiting (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, value REAL NOT NULL, time TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sending (id INTEGER PRIMARY KEY CHECK (id = 1), key TEXT NOT NULL, last INTEGER NOT NULL);
"""


class Buffer:
    """The values that wait; at most `most`, of which the oldest go first."""

    def __init__(self, path: Path, most: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._most = most
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)
        self._count: int = self._database.execute("SELECT count(*) FROM waiting").fetchone()[0]
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def add(self, values: Iterable[Value]) -> None:
        """Takes values in."""
        rows = [(value.event, value.value, value.time) for value in values]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO waiting (event, value, time) VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._count += len(rows)
        if self._count > self._most:
            self._drop(self._count - self._most)

    def next(self, most: int) -> Batch | None:
        """The batch that is to be sent now: the one before, as long as it is not done."""
        fixed = self._database.execute("SELECT key, last FROM sending").fetchone()
        if fixed is None:
            newest = "SELECT max(id) FROM (SELECT id FROM waiting ORDER BY id LIMIT ?)"
            last = self._database.execute(newest, (most,)).fetchone()[0]
            if last is None:
                return None
            fixed = (str(uuid.uuid4()), last)
            self._database.execute("INSERT INTO sending (id, key, last) VALUES (1, ?, ?)", fixed)
        key, last = fixed
        rows = self._database.execute("SELECT event, value, time FROM waiting WHERE id <= ? ORDER BY id", (last,))
        return Batch(key, last, [Value(*row) for row in rows])

    def done(self, batch: Batch) -> None:
        """The batch was answered: it is forgotten."""
        self._database.execute("BEGIN")
        gone = self._database.execute("DELETE FROM waiting WHERE id <= ?", (batch.last,)).rowcount
        self._database.execute("DELETE FROM sending")
        self._database.execute("COMMIT")
        self._count -= gone

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def _drop(self, count: int) -> None:
        """Forgets the oldest values but those that are being sent, which may have arrived."""
        oldest = (
            "DELETE FROM waiting WHERE id IN (SELECT id FROM waiting"
            " WHERE id > coalesce((SELECT last FROM sending), 0) ORDER BY id LIMIT ?)"
        )
        gone = self._database.execute(oldest, (count,)).rowcount
        self._count -= gone
        self.dropped += gone
