"""Sparkplug B: payloads, and the state of edge nodes as a host application tracks it.

Field numbers and data types are those of the Sparkplug 3.0.0 specification, section 6.4. This module has no connection
of its own.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .signals import Rejections, Unreadable, moment, number, plausible

NAMESPACE = "spBv1.0"
# Least time between two rebirth requests to one node, which may ignore them.
_REBIRTH_SECONDS = 10.0
# Aliases of one node: bounds memory.
_MOST_ALIASES = 100_000
_BYTES, _BOOL, _STRING, _UINT32, _UINT64, _FLOAT, _DOUBLE, _MESSAGE = 12, 8, 9, 13, 4, 2, 1, 11
# Data types: widths of signed integers, which are encoded as unsigned ones; then the other numeric types.
_SIGNED = {1: 8, 2: 16, 3: 32, 4: 64}
_UNSIGNED = {5, 6, 7, 8}
_FLOAT_TYPE, _DOUBLE_TYPE, _BOOLEAN_TYPE = 9, 10, 11


@functools.cache
def _payload_class() -> Any:
    """The protobuf class of payloads, with the fields that a host needs."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="signalbox_sparkplug.proto", package="signalbox", syntax="proto2")
    payload = file.message_type.add(name="Payload")
    metric = payload.nested_type.add(name="Metric")
    for name, number_, kind in (
        ("name", 1, _STRING),
        ("alias", 2, _UINT64),
        ("timestamp", 3, _UINT64),
        ("datatype", 4, _UINT32),
        ("is_historical", 5, _BOOL),
        ("is_transient", 6, _BOOL),
        ("is_null", 7, _BOOL),
        ("int_value", 10, _UINT32),
        ("long_value", 11, _UINT64),
        ("float_value", 12, _FLOAT),
        ("double_value", 13, _DOUBLE),
        ("boolean_value", 14, _BOOL),
        ("string_value", 15, _STRING),
    ):
        metric.field.add(name=name, number=number_, type=kind, label=1)
    payload.field.add(name="timestamp", number=1, type=_UINT64, label=1)
    payload.field.add(name="metrics", number=2, type=_MESSAGE, label=3, type_name=".signalbox.Payload.Metric")
    payload.field.add(name="seq", number=3, type=_UINT64, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("signalbox.Payload"))


def decode(payload: bytes) -> Any:
    """Parses a payload. Raises `Unreadable`."""
    from google.protobuf.message import DecodeError

    try:
        return _payload_class().FromString(payload)
    except DecodeError:
        raise Unreadable("it is not a Sparkplug B payload") from None


def value_of(metric: Any, datatype: int) -> float | None:
    """The number of a metric; `None` for a null. Raises `Unreadable` for other types."""
    if metric.is_null:
        return None
    for name in ("double_value", "float_value", "boolean_value"):
        if metric.HasField(name):
            return number(getattr(metric, name))
    for name in ("int_value", "long_value"):
        if metric.HasField(name):
            return float(_signed(getattr(metric, name), datatype))
    raise Unreadable("the metric holds no number")


def _signed(raw: int, datatype: int) -> int:
    width = _SIGNED.get(datatype)
    if width is None:
        return raw
    raw &= (1 << width) - 1
    return raw - (1 << width) if raw >> (width - 1) else raw


class Node(NamedTuple):
    """An edge node."""

    group: str
    node: str

    def __str__(self) -> str:
        return f"{self.group}/{self.node}"


class Place(NamedTuple):
    """Address of a metric; `device` is empty for the edge node's own."""

    node: Node
    device: str
    metric: str

    def __str__(self) -> str:
        return "/".join(part for part in (*self.node, self.device, self.metric) if part)


