"""The processes of a run: the service, its second gateway and the controller, and how they are started and killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent.parent
# Shared with the tests of the controller.
sys.path.append(str(TOP / "controller/tests"))

from ports import free_port  # noqa: E402

EMAIL, PASSWORD = "admin@example.org", "a password of devices"
SLOW = float(os.environ.get("SIGNALBOX_TEST_SLOWNESS", "1"))
# The devices and the service are on this machine: never through a proxy.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
BEGUN = time.monotonic()


class Failed(Exception):
    """A check that does not hold."""


def log(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:7.1f} s  {text}", flush=True)


def until(what: str, attempt: Callable[[], Any], seconds: float = 90) -> Any:
    """Waits until `attempt` gives something true."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        found = attempt()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Failed(f"not in time: {what}")
        time.sleep(0.1)


def millis() -> int:
    """The time as the devices note it."""
    return time.time_ns() // 1_000_000


def sources(*folders: str) -> str:
    """A path of modules: these, and the libraries of devices."""
    return os.pathsep.join(str(TOP / folder) for folder in (*folders, ".tools/devices", ".tools/clients"))


def children(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(id) for id in path.read_text().split()]
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Part:
    """A process that is stopped, killed and started again."""

    def __init__(self, name: str, command: list[str], folder: Path, **environment: str) -> None:
        self.name = name
        self._command = command
        self._log = folder / f"{name}.log"
        self._environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        self.process: subprocess.Popen[str] | None = None

    def start(self, **pipes: Any) -> None:
        with self._log.open("a") as errors:
            out = pipes or {"stdin": subprocess.DEVNULL, "stdout": errors}
            # Ctrl-C is for this program, which stops its parts in good order.
            self.process = subprocess.Popen(
                # It ends with this program, also when this is killed.
                ["setpriv", "--pdeathsig", "TERM", *self._command],
                env=self._environment,
                stderr=errors,
                text=True,
                start_new_session=True,
                **out,
            )

    def end(self, number: int) -> None:
        """Sends a signal and waits for the end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60 * SLOW)
            self.process = None

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:]) if self._log.exists() else ""


class Service:
    """The service, with one gateway in it for this program, and another one in front of the controller."""

    def __init__(self, program: str, folder: Path) -> None:
        self._folder, self._program = folder, program
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self.settings = {
            "SIGNALBOX_STORAGE__FOLDER": str(folder / "data"),
            "SIGNALBOX_LIMITS__REQUESTS_PER_MINUTE": "600000",
            "SIGNALBOX_LIMITS__REQUEST_BURST": "60000",
            "SIGNALBOX_ADMIN_EMAIL": EMAIL,
            "SIGNALBOX_ADMIN_PASSWORD": PASSWORD,
            "PATH": f"{TOP / '.tools/bin'}{os.pathsep}{os.environ['PATH']}",
        }
        up = {**self.settings, "SIGNALBOX_SERVER__ADDRESS": f"127.0.0.1:{port}"}
        self.inner = Part("service", [program, "up"], folder, **up)
        self.gateway_port = free_port()
        self.token = ""

    def start(self) -> Part:
        """Starts all of it; returns the gateway that may be killed."""
        self.inner.start()
        until("the service answers", self._log_in, 180)
        urls = {
            name: (self._folder / "data" / file).read_text().strip()
            for name, file in (("DATABASE_URL", "database-url"), ("NATS_URL", "nats-url"))
        }
        address = {"SIGNALBOX_SERVER__ADDRESS": f"127.0.0.1:{self.gateway_port}"}
        command = [self._program, "serve", "--role", "gateway"]
        gateway = Part("gateway", command, self._folder, **self.settings, **urls, **address)
        gateway.start()
        self.until_gateway_answers()
        return gateway

    def until_gateway_answers(self) -> None:
        def is_ready() -> bool:
            with contextlib.suppress(OSError), OPENER.open(f"http://127.0.0.1:{self.gateway_port}/readyz", timeout=5):
                return True
            return False

        until("the gateway answers", is_ready)

    def _log_in(self) -> bool:
        assert self.inner.process is not None
        if self.inner.process.poll() is not None:
            raise Failed("the service has ended")
        with contextlib.suppress(OSError), OPENER.open(f"{self._url}/readyz", timeout=5):
            self.token = self.post("/api/v1/auth/login", {"email": EMAIL, "password": PASSWORD})["access_token"]
        return bool(self.token)

    def call(self, path: str, body: Any = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers)
        try:
            with OPENER.open(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise Failed(f"{path}: {error.code} {error.read().decode(errors='replace')}") from error
            raise

    def post(self, path: str, body: Any) -> Any:
        return json.loads(self.call(path, body))

    def get(self, path: str) -> Any:
        return json.loads(self.call(path))

    def export(self) -> dict[str, list[tuple[datetime, float]]]:
        """All datapoints by event, in the order of their times."""
        found: dict[str, list[tuple[datetime, float]]] = {}
        for line in self.call("/api/v1/datapoints/export?format=ndjson").splitlines():
            point = json.loads(line)
            found.setdefault(point["event_public_id"], []).append((moment(point["timestamp"]), point["value"]))
        return found


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


class Controller(Part):
    """The controller and the processes of its instances."""

    def __init__(self, service: Service, token: str, folder: Path) -> None:
        self.state = folder / "controller"
        command = [
            sys.executable,
            "-m",
            "signalbox_controller",
            "--url",
            f"http://127.0.0.1:{service.gateway_port}",
            "--poll",
            "0.1",
            "--sync",
            "0.3",
            "--state",
            str(self.state),
        ]
        super().__init__(
            "controller", command, folder, PYTHONPATH=sources("controller/src", ".tools/python"), SIGNALBOX_TOKEN=token
        )

    def kill(self, with_instances: bool) -> set[tuple[str, datetime, float]]:
        """Kills it; returns event, time and value of what is in its buffer then."""
        assert self.process is not None
        instances = children(self.process.pid)
        self.process.kill()
        if with_instances:
            for id in instances:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(id, signal.SIGKILL)
        self.process.wait(60)
        self.process = None
        until("the instances end", lambda: not any(is_running(id) for id in instances))
        with contextlib.closing(sqlite3.connect(self.state / "buffer.sqlite")) as database:
            rows = database.execute("SELECT event, time, value FROM waiting").fetchall()
        return {(event, moment(time), value) for event, time, value in rows}
