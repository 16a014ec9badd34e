"""An OPC UA server: subscribed nodes to channels, commands to nodes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ..channels import ChannelDescriptor
from ..config import Field, PluginInstanceConfig, PluginMeta
from ..errors import PluginConfigError, PluginConnectionError, PluginOutputError
from ..plugin import ChannelValue
from ..push import Delivery, PushPlugin, Reading
from .files import UnusableFileError, content_of
from .signals import Rejections, Signal, Unreadable, descriptors, installed, number, plausible

_TIMEOUT = 10.0
_PACKAGES = "asyncua"
# Values that a server queues for a node between two notifications, and those queued here.
_QUEUE_OF_NODE = 1000
_QUEUE = 50_000
# The check whether nodes still exist.
_SECONDS_PER_CHECK = 10
_NODES_PER_REQUEST = 500
# Nodes that are looked up at the same time, and how much longer each of them may take.
_NODES_AT_ONCE = 20
_SECONDS_PER_NODE = 0.05
# Answers of a server that takes no value for a node, or not this one.
_REFUSALS = (
    "BadNotWritable",
    "BadOutOfRange",
    "BadTypeMismatch",
    "BadUserAccessDenied",
    "BadWriteNotSupported",
)
# A path that names something, or an id with one of its four kinds of identifiers.
_NODE = "^(/+[^/\\s]|(.*;)?[isgb]=\\S)"


class NodeSignal(Signal):
    """A channel that carries the values of a node."""

    node: str = Field(
        min_length=1,
        max_length=1000,
        pattern=_NODE,
        description="Node id (nsu=URI;s=Boiler.Temp or ns=2;s=…), or browse path from Objects (/Boiler/Temp or /2:…)",
    )
    writable: bool = Field(default=False, description="Whether commands may be written")


class OpcUaConfig(PluginInstanceConfig):
    """Settings of an instance."""

    url: str = Field(
        default="opc.tcp://127.0.0.1:4840",
        max_length=1000,
        # Everybody who may see the instance sees the address, and never its password.
        pattern="^opc\\.tcp://[^/@]+(/.*)?$",
        title="URL",
        description="Endpoint, without user name and password, which have fields of their own",
    )
    username: str = Field(default="", max_length=1000)
    password: str = Field(default="", max_length=1000, json_schema_extra={"format": "password"})
    security: Literal["None", "Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss"] = Field(
        default="None", description="Policy; all but None sign and encrypt"
    )
    certificate_file: str = Field(
        default="", max_length=1000, description="Own certificate (DER or PEM), on the controller's machine"
    )
    key_file: str = Field(default="", max_length=1000, description="Private key of the certificate")
    server_certificate_file: str = Field(
        default="", max_length=1000, description="Expected certificate of the server; empty: any"
    )
    publishing_ms: int = Field(default=500, ge=10, le=60000, description="Milliseconds between two notifications")
    sampling_ms: int = Field(default=100, ge=0, le=60000, description="Milliseconds between two samples in the server")
    nodes: list[NodeSignal] = Field(default_factory=list, max_length=5000, description="Nodes and their channels")


class OpcUaPlugin(PushPlugin):
    """A server and the subscribed nodes. Node ids and paths are resolved again at every connection."""

    meta = PluginMeta(
        id="opcua",
        name="OPC UA server",
        version="1.0.0",
        vendor="Signalbox",
        description="Nodes of an OPC UA server: values by subscription, with the time of their source, and commands.",
        protocol="opcua",
    )
    config_schema = OpcUaConfig

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._nodes: dict[str, Any] = {}
        self._types: dict[str, Any] = {}
        self._missing: dict[str, str] = {}
        self._rejections = Rejections()
        self._tasks: list[asyncio.Task[None]] = []

    def get_channels(self) -> list[ChannelDescriptor]:
        if self.config.security != "None" and not (self.config.certificate_file and self.config.key_file):
            raise PluginConfigError(self.meta.id, "certificate_file: this policy needs certificate_file and key_file")
        return descriptors([(node, node.writable) for node in self.config.nodes])

    @property
    def problem(self) -> str | None:
        if not self._missing:
            return None
        shown = [f"{channel}: {why}" for channel, why in list(self._missing.items())[:5]]
        return f"{len(self._missing)} of {len(self.config.nodes)} nodes cannot be subscribed: {'; '.join(shown)}"

    @property
    def remark(self) -> str | None:
        return str(self._rejections) or None

    @property
    def delivery_delay(self) -> timedelta:
        return timedelta(milliseconds=self.config.publishing_ms)

    async def _do_connect(self) -> None:
        with installed(self.meta.id, _PACKAGES):
            from asyncua import Client
            from asyncua.ua import UaError

        # The library logs each failed attempt in several lines; the status of the instance names the last one.
        logging.getLogger("asyncua").setLevel(logging.CRITICAL)
        config = self.config
        # The library's own check of the connection would give a busy server one second.
        self._client = client = Client(config.url, timeout=_TIMEOUT, watchdog_intervall=_TIMEOUT, auto_reconnect=False)
        try:
            if config.username:
                client.set_user(config.username)
                client.set_password(config.password)
            async with asyncio.timeout(3 * _TIMEOUT + len(config.nodes) * _SECONDS_PER_NODE):
                if config.security != "None":
                    await self._secure(client)
                await client.connect()
                await self._subscribe(client)
        except (OSError, TimeoutError, UaError) as error:
            await self._do_disconnect()
            why = self._silence if isinstance(error, TimeoutError) else _why(error)
            raise PluginConnectionError(self.meta.id, f"no connection to {config.url}: {why}") from error
        except BaseException:
            await self._do_disconnect()
            raise

    @property
    def _silence(self) -> str:
        """Servers give no reason when they refuse a certificate."""
        refused = ", or does not trust certificate_file, or server_certificate_file is not its own"
        return f"it does not answer{refused if self.config.security != 'None' else ''}"

    async def _secure(self, client: Any) -> None:
        """Sets policy and certificates. The client has the URI of its certificate, which servers compare."""
        from asyncua import ua
        from asyncua.crypto import security_policies
        from asyncua.crypto.uacrypto import load_certificate, load_private_key

        config = self.config
        certificate, own = await _of_file("certificate_file", config.certificate_file, load_certificate)
        key, own_key = await _of_file("key_file", config.key_file, load_private_key)
        if own_key.public_key() != own.public_key():
            why = f"does not belong to the certificate in {config.certificate_file}"
            raise UnusableFileError("key_file", config.key_file, why, "name the key that it was made with")
        expected = None
        if config.server_certificate_file:
            path = config.server_certificate_file
            expected, _ = await _of_file("server_certificate_file", path, load_certificate)
        client.application_uri = _application_uri(own) or client.application_uri
        policy = getattr(security_policies, f"SecurityPolicy{config.security}")
        mode = ua.MessageSecurityMode.SignAndEncrypt
        await client.set_security(policy, certificate, key, server_certificate=expected, mode=mode)

    async def _subscribe(self, client: Any) -> None:
        from asyncua import ua
        from asyncua.common.subscription import OverflowPolicy

        self._nodes, self._types, self._missing = {}, {}, {}
        subscription = await client.create_subscription(
            self.config.publishing_ms, queue_maxsize=_QUEUE, overflow=OverflowPolicy.DISCONNECT
        )
        # From here on values are queued: the first ones arrive before the answer to the subscription.
        events = aiter(subscription)
        for at in range(0, len(self.config.nodes), _NODES_AT_ONCE):
            page = self.config.nodes[at : at + _NODES_AT_ONCE]
            # Not one after the other: over a slow network, thousands would never be found in time.
            found = await asyncio.gather(*(_find(client, signal.node) for signal in page), return_exceptions=True)
            for signal, node in zip(page, found, strict=True):
                if isinstance(node, (ua.UaError, ValueError)):
                    self._missing[signal.channel] = f"{signal.node} was not found ({_why(node)})"
                elif isinstance(node, BaseException):
                    raise node
                else:
                    self._nodes[signal.channel] = node
        channels: dict[Any, list[str]] = {}
        for channel, node in self._nodes.items():
            channels.setdefault(node.nodeid, []).append(channel)
        nodes = [client.get_node(id) for id in channels]
        if nodes:
            handles = await subscription.subscribe_data_change(
                nodes, queuesize=_QUEUE_OF_NODE, sampling_interval=self.config.sampling_ms
            )
            for node, handle in zip(nodes, handles, strict=True):
                if isinstance(handle, ua.StatusCode):
                    for channel in channels[node.nodeid]:
                        self._missing[channel] = f"{node.nodeid.to_string()} was refused ({handle.name})"
        self._tasks = [
            asyncio.create_task(self._take(events, channels)),
            asyncio.create_task(self._watch(client)),
        ]

    async def _take(self, events: Any, channels: dict[Any, list[str]]) -> None:
        from asyncua.common.subscription import DataChangeEvent

        async for event in events:
            if isinstance(event, DataChangeEvent):
                item = event.data.monitored_item.Value
                readings = [self._reading(channel, item) for channel in channels.get(event.node.nodeid, [])]
                found = tuple(reading for reading in readings if reading is not None)
                if found:
                    self.deliver(Delivery(found))
        self.fail(PluginConnectionError(self.meta.id, "the server ended the subscription"))

    def _reading(self, channel: str, item: Any) -> Reading | None:
        if item.StatusCode is not None and not item.StatusCode.is_good():
            self._note_deleted(channel, item.StatusCode)
            self._rejections.add(channel, f"their status is {item.StatusCode.name}")
            return None
        try:
            value = number(item.Value.Value if item.Value is not None else None)
            stamp, arrival = item.SourceTimestamp or item.ServerTimestamp, datetime.now(UTC)
            time = plausible(_utc(stamp), arrival) if stamp is not None else arrival
        except Unreadable as error:
            self._rejections.add(channel, error)
            return None
        return Reading(channel, value, time)

    async def _watch(self, client: Any) -> None:
        """Reads the server's state periodically, to detect a lost connection."""
        from asyncua import ua

        state = client.get_node(ua.ObjectIds.Server_ServerStatus_State)
        for second in itertools.count(1):
            await asyncio.sleep(1.0)
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await state.read_value()
                    if second % _SECONDS_PER_CHECK == 0:
                        await self._check_nodes(client)
                if self._missing:
                    await self._find_missing(client)
            except Exception as error:
                self.fail(PluginConnectionError(self.meta.id, f"the connection to the server is lost: {_why(error)}"))
                return

    async def _check_nodes(self, client: Any) -> None:
        """Notes nodes that a running server has deleted: not every server notifies of it."""
        from asyncua import ua

        nodes = list(self._nodes.items())
        for at in range(0, len(nodes), _NODES_PER_REQUEST):
            page = nodes[at : at + _NODES_PER_REQUEST]
            found = await client.read_attributes([node for _, node in page], ua.AttributeIds.NodeClass)
            for (channel, _), answer in zip(page, found, strict=True):
                self._note_deleted(channel, answer.StatusCode)

    def _note_deleted(self, channel: str, status: Any) -> None:
        if status is not None and status.name in ("BadNodeIdUnknown", "BadNodeIdInvalid") and channel in self._nodes:
            node = self._nodes.pop(channel)
            self._missing[channel] = f"{node.nodeid.to_string()} was deleted"

    async def _find_missing(self, client: Any) -> None:
        """Raises, so that the plugin connects again, when a missing node exists: servers add nodes while they start."""
        from asyncua import ua

        for signal in self.config.nodes:
            if signal.channel in self._missing and signal.channel not in self._nodes:
                with contextlib.suppress(ua.UaError, ValueError):
                    await _find(client, signal.node)
                    raise PluginConnectionError(self.meta.id, f"{signal.node} exists now; connecting again")

    async def _do_disconnect(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_TIMEOUT):
                    await client.disconnect()

    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        from asyncua import ua

        node = self._nodes.get(channel_id)
        if node is None:
            # It is connected again when the node is there.
            why = self._missing.get(channel_id, "the node was not found")
            raise PluginOutputError(self.meta.id, f"{channel_id} takes no command: {why}", is_passing=True)
        try:
            await self._write_to(node, channel_id, value)
        except ua.UaStatusCodeError as error:
            if type(error).__name__ not in _REFUSALS:
                raise
            why = f"the server refuses a command to {channel_id}: {_why(error)}"
            raise PluginOutputError(self.meta.id, why) from error

    async def _write_to(self, node: Any, channel_id: str, value: ChannelValue) -> None:
        from asyncua import ua

        async with asyncio.timeout(_TIMEOUT):
            if channel_id not in self._types:
                self._types[channel_id] = await node.read_data_type_as_variant_type()
            kind = self._types[channel_id]
            raw: Any = float(value)
            if kind is ua.VariantType.Boolean:
                raw = raw != 0
            elif kind not in (ua.VariantType.Float, ua.VariantType.Double):
                raw = round(raw)
            await node.write_value(ua.DataValue(ua.Variant(raw, kind)))


