"""An OPC UA server of asyncua."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

from asyncua import Server, ua
from device import Device, say

URI = "urn:peers"


class PythonServer(Device):
    async def start(self, settings: dict[str, Any]) -> None:
        logging.getLogger("asyncua").setLevel(logging.CRITICAL)
        self.server = server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://127.0.0.1:{settings['port']}")
        index = await server.register_namespace(URI)
        peer = await server.nodes.objects.add_object(ua.NodeId("Peer", index), "Peer")
        self.a = await peer.add_variable(ua.NodeId("A", index), "A", -1, ua.VariantType.Int32)
        self.b = await peer.add_variable(ua.NodeId("B", index), "B", -1.0)
        command = await peer.add_variable(ua.NodeId("Set", index), "Set", 0.0, ua.VariantType.Float)
        await command.set_writable()
        await server.start()
        subscription = await server.create_subscription(10, self)
        await subscription.subscribe_data_change(command)

    def datachange_notification(self, _: Any, value: float, __: Any) -> None:
        """A write to Set, also its first value."""
        if value:
            say(commanded=value)

    async def put(self, number: int, time: int) -> bool:
        stamp = datetime.fromtimestamp(time / 1000, UTC)
        for node, variant in (
            (self.a, ua.Variant(number, ua.VariantType.Int32)),
            (self.b, ua.Variant(float(number), ua.VariantType.Double)),
        ):
            await node.write_value(ua.DataValue(variant, SourceTimestamp=stamp))
        return True


asyncio.run(PythonServer().serve())
