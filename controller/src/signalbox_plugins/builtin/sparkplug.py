"""Sparkplug B: its payloads, and the state of its edge nodes as a host application sees them.

Field numbers and data types are those of the Sparkplug 3.0.0 specification, section 6.4. Nothing here talks to a broker.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .signals import Complaints, Unreadable, number

NAMESPACE = "spBv1.0"
# Requests for a birth to one node, in seconds: a node that answers none of them is not flooded.
_BETWEEN_REBIRTHS = 10.0
_BYTES, _BOOL, _STRING, _UINT32, _UINT64, _FLOAT, _DOUBLE, _MESSAGE = 12, 8, 9, 13, 4, 2, 1, 11
# Data types: widths of the signed whole numbers, which are sent as unsigned ones, then the others that hold a number.
_SIGNED = {1: 8, 2: 16, 3: 32, 4: 64}
_UNSIGNED = {5, 6, 7, 8}
_FLOAT_TYPE, _DOUBLE_TYPE, _BOOLEAN_TYPE = 9, 10, 11


@functools.cache
def _payload_class() -> Any:
    """The message class of payloads, with the fields that a host needs."""
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
    """The payload that bytes hold; raises `Unreadable`."""
    from google.protobuf.message import DecodeError

    try:
        return _payload_class().FromString(payload)
    except DecodeError:
        raise Unreadable("it is no Sparkplug B payload") from None


def value_of(metric: Any, datatype: int) -> float | None:
    """The number of a metric; `None` for a null. Raises `Unreadable` for one that holds none."""
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
    """Where a metric is: of a device, or of the edge node itself without one."""

    node: Node
    device: str
    metric: str


@dataclass
class _State:
    """What is known of an edge node."""

    is_online: bool = False
    since: datetime | None = None
    birth: int | None = None
    sequence: int | None = None
    aliases: dict[int, tuple[str, str]] = field(default_factory=dict)
    types: dict[tuple[str, str], int] = field(default_factory=dict)
    dead_devices: set[str] = field(default_factory=set)
    asked: float | None = None


@dataclass(frozen=True)
class MetricValue:
    """A number of a metric, and when it was measured."""

    place: Place
    value: float
    time: datetime | None


class Host:
    """Follows the edge nodes that `places` lie in."""

    def __init__(self, places: Iterable[Place], clock: Callable[[], float], complaints: Complaints) -> None:
        """`clock` counts seconds."""
        self._places = frozenset(places)
        self._nodes = {place.node: _State() for place in self._places}
        self._clock = clock
        self._complaints = complaints
        self._due: list[Node] = []

    def topics(self) -> list[str]:
        """The filters to subscribe to."""
        return [f"{NAMESPACE}/{node.group}/+/{node.node}{tail}" for node in self._nodes for tail in ("", "/+")]

    def ask_all(self) -> None:
        """Nothing is known any more: every node is to say what it has."""
        for node, state in self._nodes.items():
            state.sequence, state.asked = None, None
            self._ask(node)

    def ask_missing(self) -> None:
        """Asks the nodes that have not been heard of, each as seldom as any."""
        for node, state in self._nodes.items():
            if not state.is_online:
                self._ask(node)

    def rebirths(self) -> list[tuple[str, bytes]]:
        """Requests for births that are to be sent now: topic and payload."""
        due, self._due = self._due, []
        command = _payload_class()(timestamp=_millis(datetime.now(UTC)))
        command.metrics.add(
            name="Node Control/Rebirth", timestamp=command.timestamp, datatype=_BOOLEAN_TYPE, boolean_value=True
        )
        return [(f"{NAMESPACE}/{node.group}/NCMD/{node.node}", command.SerializeToString()) for node in due]

    def problem(self) -> str | None:
        """Which nodes and devices are away, since when."""
        away = [
            f"{node} is offline since {state.since:%Y-%m-%d %H:%M:%S} UTC"
            if state.since
            else f"{node} has not answered yet"
            for node, state in self._nodes.items()
            if not state.is_online
        ]
        used = {(place.node, place.device) for place in self._places}
        away += [
            f"{node}/{device} is offline"
            for node, state in self._nodes.items()
            for device in sorted(state.dead_devices)
            if state.is_online and (node, device) in used
        ]
        return "; ".join(away[:10]) or None

    def handle(self, topic: str, payload: bytes) -> list[MetricValue]:
        """Takes a message; gives back the numbers in it that are followed. Raises `Unreadable`."""
        _, group, kind, name, *rest = topic.split("/")
        node, device = Node(group, name), "/".join(rest)
        state = self._nodes.get(node)
        if state is None or kind not in ("NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"):
            return []
        message = decode(payload)
        if kind == "NDEATH":
            self._die(state, message)
            return []
        self._count(node, state, kind, message)
        if kind == "NBIRTH":
            state.is_online, state.since, state.asked = True, None, None
            state.birth = _birth_number(message)
            state.aliases, state.types, state.dead_devices = {}, {}, set()
        elif not state.is_online:
            # It lives, but which aliases it uses is not known.
            self._ask(node)
        if kind == "DDEATH":
            state.dead_devices.add(device)
            return []
        if kind == "DBIRTH":
            state.dead_devices.discard(device)
        return [
            found
            for metric in message.metrics
            if (found := self._value(node, state, device, metric, message, kind)) is not None
        ]

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

    def _count(self, node: Node, state: _State, kind: str, message: Any) -> None:
        """Every message but a death of the node has the number after that of the message before."""
        if not message.HasField("seq"):
            return
        if kind != "NBIRTH" and (state.sequence is None or message.seq != (state.sequence + 1) % 256):
            self._ask(node)
        state.sequence = message.seq

    def _die(self, state: _State, message: Any) -> None:
        number_ = _birth_number(message)
        # The will of a connection that was replaced arrives late, and means an earlier birth.
        if state.is_online and number_ is not None and state.birth is not None and number_ != state.birth:
            return
        state.is_online, state.since, state.sequence = False, datetime.now(UTC), None

    def _ask(self, node: Node) -> None:
        state, now = self._nodes[node], self._clock()
        if state.asked is None or now - state.asked >= _BETWEEN_REBIRTHS:
            state.asked = now
            self._due.append(node)

    def _value(
        self, node: Node, state: _State, device: str, metric: Any, message: Any, kind: str
    ) -> MetricValue | None:
        name = metric.name
        if kind in ("NBIRTH", "DBIRTH"):
            state.types[device, name] = metric.datatype
            if metric.HasField("alias"):
                state.aliases[metric.alias] = (device, name)
        elif not name and metric.HasField("alias"):
            known = state.aliases.get(metric.alias)
            if known is None:
                self._ask(node)
                return None
            name = known[1]
        place = Place(node, device, name)
        if place not in self._places:
            return None
        try:
            value = value_of(metric, metric.datatype or state.types.get((device, name), 0))
        except Unreadable as error:
            self._complaints.add(f"{node}/{device}/{name}".replace("//", "/"), error)
            return None
        if value is None:
            return None
        millis = metric.timestamp if metric.HasField("timestamp") else message.timestamp
        return MetricValue(place, value, _time(millis))


def _birth_number(message: Any) -> int | None:
    for metric in message.metrics:
        if metric.name == "bdSeq":
            return int(metric.long_value if metric.HasField("long_value") else metric.int_value)
    return None


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _time(millis: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(millis / 1000, UTC) if millis else None
    except (ValueError, OverflowError, OSError):
        return None


def _to_float(value: float) -> float:
    """The nearest number of 32 bits; infinities for those beyond."""
    try:
        unpacked: float = struct.unpack("f", struct.pack("f", value))[0]
        return unpacked
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
