"""The devices of a run by foreign libraries, each with the instance of a plugin that reads it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from processes import SLOW, TOP, Failed, Part, Service, free_port, sources

HERE = Path(__file__).resolve().parent
# Of one value to the next: the least that the controller polls Modbus devices in.
INTERVAL = 0.05
# The state names whole seconds.
OF_A_SECOND = timedelta(seconds=1)


@dataclass
class Peer:
    """A device and its instance."""

    name: str
    plugin: str
    file: str
    settings: dict[str, Any]
    config: dict[str, Any]
    channels: tuple[str, ...] = ("a", "b")
    part: Part | None = None
    answers: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    commanded: list[float] = field(default_factory=list)
    instance: str = ""
    events: dict[str, str] = field(default_factory=dict)
    gaps: set[tuple[str, str]] = field(default_factory=set)
    state: str = ""

    @property
    def keeps(self) -> bool:
        """Whether the broker keeps values while the controller is away."""
        return self.plugin == "mqtt" and "topics" in self.config

    def start(self, folder: Path) -> None:
        runtime = str(TOP / ".tools/node/bin/node") if self.file.endswith(".mjs") else sys.executable
        command = [runtime, str(HERE / self.file), json.dumps(self.settings)]
        self.part = Part(self.name, command, folder, PYTHONPATH=sources())
        self.part.start(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self._listen, args=(self.part.process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            answer = json.loads(line)
            if "commanded" in answer:
                self.commanded.append(answer["commanded"])
            else:
                self.answers.put(answer)

    def say(self, **order: Any) -> None:
        assert self.part is not None and self.part.process is not None and self.part.process.stdin is not None
        self.part.process.stdin.write(json.dumps(order) + "\n")
        self.part.process.stdin.flush()

    def answer(self, seconds: float = 120) -> dict[str, Any]:
        try:
            return self.answers.get(timeout=seconds * SLOW)
        except queue.Empty:
            raise Failed(f"{self.name} does not answer") from None

    def make_instance(self, service: Service) -> None:
        config = json.dumps({"retry_policy": {"base_delay": 0.1, "max_delay": 0.5}, **self.config})
        made = service.post(
            "/api/v1/plugins", {"plugin_id": self.plugin, "instance_name": self.name, "config_json": config}
        )
        self.instance = made["public_id"]
        self.events = {mapping["channel_id"]: mapping["event_public_id"] for mapping in made["channel_mappings"]}

    def is_covered(self, time: int) -> bool:
        """Whether a gap that the state named holds this time (milliseconds)."""
        at = datetime.fromtimestamp(time / 1000, UTC)
        bounds = ((datetime.fromisoformat(f"{one}+00:00") for one in gap) for gap in self.gaps)
        return any(begun <= at <= ended + OF_A_SECOND for begun, ended in bounds)


def peers(folder: Path, mqtt: int, sparkplug: int) -> list[Peer]:
    """All devices; `mqtt` and `sparkplug` are ports of brokers."""
    topics = [{"channel": one, "topic": f"plant/{one}", "value": "/v", "time": "/t"} for one in "ab"]
    topics.append({"channel": "set", "topic": "plant/set/is", "command_topic": "plant/set/do"})

    def metrics(node: str) -> list[dict[str, Any]]:
        place = {"group": "plant", "node": node}
        drive = {**place, "device": "drive"}
        return [
            {**place, "channel": "a", "metric": "A"},
            {**drive, "channel": "b", "metric": "B"},
            {**drive, "channel": "set", "metric": "Set", "writable": True},
        ]

    def opcua(port: int) -> dict[str, Any]:
        nodes = [
            {"channel": "a", "node": "nsu=urn:peers;s=A"},
            {"channel": "b", "node": "/Peer/B"},
            {"channel": "set", "node": "nsu=urn:peers;s=Set", "writable": True},
        ]
        return {"url": f"opc.tcp://127.0.0.1:{port}", "publishing_ms": 100, "sampling_ms": 0, "nodes": nodes}

    registers = [
        {"channel": "a", "address": 0, "type": "int32"},
        {"channel": "b", "table": "input", "address": 0, "type": "int32"},
        {"channel": "set", "address": 100, "type": "float32", "writable": True},
    ]
    # A device that gives each number once must not be given up on a busy machine.
    polled = {"poll_interval_ms": int(INTERVAL * 1000), "timeout_ms": 30000, "registers": registers}
    python, node, modbus = free_port(), free_port(), free_port()
    at = {"port": sparkplug}
    return [
        Peer("mosquitto", "mqtt", "mqtt_device.py", {"port": mqtt}, {"port": mqtt, "topics": topics}),
        Peer("pysparkplug", "mqtt", "edge_node.py", at, {**at, "metrics": metrics("py"), "host_id": "signalbox"}),
        Peer("sparkplug-client", "mqtt", "edge_node.mjs", at, {**at, "metrics": metrics("js")}),
        Peer("asyncua", "opcua", "opcua_server.py", {"port": python}, opcua(python)),
        Peer("node-opcua", "opcua", "opcua_server.mjs", {"port": node, "folder": str(folder)}, opcua(node)),
        Peer("pymodbus", "modbus", "modbus_device.py", {"port": modbus},
             {"port": modbus, **polled}),
    ]  # fmt: skip


def broker(name: str, folder: Path) -> tuple[int, Part]:
    port, place = free_port(), folder / name
    place.mkdir()
    file = place / "mosquitto.conf"
    file.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\npersistence_location {place}/\n"
        "max_queued_messages 0\nmax_inflight_messages 0\nlog_type none\n"
    )
    command = [str(TOP / ".tools/bin/mosquitto"), "-c", str(file)]
    return port, Part(name, command, folder, LD_LIBRARY_PATH=str(TOP / ".tools/lib/mosquitto"))
