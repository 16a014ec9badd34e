"""An MQTT broker: topics to channels, commands to topics, and the metrics of Sparkplug B edge nodes.

What arrives with QoS 1 in a session that the broker keeps is acknowledged when it is on the controller's disk. The broker
repeats what it does not know to be acknowledged, with the same packet identifier; these stand in the ledger until the
broker has answered a request that was sent after the acknowledgement, which it reads in that order (MQTT 4.6).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import time
from datetime import UTC, datetime
from typing import Any, Literal

from ..channels import ChannelDescriptor
from ..config import Field, PluginInstanceConfig, PluginMeta
from ..errors import PluginConfigError, PluginConnectionError
from ..plugin import ChannelValue
from ..push import Delivery, Message, PushPlugin, Reading
from .signals import Complaints, Signal, Unreadable, at_pointer, descriptors, moment, number, read_json
from .sparkplug import NAMESPACE, Host, Node, Place

_CONNECT_SECONDS = 20.0
_LONGEST_PAYLOAD = 1 << 20
# Messages that a broker sends without an acknowledgement.
_MOST_UNACKNOWLEDGED = 1000
# Unsubscribing from it changes nothing and is answered in order.
_BARRIER = "signalbox/barrier"


class Topic(Signal):
    """A channel whose values arrive under a topic."""

    topic: str = Field(min_length=1, max_length=1000, description="Topic or filter (+, #) under which values arrive")
    value: str = Field(
        default="", max_length=500, description="JSON pointer to the number (/data/temp); empty: it is the payload"
    )
    time: str = Field(default="", max_length=500, description="JSON pointer to the time; empty: that of arrival")
    command_topic: str = Field(default="", max_length=1000, description="Topic to send commands to; empty: none")
    command: str = Field(
        default="{value}", max_length=1000, description="Payload of a command; {value} stands for the number"
    )
    retain_command: bool = Field(default=False, description="Whether the broker keeps the last command")


class Metric(Signal):
    """A channel whose values are a metric of a Sparkplug B edge node."""

    group: str = Field(min_length=1, max_length=200, pattern="^[^/+#]+$", description="Group id")
    node: str = Field(min_length=1, max_length=200, pattern="^[^/+#]+$", description="Edge node id")
    device: str = Field(default="", max_length=200, pattern="^[^/+#]*$", description="Device id; empty: the node's own")
    metric: str = Field(min_length=1, max_length=500, description="Name of the metric")
    writable: bool = Field(default=False, description="Whether commands may be sent")

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(Node(self.group, self.node), self.device, self.metric)


class MqttConfig(PluginInstanceConfig):
    """Settings of an instance."""

    host: str = Field(default="127.0.0.1", min_length=1, max_length=255, description="Name or address of the broker")
    port: int = Field(default=1883, ge=1, le=65535, description="1883, or 8883 with TLS")
    tls: bool = Field(default=False, title="TLS", description="Whether the connection is encrypted")
    ca_file: str = Field(
        default="",
        title="Authority's file",
        max_length=1000,
        description="Certificate of the authority, on the controller's machine; empty: those of the system",
    )
    username: str = Field(default="", max_length=1000)
    password: str = Field(default="", max_length=1000, json_schema_extra={"format": "password"})
    protocol: Literal["5", "3.1.1"] = Field(default="5", description="Version of MQTT")
    client_id: str = Field(
        default="", max_length=200, title="Client id", description="Name at the broker; empty: made from the instance"
    )
    qos: Literal[1, 0] = Field(default=1, title="QoS", description="1: the broker keeps values while nobody is there")
    keep_alive: int = Field(default=30, ge=5, le=3600, description="Seconds of silence after which the broker is asked")
    session_hours: int = Field(
        default=168, ge=1, le=10000, description="How long the broker keeps values (MQTT 5; otherwise it decides)"
    )
    topics: list[Topic] = Field(default_factory=list, max_length=2000, description="Topics and their channels")
    metrics: list[Metric] = Field(
        default_factory=list, max_length=2000, title="Sparkplug metrics", description="Metrics and their channels"
    )
    host_id: str = Field(
        default="",
        max_length=200,
        pattern="^[^/+#]*$",
        title="Sparkplug host id",
        description="Edge nodes that wait for this primary host send while it is online; empty: none waits",
    )


class MqttPlugin(PushPlugin):
    """A broker, the topics that are followed there, and the edge nodes behind it."""

    meta = PluginMeta(
        id="mqtt",
        name="MQTT broker",
        version="1.0.0",
        vendor="Signalbox",
        description="Topics of an MQTT broker (3.1.1 or 5) and Sparkplug B edge nodes, values and commands.",
        protocol="mqtt",
    )
    config_schema = MqttConfig

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._session_was_kept = False
        self._unconfirmed: list[Message] = []
        self._barrier: tuple[int, list[Message]] | None = None
        self._complaints = Complaints()
        self._sparkplug: Host | None = None
        self._metrics: dict[Place, str] = {}
        self._asking: asyncio.Task[None] | None = None

    def get_channels(self) -> list[ChannelDescriptor]:
        for topic in self.config.topics:
            _check_filter(self.meta.id, topic.topic)
            if "+" in topic.command_topic or "#" in topic.command_topic:
                raise PluginConfigError(self.meta.id, f"{topic.channel}: commands go to one topic, without + and #")
        topics = [(topic, bool(topic.command_topic)) for topic in self.config.topics]
        return descriptors([*topics, *((metric, metric.writable) for metric in self.config.metrics)])

    @property
    def problem(self) -> str | None:
        return self._sparkplug.problem() if self._sparkplug is not None else None

    @property
    def remark(self) -> str | None:
        return str(self._complaints) or None

    @property
    def keeps_values(self) -> bool:
        return self._session_was_kept and not self.config.metrics

    # The connection. Callbacks of the library run in its thread, and do their work in that of the event loop.

    async def _do_connect(self) -> None:
        from paho.mqtt.matcher import MQTTMatcher

        loop = asyncio.get_running_loop()
        self._matcher = MQTTMatcher()
        for topic in self.config.topics:
            try:
                self._matcher[topic.topic].append(topic)
            except KeyError:
                self._matcher[topic.topic] = [topic]
        self._metrics = {metric.place: metric.channel for metric in self.config.metrics}
        self._sparkplug = Host(self._metrics, time.monotonic, self._complaints) if self._metrics else None
        self._unconfirmed, self._barrier = [], None
        self._connected: asyncio.Future[bool] = loop.create_future()
        self._client = client = self._make_client(loop)
        try:
            await asyncio.to_thread(self._reach, client)
            client.loop_start()
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._session_was_kept = await self._connected
            self._take_up_session(client)
            if self._sparkplug is not None:
                self._announce(client)
                self._asking = asyncio.create_task(self._ask_for_births())
        except TimeoutError:
            await self._do_disconnect()
            address = f"{self.config.host}:{self.config.port}"
            raise PluginConnectionError(self.meta.id, f"the broker at {address} does not answer") from None
        except BaseException:
            await self._do_disconnect()
            raise

    def _reach(self, client: Any) -> None:
        from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        config = self.config
        if config.protocol != "5":
            client.connect(config.host, config.port, config.keep_alive)
            return
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = config.session_hours * 3600 if config.qos else 0
        properties.ReceiveMaximum = _MOST_UNACKNOWLEDGED
        properties.MaximumPacketSize = _LONGEST_PAYLOAD
        clean = MQTT_CLEAN_START_FIRST_ONLY if not config.qos else False
        client.connect(config.host, config.port, config.keep_alive, clean_start=clean, properties=properties)

    def _make_client(self, loop: asyncio.AbstractEventLoop) -> Any:
        from paho.mqtt.client import Client, MQTTv5, MQTTv311
        from paho.mqtt.enums import CallbackAPIVersion

        config = self.config
        is_old = config.protocol == "3.1.1"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=config.client_id or f"signalbox-{self.instance_id or config.instance_name}",
            clean_session=(config.qos == 0) if is_old else None,
            protocol=MQTTv311 if is_old else MQTTv5,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = _CONNECT_SECONDS
        if config.username:
            client.username_pw_set(config.username, config.password or None)
        if config.tls:
            client.tls_set_context(ssl.create_default_context(cafile=config.ca_file or None))
        if config.host_id and config.metrics:
            self._state_since = round(time.time() * 1000)
            client.will_set(self._state_topic(), self._state(False), qos=1, retain=True)

        def later(call: Any) -> Any:
            def called(*arguments: Any) -> None:
                # At the end the loop may be closed already.
                if not loop.is_closed():
                    loop.call_soon_threadsafe(call, client, *arguments[2:])

            return called

        client.on_connect = later(self._on_connect)
        client.on_disconnect = later(self._on_disconnect)
        client.on_message = later(self._on_message)
        client.on_subscribe = later(self._on_subscribe)
        client.on_unsubscribe = later(self._on_unsubscribe)
        return client

    async def _do_disconnect(self) -> None:
        client, self._client = self._client, None
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if client is None:
            return
        if self._sparkplug is not None and self.config.host_id and client.is_connected():
            client.publish(self._state_topic(), self._state(False), qos=1, retain=True)
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)

    def _on_connect(self, client: Any, flags: Any, reason: Any, _: Any) -> None:
        if self._connected.done():
            return
        if reason.is_failure:
            why = f"the broker refuses the connection: {reason}"
            self._connected.set_exception(PluginConnectionError(self.meta.id, why))
        else:
            self._connected.set_result(bool(flags.session_present))

    def _on_disconnect(self, client: Any, _: Any, reason: Any, __: Any) -> None:
        error = PluginConnectionError(self.meta.id, f"the connection to the broker ended: {reason}")
        if not self._connected.done():
            self._connected.set_exception(error)
        elif client is self._client:
            self.fail(error)

    def _on_subscribe(self, client: Any, _: int, reasons: Any, __: Any) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused and client is self._client:
            self.fail(PluginConnectionError(self.meta.id, f"the broker refuses a subscription: {refused[0]}"))

    def _take_up_session(self, client: Any) -> None:
        """Subscribes to what is followed, and no more to what was followed before. What a kept session is subscribed to
        already is left alone, since a broker would send all kept values once more."""
        filters = {topic.topic: self.config.qos for topic in self.config.topics}
        if self._sparkplug is not None:
            filters |= dict.fromkeys(self._sparkplug.topics(), self.config.qos)
        known: dict[str, int] = {}
        if self._session_was_kept:
            known = json.loads(self.ledger.recall("subscribed") or "{}")
        else:
            # The broker knows no message any more, and will number from the start.
            self.ledger.forget(None)
        gone = [filter for filter in known if filter not in filters]
        new = [(filter, qos) for filter, qos in filters.items() if known.get(filter) != qos]
        # Noted first: what was not done in the end is done again.
        self.ledger.remember("subscribed", json.dumps({key: qos for key, qos in known.items() if key in filters}))
        if gone:
            client.unsubscribe(gone)
        if new:
            client.subscribe(new)
        self.ledger.remember("subscribed", json.dumps(filters))

    # Values.

    def _on_message(self, client: Any, message: Any) -> None:
        if client is not self._client:
            return
        arrival = datetime.now(UTC)
        try:
            topic = message.topic
            readings = self._read(topic, message.payload, arrival)
        except (Unreadable, UnicodeDecodeError) as error:
            self._complaints.add(getattr(error, "place", "a topic"), error)
            readings = ()
        known = None
        if message.qos == 1:
            digest = hashlib.blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=16).digest()
            known = Message(message.mid, digest, message.dup)
        if readings or known is not None:
            self.deliver(Delivery(readings, known))
        self._send_rebirths()

    def _read(self, topic: str, payload: bytes, arrival: datetime) -> tuple[Reading, ...]:
        """The readings of a message. Raises `Unreadable`."""
        if len(payload) > _LONGEST_PAYLOAD:
            raise Unreadable("a message is longer than 1 MiB")
        readings: list[Reading] = []
        if self._sparkplug is not None and topic.startswith(f"{NAMESPACE}/"):
            found = self._sparkplug.handle(topic, payload)
            readings += [Reading(self._metrics[one.place], one.value, one.time or arrival) for one in found]
        for signals in self._matcher.iter_match(topic):
            for signal in signals:
                try:
                    readings.append(_reading(signal, payload, arrival))
                except Unreadable as error:
                    self._complaints.add(topic, error)
        return tuple(readings)

    async def _do_acknowledge(self, messages: list[Message]) -> None:
        client = self._client
        if client is None:
            return
        for message in messages:
            client.ack(message.number, 1)
        self._unconfirmed += messages
        self._confirm(client)

    def _confirm(self, client: Any) -> None:
        """Asks for an answer that is sent after the acknowledgements were read; one at a time."""
        if self._barrier is None and self._unconfirmed:
            waiting, self._unconfirmed = self._unconfirmed, []
            _, number_ = client.unsubscribe(_BARRIER)
            if number_ is not None:
                self._barrier = (number_, waiting)

    def _on_unsubscribe(self, client: Any, number_: int, *_: Any) -> None:
        if client is self._client and self._barrier is not None and self._barrier[0] == number_:
            self.ledger.forget(self._barrier[1])
            self._barrier = None
            self._confirm(client)

    # Commands.

    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        topic, payload, qos, retain = self._command(channel_id, float(value))
        client = self._client
        if client is None:
            raise PluginConnectionError(self.meta.id, "there is no connection to the broker")
        sent = client.publish(topic, payload, qos=qos, retain=retain)
        async with asyncio.timeout(_CONNECT_SECONDS):
            await asyncio.to_thread(sent.wait_for_publish, _CONNECT_SECONDS)
        if not sent.is_published():
            raise PluginConnectionError(self.meta.id, f"the broker has not confirmed a command to {topic}")

    def _command(self, channel_id: str, value: float) -> tuple[str, bytes, int, bool]:
        for metric in self.config.metrics:
            if metric.channel == channel_id and self._sparkplug is not None:
                topic, payload = self._sparkplug.command(metric.place, value)
                return topic, payload, 0, False
        topic = next(topic for topic in self.config.topics if topic.channel == channel_id)
        text = f"{int(value)}" if value == int(value) else repr(value)
        return topic.command_topic, topic.command.replace("{value}", text).encode(), 1, topic.retain_command

    # Sparkplug.

    def _state_topic(self) -> str:
        return f"{NAMESPACE}/STATE/{self.config.host_id}"

    def _state(self, is_online: bool) -> str:
        return json.dumps({"online": is_online, "timestamp": self._state_since})

    def _announce(self, client: Any) -> None:
        assert self._sparkplug is not None
        if self.config.host_id:
            client.publish(self._state_topic(), self._state(True), qos=1, retain=True)
        self._sparkplug.ask_all()
        self._send_rebirths()

    def _send_rebirths(self) -> None:
        if self._sparkplug is not None and self._client is not None:
            for topic, payload in self._sparkplug.rebirths():
                self._client.publish(topic, payload, qos=0)

    async def _ask_for_births(self) -> None:
        """Asks nodes that are not known again and again: they may not have been there."""
        while self._sparkplug is not None:
            await asyncio.sleep(1.0)
            self._sparkplug.ask_missing()
            self._send_rebirths()


def _reading(signal: Topic, payload: bytes, arrival: datetime) -> Reading:
    """The reading of a payload; raises `Unreadable`."""
    said: Any = read_json(payload) if signal.value or signal.time else None
    if signal.value:
        raw = number(at_pointer(said, signal.value))
    else:
        try:
            raw = number(payload.decode())
        except UnicodeDecodeError:
            raise Unreadable("it is no text") from None
    return Reading(signal.channel, raw, moment(at_pointer(said, signal.time)) if signal.time else arrival)


def _check_filter(plugin: str, filter: str) -> None:
    """Raises `PluginConfigError` for a filter that a broker refuses."""
    levels = filter.split("/")
    is_wrong = (
        any(("+" in level or "#" in level) and len(level) > 1 for level in levels)
        or "#" in levels[:-1]
        or "\0" in filter
    )
    if is_wrong:
        raise PluginConfigError(plugin, f"{filter} is no topic filter: + and # stand for whole levels, # for the last")
