"""A Sparkplug B edge node of pysparkplug: A is a metric of the node, B and Set are metrics of a device."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any
from unittest.mock import patch

import paho.mqtt.client as paho
import pysparkplug
from device import Device, millis, say
from pysparkplug import DataType, EdgeNode, Metric


def metric(name: str, datatype: DataType, value: float, time: int) -> Metric:
    return Metric(timestamp=time, name=name, datatype=datatype, value=value)


class PythonNode(Device):
    async def start(self, settings: dict[str, Any]) -> None:
        self.port = settings["port"]
        self.loop = asyncio.get_running_loop()
        # One user of the library at a time: it numbers its messages without a lock.
        self.lock = asyncio.Lock()
        # It was written for paho-mqtt 1, which has this method without effect, and other callbacks by default.
        with warnings.catch_warnings(), patch.object(paho.Client, "message_retry_set", create=True):
            warnings.simplefilter("ignore", DeprecationWarning)
            client = pysparkplug.Client(client_id="py")
            self.node = EdgeNode("plant", "py", [metric("A", DataType.INT64, -1, 1)], client, self._node_command)
        drive = [metric("B", DataType.DOUBLE, -1.0, 1), metric("Set", DataType.FLOAT, 0.0, 1)]
        self.node.register(pysparkplug.Device("drive", drive, self._device_command))
        self.tasks: set[asyncio.Task[None]] = set()
        while True:
            try:
                await asyncio.to_thread(self.node.connect, "127.0.0.1", port=self.port)
                break
            except OSError:
                await asyncio.sleep(0.05)

    def _node_command(self, _: EdgeNode, message: Any) -> None:
        if any(one.name == "Node Control/Rebirth" for one in message.payload.metrics):
            self.loop.call_soon_threadsafe(self._begin, self._bear_again())

    def _device_command(self, _: EdgeNode, message: Any) -> None:
        for one in message.payload.metrics:
            self.loop.call_soon_threadsafe(self._begin, self._confirm(one.value))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _bear_again(self) -> None:
        """Sends births: the library does so at each connection."""
        async with self.lock:
            await asyncio.to_thread(self.node.disconnect)
            while True:
                try:
                    await asyncio.to_thread(self.node.connect, "127.0.0.1", port=self.port)
                    return
                except OSError:
                    await asyncio.sleep(0.05)

    async def _confirm(self, value: float) -> None:
        say(commanded=value)
        async with self.lock:
            self.node.update_device("drive", [metric("Set", DataType.FLOAT, value, millis())])

    async def put(self, number: int, time: int) -> bool:
        async with self.lock:
            if not self.node._client._client.is_connected():
                return False
            try:
                self.node.update([metric("A", DataType.INT64, number, time)])
                self.node.update_device("drive", [metric("B", DataType.DOUBLE, float(number), time)])
            except Exception:
                # The connection is lost.
                return False
            return True


asyncio.run(PythonNode().serve())
