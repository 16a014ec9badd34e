"""Channels of a plugin: their values, the conversion of raw values into values for people, and their simulation."""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class ChannelDirection(enum.StrEnum):
    """Which way values go, as the plugin sees it."""

    INPUT = "input"
    OUTPUT = "output"
    BIDIRECTIONAL = "bidirectional"
    input = INPUT
    output = OUTPUT
    bidirectional = BIDIRECTIONAL


Convert = Callable[[float, dict[str, float]], float]


def _clamp(value: float, params: dict[str, float]) -> float:
    return min(max(value, params.get("min", -math.inf)), params.get("max", math.inf))


_CONVERSIONS: dict[str, tuple[Convert, Convert]] = {
    "none": (lambda value, _: value, lambda value, _: value),
    "linear": (
        lambda value, params: value * params.get("scale", 1.0) + params.get("offset", 0.0),
        lambda value, params: (value - params.get("offset", 0.0)) / params.get("scale", 1.0),
    ),
    "divide": (
        lambda value, params: value / params.get("divisor", 1.0),
        lambda value, params: value * params.get("divisor", 1.0),
    ),
    "clamp": (_clamp, _clamp),
}


def register_conversion(name: str, forward: Convert, inverse: Convert) -> None:
    """Makes a conversion of one's own known under `name`."""
    _CONVERSIONS[name] = (forward, inverse)


@dataclass(frozen=True)
class ConversionSpec:
    """How a raw value becomes one for people: `none`, `linear` (scale, offset), `divide` (divisor), `clamp` (min, max),
    or one that was registered."""

    type: str = "none"
    params: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.type not in _CONVERSIONS:
            raise ValueError(f"there is no conversion {self.type}")
        if self.params.get("scale") == 0 or self.params.get("divisor") == 0:
            raise ValueError("scale and divisor must not be 0")

    def convert(self, raw: float) -> float:
        """The value for people."""
        return _CONVERSIONS[self.type][0](raw, self.params)

    def invert(self, value: float) -> float:
        """The raw value."""
        return _CONVERSIONS[self.type][1](value, self.params)


PROFILES = ("sine_wave", "sawtooth", "random_walk", "step", "constant")


@dataclass(frozen=True)
class SimulationSpec:
    """The signal of a simulated channel."""

    profile: str = "sine_wave"
    base_value: float = 0.0
    amplitude: float = 1.0
    period_seconds: float = 60.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"there is no profile {self.profile}")
        if self.amplitude < 0 or self.noise < 0 or self.period_seconds < 1:
            raise ValueError("amplitude and noise must be at least 0, period_seconds at least 1")


@dataclass(frozen=True)
class ChannelDescriptor:
    """One line of values of a device."""

    id: str
    name: str
    direction: ChannelDirection = ChannelDirection.INPUT
    data_type: str = "float"
    unit: str = ""
    min_value: float = 0.0
    max_value: float = 100.0
    read_conversion: ConversionSpec = field(default_factory=ConversionSpec)
    write_conversion: ConversionSpec = field(default_factory=ConversionSpec)
    simulation: SimulationSpec | None = None
    safe_value: float | None = None
    ui_hints: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", ChannelDirection(self.direction))
        if not self.id or not self.name or self.min_value > self.max_value:
            raise ValueError("a channel needs an id, a name and bounds that are in order")

    @property
    def is_writable(self) -> bool:
        """Whether values can be written to the device."""
        return self.direction is not ChannelDirection.INPUT

    @property
    def is_readable(self) -> bool:
        """Whether the device can be asked for a value."""
        return self.direction is not ChannelDirection.OUTPUT

    def clamp(self, value: float) -> float:
        """`value` within the bounds."""
        return min(max(value, self.min_value), self.max_value)


class Simulation:
    """Simulates the channels of one instance; a walk remembers where it is."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._walks: dict[str, float] = {}

    def value(self, channel: ChannelDescriptor, seconds: float) -> float:
        """The value of `channel` `seconds` after the start, within its bounds."""
        spec = channel.simulation or SimulationSpec(base_value=(channel.min_value + channel.max_value) / 2)
        phase = (seconds % spec.period_seconds) / spec.period_seconds
        match spec.profile:
            case "sine_wave":
                swing = math.sin(2 * math.pi * phase)
            case "sawtooth":
                swing = 2 * phase - 1
            case "step":
                swing = 1.0 if phase < 0.5 else -1.0
            case "random_walk":
                step = self._random.uniform(-0.1, 0.1)
                swing = min(max(self._walks.get(channel.id, 0.0) + step, -1.0), 1.0)
                self._walks[channel.id] = swing
            case _:
                swing = 0.0
        noise = self._random.uniform(-spec.noise, spec.noise)
        return channel.clamp(round(spec.base_value + spec.amplitude * swing + noise, 3))
