"""Parts that the plugins for brokers and devices share: how a channel is declared, and how texts and numbers are read."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from ..channels import ChannelDescriptor, ChannelDirection, ConversionSpec
from ..config import ConfigError, Field, Model

_TRUE = {"true", "on", "yes"}
_FALSE = {"false", "off", "no"}
# Numbers up to these are seconds, milliseconds and microseconds since 1970 for times of this millennium; larger ones
# are nanoseconds.
_SECONDS, _MILLIS, _MICROS = 1e11, 1e14, 1e17
_MOST_KINDS = 20


class Signal(Model):
    """What every line of values of a device has, whatever the device speaks."""

    channel: str = Field(min_length=1, max_length=100, description="Id of the channel, unique in this instance")
    name: str = Field(default="", max_length=200, description="What people call it; otherwise its id")
    unit: str = Field(default="", max_length=50)
    min_value: float = Field(default=-1e9, description="Commands below are raised to it")
    max_value: float = Field(default=1e9, description="Commands above are lowered to it")
    scale: float = Field(default=1.0, description="The value is scale × the device's number + offset")
    offset: float = 0.0

    def descriptor(self, is_writable: bool) -> ChannelDescriptor:
        """The channel that it is."""
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
    """The channels of signals, each with whether it takes commands. Raises `ConfigError` for an id that is there
    twice."""
    for id, count in Counter(signal.channel for signal, _ in signals).items():
        if count > 1:
            raise ConfigError(f"{id}: is the id of {count} channels; each needs its own")
    return [signal.descriptor(is_writable) for signal, is_writable in signals]


class Unreadable(ValueError):
    """A text or a value that holds no number or no time."""


def read_json(payload: bytes) -> Any:
    """What JSON says; raises `Unreadable`."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None


def at_pointer(value: Any, pointer: str) -> Any:
    """The part of a JSON value that a pointer leads to (RFC 6901); raises `Unreadable`."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(token)] if isinstance(value, list) and token.isdecimal() else value[token]
        except (KeyError, IndexError, TypeError):
            raise Unreadable(f"it has nothing at {pointer}") from None
    return value


def number(value: Any) -> float:
    """The number that a value or its text is; on and off, true and false are 1 and 0. Raises `Unreadable`."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return float(word in _TRUE)
    try:
        found = float(value) if isinstance(value, (bool, int, float, str)) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise Unreadable("there is no finite number")
    return found


def moment(value: Any) -> datetime:
    """The time that a value says: ISO 8601 (UTC unless it says otherwise), or a count since 1970. Raises `Unreadable`."""
    try:
        if isinstance(value, str) and not value.strip().replace(".", "", 1).isdecimal():
            time = datetime.fromisoformat(value.strip())
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        count = number(value)
        divisor = 1.0 if count < _SECONDS else 1e3 if count < _MILLIS else 1e6 if count < _MICROS else 1e9
        return datetime.fromtimestamp(count / divisor, UTC)
    except (ValueError, OverflowError, OSError):
        raise Unreadable("its time cannot be read") from None


class Complaints:
    """Counts what could not be read by place and reason, so that people are told once of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, place: str, reason: object) -> None:
        """Counts one more; of many kinds only some are told apart."""
        key = (place, str(reason))
        known = key in self._counts or len(self._counts) < _MOST_KINDS
        self._counts[key if known else ("others", "")] += 1

    def __str__(self) -> str:
        """One sentence for each of the most frequent kinds."""
        kinds = [
            f"{count} values of {place} were not taken{': ' if reason else ''}{reason}"
            for (place, reason), count in self._counts.most_common(3)
        ]
        return "; ".join(kinds)
