"""The machine that the controller runs on, read from Linux's /proc and /sys."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..channels import ChannelDescriptor, SimulationSpec
from ..config import PluginMeta
from ..plugin import ChannelValue, DevicePlugin

_GIB = 1024**3
_CHANNELS = [
    # id, name, unit, highest, base, amplitude
    ("cpu_percent", "CPU load", "%", 100, 30, 20),
    ("memory_percent", "Memory used", "%", 100, 50, 10),
    ("memory_used_gb", "Memory used", "GB", 1024, 4, 1),
    ("disk_percent", "Disk used", "%", 100, 40, 1),
    ("disk_used_gb", "Disk used", "GB", 100000, 100, 1),
    ("load_avg_1m", "Load, 1 minute", "", 1000, 1, 0.5),
    ("cpu_temp", "CPU temperature", "°C", 150, 50, 8),
]


class SystemPlugin(DevicePlugin):
    """Load, memory, disk and temperature of this machine."""

    meta = PluginMeta(
        id="system",
        name="System",
        version="1.0.0",
        vendor="Signalbox",
        description="Load, memory, disk and temperature of the machine that the controller runs on (Linux).",
    )

    def __init__(self) -> None:
        super().__init__()
        self._times: tuple[int, int] | None = None

    def get_channels(self) -> list[ChannelDescriptor]:
        names = [name for _, name, *_ in _CHANNELS]
        return [
            ChannelDescriptor(
                id=id,
                # Names become names of events, which differ.
                name=f"{name} ({unit})" if names.count(name) > 1 else name,
                unit=unit,
                max_value=highest,
                simulation=SimulationSpec("sine_wave", base, amplitude),
            )
            for id, name, unit, highest, base, amplitude in _CHANNELS
        ]

    async def _do_connect(self) -> None:
        self._times = _cpu_times()

    async def _do_disconnect(self) -> None:
        self._times = None

    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        match channel_id:
            case "cpu_percent":
                return self._cpu_percent()
            case "memory_percent":
                used, total = _memory()
                return 100 * used / total
            case "memory_used_gb":
                return _memory()[0] / _GIB
            case "disk_percent":
                disk = shutil.disk_usage("/")
                return 100 * disk.used / disk.total
            case "disk_used_gb":
                return shutil.disk_usage("/").used / _GIB
            case "load_avg_1m":
                return os.getloadavg()[0]
            case _:
                return _temperature()

    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        raise NotImplementedError("all channels are inputs")

    def _cpu_percent(self) -> float | None:
        before, now = self._times, _cpu_times()
        self._times = now
        if before is None or now[1] == before[1]:
            return None
        return 100 * (now[0] - before[0]) / (now[1] - before[1])


def _cpu_times() -> tuple[int, int]:
    """Busy and all ticks since the machine was started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def _memory() -> tuple[int, int]:
    """Used and all bytes."""
    lines = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    kib = {name: int(rest.split()[0]) for name, rest in lines}
    total = kib["MemTotal"] * 1024
    return total - kib["MemAvailable"] * 1024, total


def _temperature() -> float | None:
    """Temperature of the hottest zone; `None` without one."""
    zones = Path("/sys/class/thermal").glob("thermal_zone*/temp")
    found = [int(zone.read_text()) / 1000 for zone in zones]
    return max(found, default=None)
