"""Sparkplug B: an edge node of pysparkplug behind mosquitto, and the host's state by itself."""

from __future__ import annotations

import asyncio
import unittest
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import paho.mqtt.client as paho
import pysparkplug
from peers import DeviceTest, Mosquitto
from pysparkplug import DataType, Device, EdgeNode, Metric
from signalbox_plugins.builtin.signals import Rejections, Unreadable
from signalbox_plugins.builtin.sparkplug import Host, Node, Place, decode

NODE = Node("plant", "edge")
TEMP, SPEED, PUMP = Place(NODE, "", "Temp"), Place(NODE, "drive", "Speed"), Place(NODE, "drive", "Pump")
NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


def metric(name: str, datatype: DataType, value: Any, time: datetime = NOW, alias: int | None = None) -> Metric:
    millis = round(time.timestamp() * 1000)
    return Metric(timestamp=millis, name=name, datatype=datatype, value=value, alias=alias)


class HostTest(unittest.TestCase):
    """Payloads of pysparkplug, in an order that its edge node does not send."""

    def setUp(self) -> None:
        self.time = 0.0
        self.rejections = Rejections()
        self.host = Host([TEMP, SPEED], lambda: self.time, self.rejections)
        self.host.reset()
        self.host.rebirths()

    def send(self, kind: str, seq: int, *metrics: Metric, device: str = "", is_birth: bool = False) -> dict[str, float]:
        names = {"NBIRTH": "NBirth", "NDATA": "NData", "DBIRTH": "DBirth", "DDATA": "DData", "DDEATH": "DDeath"}
        payload_class = getattr(pysparkplug, names[kind])
        rest = {} if kind == "DDEATH" else {"metrics": metrics}
        payload = payload_class(timestamp=round(NOW.timestamp() * 1000), seq=seq, **rest)
        encoded = payload.encode(include_dtypes=is_birth or "BIRTH" in kind)
        topic = f"spBv1.0/plant/{kind}/edge" + (f"/{device}" if device else "")
        return {str(one.place): one.value for one in self.host.handle(topic, encoded, NOW)}

    def birth(self, alias: int = 1) -> dict[str, float]:
        sequence = metric("bdSeq", DataType.INT64, 4)
        return self.send("NBIRTH", 0, sequence, metric("Temp", DataType.INT16, -5, alias=alias))

    def by_alias(self, seq: int, value: int, alias: int = 1) -> dict[str, float]:
        plain = Metric(timestamp=None, name=None, datatype=DataType.INT16, value=value, alias=alias)
        return self.send("NDATA", seq, plain)

    def test_values_by_alias_have_the_type_of_their_birth(self) -> None:
        self.assertEqual(self.birth(), {"plant/edge/Temp": -5.0})
        self.assertEqual(self.by_alias(1, -7), {"plant/edge/Temp": -7.0})
        self.assertEqual((self.host.rebirths(), self.host.problem()), ([], None))

    def test_a_sequence_gap_requests_one_rebirth_and_distrusts_aliases(self) -> None:
        self.birth()
        self.time = 20
        self.assertEqual(self.by_alias(3, 9), {}, "the missing message may have been a birth with other aliases")
        self.assertEqual(self.by_alias(4, 9), {})
        requests = self.host.rebirths()
        self.assertEqual([topic for topic, _ in requests], ["spBv1.0/plant/NCMD/edge"])
        self.assertEqual(decode(requests[0][1]).metrics[0].name, "Node Control/Rebirth")
        self.time = 29
        self.host.request_missing()
        self.assertEqual(self.host.rebirths(), [], "at most one in ten seconds")
        self.time = 31
        self.host.request_missing()
        self.assertEqual(len(self.host.rebirths()), 1)
        self.birth(alias=2)
        self.assertEqual(self.by_alias(1, 11, alias=2), {"plant/edge/Temp": 11.0})

    def test_changed_aliases_of_a_birth_replace_the_earlier_ones(self) -> None:
        self.birth(alias=1)
        self.birth(alias=8)
        self.assertEqual(self.by_alias(1, 3, alias=8), {"plant/edge/Temp": 3.0})
        self.time = 20
        self.assertEqual(self.by_alias(2, 3, alias=1), {})
        self.assertEqual(len(self.host.rebirths()), 1)

    def test_sequence_numbers_wrap_at_256(self) -> None:
        self.birth()
        self.time = 20
        for seq in [*range(1, 256), 0, 1]:
            self.by_alias(seq, 1)
        self.assertEqual(self.host.rebirths(), [])

    def test_deaths_are_shown_and_a_late_will_is_ignored(self) -> None:
        self.birth()
        self.send("DBIRTH", 1, metric("Speed", DataType.FLOAT, 1.5), device="drive")
        self.send("DDEATH", 2, device="drive")
        self.assertIn("drive is offline", self.host.problem() or "")
        for number, expected in ((3, "drive is offline"), (4, "edge is offline since 2026-03-01")):
            will = pysparkplug.NDeath(timestamp=None, bd_seq_metric=metric("bdSeq", DataType.INT64, number))
            self.host.handle("spBv1.0/plant/NDEATH/edge", will.encode(), NOW)
            self.assertIn(expected, self.host.problem() or "")

    def test_odd_payloads_and_topics_are_rejected(self) -> None:
        for topic in ("", "/plant", "/STATE/host", "/other/NDATA/edge", "/plant/X/edge"):
            self.assertEqual(self.host.handle(f"spBv1.0{topic}", b"\xff", NOW), [])
        self.assertRaises(Unreadable, self.host.handle, "spBv1.0/plant/NDATA/edge", b"\xff\xff", NOW)
        self.birth()
        ahead = NOW + timedelta(days=1)
        odd = [
            metric("Temp", DataType.DOUBLE, float("nan")),
            metric("Temp", DataType.STRING, "warm"),
            metric("Temp", DataType.DOUBLE, 1.0, ahead),
            metric("Temp", DataType.DOUBLE, None),
        ]
        for seq, one in enumerate(odd, 1):
            self.assertEqual(self.send("NDATA", seq, one, is_birth=True), {})
        self.assertEqual(str(self.rejections).count("1 value of plant/edge/Temp rejected"), 3)


