"""A process plant that exists in memory alone: always simulated, to try things out with."""

from __future__ import annotations

from typing import Any

from ..channels import ChannelDescriptor, ChannelDirection, SimulationSpec
from ..config import PluginMeta
from ..plugin import ChannelValue, DevicePlugin

_INPUTS = [
    # id, name, unit, lowest, highest, profile, base, amplitude, period, noise
    ("temp_reactor", "Reactor temperature", "°C", 0, 500, "sine_wave", 180, 20, 120, 1),
    ("temp_inlet", "Inlet temperature", "°C", 0, 200, "sine_wave", 40, 5, 90, 0.5),
    ("temp_outlet", "Outlet temperature", "°C", 0, 300, "sine_wave", 90, 10, 120, 0.5),
    ("pressure_chamber", "Chamber pressure", "bar", 0, 10, "random_walk", 2, 0.5, 60, 0.01),
    ("pressure_diff", "Differential pressure", "mbar", 0, 500, "sawtooth", 120, 30, 60, 1),
    ("volume_flow", "Volume flow", "m³/h", 0, 100, "sine_wave", 45, 8, 45, 0.5),
    ("humidity", "Humidity", "%", 0, 100, "random_walk", 50, 20, 60, 0.5),
]
_OUTPUTS = [("heater_power", "Heater power"), ("valve_position", "Valve position")]


class SimulatedPlugin(DevicePlugin):
    """Seven sensors and two outputs, which keep the values written to them."""

    meta = PluginMeta(
        id="simulated",
        name="Simulated plant",
        version="1.0.0",
        vendor="Signalbox",
        description="Seven simulated sensors and two outputs, to try things out without hardware.",
    )

    def get_channels(self) -> list[ChannelDescriptor]:
        inputs = [
            ChannelDescriptor(
                id=id,
                name=name,
                unit=unit,
                min_value=lowest,
                max_value=highest,
                simulation=SimulationSpec(profile, base, amplitude, period, noise),
            )
            for id, name, unit, lowest, highest, profile, base, amplitude, period, noise in _INPUTS
        ]
        outputs = [
            ChannelDescriptor(id=id, name=name, direction=ChannelDirection.OUTPUT, unit="%", safe_value=0.0)
            for id, name in _OUTPUTS
        ]
        return inputs + outputs

    def configure(self, config: dict[str, Any] | Any) -> None:
        super().configure(config)
        self.config.demo_mode = True

    async def _do_connect(self) -> None:
        raise NotImplementedError("there is no device")

    async def _do_disconnect(self) -> None:
        raise NotImplementedError("there is no device")

    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        raise NotImplementedError("there is no device")

    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        raise NotImplementedError("there is no device")