@dataclass
class _State:
    """State of an edge node."""

    is_online: bool = False
    # A message is missing, perhaps a birth with other aliases: these are unusable until the next birth.
    is_stale: bool = False
    since: datetime | None = None
    birth: int | None = None
    sequence: int | None = None
    aliases: dict[int, tuple[str, str]] = field(default_factory=dict)
    types: dict[tuple[str, str], int] = field(default_factory=dict)
    dead_devices: set[str] = field(default_factory=set)
    requested: float | None = None


@dataclass(frozen=True)
class MetricValue:
    """A number of a metric with its time of measurement."""

    place: Place
    value: float
    time: datetime


class Host:
    """Tracks the edge nodes of `places`."""

    def __init__(self, places: Iterable[Place], clock: Callable[[], float], rejections: Rejections) -> None:
        """`clock` counts seconds."""
        self._places = frozenset(places)
        self._nodes = {place.node: _State() for place in self._places}
        self._devices = {(place.node, place.device) for place in self._places}
        self._clock = clock
        self._rejections = rejections
        self._due: list[Node] = []

    def topics(self) -> list[str]:
        """The filters to subscribe to."""
        return [f"{NAMESPACE}/{node.group}/+/{node.node}{tail}" for node in self._nodes for tail in ("", "/+")]

    def reset(self) -> None:
        """After a new connection: messages may have been missed, so that every node needs a rebirth."""
        for node, state in self._nodes.items():
            state.requested = None
            self._lose_track(node, state)

    def request_missing(self) -> None:
        """Requests births from nodes that are offline or out of sequence, within the limit of requests."""
        for node, state in self._nodes.items():
            if not state.is_online or state.is_stale:
                self._request_rebirth(node)

    def rebirths(self) -> list[tuple[str, bytes]]:
        """Rebirth requests that are due: topic and payload."""
        due, self._due = self._due, []
        command = _payload_class()(timestamp=_millis(datetime.now(UTC)))
        command.metrics.add(
            name="Node Control/Rebirth", timestamp=command.timestamp, datatype=_BOOLEAN_TYPE, boolean_value=True
        )
        return [(f"{NAMESPACE}/{node.group}/NCMD/{node.node}", command.SerializeToString()) for node in due]

    def problem(self) -> str | None:
        """The nodes and devices that are offline, and since when."""
        away = [
            f"{node} is offline since {state.since:%Y-%m-%d %H:%M:%S} UTC"
            if state.since
            else f"{node} has not sent a birth yet"
            for node, state in self._nodes.items()
            if not state.is_online
        ]
        away += [
            f"{node}/{device} is offline"
            for node, state in self._nodes.items()
            for device in sorted(state.dead_devices)
            if state.is_online
        ]
        return "; ".join(away[:10]) or None

    def handle(self, topic: str, payload: bytes, arrival: datetime) -> list[MetricValue]:
        """Processes a message and returns the numbers of configured metrics. Raises `Unreadable`."""
        levels = topic.split("/")
        if len(levels) < 4:
            return []
        node, kind, device = Node(levels[1], levels[3]), levels[2], "/".join(levels[4:])
        state = self._nodes.get(node)
        if state is None or kind not in ("NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"):
            return []
        message = decode(payload)
        if kind == "NDEATH":
            self._note_death(state, message, arrival)
            return []
        if kind == "NBIRTH":
            state.is_online, state.is_stale, state.since = True, False, None
            state.birth, state.sequence = _birth_number(message), None
            state.aliases, state.types, state.dead_devices = {}, {}, set()
        self._check_sequence(node, state, message)
        if kind == "DDEATH":
            if (node, device) in self._devices:
                state.dead_devices.add(device)
            return []
        if kind == "DBIRTH":
            state.dead_devices.discard(device)
        values = []
        for metric in message.metrics:
            if kind in ("NBIRTH", "DBIRTH"):
                self._note_birth(node, state, device, metric)
            place = self._place(node, state, device, metric)
            value = self._value(place, state, metric, message, arrival) if place in self._places else None
            if value is not None:
                values.append(value)
        return values

    def command(self, place: Place, value: float) -> tuple[str, bytes]:
        """The message that writes `value` to a metric: topic and payload."""
        node, device, name = place
        datatype = self._nodes[node].types.get((device, name), _DOUBLE_TYPE)
        command = _payload_class()(timestamp=_millis(datetime.now(UTC)))
        metric = command.metrics.add(name=name, timestamp=command.timestamp, datatype=datatype)
        if datatype == _BOOLEAN_TYPE:
            metric.boolean_value = value != 0
        elif datatype == _FLOAT_TYPE:
            metric.float_value = _to_float(value)
        elif datatype in _SIGNED or datatype in _UNSIGNED:
            wide = datatype in (4, 8)
            setattr(metric, "long_value" if wide else "int_value", round(value) & ((1 << (64 if wide else 32)) - 1))
        else:
            metric.datatype, metric.double_value = _DOUBLE_TYPE, value
        kind, tail = ("DCMD", f"/{device}") if device else ("NCMD", "")
        return f"{NAMESPACE}/{node.group}/{kind}/{node.node}{tail}", command.SerializeToString()

    def _check_sequence(self, node: Node, state: _State, message: Any) -> None:
        """Every message but a node's death has the next sequence number, modulo 256."""
        if not state.is_online or state.is_stale:
            self._request_rebirth(node)
        elif message.HasField("seq") and state.sequence is not None and message.seq != (state.sequence + 1) % 256:
            self._lose_track(node, state)
        state.sequence = message.seq if message.HasField("seq") else state.sequence

    def _lose_track(self, node: Node, state: _State) -> None:
        state.is_stale, state.sequence, state.aliases = True, None, {}
        self._request_rebirth(node)

    def _note_death(self, state: _State, message: Any, arrival: datetime) -> None:
        number_ = _birth_number(message)
        # The will of a replaced connection arrives after the birth of its successor, with an earlier number.
        if state.is_online and number_ is not None and state.birth is not None and number_ != state.birth:
            return
        state.is_online, state.since, state.sequence = False, arrival, None

    def _request_rebirth(self, node: Node) -> None:
        state, now = self._nodes[node], self._clock()
        if state.requested is None or now - state.requested >= _REBIRTH_SECONDS:
            state.requested = now
            self._due.append(node)

    def _note_birth(self, node: Node, state: _State, device: str, metric: Any) -> None:
        if (node, device, metric.name) in self._places:
            state.types[device, metric.name] = metric.datatype
        if metric.HasField("alias") and len(state.aliases) < _MOST_ALIASES:
            state.aliases[metric.alias] = (device, metric.name)

    def _place(self, node: Node, state: _State, device: str, metric: Any) -> Place | None:
        if metric.name or not metric.HasField("alias"):
            return Place(node, device, metric.name)
        known = state.aliases.get(metric.alias)
        if known is None or known[0] != device:
            if len(state.aliases) < _MOST_ALIASES:
                self._request_rebirth(node)
            return None
        return Place(node, *known)

    def _value(self, place: Place, state: _State, metric: Any, message: Any, arrival: datetime) -> MetricValue | None:
        try:
            value = value_of(metric, metric.datatype or state.types.get((place.device, place.metric), 0))
            millis = metric.timestamp if metric.HasField("timestamp") else message.timestamp
            time = plausible(moment(millis / 1000), arrival) if millis else arrival
        except Unreadable as error:
            self._rejections.add(str(place), error)
            return None
        return None if value is None else MetricValue(place, value, time)


def _birth_number(message: Any) -> int | None:
    for metric in message.metrics:
        if metric.name == "bdSeq":
            return int(metric.long_value if metric.HasField("long_value") else metric.int_value)
    return None


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _to_float(value: float) -> float:
    """The nearest number of 32 bits; infinities for those beyond."""
    try:
        unpacked: float = struct.unpack("f", struct.pack("f", value))[0]
        return unpacked
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
