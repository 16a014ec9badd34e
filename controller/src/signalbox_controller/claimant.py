"""The identity of a controller that claims instances."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path

_LOG = logging.getLogger("signalbox.controller")
# The limit of the service, in characters.
_LONGEST = 100


class Claimant:
    """A controller as it claims instances: its name stays, and each run has a session of its own.

    The file `session` holds the last session that has claimed something, since the next run names it to take over
    these claims. After a crash between the first claim and the write, the next run is refused until the claims lapse.
    """

    def __init__(self, folder: Path) -> None:
        """The controller of this folder as it starts. Raises `OSError` if its name cannot be written."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "session"
        self._is_confirmed = False
        name = _read(folder / "name")
        if not name:
            name = str(uuid.uuid4())
            _write(folder / "name", name)
        self.name = name
        self.session = str(uuid.uuid4())
        self.previous = _read(self._file)

    def confirm(self) -> None:
        """Notes that the service has accepted a claim of this session. One that cannot be written is tried again at the
        next claim."""
        if self._is_confirmed:
            return
        try:
            _write(self._file, self.session)
        except OSError as error:
            _LOG.warning("%s cannot be written: %s; after a restart, instances may wait for 30 s", self._file, error)
        else:
            self._is_confirmed = True


def _read(file: Path) -> str:
    """The text of a small file; empty if it is missing or damaged. After a power failure a file may be empty, or hold
    zeros."""
    try:
        with file.open("rb") as opened:
            text = opened.read(4 * _LONGEST + 1).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
    if text and len(text) <= _LONGEST and text.isprintable() and "\ufffd" not in text:
        return text
    _LOG.warning("%s is damaged and is written anew; instances may wait for 30 s", file)
    return ""


def _write(file: Path, text: str) -> None:
    """Writes a small file as a whole, so that it is there after a power failure."""
    written = file.with_suffix(".new")
    with written.open("w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    written.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
