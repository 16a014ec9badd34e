#!/usr/bin/env python3
"""Values and commands of devices by foreign libraries, through the controller, while its parts are killed.

    tests/device_peers/run.py PROGRAM [--values 3600] [--kills 4] [--seed N]

Starts PROGRAM (`signalbox`) with servers of its own, a gateway and a controller that are killed with SIGKILL, two
mosquittos, and devices by paho-mqtt, pysparkplug, sparkplug-client, asyncua, node-opcua and pymodbus, each of which emits
at least VALUES numbers on two channels at 20 a second, from before the first kill until everything is back after the last
one. Checked are, with figures as a table:

1. while the gateway is killed: no value of Sparkplug, OPC UA and Modbus is missing or stored twice;
2. while the gateway, the controller and the brokers are killed or stopped: no value of MQTT with QoS 1 is missing or
   stored twice; of the others none is stored twice, none is missing that was in the controller's buffer, and each missing
   one lies in a gap that the state of the device has named;
3. after a kill of the controller, present values are read again;
4. commands arrive at the devices, before and after all that;
5. every device has emitted numbers before and after each kill.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
EMAIL, PASSWORD = "admin@example.org", "a password of devices"
# Of one value to the next: the least that the controller polls Modbus devices in.
INTERVAL = 0.05
# Numbers of the second part, and those that are set at last.
SECOND, PRESENT = 100_000, 900_000
GAP = re.compile(r"between ([-\d]+ [:\d]+) and ([-\d]+ [:\d]+) UTC")
ROW = "{:<8} {:<17} {:<2} {:>8} {:>7} {:>8} {:>6} {:>5} {:>8}"
# The state names whole seconds.
OF_A_SECOND = timedelta(seconds=1)
SLOW = float(os.environ.get("SIGNALBOX_TEST_SLOWNESS", "1"))
# The devices and the service are on this machine: never through a proxy.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Failed(Exception):
    """A check that does not hold."""


def log(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:7.1f} s  {text}", flush=True)


def until(what: str, attempt: Callable[[], Any], seconds: float = 90) -> Any:
    """Waits until `attempt` gives something true."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        found = attempt()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Failed(f"not in time: {what}")
        time.sleep(0.1)


def millis() -> int:
    """The time as the devices note it."""
    return time.time_ns() // 1_000_000


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def sources(*folders: str) -> str:
    """A path of modules: these, and the libraries of devices."""
    return os.pathsep.join(str(TOP / folder) for folder in (*folders, ".tools/devices", ".tools/clients"))


