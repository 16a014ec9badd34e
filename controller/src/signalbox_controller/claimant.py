"""The identity of a controller that claims instances."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Claimant:
    """A controller as it claims instances: its name stays, and each run has a session of its own."""

    name: str
    session: str
    previous: str

    @classmethod
    def starting(cls, folder: Path) -> Self:
        """The controller of this folder as it starts: it takes over what its last run has claimed."""
        folder.mkdir(parents=True, exist_ok=True)
        name, session = folder / "name", folder / "session"
        if not name.exists():
            _write(name, str(uuid.uuid4()))
        previous = session.read_text() if session.exists() else ""
        _write(session, str(uuid.uuid4()))
        return cls(name.read_text(), session.read_text(), previous)


def _write(file: Path, text: str) -> None:
    """Writes a small file as a whole."""
    written = file.with_suffix(".new")
    written.write_text(text)
    written.replace(file)
