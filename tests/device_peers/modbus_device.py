"""A Modbus device of pymodbus. While it emits, each reading of A or B gets the next number."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

from device import Device, millis, say
from pymodbus.server import ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

HOLDING, INPUT = 3, 4
SET = 100
NO_END = 1 << 30


class ModbusDevice(Device):
    def __init__(self) -> None:
        super().__init__()
        self.present = -1
        self.next = {HOLDING: 0, INPUT: 0}
        self.end = 0
        self.ended = asyncio.Event()

    async def start(self, settings: dict[str, Any]) -> None:
        logging.getLogger("pymodbus").setLevel(logging.CRITICAL)
        bits = [SimData(0, count=16, values=False, datatype=DataType.BITS)]
        registers = [[SimData(0, count=120, values=0, datatype=DataType.REGISTERS)] for _ in range(2)]
        device = SimDevice(1, simdata=(bits, bits, *registers), action=self._access)
        self.server = ModbusTcpServer(device, address=("127.0.0.1", settings["port"]))
        await self.server.serve_forever(background=True)

    async def _access(
        self, function: int, _: int, address: int, count: int, registers: list[int], written: Any
    ) -> None:
        if written is not None:
            if address == SET:
                say(commanded=struct.unpack(">f", struct.pack(">HH", *written))[0])
            return
        if function in self.next and address == 0:
            registers[0:2] = struct.unpack(">HH", struct.pack(">i", self._number(function)))

    def _number(self, function: int) -> int:
        number = self.next[function]
        if number >= self.end:
            return self.present
        self.next[function] = number + 1
        if function == INPUT:
            # The second reading of a pair.
            self.emitted.append((number, millis()))
        if min(self.next.values()) >= self.end:
            self.ended.set()
        return number

    async def emit(self, first: int, interval: float) -> None:
        self.ended.clear()
        self.next = dict.fromkeys(self.next, first)
        self.end = NO_END
        await self.ended.wait()

    def stop(self) -> None:
        # Both channels end with the same number: the one that is behind is read once more.
        self.end = max(self.next.values())
        if min(self.next.values()) >= self.end:
            self.ended.set()

    async def emit_one(self, number: int) -> None:
        self.present = number


asyncio.run(ModbusDevice().serve())
