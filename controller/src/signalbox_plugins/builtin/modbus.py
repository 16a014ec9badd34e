"""A Modbus device, by TCP or a serial line: registers and coils to channels, commands to them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..channels import ChannelDescriptor
from ..config import Field, PluginInstanceConfig, PluginMeta
from ..errors import PluginConfigError, PluginConnectionError, PluginOutputError
from ..plugin import ChannelValue, DevicePlugin
from .signals import VISIBLE, Signal, descriptors, installed

# Of one request (Modbus application protocol 1.1b3, 6.1 to 6.4).
_MOST_REGISTERS, _MOST_BITS = 125, 2000
_PACKAGES = "pymodbus pyserial"
# Unused registers between two that are read in one request.
_WIDEST_GAP = 8
# Seconds for which a serial line is left alone after a request without an answer at least: nothing in a late answer says
# which request it is to. And at most, on a line that is never quiet.
_QUIET_SECONDS, _LONGEST_QUIET = 1.0, 10.0
# Seconds of one reading that devices without an answer may take, and those of the others.
_SILENT_SECONDS = 10.0
_READING_SECONDS = 20.0
_WIDTHS = {"int16": 1, "uint16": 1, "int32": 2, "uint32": 2, "float32": 2, "int64": 4, "uint64": 4, "float64": 4}


class Register(Signal):
    """A channel that carries a number from registers, or a bit."""

    table: Literal["holding", "input", "coil", "discrete"] = Field(
        default="holding", description="Holding and input registers; coils and discrete inputs are bits"
    )
    address: int = Field(ge=0, le=65535, description="Address in the protocol, from 0 (40001 is 0 of holding)")
    type: Literal["int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "bit"] = Field(
        default="uint16", description="Type of the number in the registers; bit is one bit of a register"
    )
    bit: int = Field(default=0, ge=0, le=15, description="Number of the bit, for the type bit; 0 is the lowest")
    word_order: Literal["big", "little"] = Field(default="big", description="Which register is first")
    device_id: int = Field(default=1, ge=0, le=255, description="Unit id")
    writable: bool = Field(default=False, description="Whether commands may be sent; only holding registers and coils")

    @property
    def is_bits(self) -> bool:
        """Whether its table holds bits."""
        return self.table in ("coil", "discrete")

    @property
    def width(self) -> int:
        """Number of registers or bits."""
        return 1 if self.is_bits else _WIDTHS.get(self.type, 1)


class ModbusConfig(PluginInstanceConfig):
    """Settings of an instance."""

    transport: Literal["tcp", "rtu"] = Field(default="tcp", description="By network or by serial line")
    host: str = Field(
        default="127.0.0.1", min_length=1, max_length=255, pattern=VISIBLE, description="Name or address, for tcp"
    )
    port: int = Field(default=502, ge=1, le=65535)
    serial_port: str = Field(default="/dev/ttyUSB0", max_length=255, description="For rtu, on the controller's machine")
    baud_rate: int = Field(default=19200, ge=300, le=4_000_000)
    parity: Literal["N", "E", "O"] = "E"
    stop_bits: int = Field(default=1, ge=1, le=2)
    timeout_ms: int = Field(default=3000, ge=50, le=30000, description="Milliseconds until a request times out")
    registers: list[Register] = Field(default_factory=list, max_length=2000, description="Registers and their channels")


@dataclass(frozen=True)
class Block:
    """Range of registers or bits that one request reads."""

    device_id: int
    table: str
    address: int
    count: int


class ModbusPlugin(DevicePlugin):
    """A device, or several behind one address or on one line."""

    meta = PluginMeta(
        id="modbus",
        name="Modbus device",
        version="1.0.0",
        vendor="Signalbox",
        description="Registers and coils of Modbus devices by TCP or serial line, values and commands.",
        protocol="modbus",
    )
    config_schema = ModbusConfig

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._registers: dict[str, Register] = {}
        self._blocks: list[Block] = []
        self._read: dict[tuple[int, str, int], int | bool] = {}
        self._failed: dict[Block, str] = {}
        self._not_finite: set[str] = set()
        # Devices that did not answer, and why; the next one to try is first.
        self._silent: dict[int, str] = {}
        # Those that answered the last reading.
        self._answered: set[int] = set()
        # One request at a time, and the times of a serial line's last bytes and of its last request without an answer.
        self._line = asyncio.Lock()
        self._heard = 0.0
        self._unanswered: float | None = None

    def get_channels(self) -> list[ChannelDescriptor]:
        if self.config.transport == "rtu" and not self.config.serial_port.strip():
            raise PluginConfigError(self.meta.id, "serial_port: is required for rtu")
        for one in self.config.registers:
            is_output = one.table in ("holding", "coil") and one.type != "bit"
            if one.writable and not is_output:
                why = "only whole holding registers and coils are writable"
                raise PluginConfigError(self.meta.id, f"{one.channel}: {why}")
            if one.address + one.width > 65536:
                raise PluginConfigError(self.meta.id, f"{one.channel}: ends beyond address 65535")
        self._registers = {one.channel: one for one in self.config.registers}
        self._blocks = blocks(self.config.registers)
        return descriptors([(one, one.writable) for one in self.config.registers])

    @property
    def problem(self) -> str | None:
        shown = [
            f"{block.table} {block.address} to {block.address + block.count - 1} of device {block.device_id}: {why}"
            for block, why in list(self._failed.items())[:5]
        ]
        problems = [f"cannot be read: {'; '.join(shown)}"] if shown else []
        if self._not_finite:
            problems.append(f"no finite number is in the registers of {', '.join(sorted(self._not_finite)[:5])}")
        return "; ".join(problems) or None

    @property
    def reading_seconds(self) -> float:
        quiet = _LONGEST_QUIET if self.config.transport == "rtu" else 0.0
        return _READING_SECONDS + _SILENT_SECONDS + quiet + self.config.timeout_ms / 1000

    async def _do_connect(self) -> None:
        with installed(self.meta.id, _PACKAGES):
            from pymodbus import FramerType
            from pymodbus.client import AsyncModbusSerialClient, AsyncModbusTcpClient

            if self.config.transport == "rtu":
                import serial  # noqa: F401

        # The library logs each failed request; the status of the instance names the last one.
        logging.getLogger("pymodbus").setLevel(logging.CRITICAL)
        config = self.config
        timeout = config.timeout_ms / 1000
        if config.transport == "tcp":
            place = f"{config.host}:{config.port}"
            client: Any = AsyncModbusTcpClient(
                config.host, port=config.port, timeout=timeout, retries=0, reconnect_delay=0
            )
        else:
            place = config.serial_port
            client = AsyncModbusSerialClient(
                config.serial_port,
                framer=FramerType.RTU,
                baudrate=config.baud_rate,
                parity=config.parity,
                stopbits=config.stop_bits,
                timeout=timeout,
                retries=0,
                reconnect_delay=0,
                trace_packet=self._note_bytes,
            )
        if not await self._open(client, place):
            client.close()
            raise PluginConnectionError(self.meta.id, f"no connection to {place}")
        self._client, self._failed, self._silent, self._answered = client, {}, {}, set()
        self._not_finite.clear()

    async def _open(self, client: Any, place: str) -> bool:
        try:
            return bool(await client.connect())
        except Exception as error:
            config = self.config
            how = f" with {config.baud_rate} baud, parity {config.parity} and {config.stop_bits} stop bits"
            how = how if config.transport == "rtu" else ""
            raise PluginConnectionError(self.meta.id, f"{place} cannot be opened{how}: {error}") from error

    async def _do_disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _begin_reading(self) -> None:
        """Reads all blocks. A refused block, or a device without an answer, fails alone: those that answered before are
        read first, and of those that did not, one. Raises if no device answers."""
        read: dict[tuple[int, str, int], int | bool] = {}
        failed: dict[Block, str] = {}
        before, known_to_answer = self._silent, self._answered
        to_try = next(iter(before), None)
        answered: set[int] = set()
        silent: dict[int, str] = {}
        is_waiting = False
        spent = 0.0
        for block in sorted(
            self._blocks, key=lambda one: (one.device_id not in known_to_answer, one.device_id in before)
        ):
            device = block.device_id
            known = silent.get(device) or (before.get(device) if device != to_try else None)
            if known is None and device not in answered and spent >= _SILENT_SECONDS:
                is_waiting = True
                known = "it is read next, since others do not answer"
            if known is not None:
                failed[block] = known
                continue
            begun = _now()
            try:
                values = await self._fetch(block)
            except _SilentError as error:
                spent += _now() - begun
                failed[block] = silent[device] = str(error)
                continue
            except _RefusedError as error:
                answered.add(device)
                failed[block] = str(error)
                if error.code in _WRONG_REQUEST:
                    self._split(block)
                continue
            answered.add(device)
            for offset, value in enumerate(values):
                read[device, block.table, block.address + offset] = value
        # One that answers in part is read each time.
        gone = {device: why for device, why in before.items() if device not in answered and device not in silent}
        self._silent = gone | {device: why for device, why in silent.items() if device not in answered}
        self._answered = answered
        if failed and not answered and not is_waiting:
            raise PluginConnectionError(self.meta.id, next(iter(failed.values())))
        self._read, self._failed = read, failed

    def _split(self, block: Block) -> None:
        """Replaces a refused block by one per channel, so that a wrong address or a gap affects no other channel."""
        within = [
            one
            for one in self.config.registers
            if (one.device_id, one.table) == (block.device_id, block.table)
            and block.address <= one.address < block.address + block.count
        ]
        at = self._blocks.index(block)
        single = {Block(one.device_id, one.table, one.address, one.width): None for one in within}
        self._blocks[at : at + 1] = single

    def _note_bytes(self, is_sent: bool, data: bytes) -> bytes:
        if not is_sent:
            self._heard = _now()
        return data

    async def _ask(self, call: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        """The answer to a request. The next one on a serial line waits for late bytes of one without, also when the line is
        opened anew."""
        async with self._line:
            await self._quiet()
            try:
                return await call(*arguments, **options)
            except BaseException:
                self._note_unanswered()
                raise

    def _note_unanswered(self) -> None:
        if self.config.transport == "rtu":
            self._unanswered = _now()

    async def _quiet(self) -> None:
        quiet = max(_QUIET_SECONDS, self.config.timeout_ms / 1000)
        end = _now() + _LONGEST_QUIET
        while self._unanswered is not None:
            rest = min(max(self._unanswered, self._heard) + quiet, end) - _now()
            if rest <= 0:
                self._unanswered = None
            else:
                await asyncio.sleep(rest)

    async def _fetch(self, block: Block) -> list[Any]:
        from pymodbus.exceptions import ConnectionException, ModbusException

        client = self._client
        call = {
            "holding": client.read_holding_registers,
            "input": client.read_input_registers,
            "coil": client.read_coils,
            "discrete": client.read_discrete_inputs,
        }[block.table]
        try:
            answer = await self._ask(call, block.address, count=block.count, device_id=block.device_id)
        except ConnectionException as error:
            raise PluginConnectionError(self.meta.id, f"the connection to the device is lost: {error}") from error
        except ModbusException as error:
            raise _SilentError(f"the device does not answer: {error}") from error
        if answer.isError():
            raise _RefusedError(answer.exception_code)
        values: list[Any] = answer.registers if block.table in ("holding", "input") else answer.bits
        if len(values) < block.count:
            self._note_unanswered()
            raise _SilentError(f"the device answered with {len(values)} of {block.count} values")
        return values[: block.count]

    async def _do_read(self, channel_id: str) -> ChannelValue | None:
        one = self._registers[channel_id]
        places = range(one.address, one.address + one.width)
        raw = [self._read.get((one.device_id, one.table, place)) for place in places]
        if None in raw:
            return None
        if one.is_bits:
            return bool(raw[0])
        if one.type == "bit":
            return bool(int(raw[0] or 0) >> one.bit & 1)
        value: float = self._client.convert_from_registers(raw, self._kind(one), word_order=one.word_order)
        if math.isfinite(value):
            self._not_finite.discard(channel_id)
            return value
        self._not_finite.add(channel_id)
        return None

    async def _do_write(self, channel_id: str, value: ChannelValue) -> None:
        from pymodbus.exceptions import ConnectionException, ModbusException

        one, client = self._registers[channel_id], self._client
        if client is None:
            raise PluginConnectionError(self.meta.id, "there is no connection to the device")
        try:
            if one.is_bits:
                answer = await self._ask(client.write_coil, one.address, bool(value), device_id=one.device_id)
            else:
                raw = float(value) if one.type.startswith("float") else _within(round(value), one.type)
                words = client.convert_to_registers(raw, self._kind(one), word_order=one.word_order)
                # Some devices have only function 6 for single registers.
                answer = (
                    await self._ask(client.write_register, one.address, words[0], device_id=one.device_id)
                    if len(words) == 1
                    else await self._ask(client.write_registers, one.address, words, device_id=one.device_id)
                )
        except ConnectionException as error:
            raise PluginConnectionError(self.meta.id, f"the connection to the device is lost: {error}") from error
        except ModbusException as error:
            # Others on the line may answer.
            why = f"the device {one.device_id} does not answer a command to {channel_id}: {error}"
            raise PluginOutputError(self.meta.id, why, is_passing=True) from error
        if answer.isError():
            code = answer.exception_code
            why = f"the device refuses a command to {channel_id}: {_named(code)}"
            raise PluginOutputError(self.meta.id, why, is_passing=code not in _WRONG_REQUEST)
        if answer.address != one.address:
            self._note_unanswered()
            why = f"the device {one.device_id} confirms another command than that to {channel_id}"
            raise PluginOutputError(self.meta.id, why, is_passing=True)

    def _kind(self, one: Register) -> Any:
        return self._client.DATATYPE[one.type.upper()]


def _now() -> float:
    return asyncio.get_running_loop().time()


class _RefusedError(Exception):
    """The device answered with an exception code."""

    def __init__(self, code: int) -> None:
        super().__init__(_named(code))
        self.code = code


class _SilentError(Exception):
    """A unit did not answer, or not properly."""


def blocks(registers: list[Register]) -> list[Block]:
    """Requests that read these registers, joined over small gaps."""

    def place(one: Register) -> tuple[int, str]:
        return one.device_id, one.table

    found = []
    ordered = sorted(registers, key=lambda one: (*place(one), one.address))
    for (device_id, table), group in itertools.groupby(ordered, place):
        most = _MOST_BITS if table in ("coil", "discrete") else _MOST_REGISTERS
        first = end = -1
        for one in group:
            new_end = max(end, one.address + one.width)
            if first >= 0 and (one.address > end + _WIDEST_GAP or new_end - first > most):
                found.append(Block(device_id, table, first, end - first))
                first = -1
            if first < 0:
                first, new_end = one.address, one.address + one.width
            end = new_end
        found.append(Block(device_id, table, first, end - first))
    return found


def _within(value: int, kind: str) -> int:
    """`value` limited to the range of an integer type."""
    bits = int(kind.lstrip("uint"))
    low, high = (0, (1 << bits) - 1) if kind.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return min(max(value, low), high)


# Codes that no repetition of the same request changes: function, address, value.
_WRONG_REQUEST = (1, 2, 3)
_NAMES = {
    1: "the device does not support the function",
    2: "the device does not have the address",
    3: "the device does not allow the value",
    4: "the device failed",
    6: "the device is busy",
    10: "the gateway has no path to the device",
    11: "the device behind the gateway does not answer",
}


def _named(code: int) -> str:
    """An exception code in words (Modbus application protocol 1.1b3, 7)."""
    return _NAMES.get(code, f"exception {code}")
