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
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from peers import INTERVAL, Peer, broker, peers
from processes import BEGUN, SLOW, Controller, Failed, Part, Service, log, millis, until

# Numbers of the second part, and those that are set at last.
SECOND, PRESENT = 100_000, 900_000
GAP = re.compile(r"between ([-\d]+ [:\d]+) and ([-\d]+ [:\d]+) UTC")
ROW = "{:<8} {:<17} {:<2} {:>8} {:>7} {:>8} {:>6} {:>5} {:>8}"


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


if __name__ == "__main__":
    sys.exit(main())
