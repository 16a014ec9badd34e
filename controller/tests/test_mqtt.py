"""The MQTT plugin against Debian's mosquitto."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from peers import DeviceTest, Mosquitto, Proxy

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
OVEN = {"channel": "oven", "topic": "plant/oven", "value": "/data/temp", "time": "/t"}


def payload(value: Any, second: float) -> str:
    return json.dumps({"t": (START + timedelta(seconds=second)).isoformat(), "data": {"temp": value}})


class MqttTest(DeviceTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.broker = Mosquitto(self.folder)
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.proxy = Proxy(self.broker.port)
        await self.proxy.start()
        self.addAsyncCleanup(self.proxy.stop)
        self.received: list[tuple[str, str, bool]] = []
        self.publisher = Client(
            CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False, reconnect_on_failure=True
        )
        self.publisher.reconnect_delay_set(1, 1)
        self.publisher.on_message = lambda client, _, message: self.received.append(
            (message.topic, message.payload.decode(), message.retain)
        )
        await self.until_connected()
        self.addCleanup(self.close_publisher)

    async def until_connected(self) -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    self.publisher.connect("127.0.0.1", self.broker.port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        self.publisher.loop_start()

    def close_publisher(self) -> None:
        self.publisher.disconnect()
        self.publisher.loop_stop()

    def run_mqtt(self, *topics: dict[str, Any], most: int | None = None, **config: Any) -> None:
        channels = [topic["channel"] + ("!" if topic.get("command_topic") else "") for topic in topics]
        settings = {"port": self.proxy.port, "topics": list(topics), **config}
        self.run_plugin("mqtt", settings, channels, most)

    def publish(self, topic: str, text: str | bytes) -> None:
        # Exactly once to the broker, so that each repetition that arrives is the broker's.
        self.publisher.publish(topic, text, qos=2)

    async def test_values_arrive_with_the_time_of_their_payload(self) -> None:
        for protocol in ("5", "3.1.1"):
            with self.subTest(protocol):
                before = len(self.values("oven"))
                self.run_mqtt(OVEN, {"channel": "any", "topic": "plant/+/on"}, protocol=protocol, client_id=protocol)
                await self.connected()
                await self.subscribed()
                self.publish("plant/oven", payload(181.5, before))
                self.publish("plant/lamp/on", "ON")
                await self.until(lambda n=before: len(self.values("oven")) > n and len(self.values("any")) > n)
                expected = (181.5, (START + timedelta(seconds=before)).isoformat())
                self.assertEqual((self.rows("oven")[-1], self.values("any")[-1]), (expected, 1.0))
                await self.running.stop()

    async def subscribed(self) -> None:
        def is_noted() -> bool:
            return bool(json.loads(self.buffer.recall("7", "subscribed") or "{}"))

        await self.until(is_noted)

    async def test_a_command_arrives_and_its_confirmation_returns(self) -> None:
        confirm = {"channel": "valve", "topic": "valve/state", "command_topic": "valve/set"}
        self.run_mqtt({**confirm, "command": '{"position": {value}}', "max_value": 100, "retain_command": True})
        self.publisher.subscribe("valve/set", qos=1)
        await self.subscribed()
        self.order("valve", 250)
        await self.until(lambda: self.received)
        self.assertEqual(self.received[-1], ("valve/set", '{"position": 100}', False))
        self.publish("valve/state", "99.5")
        await self.until(lambda: self.values("valve") == [99.5])

    async def test_kills_and_a_broker_restart_lose_and_repeat_no_value(self) -> None:
        self.run_mqtt(OVEN)
        await self.subscribed()
        count = 900

        def publish_all() -> None:
            for n in range(count):
                self.publish("plant/oven", payload(n, n))
                time.sleep(0.004)

        sender = threading.Thread(target=publish_all)
        sender.start()
        self.addCleanup(sender.join)
        await self.until(lambda: len(self.values("oven")) > 100)
        await self.kill_host()
        await self.until(lambda: len(self.values("oven")) > 300)
        await asyncio.to_thread(self.broker.stop)
        self.broker.start()
        reached = len(self.values("oven"))
        await self.until(lambda: len(self.values("oven")) > reached + 100)
        await self.kill_host()
        await self.until(lambda: len(self.values("oven")) >= count)
        self.publish("plant/oven", payload(-1, count))
        await self.until(lambda: -1 in self.values("oven"))
        # The publisher's library sends new messages before those that waited for its connection.
        self.assertEqual(sorted(self.values("oven")), [-1.0, *map(float, range(count))])

    async def test_redelivered_messages_are_stored_once(self) -> None:
        self.run_mqtt(OVEN)
        await self.subscribed()
        self.proxy.discards = True
        for n in range(20):
            self.publish("plant/oven", payload(n % 2, n))
        await self.until(lambda: len(self.values("oven")) == 20)
        await self.kill_host()
        self.proxy.discards, before = False, self.proxy.received
        await self.connected()
        # Twenty messages of more than 60 bytes: the broker has repeated them.
        await self.until(lambda: self.proxy.received > before + 20 * 60)
        self.publish("plant/oven", payload(2, 20))
        await self.until(lambda: 2.0 in self.values("oven"))
        self.assertEqual(self.values("oven"), [0.0, 1.0] * 10 + [2.0])

    async def test_messages_are_unacknowledged_until_they_are_on_disk(self) -> None:
        self.run_mqtt(OVEN)
        await self.subscribed()
        lock = sqlite3.connect(self.settings.buffer_file, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        before = self.proxy.received
        for n in range(5):
            self.publish("plant/oven", payload(n, n))
        await self.until(lambda: self.proxy.received > before + 5 * 60)
        await self.kill_host()
        lock.execute("ROLLBACK")
        lock.close()
        await self.until(lambda: len(self.values("oven")) >= 5)
        self.assertEqual(self.values("oven"), [0.0, 1.0, 2.0, 3.0, 4.0])

    async def test_a_full_buffer_leaves_messages_at_the_broker(self) -> None:
        self.run_mqtt(OVEN, most=10)
        await self.subscribed()
        for n in range(40):
            self.publish("plant/oven", payload(n, n))
            await self.until(lambda n=n: len(self.values("oven")) > min(n, 5))
        await self.until(lambda: "buffer is full" in (self.running.error or ""))
        self.assertLessEqual(len(self.buffer), 10)
        seen: list[float] = []

        def drain() -> bool:
            batch = self.buffer.next(10)
            if batch is not None:
                seen.extend(value.value for value in batch.values)
                self.buffer.done(batch)
            return len(seen) >= 40

        await self.until(drain)
        await self.connected()
        self.assertEqual((seen, self.buffer.dropped), ([float(n) for n in range(40)], 0))

    async def test_odd_payloads_are_counted_and_harm_nothing(self) -> None:
        self.run_mqtt(OVEN, {"channel": "plain", "topic": "plant/plain"})
        await self.subscribed()
        now = datetime.now(UTC)
        odd: list[str | bytes] = [
            "no json", b"\xff\xfe", "", "[" * 100_000, "1" * 5000, "{}", '{"data": {"temp": "warm"}}',
            payload(float("nan"), 1), payload(float("inf"), 1), payload(None, 1), payload([1], 1),
            json.dumps({"t": "yesterday", "data": {"temp": 1}}),
            json.dumps({"t": "0001-01-01T00:00:00Z", "data": {"temp": 1}}),
            json.dumps({"t": (now + timedelta(hours=1)).isoformat(), "data": {"temp": 1}}),
            json.dumps({"t": "2126-01-01T00:00:00Z", "data": {"temp": 1}}),
            json.dumps({"t": "9999-12-31T23:59:59Z", "data": {"temp": 1}}),
            json.dumps({"t": 1e300, "data": {"temp": 1}}),
            json.dumps({"t": True, "data": {"temp": 1}}),
        ]  # fmt: skip
        for text in odd:
            self.publish("plant/oven", text)
        for text in ("nan", "1_000", "0x10", "\u0661\u0662", b"\0", "9" * 400, "x" * 2_000_000):
            self.publish("plant/plain", text)
        self.publish("plant/unknown", "1")
        self.publish("plant/oven", payload(5, 5))
        self.publish("plant/plain", " 7.5\n")
        await self.until(lambda: self.values("oven") and self.values("plain"))
        self.assertEqual((self.values("oven"), self.values("plain")), ([5.0], [7.5]))
        await self.until(lambda: "rejected" in (self.running.error or ""))
        self.assertEqual(self.running.status, "connected")

    async def test_payloads_of_10_mb_harm_nothing(self) -> None:
        for protocol in ("5", "3.1.1"):
            with self.subTest(protocol):
                self.buffer.forget_received("7", None)
                self.run_mqtt(OVEN, {"channel": "plain", "topic": "plant/plain"}, protocol=protocol, client_id=protocol)
                await self.connected()
                await self.subscribed()
                known = len(self.values("plain"))
                self.publish("plant/oven", b"1" * 10_000_000)
                self.publish("plant/plain", "7.5")
                await self.until(lambda known=known: len(self.values("plain")) > known)
                if protocol == "3.1.1":
                    # A broker of version 5 keeps such messages to itself, by the limit that it is given.
                    await self.until(lambda: "longer than 1 MiB" in (self.running.error or ""))
                self.assertEqual((self.running.status, self.values("oven")), ("connected", []))
                await self.running.stop()
                self.buffer.remember("7", "subscribed", "{}")

    async def test_ten_thousand_topics_under_a_wildcard(self) -> None:
        for n in range(10_000):
            self.publisher.publish(f"many/{n}/on", f"{n}" if n % 2 else "odd", qos=0, retain=True)
        self.publish("many/end", "")
        self.run_mqtt({"channel": "many", "topic": "many/+/on"}, OVEN)
        await self.until(lambda: len(self.values("many")) >= 5000)
        self.publish("plant/oven", payload(1, 1))
        await self.until(lambda: self.values("oven") == [1.0])
        self.assertEqual(sorted(self.values("many")), [float(n) for n in range(1, 10_000, 2)])
        await self.until(lambda: "rejected" in (self.running.error or ""))
        self.assertLess(len(self.running.error or ""), 1000)
        self.assertEqual(self.running.status, "connected")

    async def test_a_silent_connection_is_an_error_and_loses_nothing(self) -> None:
        self.run_mqtt(OVEN, keep_alive=5)
        await self.subscribed()
        self.publish("plant/oven", payload(1, 1))
        await self.until(lambda: self.values("oven") == [1.0])
        self.proxy.discards = self.proxy.is_silent = True
        self.publish("plant/oven", payload(2, 2))
        await self.until(lambda: self.running.status == "error")
        # New connections are accepted, and silent, too.
        await self.until(lambda: "accepted no session" in (self.running.error or ""))
        self.proxy.discards = self.proxy.is_silent = False
        await self.connected()
        await self.until(lambda: self.values("oven") == [1.0, 2.0])

    async def test_status_names_an_unreachable_broker_and_recovers(self) -> None:
        self.broker.stop()
        self.run_mqtt(OVEN, port=self.broker.port)
        await self.until(lambda: self.running.status == "error")
        self.assertIn(f"127.0.0.1:{self.broker.port}", self.running.error or "")
        self.broker.start()
        await self.connected()
