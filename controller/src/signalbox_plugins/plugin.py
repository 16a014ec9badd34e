"""The base classes of plugins."""

from __future__ import annotations

import asyncio
import enum
import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

from .channels import ChannelDescriptor, Simulation
from .config import ConfigError, PluginInstanceConfig, PluginMeta
from .errors import (
    CapabilityNotFoundError,
    PluginConfigError,
    PluginConnectionError,
    PluginOutputError,
    PluginStateError,
    PluginTimeoutError,
)

ChannelValue = float | int | bool


class PluginState(enum.StrEnum):
    """Where a plugin is in its life."""

    DISCOVERED = "discovered"
    CONFIGURED = "configured"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RUNNING = "running"
    DISCONNECTING = "disconnecting"
    DISCONNECTED = "disconnected"
    ERROR = "error"


@dataclass(frozen=True)
class HealthReport:
    """How a plugin is."""

    plugin_id: str
    instance_name: str
    state: str
    is_healthy: bool
    error_count: int
    last_error: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dict(self.__dict__)


_CONNECTABLE = (PluginState.CONFIGURED, PluginState.DISCONNECTED, PluginState.ERROR)
_CONNECTED = (PluginState.CONNECTED, PluginState.RUNNING)


class DevicePlugin(ABC):
    """A kind of device. A subclass sets `meta`, lists its channels and talks to the device in the `_do_` methods;
    `config` holds its configuration there. In demo mode none of them is called but `get_channels`."""

    meta: ClassVar[PluginMeta]
    config_schema: ClassVar[type[PluginInstanceConfig]] = PluginInstanceConfig

    def __init__(self) -> None:
        # Names the instance to the outside, where it must be the same after every start; hosts set it.
        self.instance_id = ""
        self._state = PluginState.DISCOVERED
        self._config: Any = None
        self._channels: dict[str, ChannelDescriptor] = {}
        self._simulation = Simulation()
        self._written: dict[str, float] = {}
        self._begun = time.monotonic()
        self._error_count = 0
        self._last_error: str | None = None

    # Implemented by plugins.

    @abstractmethod
    def get_channels(self) -> list[ChannelDescriptor]:
        """The channels, which may follow from `config`."""

    @abstractmethod
    async def _do_connect(self) -> None:
        """Opens the way to the device."""

    @abstractmethod
    async def _do_disconnect(self) -> None:
        """Closes it."""

    @abstractmethod
    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        """The raw value of a channel; `None` if it has no value now."""

    @abstractmethod
    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        """Writes a raw value to the device. Raises `PluginOutputError` if only this output does not take it."""

    async def _begin_reading(self) -> None:  # noqa: B027 # most need nothing
        """Called before all channels are read: the place to fetch many values at once."""

    # Used by hosts.

    async def begin_reading(self) -> None:
        """Prepares the reading of all channels."""
        if self._state in _CONNECTED and not self.is_demo_mode:
            await self._begin_reading()

    @property
    def state(self) -> PluginState:
        return self._state

    @property
    def config(self) -> Any:
        """The configuration, an instance of `config_schema`."""
        return self._config

    @property
    def instance_name(self) -> str:
        return str(self._config.instance_name) if self._config is not None else ""

    @property
    def is_demo_mode(self) -> bool:
        return bool(self._config is not None and self._config.demo_mode)

    @property
    def channels(self) -> dict[str, ChannelDescriptor]:
        return dict(self._channels)

    @property
    def problem(self) -> str | None:
        """Why parts of a connected device cannot be used; the status of the instance is `error` then."""
        return None

    @property
    def remark(self) -> str | None:
        """A note for people, shown with the status `connected`."""
        return None

    @property
    def keeps_values(self) -> bool:
        """Whether the sender has queued values while there was no connection, so that none is missing."""
        return False

    @property
    def delivery_delay(self) -> timedelta:
        """How long the device may hold a value back before it sends it; those are lost with a connection."""
        return timedelta(0)

    @property
    def reading_seconds(self) -> float:
        """How long the reading of all channels may take."""
        return 30.0

    @property
    def error_count(self) -> int:
        return self._error_count

    @property
    def last_error(self) -> str | None:
        return self._last_error

    def configure(self, config: dict[str, Any] | Any) -> None:
        """Takes a configuration and finds out the channels. Raises `PluginConfigError`."""
        values = config.model_dump() if hasattr(config, "model_dump") else config
        try:
            self._config = self.config_schema.model_validate(values)
        except ValueError as error:
            raise PluginConfigError(self.meta.id, str(error)) from error
        try:
            self._channels = {channel.id: channel for channel in self.get_channels()}
        except ConfigError as error:
            raise PluginConfigError(self.meta.id, str(error)) from error
        self._state = PluginState.CONFIGURED

    async def connect(self) -> None:
        """Reaches for the device. Raises `PluginConnectionError`."""
        if self._state not in _CONNECTABLE:
            raise PluginStateError(self.meta.id, f"cannot connect while {self._state}")
        self._state = PluginState.CONNECTING
        self._begun = time.monotonic()
        if not self.is_demo_mode:
            try:
                await self._do_connect()
            except Exception as error:
                self._state = PluginState.ERROR
                self._note(error)
                if isinstance(error, PluginConnectionError):
                    raise
                raise PluginConnectionError(self.meta.id, str(error) or type(error).__name__) from error
        self._state = PluginState.CONNECTED

    async def disconnect(self) -> None:
        """Puts outputs into their safe state and lets go of the device."""
        await self._let_go(is_safe=True)

    async def release(self) -> None:
        """Lets go of the device and leaves its outputs as they are: another controller writes them now."""
        await self._let_go(is_safe=False)

    async def _let_go(self, is_safe: bool) -> None:
        if self._state not in _CONNECTED:
            return
        self._state = PluginState.DISCONNECTING
        if is_safe:
            await self._write_safe_values()
        try:
            if not self.is_demo_mode:
                await self._do_disconnect()
        except Exception as error:
            self._note(error)
        finally:
            self._state = PluginState.DISCONNECTED

    async def read(self, channel_id: str) -> float | None:
        """The value of a channel for people; none when it could not be read, which is counted."""
        channel = self._channel(channel_id)
        if self._state not in _CONNECTED:
            raise PluginStateError(self.meta.id, f"cannot read while {self._state}")
        self._state = PluginState.RUNNING
        if self.is_demo_mode:
            return self._simulate(channel)
        try:
            raw = await self._do_read(channel_id)
            return None if raw is None else self.displayed(channel_id, raw)
        except Exception as error:
            self._note(error)
            return None

    def displayed(self, channel_id: str, raw: ChannelValue) -> float | None:
        """The value for people of a raw one; none if it is not finite."""
        value = self._channel(channel_id).read_conversion.convert(float(raw))
        return value if math.isfinite(value) else None

    async def read_all_inputs(self) -> dict[str, float]:
        """The values of all channels that can be read now."""
        values = {}
        for channel in self._channels.values():
            if channel.is_readable:
                value = await self.read(channel.id)
                if value is not None:
                    values[channel.id] = value
        return values

    async def write(self, channel_id: str, value: ChannelValue) -> None:
        """Writes a value in display units to an output, clamped to its bounds."""
        channel = self._channel(channel_id)
        if not channel.is_writable:
            raise PluginOutputError(self.meta.id, f"{channel_id} is an input")
        if self._state not in _CONNECTED:
            raise PluginStateError(self.meta.id, f"cannot write while {self._state}")
        if not math.isfinite(float(value)):
            raise ValueError("values must be finite")
        await self._write(channel, channel.clamp(float(value)))

    async def apply_safe_state(self) -> None:
        """Writes every output its safe value."""
        if self._state in _CONNECTED:
            await self._write_safe_values()

    async def health_check(self) -> HealthReport:
        """How the plugin is."""
        return HealthReport(
            plugin_id=self.meta.id,
            instance_name=self.instance_name,
            state=self._state.value,
            is_healthy=self._state in _CONNECTED,
            error_count=self._error_count,
            last_error=self._last_error,
        )

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    def _channel(self, channel_id: str) -> ChannelDescriptor:
        try:
            return self._channels[channel_id]
        except KeyError:
            raise CapabilityNotFoundError(self.meta.id, f"there is no channel {channel_id}") from None

    def _simulate(self, channel: ChannelDescriptor) -> float:
        if channel.is_writable and channel.id in self._written:
            return self._written[channel.id]
        return self._simulation.value(channel, time.monotonic() - self._begun)

    async def _write(self, channel: ChannelDescriptor, value: float) -> None:
        if not self.is_demo_mode:
            await self._do_write(channel.id, channel.write_conversion.invert(value))
        self._written[channel.id] = value

    async def _write_safe_values(self) -> None:
        for channel in self._channels.values():
            if channel.is_writable and channel.safe_value is not None:
                try:
                    await self._write(channel, channel.safe_value)
                except Exception as error:
                    # One output that fails must not keep the others from being safe.
                    self._note(error)

    def _note(self, error: Exception) -> None:
        self._error_count += 1
        self._last_error = f"{type(error).__name__}: {error}"[:500]


