"""A device behind an MQTT broker: publishes exactly once to the broker, and confirms commands."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from device import Device, say
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion


class MqttDevice(Device):
    async def start(self, settings: dict[str, Any]) -> None:
        # The library keeps messages with QoS 2 over a lost connection: each reaches the broker once.
        self.client = client = Client(CallbackAPIVersion.VERSION2, client_id="mqtt-device", clean_session=False)
        client.reconnect_delay_set(1, 1)
        client.max_inflight_messages_set(100)
        client.on_connect = lambda *_: client.subscribe("plant/set/do", qos=1)
        client.on_message = self._command
        while True:
            try:
                await asyncio.to_thread(client.connect, "127.0.0.1", settings["port"])
                break
            except OSError:
                await asyncio.sleep(0.05)
        client.loop_start()

    def _command(self, client: Client, _: Any, message: Any) -> None:
        client.publish("plant/set/is", message.payload, qos=1)
        say(commanded=float(message.payload))

    async def put(self, number: int, time: int) -> bool:
        payload = json.dumps({"v": number, "t": time})
        self.client.publish("plant/a", payload, qos=2)
        self.client.publish("plant/b", payload, qos=2)
        return True


asyncio.run(MqttDevice().serve())
