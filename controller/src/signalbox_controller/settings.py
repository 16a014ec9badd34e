"""The settings of the controller, read at its start."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """All of it; times in seconds."""

    url: str
    token: str
    state: Path
    poll: float = 1.0
    sync: float = 10.0
    timeout: float = 30.0
    batch: int = 500
    buffer: int = 1_000_000
    telemetry: str = "websocket"
    instances: frozenset[str] = frozenset()

    @property
    def buffer_file(self) -> Path:
        """Where values wait."""
        return self.state / "buffer.sqlite"


class SettingsError(Exception):
    """A setting that is missing or wrong; the message says what to do."""


def read(arguments: list[str], environment: dict[str, str] | None = None) -> Settings:
    """The settings from the command line and the environment."""
    environment = dict(os.environ) if environment is None else environment
    parser = argparse.ArgumentParser("signalbox-controller", description="Runs the plugin instances of a Signalbox.")
    add = parser.add_argument
    add("--url", default=environment.get("SIGNALBOX_URL", "http://127.0.0.1:8080"), help="where Signalbox is")
    add("--token-file", type=Path, help="file with an API token; otherwise SIGNALBOX_TOKEN is used")
    add("--state", type=Path, default=Path("controller-state"), help="folder for the buffer and for packages")
    add(
        "--poll",
        type=float,
        default=1.0,
        help="seconds between two looks at outputs, and between values unless configured",
    )
    add("--sync", type=float, default=10.0, help="seconds between two looks at the list of instances")
    add("--batch", type=int, default=500, help="values sent at once, up to 10000")
    add("--buffer", type=int, default=1_000_000, help="values kept while Signalbox is away; the oldest go first")
    add(
        "--telemetry",
        choices=("websocket", "http"),
        default="websocket",
        help="how values are sent: over a WebSocket, and over HTTP while there is none, or over HTTP alone",
    )
    add("--instance", action="append", default=[], help="run only the instance of this name; may be repeated")
    given = parser.parse_args(arguments)
    token = environment.get("SIGNALBOX_TOKEN", "")
    if given.token_file is not None:
        try:
            token = given.token_file.read_text()
        except OSError as error:
            raise SettingsError(f"the token file cannot be read: {error}") from error
    if not token.strip():
        raise SettingsError(
            "there is no API token: set SIGNALBOX_TOKEN or --token-file (make one with POST /api/v1/tokens)"
        )
    if not all("!" <= letter <= "~" for letter in token.strip()):
        raise SettingsError("the API token holds a sign that no token has, such as a space or a second line")
    if not given.url.startswith(("http://", "https://")):
        raise SettingsError("--url must begin with http:// or https://")
    if (
        given.poll < 0.05
        or not 0.05 <= given.sync <= 15
        or not 1 <= given.batch <= 10_000
        or given.buffer < given.batch
    ):
        raise SettingsError(
            "--poll must be at least 0.05, --sync 0.05 to 15, --batch 1 to 10000, --buffer at least --batch"
        )
    return Settings(
        url=given.url.rstrip("/"),
        token=token.strip(),
        state=given.state,
        poll=given.poll,
        sync=given.sync,
        batch=given.batch,
        buffer=given.buffer,
        telemetry=given.telemetry,
        instances=frozenset(given.instance),
    )
