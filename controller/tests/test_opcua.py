"""The OPC UA plugin against a server of asyncua."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from asyncua import Server, ua
from peers import DeviceTest, Proxy
from ports import free_port
from signalbox_plugins.builtin.opcua import OpcUaPlugin

URI = "urn:plant"
NODES = [
    {"channel": "temp", "node": f"nsu={URI};s=Temp"},
    {"channel": "level", "node": "/Boiler/Level", "writable": True, "max_value": 10},
]


class SlowProxy(Proxy):
    """Takes a while to pass requests on."""

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(0.05)
            writer.write(data)


class OpcUaTest(DeviceTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.port = free_port()
        self.server: Any = None
        self.addAsyncCleanup(self.stop_server)

    async def start_server(self, other_ids: bool = False) -> None:
        """Starts a server; `other_ids`: another index of the namespace, and another id of the level's node."""
        self.server = server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://127.0.0.1:{self.port}")
        if other_ids:
            await server.register_namespace("urn:other")
        index = await server.register_namespace(URI)
        boiler = await server.nodes.objects.add_object(ua.NodeId("Boiler", index), "Boiler")
        self.temp = await boiler.add_variable(ua.NodeId("Temp", index), "Temp", 20.0)
        level_id = ua.NodeId(4711 if other_ids else 11, index)
        self.level = await boiler.add_variable(level_id, "Level", 3, ua.VariantType.Int32)
        await self.level.set_writable()
        await server.start()

    async def stop_server(self) -> None:
        if self.server is not None:
            server, self.server = self.server, None
            await server.stop()

    def run_opcua(self, nodes: list[dict[str, Any]] = NODES) -> None:
        channels = [node["channel"] + ("!" if node.get("writable") else "") for node in nodes]
        config = {"url": f"opc.tcp://127.0.0.1:{self.port}", "publishing_ms": 50, "sampling_ms": 0, "nodes": nodes}
        self.run_plugin("opcua", config, channels)

    async def set_temp(self, value: Any, time: datetime | None = None) -> None:
        variant = ua.Variant(value, ua.VariantType.Double)
        await self.temp.write_value(ua.DataValue(variant, SourceTimestamp=time or datetime.now(UTC)))

    async def test_values_arrive_with_their_source_timestamps_and_commands_return(self) -> None:
        await self.start_server()
        self.run_opcua()
        await self.connected()
        start = datetime(2026, 3, 1, 10, tzinfo=UTC)
        for n in range(50):
            await self.set_temp(n, start + timedelta(milliseconds=n))
        await self.until(lambda: 49.0 in self.values("temp"))
        expected = [(float(n), (start + timedelta(milliseconds=n)).isoformat()) for n in range(50)]
        self.assertEqual(self.rows("temp")[-50:], expected)
        self.order("level", 99)
        await self.until(lambda: self.values("level")[-1:] == [10.0])
        self.assertEqual(await self.level.read_value(), 10)

    async def test_nodes_are_found_again_when_a_restarted_server_has_other_ids(self) -> None:
        await self.start_server()
        self.run_opcua()
        await self.connected()
        await self.stop_server()
        await self.until(lambda: self.running.status == "error")
        await self.start_server(other_ids=True)
        await self.connected()
        await self.set_temp(77.0)
        self.order("level", 7)
        await self.until(lambda: 77.0 in self.values("temp") and 7.0 in self.values("level"))
        self.assertIn("may be missing", self.running.error or "", "the gap is shown")

    async def test_a_refused_command_does_not_stop_the_values(self) -> None:
        await self.start_server()
        await self.level.set_read_only()
        self.run_opcua()
        await self.connected()
        self.order("level", 5)
        await self.until(lambda: "the server refuses a command to level" in (self.running.error or ""))
        await self.set_temp(42)
        await self.until(lambda: 42.0 in self.values("temp"))
        self.assertIn("the server refuses a command to level", self.running.error or "")
        await self.level.set_writable()
        self.order("level", 6)
        await self.until(lambda: self.values("level")[-1:] == [6.0])
        await self.connected()

    async def test_many_nodes_are_found_over_a_slow_network(self) -> None:
        await self.start_server()
        proxy = SlowProxy(self.port)
        await proxy.start()
        self.addAsyncCleanup(proxy.stop)
        nodes = [{**NODES[0], "channel": f"temp{number}"} for number in range(100)]
        plugin = OpcUaPlugin()
        plugin.configure({"url": f"opc.tcp://127.0.0.1:{proxy.port}", "nodes": nodes, "demo_mode": False})
        with patch("signalbox_plugins.builtin.opcua._TIMEOUT", 1.0):
            await plugin.connect()
            self.addAsyncCleanup(plugin.disconnect)
            self.assertIsNone(plugin.problem)

    async def test_nodes_are_found_again_when_a_running_server_renews_them(self) -> None:
        await self.start_server()
        self.run_opcua()
        await self.connected()
        index = await self.server.get_namespace_index(URI)
        boiler = self.server.get_node(ua.NodeId("Boiler", index))
        await self.server.delete_nodes([self.level])
        await self.until(lambda: "was deleted" in (self.running.error or ""))
        await self.set_temp(30.0)
        await self.until(lambda: 30.0 in self.values("temp"))
        self.level = await boiler.add_variable(ua.NodeId(4712, index), "Level", 5, ua.VariantType.Int32)
        await self.level.set_writable()
        await self.connected()
        await self.until(lambda: 5.0 in self.values("level"))
        self.order("level", 8)
        await self.until(lambda: 8.0 in self.values("level"))

    async def test_a_missing_node_is_named_and_the_others_work(self) -> None:
        await self.start_server()
        self.run_opcua([*NODES, {"channel": "no", "node": "/Boiler/Pressure"}, {"channel": "bad", "node": "i=999999"}])
        await self.until(lambda: "Pressure" in (self.running.error or "") and self.values("temp"))
        self.assertEqual(self.running.status, "error")
        self.assertIn("2 of 4 nodes", self.running.error or "")

    async def test_odd_values_are_counted_and_harm_nothing(self) -> None:
        await self.start_server()
        self.run_opcua()
        await self.connected()
        await self.set_temp(float("nan"))
        await self.set_temp(1.0, datetime(1601, 1, 2, tzinfo=UTC))
        await self.set_temp(2.0, datetime.now(UTC) + timedelta(hours=2))
        for year in (2126, 9999):
            await self.set_temp(3.5, datetime(year, 12, 31, tzinfo=UTC))
        bad = ua.DataValue(ua.Variant(3.0), StatusCode=ua.StatusCode(ua.StatusCodes.BadSensorFailure))
        await self.temp.write_value(bad)
        await self.set_temp(4.0)
        await self.until(lambda: 4.0 in self.values("temp"))
        self.assertEqual([value for value in self.values("temp") if value != 20.0], [4.0])
        await self.until(lambda: "rejected" in (self.running.error or ""))
        self.assertEqual(self.running.status, "connected")

    async def test_values_stay_in_order_over_a_killed_process(self) -> None:
        await self.start_server()
        self.run_opcua()
        await self.connected()
        await self.set_temp(1.0)
        await self.until(lambda: 1.0 in self.values("temp"))
        await self.kill_host()
        await self.set_temp(2.0)
        # The present value is read again.
        await self.until(lambda: 2.0 in self.values("temp"))
        self.assertEqual(self.values("temp"), [20.0, 1.0, 2.0])
