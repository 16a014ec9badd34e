"""The Modbus plugin against a server of pymodbus."""

from __future__ import annotations

import asyncio
import os
import pty
import tty
from typing import Any

from peers import DeviceTest, Proxy
from ports import free_port
from pymodbus import FramerType
from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
from pymodbus.server import ModbusSerialServer, ModbusTcpServer

REGISTERS = [
    {"channel": "speed", "address": 0, "type": "int16", "scale": 0.1, "writable": True, "max_value": 300},
    {"channel": "flow", "address": 2, "type": "float32", "writable": True},
    {"channel": "total", "address": 4, "type": "uint32", "word_order": "little"},
    {"channel": "alarm", "address": 6, "type": "bit", "bit": 3},
    {"channel": "pump", "table": "coil", "address": 5, "writable": True},
    {"channel": "door", "table": "discrete", "address": 1},
    {"channel": "raw", "table": "input", "address": 9},
]


def device() -> ModbusDeviceContext:
    # The first address of a block of pymodbus is that of the protocol plus one.
    holding = [65286, 0, 0x4148, 0, 2, 1, 0b1000, *[0] * 11, 0x7FC0, 0]
    return ModbusDeviceContext(
        hr=ModbusSequentialDataBlock(1, holding),
        ir=ModbusSequentialDataBlock(1, [7] * 20),
        co=ModbusSequentialDataBlock(1, [False] * 20),
        di=ModbusSequentialDataBlock(1, [False, True] * 10),
    )


class SilentUnit(Proxy):
    """Discards requests to the units from 9 on."""

    def accepts(self, data: bytes) -> bool:
        return data[6] < 9


