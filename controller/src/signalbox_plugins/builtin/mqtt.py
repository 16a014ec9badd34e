"""An MQTT broker: topics to channels, commands to topics, and the metrics of Sparkplug B edge nodes.

A message with QoS 1 in a persistent session is acknowledged when its values are on the controller's disk. The broker
repeats unacknowledged messages with their packet ids; the ledger holds these ids until the broker has answered a
request that was sent after the acknowledgement, since it reads both in order (MQTT 4.6).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ..channels import ChannelDescriptor
from ..config import PluginMeta
from ..errors import PluginConfigError, PluginConnectionError
from ..plugin import ChannelValue
from ..push import Delivery, Message, PushPlugin, Reading
from .files import UnusableFileError, content_of, path_of
from .mqtt_settings import MqttConfig, Topic
from .signals import (
    Rejections,
    Unreadable,
    at_pointer,
    descriptors,
    installed,
    moment,
    number,
    plausible,
    read_json,
)
from .sparkplug import NAMESPACE, Host, Place

_PACKAGES = "paho-mqtt protobuf"
_CONNECT_SECONDS = 20.0
_DISCONNECT_SECONDS = 5.0
# Until a broker that answers pings has answered other requests.
_ANSWER_SECONDS = 60.0
_LONGEST_PAYLOAD = 1 << 20
# Messages that a broker sends before it waits for acknowledgements.
_MOST_UNACKNOWLEDGED = 1000
# Never subscribed: an UNSUBSCRIBE of it has no effect but its answer.
_BARRIER = "signalbox/barrier"


class MqttPlugin(PushPlugin):
    """A broker, the subscribed topics, and the edge nodes behind it."""

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
        self._subscribing: tuple[int, str] | None = None
        self._rejections = Rejections()
        self._sparkplug: Host | None = None
        self._metrics: dict[Place, str] = {}
        self._rebirth_task: asyncio.Task[None] | None = None

    def get_channels(self) -> list[ChannelDescriptor]:
        for topic in self.config.topics:
            _check_filter(self.meta.id, topic.topic)
            if "+" in topic.command_topic or "#" in topic.command_topic:
                raise PluginConfigError(self.meta.id, f"{topic.channel}: commands go to one topic, without + and #")
        if bool(self.config.certificate_file) != bool(self.config.key_file):
            raise PluginConfigError(
                self.meta.id, "certificate_file: an own certificate needs its key_file, and a key it"
            )
        if self.config.certificate_file and not self.config.tls:
            raise PluginConfigError(self.meta.id, "certificate_file: an own certificate is sent only with tls")
        places: dict[Any, str] = {}
        for metric in self.config.metrics:
            # The values of a metric go to one channel.
            other = places.setdefault(metric.place, metric.channel)
            if other != metric.channel:
                raise PluginConfigError(self.meta.id, f"{metric.channel}: its metric is that of {other}")
        topics = [(topic, bool(topic.command_topic)) for topic in self.config.topics]
        return descriptors([*topics, *((metric, metric.writable) for metric in self.config.metrics)])

    @property
    def problem(self) -> str | None:
        return self._sparkplug.problem() if self._sparkplug is not None else None

    @property
    def remark(self) -> str | None:
        return str(self._rejections) or None

    @property
    def keeps_values(self) -> bool:
        return self._session_was_kept and not self.config.metrics

    # The connection. The library calls back in its own thread; `later` moves each call to the event loop.

    async def _do_connect(self) -> None:
        with installed(self.meta.id, _PACKAGES):
            import google.protobuf  # noqa: F401
            from paho.mqtt.matcher import MQTTMatcher

        loop = asyncio.get_running_loop()
        self._matcher = MQTTMatcher()
        for topic in self.config.topics:
            try:
                self._matcher[topic.topic].append(topic)
            except KeyError:
                self._matcher[topic.topic] = [topic]
        self._metrics = {metric.place: metric.channel for metric in self.config.metrics}
        self._sparkplug = Host(self._metrics, time.monotonic, self._rejections) if self._metrics else None
        self._unconfirmed, self._barrier, self._subscribing = [], None, None
        self._connected: asyncio.Future[bool] = loop.create_future()
        try:
            context = await _tls(self.config) if self.config.tls else None
            self._client = client = self._make_client(loop, context)
            await asyncio.to_thread(self._open, client)
            client.loop_start()
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._session_was_kept = await self._connected
            self._resume_session(client)
            if self._sparkplug is not None:
                self._announce(client)
                self._rebirth_task = asyncio.create_task(self._request_missing_births())
        except (OSError, TimeoutError) as error:
            await self._do_disconnect()
            why = "it does not answer" if isinstance(error, TimeoutError) else str(error)
            address = f"{self.config.host}:{self.config.port}"
            raise PluginConnectionError(self.meta.id, f"no connection to the broker at {address}: {why}") from error
        except BaseException:
            await self._do_disconnect()
            raise

    def _open(self, client: Any) -> None:
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

    def _make_client(self, loop: asyncio.AbstractEventLoop, context: ssl.SSLContext | None) -> Any:
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
        if context is not None:
            client.tls_set_context(context)
        if config.host_id and config.metrics:
            self._state_since = round(time.time() * 1000)
            client.will_set(self._state_topic(), self._state_message(False), qos=1, retain=True)

        def later(call: Any) -> Any:
            def called(*arguments: Any) -> None:
                # The thread may outlive the loop.
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
        if self._rebirth_task is not None:
            self._rebirth_task.cancel()
            self._rebirth_task = None
        if client is None:
            return
        if self._sparkplug is not None and self.config.host_id and client.is_connected():
            client.publish(self._state_topic(), self._state_message(False), qos=1, retain=True)
        connection = client.socket()
        client.disconnect()
        stopping = asyncio.create_task(asyncio.to_thread(client.loop_stop))
        _, unfinished = await asyncio.wait([stopping], timeout=_DISCONNECT_SECONDS)
        if unfinished and connection is not None:
            # The broker reads nothing: the library would wait for it as long as it waits for an answer.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _on_connect(self, client: Any, flags: Any, reason: Any, _: Any) -> None:
        if self._connected.done():
            return
        if reason.is_failure:
            why = f"the broker refuses the connection: {reason}"
            self._connected.set_exception(PluginConnectionError(self.meta.id, why))
        else:
            self._connected.set_result(bool(flags.session_present))

    def _on_disconnect(self, client: Any, _: Any, reason: Any, __: Any) -> None:
        if not self._connected.done():
            why = f"the broker at {self.config.host}:{self.config.port} accepted no session: {reason}"
            if self.config.tls:
                # With TLS 1.3, a refused certificate looks like a lost connection.
                why += "; it may require another certificate_file"
            self._connected.set_exception(PluginConnectionError(self.meta.id, why))
        elif client is self._client:
            self.fail(PluginConnectionError(self.meta.id, f"the connection to the broker ended: {reason}"))

    def _on_subscribe(self, client: Any, number_: int, reasons: Any, _: Any) -> None:
        if client is not self._client:
            return
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused:
            self.fail(PluginConnectionError(self.meta.id, f"the broker refuses a subscription: {refused[0]}"))
        elif self._subscribing is not None and self._subscribing[0] == number_:
            self.ledger.remember("subscribed", self._subscribing[1])
            self._subscribing = None

    def _resume_session(self, client: Any) -> None:
        """Brings the session's subscriptions to the configured ones. A filter that a persistent session has already is
        not subscribed again, since a broker would send its retained messages again."""
        filters = {topic.topic: self.config.qos for topic in self.config.topics}
        if self._sparkplug is not None:
            filters |= dict.fromkeys(self._sparkplug.topics(), self.config.qos)
        known: dict[str, int] = {}
        if self._session_was_kept:
            known = json.loads(self.ledger.recall("subscribed") or "{}")
        else:
            # A new session: the broker repeats nothing, and packet ids start again.
            self.ledger.forget(None)
        gone = [filter for filter in known if filter not in filters]
        new = [(filter, qos) for filter, qos in filters.items() if known.get(filter) != qos]
        # New filters are recorded when the broker has confirmed them: after a crash before, they are subscribed again.
        confirmed = {filter: qos for filter, qos in known.items() if filters.get(filter) == qos}
        self.ledger.remember("subscribed", json.dumps(confirmed))
        if gone:
            client.unsubscribe(gone)
        if new:
            _, number_ = client.subscribe(new)
            self._subscribing = (number_, json.dumps(filters)) if number_ is not None else None
            self._expect_answer(client, lambda: self._subscribing is not None)

    def _expect_answer(self, client: Any, is_waiting: Callable[[], bool]) -> None:
        """Gives the connection up if a request is not answered: acknowledgements that wait for an answer take memory."""

        def check() -> None:
            if client is self._client and is_waiting():
                self.fail(PluginConnectionError(self.meta.id, "the broker does not answer requests"))

        asyncio.get_running_loop().call_later(_ANSWER_SECONDS, check)

    # Values.

    def _on_message(self, client: Any, message: Any) -> None:
        if client is not self._client:
            return
        arrival = datetime.now(UTC)
        try:
            readings = self._read(message.topic, message.payload, arrival)
        except (Unreadable, UnicodeDecodeError) as error:
            self._rejections.add(_shown_topic(message), error)
            readings = ()
        known = None
        if message.qos == 1:
            digest = hashlib.blake2b(_shown_topic(message).encode() + b"\0" + message.payload, digest_size=16).digest()
            known = Message(message.mid, digest, message.dup)
        if readings or known is not None:
            self.deliver(Delivery(readings, known))
        self._send_rebirths()

    def _read(self, topic: str, payload: bytes, arrival: datetime) -> tuple[Reading, ...]:
        """The readings of a message. Raises `Unreadable`."""
        if len(payload) > _LONGEST_PAYLOAD:
            raise Unreadable("the message is longer than 1 MiB")
        readings: list[Reading] = []
        if self._sparkplug is not None and topic.startswith(f"{NAMESPACE}/"):
            found = self._sparkplug.handle(topic, payload, arrival)
            readings += [Reading(self._metrics[one.place], one.value, one.time) for one in found]
        for signals in self._matcher.iter_match(topic):
            for signal in signals:
                try:
                    readings.append(_reading(signal, payload, arrival))
                except Unreadable as error:
                    self._rejections.add(topic, error)
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
        """Sends a request whose answer proves that the broker has read the acknowledgements before it."""
        if self._barrier is None and self._unconfirmed:
            waiting, self._unconfirmed = self._unconfirmed, []
            _, number_ = client.unsubscribe(_BARRIER)
            if number_ is not None:
                self._barrier = barrier = (number_, waiting)
                self._expect_answer(client, lambda: self._barrier is barrier)

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
            raise PluginConnectionError(self.meta.id, f"the broker did not confirm a command to {topic} in time")

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

    def _state_message(self, is_online: bool) -> str:
        return json.dumps({"online": is_online, "timestamp": self._state_since})

    def _announce(self, client: Any) -> None:
        assert self._sparkplug is not None
        if self.config.host_id:
            client.publish(self._state_topic(), self._state_message(True), qos=1, retain=True)
        self._sparkplug.reset()
        self._send_rebirths()

    def _send_rebirths(self) -> None:
        if self._sparkplug is not None and self._client is not None:
            for topic, payload in self._sparkplug.rebirths():
                self._client.publish(topic, payload, qos=0)

    async def _request_missing_births(self) -> None:
        """Requests births periodically from nodes without one: they may have been offline at the last request."""
        while self._sparkplug is not None:
            await asyncio.sleep(1.0)
            self._sparkplug.request_missing()
            self._send_rebirths()


async def _tls(config: MqttConfig) -> ssl.SSLContext:
    """Verifies the broker's certificate and host name. Raises `UnusableFileError`."""
    authorities = await content_of("ca_file", config.ca_file) if config.ca_file else b""
    own = key = b""
    if config.certificate_file:
        own = await content_of("certificate_file", config.certificate_file)
        key = await content_of("key_file", config.key_file)
    return await asyncio.to_thread(_context, config, authorities, own, key)


