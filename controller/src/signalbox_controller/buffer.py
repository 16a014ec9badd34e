"""Unsent values, on disk: measured values survive an outage of the service and a restart of the controller.

The processes of instances put in what they have read; the controller takes it out. The file also holds state that has
to survive a restart: messages that their sender may repeat, and which values were measured at a device. A batch is fixed
before it is sent and sent again as it is until it is answered, with the same key, so that the service takes it once.
Values leave in the order in which they came.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LOCK_TIMEOUT_SECONDS = 30.0
# Measured values per event that are recorded, so that they are not taken for orders.
_OWN_OF_EVENT = 5000


@dataclass(frozen=True)
class Value:
    """A value of an event at a time (ISO 8601)."""

    event: str
    value: float
    time: str


@dataclass(frozen=True)
class Origin:
    """Source of values: the instance, their messages (number and digest), and the events that also hold orders."""

    instance: str
    messages: tuple[tuple[int, bytes], ...] = ()
    shared: frozenset[str] = frozenset()


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
CREATE TABLE IF NOT EXISTS received (
    instance TEXT NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (instance, number)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (
    instance TEXT NOT NULL, name TEXT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (instance, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS own (id INTEGER PRIMARY KEY, event TEXT NOT NULL, time TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS own_of_event ON own (event, time);
CREATE TABLE IF NOT EXISTS newest (
    instance TEXT NOT NULL, event TEXT NOT NULL, time TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (instance, event)
    ) WITHOUT ROWID;
INSERT OR IGNORE INTO totals SELECT 1, count(*), 0 FROM waiting;
"""


class Buffer:
    """The values that wait; at most `most`, of which the oldest go first. Several processes may have it open."""

    def __init__(self, path: Path, most: int, is_synced: bool = False) -> None:
        """`is_synced`: added values survive a power cut, too, since their sender deletes acknowledged ones."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._most = most
        self._database = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        # A process that is killed loses nothing in any case.
        self._database.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
        self._database.executescript(_SCHEMA)

    def __len__(self) -> int:
        return self._total("waiting")

    @property
    def dropped(self) -> int:
        """Number of values that were dropped for lack of room and have not been reported."""
        return self._total("dropped")

    def add(self, values: Iterable[Value], origin: Origin | None = None, only_if_room: bool = False) -> bool:
        """Adds values and the state of their origin, all or none. `only_if_room`: nothing is added, and the answer is
        False, if older values would have to be dropped; an empty buffer has room for any number."""
        rows = [(value.event, value.value, value.time) for value in values]
        with self._transaction() as database:
            waiting = self._total("waiting")
            if only_if_room and waiting and waiting + len(rows) > self._most:
                return False
            if origin is not None:
                self._note(database, rows, origin)
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
            return True

    def _note(self, database: sqlite3.Connection, rows: list[tuple[str, float, str]], origin: Origin) -> None:
        received = [(origin.instance, number, digest) for number, digest in origin.messages]
        database.executemany("INSERT OR REPLACE INTO received VALUES (?, ?, ?)", received)
        newest = {event: (origin.instance, event, time, value) for event, value, time in rows}
        database.executemany("INSERT OR REPLACE INTO newest VALUES (?, ?, ?, ?)", newest.values())
        own = [(event, time) for event, _, time in rows if event in origin.shared]
        database.executemany("INSERT INTO own (event, time) VALUES (?, ?)", own)
        for event in {event for event, _ in own}:
            oldest = "SELECT id FROM own WHERE event = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
            database.execute(
                f"DELETE FROM own WHERE event = ? AND id <= ({oldest})", (event, event, _OWN_OF_EVENT)
            )

    def is_own(self, event: str, time: str) -> bool:
        """Whether the value of this event and time (as added) was measured at a device."""
        found = self._database.execute("SELECT 1 FROM own WHERE event = ? AND time = ?", (event, time))
        return found.fetchone() is not None

    def newest(self, instance: str) -> dict[str, tuple[str, float]]:
        """Time and value of the last value of each event of an instance."""
        rows = self._database.execute("SELECT event, time, value FROM newest WHERE instance = ?", (instance,))
        return {event: (time, value) for event, time, value in rows}

    def has_received(self, instance: str, number: int, digest: bytes) -> bool:
        """Whether the values of this message were added."""
        found = self._database.execute(
            "SELECT 1 FROM received WHERE instance = ? AND number = ? AND digest = ?", (instance, number, digest)
        )
        return found.fetchone() is not None

    def forget_received(self, instance: str, messages: Iterable[tuple[int, bytes]] | None) -> None:
        """Deletes these messages of an instance; `None`: all."""
        with self._transaction() as database:
            if messages is None:
                database.execute("DELETE FROM received WHERE instance = ?", (instance,))
                return
            rows = [(instance, number, digest) for number, digest in messages]
            database.executemany("DELETE FROM received WHERE instance = ? AND number = ? AND digest = ?", rows)

    def recall(self, instance: str, name: str) -> str | None:
        """A note of an instance."""
        found = self._database.execute("SELECT note FROM notes WHERE instance = ? AND name = ?", (instance, name))
        row = found.fetchone()
        return None if row is None else str(row[0])

    def remember(self, instance: str, name: str, note: str) -> None:
        """Keeps a note of an instance."""
        self._database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (instance, name, note))

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