class SyncDevicePlugin(DevicePlugin):
    """For devices whose library blocks: its calls run in threads, one at a time, also when a call takes longer than it is
    waited for. One that has not returned after `unblock_seconds` more fails those after it, with `PluginTimeoutError`; only
    `disconnect_sync` is then called beside it: closing the connection ends it in most libraries."""

    unblock_seconds = 5.0

    def __init__(self) -> None:
        super().__init__()
        self._alone = asyncio.Lock()
        self._running: asyncio.Task[Any] | None = None

    @abstractmethod
    def connect_sync(self) -> None:
        """Opens the way to the device."""

    @abstractmethod
    def disconnect_sync(self) -> None:
        """Closes it."""

    @abstractmethod
    def read_sync(self, channel_id: str) -> ChannelValue | None:
        """The raw value of a channel."""

    @abstractmethod
    def write_sync(self, channel_id: str, value: ChannelValue) -> None:
        """Writes a raw value to the device."""

    async def _do_connect(self) -> None:
        await self._in_thread(self.connect_sync)

    async def _do_disconnect(self) -> None:
        if await self._has_returned():
            await self._in_thread(self.disconnect_sync)
        else:
            async with asyncio.timeout(self.unblock_seconds):
                await asyncio.to_thread(self.disconnect_sync)

    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        value: ChannelValue | None = await self._in_thread(self.read_sync, channel_id)
        return value

    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        await self._in_thread(self.write_sync, channel_id, value)

    async def _in_thread(self, call: Any, *arguments: Any) -> Any:
        async with self._alone:
            if not await self._has_returned():
                raise PluginTimeoutError(
                    self.meta.id,
                    "an earlier call of the device's library has not returned: if it never does, restart the instance",
                )
            self._running = asyncio.create_task(asyncio.to_thread(call, *arguments))
            # Read here, since asyncio reports an error that is not read when its caller has given up.
            self._running.add_done_callback(lambda call: call.cancelled() or call.exception())
            return await asyncio.shield(self._running)

    async def _has_returned(self) -> bool:
        """Waits for the call under way. A thread cannot be stopped: it runs on after its caller has given up."""
        if self._running is None or self._running.done():
            return True
        ended, _ = await asyncio.wait([self._running], timeout=self.unblock_seconds)
        return bool(ended)


__all__ = ["ChannelValue", "ConfigError", "DevicePlugin", "HealthReport", "PluginState", "SyncDevicePlugin"]