class LateDevice:
    """Answers on a serial line with 1000 and the address, each request `seconds` later; ignores or echoes commands."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.seconds = 0.0
        self.requests = 0
        self._received = b""

    def receive(self) -> None:
        self._received += os.read(self.end, 4096)
        while len(self._received) >= 8:
            request, self._received = self._received[:8], self._received[8:]
            self.requests += 1
            answer = request[:6]
            if request[1] == 3:
                answer = request[:2] + b"\2" + (1000 + int.from_bytes(request[2:4])).to_bytes(2)
            asyncio.get_running_loop().call_later(self.seconds, os.write, self.end, answer + crc(answer))


def crc(frame: bytes) -> bytes:
    """CRC-16/MODBUS, the low byte first."""
    check = 0xFFFF
    for byte in frame:
        check ^= byte
        for _ in range(8):
            check = (check >> 1) ^ (0xA001 if check & 1 else 0)
    return check.to_bytes(2, "little")


class ModbusTest(DeviceTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.port = free_port()
        self.server: Any = None
        self.addAsyncCleanup(self.stop_server)

    async def start_server(self) -> None:
        context = ModbusServerContext(devices={1: device(), 2: device()}, single=False)
        self.server = ModbusTcpServer(context, address=("127.0.0.1", self.port))
        await self.server.serve_forever(background=True)

    async def stop_server(self) -> None:
        if self.server is not None:
            server, self.server = self.server, None
            await server.shutdown()

    def run_modbus(self, registers: list[dict[str, Any]], **config: Any) -> None:
        channels = [one["channel"] + ("!" if one.get("writable") else "") for one in registers]
        settings = {"port": self.port, "poll_interval_ms": 50, "timeout_ms": 500, "registers": registers, **config}
        self.run_plugin("modbus", settings, channels)

    def newest(self) -> dict[str, float]:
        channels = [one["channel"] for one in self.registers]
        return {channel: rows[-1] for channel in channels if (rows := self.values(channel))}

    async def test_types_are_decoded_and_commands_return(self) -> None:
        await self.start_server()
        self.registers = REGISTERS
        self.run_modbus(REGISTERS)
        expected = {"speed": -25.0, "flow": 12.5, "total": 65538.0, "alarm": 1.0, "pump": 0.0, "door": 1.0, "raw": 7.0}
        await self.until(lambda: len(self.newest()) == len(REGISTERS))
        self.assertEqual(self.newest(), expected)
        self.order("speed", 999)
        self.order("flow", 3.25)
        self.order("pump", 1)
        await self.until(lambda: self.newest() == {**expected, "speed": 300.0, "flow": 3.25, "pump": 1.0})

    async def test_a_refused_address_fails_alone_and_is_named(self) -> None:
        await self.start_server()
        self.registers = [REGISTERS[0], {"channel": "beyond", "address": 21}, {"channel": "far", "address": 500}]
        self.run_modbus(self.registers)
        await self.until(lambda: "holding 500" in (self.running.error or "") and self.values("speed"))
        self.assertIn("does not have the address", self.running.error or "")
        self.assertEqual(set(self.newest()), {"speed"})

    async def test_registers_without_a_finite_number_are_named(self) -> None:
        await self.start_server()
        self.registers = [REGISTERS[0], {"channel": "empty", "address": 18, "type": "float32", "writable": True}]
        self.run_modbus(self.registers)
        await self.until(lambda: "no finite number is in the registers of empty" in (self.running.error or ""))
        await self.until(lambda: self.newest() == {"speed": -25.0})
        self.order("empty", 2.5)
        await self.until(lambda: self.newest() == {"speed": -25.0, "empty": 2.5} and self.running.error is None)

    async def test_a_silent_unit_does_not_stop_the_others(self) -> None:
        await self.start_server()
        proxy = SilentUnit(self.port)
        await proxy.start()
        self.addAsyncCleanup(proxy.stop)
        other = {**REGISTERS[0], "channel": "other", "device_id": 2}
        gone = {**REGISTERS[0], "channel": "gone", "device_id": 9}
        self.registers = [REGISTERS[0], gone, other]
        self.run_modbus(self.registers, port=proxy.port)
        await self.until(lambda: set(self.newest()) == {"speed", "other"} and "device 9" in (self.running.error or ""))
        self.assertIn("does not answer", self.running.error or "")

    async def test_a_refused_command_does_not_stop_the_values(self) -> None:
        await self.start_server()
        proxy = SilentUnit(self.port)
        await proxy.start()
        self.addAsyncCleanup(proxy.stop)
        flow = REGISTERS[1]
        beyond = {"channel": "beyond", "address": 500, "writable": True}
        gone = {**REGISTERS[0], "channel": "gone", "device_id": 9}
        for odd, why in ((beyond, "does not have the address"), (gone, "does not answer a command to gone")):
            with self.subTest(odd=odd["channel"]):
                self.registers = [REGISTERS[0], flow, odd]
                self.run_modbus(self.registers, port=proxy.port)
                await self.until(lambda: self.running.status != "inactive")
                self.order(odd["channel"], 1)
                await self.until(lambda why=why: why in (self.running.error or ""))
                self.order("flow", 2.5)
                await self.until(lambda: self.newest().get("flow") == 2.5, 30)
                known = len(self.values("speed"))
                await self.until(lambda known=known: len(self.values("speed")) > known + 1, 30)
                self.order("flow", 12.5)
                await self.until(lambda: self.newest().get("flow") == 12.5, 30)
                await self.running.stop()

    async def test_many_silent_units_do_not_stop_the_others(self) -> None:
        await self.start_server()
        proxy = SilentUnit(self.port)
        await proxy.start()
        self.addAsyncCleanup(proxy.stop)
        # Together they would take longer than a reading may.
        gone = [{**REGISTERS[0], "channel": f"gone{unit}", "device_id": unit} for unit in (9, 10, 11, 12)]
        other = {**REGISTERS[0], "channel": "other", "device_id": 2}
        self.registers = [*gone, REGISTERS[0], other]
        self.run_modbus(self.registers, port=proxy.port, timeout_ms=10_000)
        await self.until(lambda: set(self.newest()) == {"speed", "other"} and "device 9" in (self.running.error or ""), 25)
        known = len(self.values("other"))
        await self.until(lambda: len(self.values("other")) > known + 1, 25)

    async def test_a_lost_device_is_an_error_and_is_read_again(self) -> None:
        await self.start_server()
        self.registers = REGISTERS
        self.run_modbus(REGISTERS)
        await self.until(lambda: self.values("raw"))
        await self.stop_server()
        await self.until(lambda: self.running.status == "error")
        known = len(self.values("raw"))
        await self.start_server()
        await self.until(lambda: len(self.values("raw")) > known)
        await self.connected()

    async def test_a_device_that_takes_connections_and_never_answers_is_not_connected(self) -> None:
        shown: list[str] = []
        connections = 0

        def accept(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1

        server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        self.addAsyncCleanup(server.wait_closed)
        self.addCleanup(server.close)
        self.run_modbus([{"channel": "a", "address": 0}], timeout_ms=100)

        def has_reconnected() -> bool:
            shown.append(self.running.status)
            return connections >= 3

        await self.until(has_reconnected)
        self.assertEqual(set(shown) - {"inactive"}, {"error"})

    async def test_a_killed_process_reads_on(self) -> None:
        await self.start_server()
        self.registers = REGISTERS
        self.run_modbus(REGISTERS)
        await self.until(lambda: self.values("raw"))
        await self.kill_host()
        known = self.rows("raw")
        await self.until(lambda: len(self.values("raw")) > len(known))
        self.assertEqual(self.rows("raw")[: len(known)], known)

    async def test_a_serial_line_is_read_and_written(self) -> None:
        # Two pseudo terminals whose masters are joined: a null-modem cable.
        (near, near_end), (far, far_end) = pty.openpty(), pty.openpty()
        for end in (near, near_end, far, far_end):
            tty.setraw(end)
            self.addCleanup(os.close, end)
        loop = asyncio.get_running_loop()
        for source, target in ((near, far), (far, near)):
            loop.add_reader(source, lambda source=source, target=target: os.write(target, os.read(source, 4096)))
            self.addCleanup(loop.remove_reader, source)
        context = ModbusServerContext(devices={1: device()}, single=False)
        self.server = ModbusSerialServer(context, framer=FramerType.RTU, port=os.ttyname(far_end), baudrate=19200)
        await self.server.serve_forever(background=True)
        self.registers = REGISTERS[:2]
        self.run_modbus(self.registers, transport="rtu", serial_port=os.ttyname(near_end), parity="N")
        await self.until(lambda: self.newest() == {"speed": -25.0, "flow": 12.5})
        self.order("flow", 1.5)
        await self.until(lambda: self.newest()["flow"] == 1.5)

    async def test_late_answers_are_taken_for_no_others(self) -> None:
        near, far = pty.openpty()
        for end in (near, far):
            tty.setraw(end)
            self.addCleanup(os.close, end)
        device = LateDevice(near)
        asyncio.get_running_loop().add_reader(near, device.receive)
        self.addCleanup(asyncio.get_running_loop().remove_reader, near)
        self.registers = [{"channel": f"r{address}", "address": address} for address in (0, 50, 100)]
        self.registers.append({"channel": "out", "address": 180, "writable": True, "max_value": 2000})
        right = {"r0": 1000.0, "r50": 1050.0, "r100": 1100.0, "out": 1180.0}
        self.run_modbus(self.registers, transport="rtu", serial_port=os.ttyname(far), parity="N", timeout_ms=300)
        await self.until(lambda: self.newest() == right)
        device.seconds = 0.5
        await self.until(lambda: "does not answer" in (self.running.error or ""))
        self.order("out", 5)
        late = device.requests
        await self.until(lambda: device.requests > late + 6)
        device.seconds = 0.0
        before = {channel: len(self.values(channel)) for channel in right}
        await self.until(lambda: all(len(self.values(channel)) > count + 3 for channel, count in before.items()))
        for channel, value in right.items():
            self.assertEqual(set(self.values(channel)), {value})
        await self.until(lambda: "answer" not in (self.running.error or ""))
