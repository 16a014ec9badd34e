"""Values that are on their way, on disk: what was measured survives a service that is away and a controller that ends.

The processes of instances put in what they have read; the controller takes it out. A batch is fixed before it is sent
and sent again as it is until it is answered, with the same key, so that the service takes it once. Values leave in the
order in which they came.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LOCK_TIMEOUT_SECONDS = 30.0


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
CREATE TABLE IF NOT EXISTS totals (
    id INTEGER PRIMARY KEY CHECK (id = 1), waiting INTEGER NOT NULL, dropped INTEGER NOT NULL);
INSERT OR IGNORE INTO totals SELECT 1, count(*), 0 FROM waiting;
"""


class Buffer:
    """The values that wait; at most `most`, of which the oldest go first. Several processes may have it open."""

    def __init__(self, path: Path, most: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._most = most
        self._database = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        # A process that is killed loses nothing. Only a machine that loses its power may lose the newest values.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)

    def __len__(self) -> int:
        return self._total("waiting")

    @property
    def dropped(self) -> int:
        """Number of values that were dropped for lack of room and have not been reported."""
        return self._total("dropped")

    def add(self, values: Iterable[Value]) -> None:
        """Takes values in, all or none."""
        rows = [(value.event, value.value, value.time) for value in values]
        with self._transaction() as database:
            database.executemany("INSERT INTO waiting (event, value, time) VALUES (?, ?, ?)", rows)
            database.execute("UPDATE totals SET waiting = waiting + ?", (len(rows),))
            too_many = self._total("waiting") - self._most
            if too_many > 0:
                # But those that are being sent, which may have arrived.
                gone = database.execute(
                    "DELETE FROM waiting WHERE id IN (SELECT id FROM waiting"
                    " WHERE id > coalesce((SELECT last FROM sending), 0) ORDER BY id LIMIT ?)",
                    (too_many,),
                ).rowcount
                database.execute("UPDATE totals SET waiting = waiting - ?, dropped = dropped + ?", (gone, gone))

    def next(self, most: int) -> Batch | None:
        """The batch that is to be sent now: the one before, as long as it is not done."""
        with self._transaction() as database:
            fixed = database.execute("SELECT key, last FROM sending").fetchone()
            if fixed is None:
                newest = "SELECT max(id) FROM (SELECT id FROM waiting ORDER BY id LIMIT ?)"
                last = database.execute(newest, (most,)).fetchone()[0]
                if last is None:
                    return None
                fixed = (str(uuid.uuid4()), last)
                database.execute("INSERT INTO sending (id, key, last) VALUES (1, ?, ?)", fixed)
            key, last = fixed
            rows = database.execute("SELECT event, value, time FROM waiting WHERE id <= ? ORDER BY id", (last,))
            return Batch(key, last, [Value(*row) for row in rows])

    def done(self, batch: Batch) -> None:
        """The batch was answered: it is forgotten."""
        with self._transaction() as database:
            gone = database.execute("DELETE FROM waiting WHERE id <= ?", (batch.last,)).rowcount
            database.execute("DELETE FROM sending")
            database.execute("UPDATE totals SET waiting = waiting - ?", (gone,))

    def forget_dropped(self, count: int) -> None:
        """Marks so many dropped values as reported."""
        self._database.execute("UPDATE totals SET dropped = dropped - ?", (count,))

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def _total(self, column: str) -> int:
        total: int = self._database.execute(f"SELECT {column} FROM totals").fetchone()[0]
        return total

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