def children(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(id) for id in path.read_text().split()]
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Part:
    """A process that is stopped, killed and started again."""

    def __init__(self, name: str, command: list[str], folder: Path, **environment: str) -> None:
        self.name = name
        self._command = command
        self._log = folder / f"{name}.log"
        self._environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        self.process: subprocess.Popen[str] | None = None

    def start(self, **pipes: Any) -> None:
        with self._log.open("a") as errors:
            out = pipes or {"stdin": subprocess.DEVNULL, "stdout": errors}
            # Ctrl-C is for this program, which stops its parts in good order.
            self.process = subprocess.Popen(
                # It ends with this program, also when this is killed.
                ["setpriv", "--pdeathsig", "TERM", *self._command],
                env=self._environment,
                stderr=errors,
                text=True,
                start_new_session=True,
                **out,
            )

    def end(self, number: int) -> None:
        """Sends a signal and waits for the end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60 * SLOW)
            self.process = None

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:]) if self._log.exists() else ""


class Service:
    """The service, with one gateway in it for this program, and another one in front of the controller."""

    def __init__(self, program: str, folder: Path) -> None:
        self._folder, self._program = folder, program
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self.settings = {
            "SIGNALBOX_STORAGE__FOLDER": str(folder / "data"),
            "SIGNALBOX_LIMITS__REQUESTS_PER_MINUTE": "600000",
            "SIGNALBOX_LIMITS__REQUEST_BURST": "60000",
            "SIGNALBOX_ADMIN_EMAIL": EMAIL,
            "SIGNALBOX_ADMIN_PASSWORD": PASSWORD,
            "PATH": f"{TOP / '.tools/bin'}{os.pathsep}{os.environ['PATH']}",
        }
        up = {**self.settings, "SIGNALBOX_SERVER__ADDRESS": f"127.0.0.1:{port}"}
        self.inner = Part("service", [program, "up"], folder, **up)
        self.gateway_port = free_port()
        self.token = ""

    def start(self) -> Part:
        """Starts all of it; returns the gateway that may be killed."""
        self.inner.start()
        until("the service answers", self._log_in, 180)
        urls = {
            name: (self._folder / "data" / file).read_text().strip()
            for name, file in (("DATABASE_URL", "database-url"), ("NATS_URL", "nats-url"))
        }
        address = {"SIGNALBOX_SERVER__ADDRESS": f"127.0.0.1:{self.gateway_port}"}
        command = [self._program, "serve", "--role", "gateway"]
        gateway = Part("gateway", command, self._folder, **self.settings, **urls, **address)
        gateway.start()
        self.until_gateway_answers()
        return gateway

    def until_gateway_answers(self) -> None:
        def is_ready() -> bool:
            with contextlib.suppress(OSError), OPENER.open(f"http://127.0.0.1:{self.gateway_port}/readyz", timeout=5):
                return True
            return False

        until("the gateway answers", is_ready)

    def _log_in(self) -> bool:
        assert self.inner.process is not None
        if self.inner.process.poll() is not None:
            raise Failed("the service has ended")
        with contextlib.suppress(OSError), OPENER.open(f"{self._url}/readyz", timeout=5):
            self.token = self.post("/api/v1/auth/login", {"email": EMAIL, "password": PASSWORD})["access_token"]
        return bool(self.token)

    def call(self, path: str, body: Any = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers)
        try:
            with OPENER.open(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise Failed(f"{path}: {error.code} {error.read().decode(errors='replace')}") from error
            raise

    def post(self, path: str, body: Any) -> Any:
        return json.loads(self.call(path, body))

    def get(self, path: str) -> Any:
        return json.loads(self.call(path))

    def export(self) -> dict[str, list[tuple[datetime, float]]]:
        """All datapoints by event, in the order of their times."""
        found: dict[str, list[tuple[datetime, float]]] = {}
        for line in self.call("/api/v1/datapoints/export?format=ndjson").splitlines():
            point = json.loads(line)
            found.setdefault(point["event_public_id"], []).append((moment(point["timestamp"]), point["value"]))
        return found


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


class Controller(Part):
    """The controller and the processes of its instances."""

    def __init__(self, service: Service, token: str, folder: Path) -> None:
        self.state = folder / "controller"
        command = [
            sys.executable,
            "-m",
            "signalbox_controller",
            "--url",
            f"http://127.0.0.1:{service.gateway_port}",
            "--poll",
            "0.1",
            "--sync",
            "0.3",
            "--state",
            str(self.state),
        ]
        super().__init__(
            "controller", command, folder, PYTHONPATH=sources("controller/src", ".tools/python"), SIGNALBOX_TOKEN=token
        )

    def kill(self, with_instances: bool) -> set[tuple[str, datetime, float]]:
        """Kills it; returns event, time and value of what is in its buffer then."""
        assert self.process is not None
        instances = children(self.process.pid)
        self.process.kill()
        if with_instances:
            for id in instances:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(id, signal.SIGKILL)
        self.process.wait(60)
        self.process = None
        until("the instances end", lambda: not any(is_running(id) for id in instances))
        with contextlib.closing(sqlite3.connect(self.state / "buffer.sqlite")) as database:
            rows = database.execute("SELECT event, time, value FROM waiting").fetchall()
        return {(event, moment(time), value) for event, time, value in rows}


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


class Run:
    """One run of all checks."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = folder
        self.random = random.Random(options.seed)
        self.service = Service(options.program, folder)
        mqtt, self.broker = broker("broker", folder)
        sparkplug, self.sparkplug_broker = broker("sparkplug-broker", folder)
        self.peers = peers(folder, mqtt, sparkplug)
        self.parts: list[Part] = [self.service.inner, self.broker, self.sparkplug_broker]
        self.synced: set[tuple[str, datetime, float]] = set()
        self.kills: Counter[str] = Counter()
        # Of the kills of a part of the run: kind, and milliseconds at which it began and all was back.
        self.killed: list[tuple[str, int, int]] = []
        # Numbers of each device in this part of the run.
        self.counts: dict[str, int] = {}
        self.command = 0
        self.watching = threading.Event()
        self.table: list[str] = []

    def start(self) -> None:
        self.broker.start()
        self.sparkplug_broker.start()
        for peer in self.peers:
            peer.start(self.folder)
            assert peer.part is not None
            self.parts.append(peer.part)
        self.gateway = self.service.start()
        self.parts.append(self.gateway)
        for peer in self.peers:
            if "ready" not in peer.answer():
                raise Failed(f"{peer.name} does not begin")
            peer.make_instance(self.service)
        token = self.service.post("/api/v1/tokens", {"name": "controller", "controller": True})["token"]
        self.controller = Controller(self.service, token, self.folder)
        self.parts.append(self.controller)
        self.controller.start()
        threading.Thread(target=self._watch, daemon=True).start()
        self.until_connected()
        log("all devices are connected")

    def stop(self) -> None:
        self.watching.set()
        for part in reversed(self.parts):
            try:
                part.end(signal.SIGTERM)
            except subprocess.TimeoutExpired:
                log(f"{part.name} does not stop")
                part.end(signal.SIGKILL)

    def _watch(self) -> None:
        """Notes states of devices, and the gaps that they name."""
        while not self.watching.wait(0.2):
            with contextlib.suppress(OSError, Failed):
                shown = {one["public_id"]: one for one in self.service.get("/api/v1/plugins?page_size=100")["data"]}
                for peer in self.peers:
                    one = shown[peer.instance]
                    peer.state = f"{one['status']}: {one['error_message']}"
                    peer.gaps.update(GAP.findall(one["error_message"] or ""))

    def until_connected(self) -> None:
        def are_connected() -> bool:
            return all(peer.state.startswith("connected") for peer in self.peers)

        try:
            until("all devices are connected", are_connected)
        except Failed:
            raise Failed(f"not connected: { {peer.name: peer.state for peer in self.peers} }") from None

    # Parts that are killed.

    def kill_gateway(self) -> None:
        self.gateway.end(signal.SIGKILL)
        self.gateway.start()
        self.service.until_gateway_answers()

    def kill_controller(self, with_instances: bool) -> None:
        """Kills it alone, or with the processes of its instances, as when its machine fails."""
        before = self._connections()
        self.synced |= self.controller.kill(with_instances)
        time.sleep(self.random.uniform(0.0, 2.0))
        self.controller.start()
        self._until_new(before, self.peers)

    def stop_broker(self) -> None:
        self.broker.end(signal.SIGTERM)
        time.sleep(self.random.uniform(0.0, 2.0))
        self.broker.start()

    def kill_sparkplug_broker(self) -> None:
        mine = [peer for peer in self.peers if "metrics" in peer.config]
        before = self._connections()
        self.sparkplug_broker.end(signal.SIGKILL)
        time.sleep(self.random.uniform(1.0, 2.0))
        self.sparkplug_broker.start()
        self._until_new(before, mine)

    def _connections(self) -> dict[str, set[tuple[str, str]]]:
        return {peer.name: set(peer.gaps) for peer in self.peers}

    def _until_new(self, before: dict[str, set[tuple[str, str]]], named: list[Peer]) -> None:
        """Waits until the devices are connected again and their states name a new gap."""
        for peer in named:
            if not peer.keeps:
                until(f"{peer.name} names its gap ({peer.state})", lambda peer=peer: peer.gaps - before[peer.name])
        self.until_connected()

    def disturb(self, kinds: list[str], first: int, emitting: list[Peer]) -> None:
        """Kills parts at random moments while values are emitted; one that is not back yet makes the next wait. Returns
        when each device has emitted enough values, and some after the last kill."""
        self.killed = []
        self._until_emitting(emitting, first)
        begun, span = time.monotonic(), self.options.values * INTERVAL
        moments = sorted(self.random.uniform(0.05, 0.9) * span for _ in kinds)
        kill: dict[str, Callable[[], None]] = {
            "gateway": self.kill_gateway,
            "controller": lambda: self.kill_controller(with_instances=False),
            "controller with instances": lambda: self.kill_controller(with_instances=True),
            "broker": self.stop_broker,
            "sparkplug broker": self.kill_sparkplug_broker,
        }
        for kind, moment in zip(kinds, moments, strict=True):
            time.sleep(max(begun + moment - time.monotonic(), 0.0))
            log(kind)
            at = millis()
            kill[kind]()
            self.killed.append((kind, at, millis()))
            self.kills[kind] += 1
        self._until_emitting(emitting, first + self.options.values - 1)

    def _until_emitting(self, emitting: list[Peer], least: int) -> None:
        """Waits until each device has emitted this number or a later one, and one that it began after this moment."""
        now, seconds = millis(), 120 + self.options.values * INTERVAL * 3

        def has_emitted(peer: Peer) -> bool:
            peer.say(report=True)
            number, time = max(map(tuple, peer.answer()["emitted"]), default=(-1, 0))
            return number >= least and time > now

        for peer in emitting:
            until(f"{peer.name} emits ({peer.state})", lambda peer=peer: has_emitted(peer), seconds)

    def check_kills(self, times: dict[str, dict[int, int]]) -> None:
        """Each kill has hit while all devices emitted."""
        for kind, begun, ended in self.killed:
            for name, of_numbers in times.items():
                if not min(of_numbers.values()) < begun < ended < max(of_numbers.values()):
                    raise Failed(f"{name} has emitted nothing before or after a kill: {kind}")

    # Checks.

    def check_commands(self) -> None:
        self.command += 7
        for peer in self.peers:
            self.service.post(
                "/api/v1/datapoints", {"event_public_id": peer.events["set"], "value": float(self.command)}
            )
        for peer in self.peers:
            until(
                f"{peer.name} gets the command {self.command}: {peer.commanded}",
                lambda peer=peer: self.command in peer.commanded,
            )
        log(f"the command {self.command} has arrived at all devices")

    def emit(self, first: int, emitting: list[Peer]) -> None:
        for peer in emitting:
            peer.say(emit=True, first=first, interval=INTERVAL)

    def until_emitted(self, first: int, emitting: list[Peer]) -> dict[str, dict[int, int]]:
        """Stops the devices; returns the times of all values, by number."""
        times = {}
        for peer in emitting:
            peer.say(stop=True)
        for peer in emitting:
            if "done" not in peer.answer():
                raise Failed(f"{peer.name} does not emit")
            peer.say(report=True)
            times[peer.name] = {number: time for number, time in peer.answer()["emitted"] if number >= first}
            self.counts[peer.name] = count = len(times[peer.name])
            if sorted(times[peer.name]) != list(range(first, first + count)) or count < self.options.values:
                raise Failed(f"{peer.name} has emitted {count} numbers, and is to emit {self.options.values} or more")
        log("all values are emitted")
        return times

    def stored(self, peer: Peer, channel: str, first: int) -> list[tuple[datetime, float]]:
        end = first + self.counts[peer.name]
        return [(at, value) for at, value in self.points.get(peer.events[channel], []) if first <= value < end]

    def until_stored(self, first: int, emitting: list[Peer], exact: Callable[[Peer], bool]) -> None:
        """Waits until all values have arrived, or the buffer of the controller is empty and no more arrive."""
        last = (-1, 0.0)

        def is_stored() -> bool:
            nonlocal last
            self.points = self.service.export()
            whole, total = True, 0
            for peer in emitting:
                for channel in peer.channels:
                    count = len(self.stored(peer, channel, first))
                    total += count
                    whole = whole and (count >= self.counts[peer.name] or not exact(peer))
            if total >= sum(self.counts[peer.name] * len(peer.channels) for peer in emitting):
                return True
            if total != last[0]:
                last = (total, time.monotonic())
            # An export takes the time of the service, too.
            time.sleep(0.5)
            return whole and time.monotonic() - last[1] > 5 * SLOW

        with contextlib.suppress(Failed):
            until("all values have arrived", is_stored)

    def check(
        self,
        part: str,
        first: int,
        emitting: list[Peer],
        exact: Callable[[Peer], bool],
        times: dict[str, dict[int, int]],
    ) -> None:
        self.until_stored(first, emitting, exact)
        faults = []
        for peer in emitting:
            for channel in peer.channels:
                faults += self._faults(part, peer, channel, first, None if exact(peer) else times[peer.name])
        if faults:
            raise Failed("\n".join(faults))

    def _faults(self, part: str, peer: Peer, channel: str, first: int, times: dict[int, int] | None) -> list[str]:
        """Adds a line to the table, and says what is wrong; with `times`, values may be missing within gaps."""
        found = [value for _, value in self.stored(peer, channel, first)]
        counts = Counter(int(value) for value in found)
        twice = sorted(number for number, count in counts.items() if count > 1)
        missing = [number for number in range(first, first + self.counts[peer.name]) if number not in counts]
        unnamed = [number for number in missing if times is None or not peer.is_covered(times.get(number, 0))]
        figures = (self.counts[peer.name], len(counts), len(missing), len(twice), len(peer.gaps), len(unnamed))
        self.table.append(ROW.format(part, peer.name, channel, *figures))
        faults = []
        if twice or unnamed:
            shown = f"missing {missing[:9]}, of them in no gap {unnamed[:9]}, twice {twice[:9]}"
            faults.append(f"{peer.name}.{channel}: {shown}; gaps {sorted(peer.gaps)}")
        if times is None and found != sorted(found):
            faults.append(f"{peer.name}.{channel}: the times are not in the order of the values")
        return faults

    def check_synced(self) -> None:
        """Values that were in the buffer at a kill are stored."""
        points = {(event, at, value) for event, found in self.points.items() for at, value in found}
        lost = self.synced - points
        log(f"{len(self.synced)} values were in the buffer at kills of the controller; lost of them: {len(lost)}")
        if lost:
            raise Failed(f"lost although synced: {sorted(lost)[:5]}")

    def check_present(self) -> None:
        """A value that appears while the controller is away, and stays, is read again."""
        before = self._connections()
        self.synced |= self.controller.kill(with_instances=True)
        for number, peer in enumerate(self.peers):
            peer.say(value=PRESENT + number)
            peer.answer()
        time.sleep(1.1)
        self.controller.start()
        self._until_new(before, self.peers)
        for number, peer in enumerate(self.peers):
            for channel in peer.channels:

                def is_there(event: str = peer.events[channel], value: int = PRESENT + number) -> bool:
                    latest = self.service.get("/api/v1/datapoints/latest")
                    return any((one["event_public_id"], one["value"]) == (event, value) for one in latest)

                until(f"the present value of {peer.name}.{channel}", is_there)
        log("the present values of all devices were read again, and the gaps are named")

    def run(self) -> None:
        self.start()
        self.check_commands()
        unkept = [peer for peer in self.peers if not peer.keeps]
        self.emit(0, unkept)
        self.disturb(["gateway"] * self.options.kills, 0, unkept)
        times = self.until_emitted(0, unkept)
        self.check_kills(times)
        self.check("gateway", 0, unkept, lambda _: True, times)
        kills = self.options.kills
        # Both kinds of controller kills, also in a run with one kill of each part.
        controllers = ["controller", "controller with instances"] * kills
        kinds = ["gateway", "broker", "sparkplug broker"] * kills + controllers[: max(kills, 2)]
        self.random.shuffle(kinds)
        self.emit(SECOND, self.peers)
        self.disturb(kinds, SECOND, self.peers)
        times = self.until_emitted(SECOND, self.peers)
        self.check_kills(times)
        self.check("all", SECOND, self.peers, lambda peer: peer.keeps, times)
        self.check_synced()
        if not self.options.short:
            self.check_present()
            self.points = self.service.export()
            self.check_synced()
        self.check_commands()

    def report(self) -> None:
        print("\n" + ROW.format("killed", "device", "", "emitted", "stored", "missing", "twice", "gaps", "unnamed"))
        print(*self.table, sep="\n")
        kills = ", ".join(f"{count} times the {kind}" for kind, count in self.kills.items())
        print(f"seed {self.options.seed}; {kills}; {time.monotonic() - BEGUN:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--values", type=int, default=3600, help="the least that a device emits on a channel")
    kills = "of each part, in each of both parts of the run; of the controller two or more"
    parser.add_argument("--kills", type=int, default=4, help=kills)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "20261125")))
    parser.add_argument("--short", action="store_true", help="without the third check, for the repository's tests")
    parser.add_argument("--keep", action="store_true", help="leaves the folder with logs")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        prefix = "signalbox-device-peers-"
        kept = tempfile.mkdtemp(prefix=prefix) if options.keep else None
        folder = kept or stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix))
        log(f"seed {options.seed}; logs are in {folder}")
        run = Run(Path(folder), options)
        # The parts are stopped then, too, and the figures are shown.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            run.run()
            verdict = 0
        except Failed as error:
            print(f"FAILED (seed {options.seed}): {error}", flush=True)
            for part in run.parts:
                print(f"--- {part.name}:\n{part.last_words()}", flush=True)
            verdict = 1
        finally:
            run.stop()
            run.report()
        return verdict


BEGUN = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