class EdgeNodeTest(DeviceTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.broker = Mosquitto(self.folder)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.commands: list[tuple[str, Any]] = []
        self.births = 0
        self.loop, self.requests = asyncio.get_running_loop(), asyncio.Queue[EdgeNode]()
        answering = asyncio.create_task(self.answer_requests())
        self.addCleanup(answering.cancel)

    def on_node_command(self, node: EdgeNode, message: Any) -> None:
        if any(one.name == "Node Control/Rebirth" for one in message.payload.metrics):
            self.loop.call_soon_threadsafe(self.requests.put_nowait, node)

    async def answer_requests(self) -> None:
        """Sends births on request: pysparkplug does so at each connection."""
        while True:
            node = await self.requests.get()
            await asyncio.to_thread(node.disconnect)
            await asyncio.to_thread(node.connect, "127.0.0.1", port=self.broker.port)
            self.births += 1

    def on_device_command(self, node: EdgeNode, message: Any) -> None:
        for one in message.payload.metrics:
            self.commands.append((one.name, one.value))
            node.update_device("drive", [metric(one.name, DataType.INT32, one.value, datetime.now(UTC))])

    async def start_node(self) -> EdgeNode:
        # It was written for paho-mqtt 1, which has this method without effect, and other callbacks by default.
        with warnings.catch_warnings(), patch.object(paho.Client, "message_retry_set", create=True):
            warnings.simplefilter("ignore", DeprecationWarning)
            client = pysparkplug.Client(client_id="edge")
            node = EdgeNode("plant", "edge", [metric("Temp", DataType.DOUBLE, 20.5)], client, self.on_node_command)
        speed = metric("Speed", DataType.INT32, 3)
        node.register(Device("drive", [speed], self.on_device_command))
        async with asyncio.timeout(20):
            while True:
                try:
                    await asyncio.to_thread(node.connect, "127.0.0.1", port=self.broker.port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        self.addCleanup(node.disconnect)
        return node

    def run_host(self, **config: Any) -> None:
        base = {"group": "plant", "node": "edge"}
        metrics = [
            {**base, "channel": "temp", "metric": "Temp"},
            {**base, "channel": "speed", "device": "drive", "metric": "Speed", "writable": True},
        ]
        self.run_plugin("mqtt", {"port": self.broker.port, "metrics": metrics, **config}, ["temp", "speed!"])

    async def test_values_and_commands_of_an_edge_node(self) -> None:
        self.run_host(host_id="signalbox")
        await self.until(lambda: "has not sent a birth" in (self.running.error or ""))
        node = await self.start_node()
        await self.connected()
        await self.until(lambda: self.values("temp") == [20.5] and self.values("speed") == [3.0])
        for n in range(300):
            node.update([metric("Temp", DataType.DOUBLE, float(n), NOW + timedelta(seconds=n))])
        await self.until(lambda: len(self.values("temp")) > 300)
        self.assertEqual(self.rows("temp")[-1], (299.0, (NOW + timedelta(seconds=299)).isoformat()))
        self.order("speed", -42)
        await self.until(lambda: self.values("speed")[-1] == -42.0)
        self.assertEqual(self.commands, [("Speed", -42)])

    async def test_a_host_that_starts_later_gets_births_by_request(self) -> None:
        await self.start_node()
        self.run_host()
        await self.until(lambda: self.values("temp") == [20.5] and self.values("speed") == [3.0])
        await self.connected()
        await self.kill_host()
        requested = self.births
        await self.until(lambda: self.births > requested)
        await self.connected()
        await self.until(lambda: "may be missing" in (self.running.error or ""))


if __name__ == "__main__":
    unittest.main()
