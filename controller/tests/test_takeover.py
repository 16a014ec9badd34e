"""Controllers that take instances over from one another, with processes of instances and a stand-in for the service."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

from signalbox import Signalbox
from signalbox_controller.buffer import Origin, Value
from signalbox_controller.controller import Controller
from signalbox_controller.settings import Settings


class Run:
    """A controller that runs in this process until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        self.controller = Controller(settings)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self.controller.run(self._stop))

    def runs(self, id: str) -> bool:
        """Whether it runs this instance, and the instance is connected."""
        running = self.controller._running.get(id)
        return running is not None and running.status == "connected"

    async def stop(self) -> None:
        """Stops it in good order."""
        self._stop.set()
        await self._task


class TakeoverTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        # Connections of the controller's threads end with the threads.
        warnings.simplefilter("ignore", ResourceWarning)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.notes_file = self.folder / "notes"
        self.service = Signalbox(self.notes_file)
        self.addCleanup(self.service.close)
        self.service.add("i1", "Hall")
        self._second = 0

    def start(self, state: str = "state", **settings: Any) -> Run:
        quick = {"poll": 0.05, "sync": 0.1, "telemetry": "http", **settings}
        run = Run(Settings(self.service.url, "t", self.folder / state, **quick))
        self.addAsyncCleanup(run.stop)
        return run

    def order(self, value: float, id: str = "i1") -> None:
        """A command by a user."""
        self._second += 1
        self.service.latest[f"e-{id}"] = (value, f"2026-03-01T10:00:{self._second:02}Z")

    def notes(self) -> list[str]:
        """The calls of the device."""
        return self.notes_file.read_text().split() if self.notes_file.exists() else []

    async def until(self, is_so: Callable[[], Any], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not is_so():
                await asyncio.sleep(0.02)

    async def running_with_order(self, state: str = "state") -> Run:
        """A controller whose output has obeyed an order."""
        run = self.start(state)
        self.order(7)
        await self.until(lambda: "7.0" in self.notes())
        return run

    async def test_values_that_are_not_taken_are_reported_once_in_a_while(self) -> None:
        self.service.deleted = {"a", "b"}
        run = self.start()
        buffer = run.controller._buffer
        kept = [Value(event, 1.0, f"2026-03-01T10:00:0{second}+00:00") for second in range(3) for event in "abc"]
        buffer.add(kept[:5], Origin("i1", (), frozenset()))
        run.controller._arrived.set()
        entry = "4 values are lost, since Signalbox did not take them: 2 of event a: it is deleted; 2 of event b: it is deleted"
        await self.until(lambda: self.service.entries == [entry])
        buffer.add(kept[5:], Origin("i1", (), frozenset()))
        run.controller._arrived.set()
        await self.until(lambda: run.controller._untaken.total() == 2)
        reports = len(self.service.reports)
        await self.until(lambda: len(self.service.reports) > reports + 2)
        self.assertEqual(self.service.entries, [entry])
        run.controller._untaken_again = 0.0
        await self.until(lambda: len(self.service.entries) == 2)

    async def test_a_stop_writes_the_safe_state(self) -> None:
        run = await self.running_with_order()
        await run.stop()
        self.assertEqual(self.notes()[-2:], ["0.0", "disconnected"])
        self.assertEqual((self.service.claims, self.service.reports[-1]), ({}, ("i1", "inactive")))

    async def test_a_call_that_is_under_way_at_a_stop_arrives_before_the_goodbye(self) -> None:
        service = self.service
        ends = {
            "status": lambda: service.reports[-1:] == [("i1", "inactive")],
            "claims": lambda: not service.claims,
        }
        for name, has_ended in ends.items():
            with self.subTest(name):
                self.notes_file.unlink(missing_ok=True)
                run = self.start(name)
                await self.until(lambda run=run: run.runs("i1") and ("i1", "connected") in service.reports)
                under_way, stopping = threading.Event(), threading.Event()

                def delay(path: str, name: Any = name, has_ended: Any = has_ended) -> None:
                    if path.endswith(name) and not under_way.is_set():
                        under_way.set()
                        stopping.wait(30)
                        # Long enough to be overtaken by one that does not wait.
                        until = time.monotonic() + 1
                        while not has_ended() and time.monotonic() < until:
                            time.sleep(0.01)

                service.before = delay
                await self.until(under_way.is_set)
                stop = asyncio.create_task(run.stop())
                await self.until(lambda: "disconnected" in self.notes())
                stopping.set()
                await stop
                service.before = lambda _: None
                self.assertEqual((service.claims, service.reports[-1]), ({}, ("i1", "inactive")))

    async def test_a_stop_without_the_service_writes_the_safe_state(self) -> None:
        run = await self.running_with_order()
        self.service.is_away = True
        await run.stop()
        self.assertEqual(self.notes()[-2:], ["0.0", "disconnected"])

    async def test_a_deleted_instance_writes_the_safe_state(self) -> None:
        run = await self.running_with_order()
        del self.service.instances["i1"]
        await self.until(lambda: "disconnected" in self.notes())
        self.assertEqual(self.notes()[-2:], ["0.0", "disconnected"])
        await run.stop()

    async def test_an_original_leaves_outputs_to_its_copy(self) -> None:
        original = await self.running_with_order()
        shutil.copytree(self.folder / "state", self.folder / "copy")
        copy = self.start("copy")
        await self.until(lambda: copy.runs("i1"))
        await self.until(lambda: "disconnected" in self.notes())
        self.assertNotIn("0.0", self.notes(), "the safe state is written over the copy's output")
        self.assertIn(409, self.service.refusals)
        await original.stop()
        self.assertNotIn("0.0", self.notes())
        await copy.stop()
        self.assertEqual(self.notes().count("0.0"), 1, "the copy's own stop")

    async def test_a_controller_that_was_away_leaves_outputs_to_another(self) -> None:
        first = await self.running_with_order()
        self.service.is_away = True
        self.service.claims["i1"] = ("another", "s")
        self.service.is_away = False
        await self.until(lambda: "disconnected" in self.notes())
        self.assertNotIn("0.0", self.notes(), "the safe state is written over another's output")
        await first.stop()
        self.assertNotIn("0.0", self.notes())

    async def test_a_stop_before_the_loss_was_noticed_leaves_outputs_to_another(self) -> None:
        run = self.start(sync=15)
        self.order(7)
        await self.until(lambda: "7.0" in self.notes())
        self.service.claims["i1"] = ("another", "s")
        await run.stop()
        self.assertEqual(self.notes()[-1], "disconnected")
        self.assertNotIn("0.0", self.notes(), "the safe state is written over another's output")

    async def test_an_instance_that_is_for_another_now_is_safe_before_it_is_free(self) -> None:
        self.service.add("i2", "Roof")
        run = self.start(instances=frozenset({"Hall"}))
        self.order(7)
        await self.until(lambda: "7.0" in self.notes())
        noted: list[str] = []
        claim = self.service._claim

        def note(body: Any) -> Any:
            answer = claim(body)
            if "i1" not in self.service.claims and not noted:
                noted.extend(self.notes())
            return answer

        self.service._claim = note  # type: ignore[method-assign]
        self.service.instances["i1"]["instance_name"] = "Hall 1"
        await self.until(lambda: noted)
        self.assertEqual(noted[-2:], ["0.0", "disconnected"])
        await run.stop()

    def crash(self, run: Run) -> None:
        """Ends a controller without a goodbye, as its machine would."""
        run.controller._say_goodbye = AsyncMock()  # type: ignore[method-assign]

    async def test_a_run_that_never_claimed_keeps_the_claims_of_the_last_one(self) -> None:
        first = await self.running_with_order()
        self.crash(first)
        await first.stop()
        self.assertIn("i1", self.service.claims)
        self.service.is_away = True
        second = self.start()
        await self.until(lambda: self.service.unanswered > 3)
        self.crash(second)
        await second.stop()
        self.service.is_away = False
        third = self.start()
        await self.until(lambda: third.runs("i1"))
        self.assertEqual(self.service.refusals, [])
        await third.stop()

    async def test_damaged_files_of_the_name_and_session_are_made_anew(self) -> None:
        for content in (b"", b"\0" * 36, b"\xff\xfe", b" \n", b"x" * 5000):
            with self.subTest(content[:3]):
                state = f"state{len(content)}{content[:1].hex()}"
                (self.folder / state).mkdir()
                for name in ("name", "session"):
                    (self.folder / state / name).write_bytes(content)
                run = self.start(state)
                await self.until(lambda run=run: run.runs("i1"))
                name = (self.folder / state / "name").read_text()
                self.assertEqual((self.service.claims["i1"][0], len(name)), (name, 36))
                await run.stop()
        self.assertEqual(self.service.refusals, [])


if __name__ == "__main__":
    unittest.main()