def _context(config: MqttConfig, authorities: bytes, own: bytes, key: bytes) -> ssl.SSLContext:
    try:
        with path_of(authorities) as path:
            context = ssl.create_default_context(cafile=path if config.ca_file else None)
    except ssl.SSLError as error:
        remedy = "name a file with the certificates of CAs, or the broker's own"
        raise UnusableFileError("ca_file", config.ca_file, "holds no certificate in PEM", remedy) from error
    # The broker's own certificate in `ca_file` is trusted, also one that an unknown CA has signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if config.certificate_file:
        try:
            with path_of(own) as certificate_path, path_of(key) as key_path:
                # A key with a passphrase is refused: the library would ask for it at the terminal.
                context.load_cert_chain(certificate_path, key_path, password="")
        except ssl.SSLError as error:
            files = f"{config.certificate_file} and {config.key_file}"
            why = f"are not a certificate with its key, without a passphrase, in PEM ({error})"
            remedy = "name the files of one certificate"
            raise UnusableFileError("certificate_file and key_file", files, why, remedy) from error
    return context


def _shown_topic(message: Any) -> str:
    # The library decodes the topic on access.
    try:
        return str(message.topic)
    except UnicodeDecodeError:
        return "a topic that is not UTF-8"


def _reading(signal: Topic, payload: bytes, arrival: datetime) -> Reading:
    """The reading of a payload. Raises `Unreadable`."""
    document: Any = read_json(payload) if signal.value or signal.time else None
    if signal.value:
        raw = number(at_pointer(document, signal.value))
    else:
        try:
            raw = number(payload.decode())
        except UnicodeDecodeError:
            raise Unreadable("it is not UTF-8") from None
    time = plausible(moment(at_pointer(document, signal.time)), arrival) if signal.time else arrival
    return Reading(signal.channel, raw, time)


def _check_filter(plugin: str, filter: str) -> None:
    """Raises `PluginConfigError` for a filter that a broker refuses."""
    levels = filter.split("/")
    is_wrong = (
        any(("+" in level or "#" in level) and len(level) > 1 for level in levels)
        or "#" in levels[:-1]
        or "\0" in filter
    )
    if is_wrong:
        raise PluginConfigError(plugin, f"{filter} is not a topic filter: + and # are whole levels, # the last one")
