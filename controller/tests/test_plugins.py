"""The SDK: configurations, channels, plugins, and those that come with it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import threading
import unittest
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from unittest.mock import patch

from signalbox_plugins import (
    ChannelDescriptor,
    ChannelDirection,
    ConversionSpec,
    Delivery,
    DevicePlugin,
    Field,
    PluginConfigError,
    PluginConnectionError,
    PluginInstanceConfig,
    PluginMeta,
    PluginState,
    PluginStateError,
    Reading,
    SimulationSpec,
    SyncDevicePlugin,
)
from signalbox_plugins.builtin.modbus import ModbusPlugin
from signalbox_plugins.builtin.mqtt import MqttPlugin
from signalbox_plugins.builtin.opcua import OpcUaPlugin
from signalbox_plugins.builtin.simulated import SimulatedPlugin
from signalbox_plugins.builtin.system import SystemPlugin
from signalbox_plugins.channels import Simulation
from signalbox_plugins.describe import answer
from signalbox_plugins.discovery import built_in_plugins
from signalbox_plugins.requirements import missing_requirements
from signalbox_plugins.testing import PluginConformanceSuite

TOP = Path(__file__).resolve().parent.parent.parent


class SimulatedTest(PluginConformanceSuite, unittest.TestCase):
    plugin_class = SimulatedPlugin


class SystemTest(PluginConformanceSuite, unittest.TestCase):
    plugin_class = SystemPlugin

    def test_this_machine_is_read(self) -> None:
        async def read() -> dict[str, float]:
            plugin = SystemPlugin()
            plugin.configure({"demo_mode": False})
            async with plugin:
                return await plugin.read_all_inputs()

        values = asyncio.run(read())
        self.assertTrue(0 < values["memory_percent"] < 100 and 0 < values["disk_percent"] <= 100, values)


class MqttTest(PluginConformanceSuite, unittest.TestCase):
    plugin_class = MqttPlugin
    default_config: ClassVar[dict[str, Any]] = {"topics": [{"channel": "a", "topic": "a", "command_topic": "b"}]}


class OpcUaTest(PluginConformanceSuite, unittest.TestCase):
    plugin_class = OpcUaPlugin
    default_config: ClassVar[dict[str, Any]] = {"nodes": [{"channel": "a", "node": "/A", "writable": True}]}


class ModbusTest(PluginConformanceSuite, unittest.TestCase):
    plugin_class = ModbusPlugin
    default_config: ClassVar[dict[str, Any]] = {"registers": [{"channel": "a", "address": 1, "writable": True}]}


class BuiltInTest(unittest.TestCase):
    def test_the_server_describes_them_as_they_are(self) -> None:
        described = json.loads((TOP / "gateway/src/fleet/built_in.json").read_text())
        self.assertEqual(described, answer({})["classes"])

    def test_protocol_libraries_are_needed_to_connect_only_and_named_then(self) -> None:
        libraries = {"asyncua": None, "google": None, "google.protobuf": None, "paho": None, "pymodbus": None}
        packages = {"mqtt": "paho-mqtt protobuf", "opcua": "asyncua", "modbus": "pymodbus pyserial"}
        with patch.dict(sys.modules, libraries):
            for id, names in packages.items():
                plugin = built_in_plugins()[id]()
                plugin.configure({"demo_mode": False})
                with self.assertRaises(PluginConnectionError) as raised:
                    asyncio.run(plugin.connect())
                self.assertIn(f"pip install {names}", str(raised.exception))

    def test_documented_configurations_are_valid(self) -> None:
        text = (TOP / "docs/plugins.md").read_text()
        found = re.findall(r"`(\w+)\.json`[^`]*(?:`\w+`[^`]*)*```json\n(.*?)```", text, re.DOTALL)
        self.assertEqual([id for id, _ in found], ["mqtt", "opcua", "modbus"])
        for id, config in found:
            plugin = built_in_plugins()[id]()
            plugin.configure(json.loads(config))
            self.assertGreaterEqual(len(plugin.channels), 2)
            known = plugin.config_schema.model_json_schema()["properties"]
            self.assertLessEqual(set(json.loads(config)), set(known))

    def test_wrong_device_settings_are_named(self) -> None:
        wrong: list[tuple[str, dict[str, Any], str]] = [
            ("mqtt", {"topics": [{"channel": "a", "topic": "a/#/b"}]}, "a/#/b"),
            ("mqtt", {"topics": [{"channel": "a", "topic": "b", "command_topic": "c/+"}]}, "a:"),
            ("mqtt", {"topics": [{"channel": "a", "topic": "b", "value": "temp"}]}, "value"),
            ("mqtt", {"topics": [{"channel": "a", "topic": "b"}, {"channel": "a", "topic": "c"}]}, "a:"),
            ("mqtt", {"metrics": [{"channel": "a", "group": "g/h", "node": "n", "metric": "m"}]}, "group"),
            ("mqtt", {"topics": [{"channel": " ", "topic": "b"}]}, "channel"),
            ("mqtt", {"topics": [{"channel": "a", "topic": " "}]}, "topic"),
            ("mqtt", {"host": " "}, "host"),
            (
                "mqtt",
                {"metrics": [{"channel": id, "group": "g", "node": "n", "metric": "m"} for id in ("a", "b")]},
                "b: its metric is that of a",
            ),
            ("opcua", {"security": "Basic256Sha256"}, "certificate_file"),
            ("opcua", {"nodes": [{"channel": "a", "node": " "}]}, "node"),
            ("opcua", {"nodes": [{"channel": "a", "node": "/"}]}, "node"),
            ("opcua", {"nodes": [{"channel": "a", "node": "Boiler.Temp"}]}, "node"),
            ("opcua", {"nodes": [{"channel": "a", "node": "ns=2;s="}]}, "node"),
            ("opcua", {"nodes": [{"channel": "a", "node": "i=85"}, {"channel": "a", "node": "i=86"}]}, "a:"),
            ("modbus", {"host": " "}, "host"),
            ("modbus", {"transport": "rtu", "serial_port": " "}, "serial_port"),
            ("modbus", {"registers": [{"channel": "a", "table": "input", "address": 0, "writable": True}]}, "a:"),
            ("modbus", {"registers": [{"channel": "a", "address": 65535, "type": "float32"}]}, "a:"),
            ("modbus", {"registers": [{"channel": "a", "address": 0, "scale": 0}]}, "a:"),
        ]
        for id, config, named in wrong:
            with self.subTest(config):
                with self.assertRaises(PluginConfigError) as raised:
                    built_in_plugins()[id]().configure(config)
                self.assertIn(named, str(raised.exception))


class Config(PluginInstanceConfig):
    host: str = Field(default="h", min_length=1, description="Address", json_schema_extra={"ui_order": 1})
    port: Annotated[int, Field(default=502, ge=1, le=65535)]
    mode: Literal["tcp", "rtu"] = "tcp"
    masts: list[float] = Field(default_factory=list, max_length=2)
    key: str | None = None
    unit: int = Field(..., ge=0)
    LIMIT: ClassVar[int] = 3


class ConfigTest(unittest.TestCase):
    def test_values_are_converted_where_nothing_is_lost(self) -> None:
        config = Config(port="503", unit=1.0, masts=[1, "2.5"], demo_mode="false", other=1)
        self.assertEqual((config.port, config.unit, config.masts, config.demo_mode), (503, 1, [1.0, 2.5], False))
        self.assertEqual((config.host, config.key, config.retry_policy.max_attempts), ("h", None, 5))

    def test_wrong_values_are_named(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"port": 0},
            {"port": "x"},
            {"host": ""},
            {"host": 5},
            {"mode": "udp"},
            {"masts": [1, 2, 3]},
            {"unit": 1.5},
            {"unit": None},
            {"demo_mode": "maybe"},
            {"retry_policy": {"base_delay": 0}},
            {"poll_interval_ms": float("nan")},
        ]
        for values in wrong:
            with self.assertRaises(ValueError, msg=str(values)) as caught:
                Config.model_validate({"unit": 1, **values})
            self.assertTrue(str(caught.exception).startswith(next(iter(values))), caught.exception)
        with self.assertRaisesRegex(ValueError, "unit: is required"):
            Config.model_validate({})

    def test_passwords_are_not_printed(self) -> None:
        printed = repr(MqttPlugin.config_schema(host="broker", password="secret"))
        self.assertIn("host='broker'", printed)
        self.assertNotIn("secret", printed)

    def test_the_schema_says_what_is_allowed(self) -> None:
        schema = Config.model_json_schema()
        properties = schema["properties"]
        self.assertEqual(schema["required"], ["unit"])
        self.assertEqual((properties["port"]["minimum"], properties["port"]["default"]), (1, 502))
        self.assertEqual((properties["host"]["minLength"], properties["host"]["ui_order"]), (1, 1))
        self.assertEqual(properties["mode"]["enum"], ["tcp", "rtu"])
        self.assertEqual((properties["masts"]["maxItems"], properties["masts"]["items"]), (2, {"type": "number"}))
        self.assertNotIn("LIMIT", properties)


class ChannelTest(unittest.TestCase):
    def test_conversions_go_both_ways(self) -> None:
        specs = [
            ConversionSpec("linear", {"scale": 0.1, "offset": -40}),
            ConversionSpec("divide", {"divisor": 10}),
            ConversionSpec(),
        ]
        for spec in specs:
            self.assertAlmostEqual(spec.invert(spec.convert(650)), 650)
        self.assertEqual(ConversionSpec("clamp", {"min": 0, "max": 1}).convert(7), 1)
        for wrong in ({"scale": 0.0}, {"divisor": 0.0}):
            self.assertRaises(ValueError, ConversionSpec, "linear", wrong)

    def test_a_walk_walks_and_stays_within_its_bounds(self) -> None:
        channel = ChannelDescriptor("c", "C", max_value=10, simulation=SimulationSpec("random_walk", 9, 4))
        simulation = Simulation(seed=1)
        values = [simulation.value(channel, second) for second in range(200)]
        self.assertTrue(all(0 <= value <= 10 for value in values))
        self.assertTrue(all(abs(a - b) <= 0.5 for a, b in pairwise(values)), "it jumps")
        self.assertGreater(len(set(values)), 20)


class Valve(SyncDevicePlugin):
    meta = PluginMeta("valve", "Valve", "1.0.0")

    def __init__(self) -> None:
        super().__init__()
        self.raw: dict[str, float] = {"t": 215.0}
        self.fails = False

    def get_channels(self) -> list[ChannelDescriptor]:
        linear = ConversionSpec("linear", {"scale": 0.1})
        return [
            ChannelDescriptor("t", "T", read_conversion=linear),
            ChannelDescriptor("v", "V", ChannelDirection.OUTPUT, write_conversion=linear, safe_value=1.0),
        ]

    def connect_sync(self) -> None:
        if self.fails:
            raise OSError("no device")

    def disconnect_sync(self) -> None:
        pass

    def read_sync(self, channel_id: str) -> float:
        if self.fails:
            raise OSError("no device")
        return self.raw[channel_id]

    def write_sync(self, channel_id: str, value: float) -> None:
        self.raw[channel_id] = value


def valve() -> Valve:
    plugin = Valve()
    plugin.configure({"demo_mode": False})
    return plugin


class PluginTest(unittest.IsolatedAsyncioTestCase):
    async def test_values_are_converted_bounded_and_made_safe(self) -> None:
        plugin = valve()
        async with plugin:
            self.assertAlmostEqual(await plugin.read("t") or 0, 21.5)
            await plugin.write("v", 1000)
            self.assertAlmostEqual(plugin.raw["v"], 1000, msg="100, as the device counts")
            with self.assertRaises(PluginStateError):
                await plugin.write("t", 1)
        self.assertAlmostEqual(plugin.raw["v"], 10, msg="the safe value, as the device counts")

    async def test_a_device_that_is_away_is_an_error_and_can_come_back(self) -> None:
        plugin = valve()
        plugin.fails = True
        with self.assertRaisesRegex(PluginConnectionError, "no device"):
            await plugin.connect()
        self.assertEqual((plugin.state, plugin.error_count), (PluginState.ERROR, 1))
        plugin.fails = False
        await plugin.connect()
        plugin.fails = True
        self.assertIsNone(await plugin.read("t"))
        self.assertEqual(plugin.last_error, "OSError: no device")

    async def test_demo_mode_touches_no_device(self) -> None:
        plugin = valve()
        plugin.fails = True
        plugin.configure({"demo_mode": True})
        async with plugin:
            await plugin.write("v", 7)
            self.assertEqual(await plugin.read("v"), 7)
            self.assertIsNotNone(await plugin.read("t"))
        self.assertEqual((plugin.raw, plugin.error_count), ({"t": 215.0}, 0))

    async def test_a_wrong_configuration_is_refused(self) -> None:
        with self.assertRaisesRegex(PluginConfigError, "poll_interval_ms"):
            valve().configure({"poll_interval_ms": 5})


class Stuck(Valve):
    """A valve whose readings return when they are let go, or when the connection is closed, if that ends them."""

    def __init__(self, is_ended_by_closing: bool, unblock_seconds: float) -> None:
        super().__init__()
        self.unblock_seconds = unblock_seconds
        self.is_ended_by_closing = is_ended_by_closing
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.under_way, self.most = 0, 0

    def disconnect_sync(self) -> None:
        if self.is_ended_by_closing:
            self.let_go.set()

    def read_sync(self, channel_id: str) -> float:
        self._count(1)
        self.begun.set()
        self.let_go.wait()
        self._count(-1)
        return super().read_sync(channel_id)

    def write_sync(self, channel_id: str, value: float) -> None:
        self._count(1)
        super().write_sync(channel_id, value)
        self._count(-1)

    def _count(self, change: int) -> None:
        self.under_way += change
        self.most = max(self.most, self.under_way)


async def given_up(plugin: Stuck) -> None:
    """Starts a reading, and does not wait for its end."""
    plugin.configure({"demo_mode": False})
    await plugin.connect()
    reading = asyncio.create_task(plugin.read("t"))
    await asyncio.to_thread(plugin.begun.wait)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


class StuckTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_call_waits_for_one_that_was_given_up(self) -> None:
        plugin = Stuck(is_ended_by_closing=False, unblock_seconds=60)
        await given_up(plugin)
        writing = asyncio.create_task(plugin.write("v", 7))
        await asyncio.sleep(0)
        plugin.let_go.set()
        await writing
        self.assertEqual((plugin.most, plugin.under_way), (1, 0))

    async def test_closing_ends_a_call_that_does_not_return(self) -> None:
        plugin = Stuck(is_ended_by_closing=True, unblock_seconds=0.01)
        await given_up(plugin)
        await plugin.disconnect()
        await plugin.connect()
        self.assertEqual(await plugin.read("t"), 21.5)

    async def test_there_is_no_new_connection_before_the_last_call_has_returned(self) -> None:
        plugin = Stuck(is_ended_by_closing=False, unblock_seconds=0.01)
        await given_up(plugin)
        await plugin.disconnect()
        with self.assertRaisesRegex(PluginConnectionError, "has not returned"):
            await plugin.connect()
        plugin.let_go.set()
        await plugin._running
        await plugin.connect()


class PushTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_device_that_sends_faster_than_the_disk_writes_is_given_up_although_it_sends_on(self) -> None:
        plugin = MqttPlugin()
        delivery = Delivery((Reading("a", 1.0),))
        for _ in range(150_000):
            plugin.deliver(delivery)
        self.assertLessEqual(plugin._deliveries.qsize(), 100_001)
        taken = 0
        with self.assertRaises(PluginConnectionError):
            while taken < 300_000:
                taken += len(await plugin.next_deliveries(500))
                for _ in range(500):
                    plugin.deliver(delivery)
        self.assertEqual(taken, 100_000)


class DescribeTest(unittest.TestCase):
    def test_an_abstract_plugin_is_no_plugin(self) -> None:
        self.assertRaises(TypeError, DevicePlugin)


class RequirementsTest(unittest.TestCase):
    def missing(self, *needed: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            for name, needs in (("plugin", needed), ("vendored_part", ())):
                info = Path(folder) / f"{name}-2.1.dist-info"
                info.mkdir()
                lines = [f"Name: {name}", "Version: 2.1", *(f"Requires-Dist: {one}" for one in needs)]
                (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
            return missing_requirements([folder])

    def test_what_is_there_is_not_missing(self) -> None:
        for needed in (
            "Vendored.Part",
            "vendored-part>=2,<3",
            "vendored-part (~=2.0)",
            "vendored-part == 2.*",
            "vendored-part != 2.0",
            "webmacs-plugins-core>=1.0.0",
            "pydantic[email]>=2",
            "other; extra == 'test'",
            "other>=1; python_version < '3.0' or (os_name == 'nt' and python_version >= '3.8')",
            "other; 'linux' not in 'linux darwin'",
        ):
            self.assertEqual(self.missing(needed), [], needed)

    def test_what_is_not_there_is_named(self) -> None:
        for needed in (
            "vendored-part>=3",
            "vendored-part<2.1",
            "vendored-part==1.*",
            "vendored-part~=2.2",
            "other",
            "other; python_version >= '3.8' and sys_platform != 'nothing'",
            "other; a_name_of_tomorrow == '1'",
        ):
            self.assertEqual(self.missing(needed), [needed.split(";")[0]], needed)


if __name__ == "__main__":
    unittest.main()
