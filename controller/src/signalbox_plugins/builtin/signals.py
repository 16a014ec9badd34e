"""Shared by the plugins for brokers and devices: declaration of channels, parsing of numbers and times, counts of
rejected values, and errors for libraries that are not installed."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ..channels import ChannelDescriptor, ChannelDirection, ConversionSpec
from ..config import ConfigError, Field, Model
from ..errors import PluginConnectionError

_TRUE = {"true", "on", "yes"}
_FALSE = {"false", "off", "no"}
# Numbers up to these are seconds, milliseconds and microseconds since 1970 for times of this millennium; larger ones
# are nanoseconds.
_SECONDS, _MILLIS, _MICROS = 1e11, 1e14, 1e17
_MOST_KINDS = 20
# Of a payload's time against the controller's clock: the limit that the service has for other sources.
_MOST_AHEAD = timedelta(minutes=10)
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
# An empty JSON pointer is the whole document.
POINTER = "^(/.*)?$"
# Names and addresses of blanks reach nothing.
VISIBLE = "\\S"


@contextlib.contextmanager
def installed(plugin: str, packages: str) -> Iterator[None]:
    """Around imports of optional libraries. Raises `PluginConnectionError` that names the packages to install."""
    try:
        yield
    except ImportError as error:
        why = f"the library {error.name} is not installed: run 'pip install {packages}' for the controller's Python"
        raise PluginConnectionError(plugin, why) from error


class Signal(Model):
    """Settings that a channel has with every protocol."""

    channel: str = Field(
        min_length=1, max_length=100, pattern=VISIBLE, description="Id of the channel, unique in this instance"
    )
    name: str = Field(default="", max_length=200, description="Name shown to people; empty: the id")
    unit: str = Field(default="", max_length=50)
    min_value: float = Field(default=-1e9, description="Commands below are raised to it")
    max_value: float = Field(default=1e9, description="Commands above are lowered to it")
    scale: float = Field(default=1.0, description="The value is scale × the device's number + offset")
    offset: float = 0.0

    def descriptor(self, is_writable: bool) -> ChannelDescriptor:
        """The channel that these settings describe. Raises `ConfigError`."""
        if self.scale == 0 or self.min_value > self.max_value:
            raise ConfigError(f"{self.channel}: scale must not be 0, and min_value not above max_value")
        is_plain = (self.scale, self.offset) == (1.0, 0.0)
        params = {"scale": self.scale, "offset": self.offset}
        conversion = ConversionSpec() if is_plain else ConversionSpec("linear", params)
        return ChannelDescriptor(
            id=self.channel,
            name=self.name or self.channel,
            direction=ChannelDirection.BIDIRECTIONAL if is_writable else ChannelDirection.INPUT,
            unit=self.unit,
            min_value=self.min_value,
            max_value=self.max_value,
            read_conversion=conversion,
            write_conversion=conversion,
        )


def descriptors(signals: list[tuple[Signal, bool]]) -> list[ChannelDescriptor]:
    """The channels of signals, each with whether it takes commands. Raises `ConfigError` for a repeated id."""
    for id, count in Counter(signal.channel for signal, _ in signals).items():
        if count > 1:
            raise ConfigError(f"{id}: is the id of {count} channels; each needs its own")
    return [signal.descriptor(is_writable) for signal, is_writable in signals]


class Unreadable(ValueError):
    """A payload without a usable number or time; the message says why."""


def read_json(payload: bytes) -> Any:
    """Parses JSON. Raises `Unreadable`."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None


def at_pointer(value: Any, pointer: str) -> Any:
    """The part of a JSON value at a pointer (RFC 6901). Raises `Unreadable`."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(token)] if isinstance(value, list) and token.isdecimal() else value[token]
        except (KeyError, IndexError, TypeError, ValueError):
            raise Unreadable(f"there is nothing at {pointer}") from None
    return value


def number(value: Any) -> float:
    """The number of a value or of its text; on and off, true and false are 1 and 0. Raises `Unreadable`."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return float(word in _TRUE)
        # Python reads 1_000 and the digits of all scripts; devices do not write them.
        value = value if value.isascii() and "_" not in value else math.nan
    try:
        found = float(value) if isinstance(value, (bool, int, float, str)) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise Unreadable("there is no finite number")
    return found


def moment(value: Any) -> datetime:
    """The time of a value: ISO 8601 (UTC without an offset), or a count since 1970. Raises `Unreadable`."""
    try:
        if isinstance(value, str) and not value.strip().replace(".", "", 1).isdecimal():
            time = datetime.fromisoformat(value.strip())
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        if isinstance(value, bool):
            raise Unreadable("its time cannot be parsed")
        count = number(value)
        divisor = 1.0 if count < _SECONDS else 1e3 if count < _MILLIS else 1e6 if count < _MICROS else 1e9
        return datetime.fromtimestamp(count / divisor, UTC)
    except (ValueError, OverflowError, OSError):
        raise Unreadable("its time cannot be parsed") from None


def plausible(time: datetime, arrival: datetime) -> datetime:
    """`time`, unless the sender's clock is obviously wrong. Raises `Unreadable`."""
    if time < _FIRST_TIME or time - arrival > _MOST_AHEAD:
        raise Unreadable("its time is before 1970 or more than 10 minutes ahead of the controller's clock")
    return time


class Rejections:
    """Counts rejected values by source and reason, for the status of the instance."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, source: str, reason: object) -> None:
        """Counts one value. Beyond a number of kinds, the rest is one kind, so that memory is bounded."""
        key = (source[:200], str(reason))
        known = key in self._counts or len(self._counts) < _MOST_KINDS
        self._counts[key if known else ("other sources", "")] += 1

    def __str__(self) -> str:
        """The most frequent kinds; empty if no value was rejected."""
        kinds = [
            f"{count} {'value' if count == 1 else 'values'} of {source} rejected{': ' if reason else ''}{reason}"
            for (source, reason), count in self._counts.most_common(3)
        ]
        return "; ".join(kinds)
