"""Signalbox as the controller sees it: its HTTP interface."""

from __future__ import annotations

import email.utils
import functools
import http.client
import json
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from .buffer import Batch
from .claimant import Claimant

_PAGE = 100
_MOST_PAGES = 10
_MAX_WHEEL = 50 << 20
# Answers of Signalbox to values that it will never take. Others are not about the values.
_ABOUT_VALUES = (400, 413, 415, 422)


class Away(Exception):
    """Signalbox does not answer, or not now; the same call may be made again after `seconds`."""

    def __init__(self, why: str, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.seconds = seconds


class Refused(Exception):
    """Signalbox says no; the same call will be answered the same."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{status}: {why}")
        self.status = status


@dataclass(frozen=True)
class Channel:
    """A channel of an instance, and the event that it is linked to."""

    id: str
    is_output: bool
    event: str | None
    is_input: bool = False


@dataclass(frozen=True)
class Instance:
    """A plugin instance that is to be run."""

    id: str
    plugin: str
    name: str
    demo: bool
    config: str | None
    channels: tuple[Channel, ...]


@dataclass(frozen=True)
class Package:
    """An uploaded wheel."""

    id: str
    sha256: str
    plugins: tuple[str, ...]


@dataclass(frozen=True)
class Latest:
    """The newest value of an event."""

    value: float
    time: str


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _understood(call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A proxy may answer for Signalbox with a page about its maintenance, which counts as no answer."""

    @functools.wraps(call)
    def understood(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return call(*arguments, **named)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Away(f"the answer is not one of Signalbox ({type(error).__name__}: {error})") from error

    return understood


class Service:
    """Calls block; each thread has a connection of its own, which is kept open."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._token = token
        self._timeout = timeout
        self._connections = threading.local()

    @_understood
    def instances(self) -> list[Instance]:
        """All enabled instances with their channels."""
        found: list[Instance] = []
        for page in range(1, 1000):
            answer = self._json("GET", f"/api/v1/plugins?enabled=true&page={page}&page_size={_PAGE}")
            found += [_instance(item) for item in answer["data"]]
            if page * _PAGE >= answer["total"]:
                break
        return found

    @_understood
    def claim(self, claimant: Claimant, instances: list[str]) -> set[str]:
        """Claims these instances, and no others any more, for half a minute; gives back those that it may run. Raises
        `Refused` with 409 when another controller runs under this name."""
        names = {"controller": claimant.name, "session": claimant.session, "previous_session": claimant.previous}
        body = json.dumps({**{key: name for key, name in names.items() if name}, "instances": instances}).encode()
        return set(json.loads(self._call("POST", "/api/v1/plugins/claims", body))["instances"])

    @_understood
    def packages(self) -> list[Package]:
        """All uploaded packages."""
        answer = self._json("GET", "/api/v1/plugins/packages")
        return [Package(item["public_id"], item["sha256"], tuple(item["plugin_ids"])) for item in answer]

    def wheel(self, package: Package) -> bytes:
        """The wheel of a package."""
        return self._call("GET", f"/api/v1/plugins/packages/{package.id}/wheel", most=_MAX_WHEEL)

    @_understood
    def latest(self) -> tuple[dict[str, Latest], datetime]:
        """The newest value of every event, and the service's time."""
        answer = self._json("GET", "/api/v1/datapoints/latest")
        return {item["event_public_id"]: _latest(item) for item in answer}, self._connections.time

    @_understood
    def since(self, event: str, time: datetime) -> list[Latest]:
        """The values of an event from `time` on, newest first, up to a limit."""
        found: list[Latest] = []
        query = urllib.parse.urlencode({"event_public_id": event, "from": time.isoformat(), "page_size": _PAGE})
        for page in range(1, _MOST_PAGES + 1):
            answer = self._json("GET", f"/api/v1/datapoints?{query}&page={page}")
            found += [_latest(item) for item in answer["data"]]
            if len(answer["data"]) < _PAGE:
                break
        return found

    @_understood
    def send(self, batch: Batch) -> Counter[str]:
        """Sends values; gives back how many were not taken, by event and reason."""
        body = json.dumps({"datapoints": points(batch)}).encode()
        try:
            content = self._call("POST", "/api/v1/datapoints/batch", body, {"Idempotency-Key": batch.key})
        except Refused as error:
            if error.status in _ABOUT_VALUES:
                raise
            raise Away(str(error)) from error
        return untaken(batch, json.loads(content).get("rejected", []))

    def report(self, instance: str, status: str, error: str | None) -> None:
        """Says how an instance is."""
        body = json.dumps({"status": status, "error_message": error[:1000] if error else None}).encode()
        self._call("PUT", f"/api/v1/plugins/{instance}/status", body)

    def log(self, content: str, kind: str) -> None:
        """Writes an entry for people to read."""
        body = json.dumps({"content": content[:500], "logging_type": kind, "source": "controller"}).encode()
        self._call("POST", "/api/v1/logging", body)

    def _json(self, method: str, path: str) -> Any:
        return json.loads(self._call(method, path))

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        most: int = 64 << 20,
    ) -> bytes:
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        was_open = getattr(self._connections, "open", None) is not None
        try:
            connection = self._connection()
            connection.request(method, self._url.path + path, body, sent)
            answer = connection.getresponse()
            content = answer.read(most + 1)
        except (OSError, http.client.HTTPException) as error:
            self._forget()
            if was_open:
                # The idle connection may have been closed; a repeated request is recognised.
                return self._call(method, path, body, headers, most)
            raise Away(f"{type(error).__name__}: {error}") from error
        if len(content) > most:
            self._forget()
            raise Refused(answer.status, "the answer is too long")
        if 300 <= answer.status < 400:
            raise Away(f"{answer.status}: it is at another address, {answer.getheader('Location')}")
        if answer.status >= 500 or answer.status in (401, 403, 408, 429):
            # Rights can be given again, so measured values are kept until then.
            raise Away(f"{answer.status} {_detail(content)}", _seconds(answer.getheader("Retry-After")))
        if answer.status >= 400:
            raise Refused(answer.status, _detail(content))
        self._connections.time = _time(answer.getheader("Date"))
        return content

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._connections, "open", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            connection = kind(self._url.netloc, timeout=self._timeout)
            self._connections.open = connection
        return connection

    def _forget(self) -> None:
        connection = getattr(self._connections, "open", None)
        if connection is not None:
            connection.close()
            self._connections.open = None


def _latest(item: dict[str, Any]) -> Latest:
    return Latest(float(item["value"]), item["timestamp"])


def _time(date: str | None) -> datetime:
    try:
        return email.utils.parsedate_to_datetime(date or "")
    except ValueError:
        return datetime.now(UTC)


def points(batch: Batch) -> list[dict[str, Any]]:
    """The values of a batch as Signalbox reads them."""
    return [{"event_public_id": value.event, "value": value.value, "timestamp": value.time} for value in batch.values]


def untaken(batch: Batch, rejected: list[dict[str, Any]]) -> Counter[str]:
    """How many values of a batch were not taken, by event and reason."""
    return Counter(f"event {batch.values[item['index']].event}: {item['reason']}" for item in rejected)


def _instance(item: dict[str, Any]) -> Instance:
    channels = tuple(
        Channel(
            mapping["channel_id"],
            mapping["direction"] != "input",
            mapping["event_public_id"],
            mapping["direction"] != "output",
        )
        for mapping in item["channel_mappings"]
    )
    return Instance(
        item["public_id"], item["plugin_id"], item["instance_name"], item["demo_mode"], item["config_json"], channels
    )


def _detail(content: bytes) -> str:
    try:
        return str(json.loads(content)["detail"])[:300]
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def _seconds(text: str | None) -> float:
    try:
        return min(max(float(text or 0), 0.0), 300.0)
    except ValueError:
        return 0.0