async def _of_file(setting: str, path: str, load: Any) -> tuple[Any, Any]:
    """A certificate or key out of a file, DER or PEM by its content: for the library, and as `load` reads it. Raises
    `UnusableFileError`."""
    from asyncua.crypto.uacrypto import CertProperties

    content = await content_of(setting, path)
    form = "pem" if content.lstrip().startswith(b"-----BEGIN") else "der"
    try:
        loaded = await load(content, extension=form)
    except (TypeError, ValueError) as error:
        # A `TypeError` is a key with a passphrase.
        why = "is not a certificate or key without a passphrase, in DER or PEM"
        raise UnusableFileError(setting, path, why, "name a file that is") from error
    return CertProperties(content, form), loaded


def _application_uri(certificate: Any) -> str | None:
    """The application URI in a certificate (OPC UA part 6, 6.2.2)."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    found = names.get_values_for_type(x509.UniformResourceIdentifier)
    return str(found[0]) if found else None


async def _find(client: Any, text: str) -> Any:
    """The node of an id or a browse path. Raises `UaError` or `ValueError`."""
    from asyncua import ua

    if text.startswith("/"):
        node = client.nodes.objects
        for name in text.strip("/").split("/"):
            node = await _child(client, node, name)
        return node
    if text.startswith("nsu="):
        uri, _, rest = text[4:].partition(";")
        text = f"ns={await client.get_namespace_index(uri)};{rest}"
    node = client.get_node(ua.NodeId.from_string(text))
    # Raises for an unknown node.
    await node.read_node_class()
    return node


async def _child(client: Any, node: Any, name: str) -> Any:
    """The child with this browse name; without an index, in any namespace, since servers number these anew."""
    index, colon, _ = name.partition(":")
    if colon and index.isdecimal():
        return await node.get_child(name)
    found = [one for one in await node.get_children_descriptions() if one.BrowseName.Name == name]
    if len(found) != 1:
        raise ValueError(f"{len(found)} nodes have the name {name} there")
    return client.get_node(found[0].NodeId)


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
