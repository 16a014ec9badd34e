"""The controller's parts, on real files and with real processes. The whole is tested against a running Signalbox."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from signalbox_controller.buffer import Buffer, Value
from signalbox_controller.packages import PackageError, Packages, unpack
from signalbox_controller.backoff import Backoff
from signalbox_controller.claimant import Claimant
from signalbox_controller.host import Host
from signalbox_controller.running import Running
from signalbox_controller.service import Away, Channel, Instance, Latest, Package, Refused, Service
from signalbox_controller.settings import Settings, SettingsError, read


def values(*numbers: float) -> list[Value]:
    return [Value("event", number, f"2026-03-01T10:00:{number:02.0f}+00:00") for number in numbers]


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def buffer(self, most: int = 100) -> Buffer:
        buffer = Buffer(self.folder / "state" / "buffer.sqlite", most)
        self.addCleanup(buffer.close)
        return buffer


class BufferTest(InFolder):
    def test_values_leave_in_the_order_in_which_they_came(self) -> None:
        buffer = self.buffer()
        buffer.add(values(1, 2, 3))
        left = []
        while batch := buffer.next(2):
            left += [value.value for value in batch.values]
            buffer.done(batch)
        self.assertEqual((left, len(buffer)), ([1, 2, 3], 0))

    def test_a_batch_stays_as_it_is_until_it_is_done_even_after_a_crash(self) -> None:
        before = self.buffer()
        before.add(values(1, 2))
        first = before.next(10)
        before.add(values(3))
        self.assertEqual(before.next(10), first)
        # Without closing, as after a crash.
        after = self.buffer()
        self.assertEqual((after.next(10), len(after)), (first, 3))
        assert first is not None
        after.done(first)
        second = after.next(10)
        assert second is not None
        self.assertEqual([value.value for value in second.values], [3])
        self.assertNotEqual(second.key, first.key)

    def test_the_oldest_go_first_when_it_is_full_but_not_what_is_being_sent(self) -> None:
        buffer = self.buffer(most=4)
        buffer.add(values(1, 2, 3, 4))
        sending = buffer.next(2)
        buffer.add(values(5, 6))
        self.assertEqual((buffer.next(2), buffer.dropped, len(buffer)), (sending, 2, 4))
        assert sending is not None
        buffer.done(sending)
        rest = buffer.next(10)
        assert rest is not None
        self.assertEqual([value.value for value in rest.values], [5, 6])

    def test_dropped_values_are_counted_until_reported(self) -> None:
        before = self.buffer(most=2)
        before.add(values(1, 2, 3, 4, 5))
        after = self.buffer(most=2)
        self.assertEqual((after.dropped, len(after)), (3, 2))
        after.forget_dropped(3)
        self.assertEqual(before.dropped, 0)

    def test_a_process_that_is_killed_while_it_adds_loses_nothing_that_it_has_added(self) -> None:
        buffer = self.buffer(most=1_000_000)
        script = (
            "import sys, itertools; from pathlib import Path; from signalbox_controller.buffer import Buffer, Value\n"
            "buffer = Buffer(Path(sys.argv[1]), 1_000_000)\n"
            "for n in itertools.count():\n"
            "    buffer.add([Value('e', 2 * n, 't'), Value('e', 2 * n + 1, 't')]); print(n, flush=True)\n"
        )
        path = self.folder / "state" / "buffer.sqlite"
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(50):
                process.stdout.readline()
            process.kill()
            said = process.stdout.read().split("\n")
        added = 2 * (50 + sum(bool(line) for line in said[:-1]))
        kept = []
        while batch := buffer.next(37):
            kept += [value.value for value in batch.values]
            buffer.done(batch)
        self.assertEqual(kept, list(range(len(kept))), "whole and in order")
        self.assertGreaterEqual(len(kept), added)
        self.assertEqual(len(kept) % 2, 0, "all of one call, or none")


class ClaimantTest(InFolder):
    def test_a_controller_keeps_its_name_and_takes_over_from_its_last_run(self) -> None:
        first = Claimant(self.folder)
        first.confirm()
        second = Claimant(self.folder)
        self.assertEqual((first.name, first.session), (second.name, second.previous))
        self.assertEqual(first.previous, "")
        self.assertNotEqual(first.session, second.session)

    def test_a_session_is_replaced_when_the_next_one_has_claimed(self) -> None:
        first = Claimant(self.folder)
        first.confirm()
        self.assertEqual([Claimant(self.folder).previous for _ in range(3)], [first.session] * 3)

    def test_files_are_on_disk_before_they_have_their_names(self) -> None:
        done: list[str] = []

        def note(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def noted(*arguments: Any) -> Any:
                if name == "sync":
                    kind = "folder" if stat.S_ISDIR(os.fstat(arguments[0]).st_mode) else "file"
                    done.append(f"sync of the {kind}")
                else:
                    done.append(name)
                return call(*arguments)

            return noted

        with patch("os.fsync", note("sync", os.fsync)), patch.object(Path, "replace", note("rename", Path.replace)):
            Claimant(self.folder).confirm()
        self.assertEqual(done, ["sync of the file", "rename", "sync of the folder"] * 2)

    def test_a_session_that_cannot_be_written_is_tried_again(self) -> None:
        claimant = Claimant(self.folder)
        with patch.object(Path, "replace", side_effect=OSError(28, "No space left on device")):
            claimant.confirm()
        self.assertEqual(Claimant(self.folder).previous, "")
        claimant.confirm()
        self.assertEqual(Claimant(self.folder).previous, claimant.session)


class BackoffTest(unittest.TestCase):
    def test_delays_grow_up_to_a_bound_and_differ_between_controllers(self) -> None:
        backoffs = [Backoff(1.0) for _ in range(20)]
        rounds = [[backoff.seconds() for backoff in backoffs] for _ in range(8)]
        self.assertGreater(len(set(rounds[0])), 10)
        self.assertTrue(all(0.5 <= first <= 1.0 for first in rounds[0]))
        self.assertTrue(all(15.0 <= last <= 30.0 for last in rounds[-1]))
        backoffs[0].reset()
        self.assertLessEqual(backoffs[0].seconds(), 1.0)


class PackagesTest(InFolder):
    def wheel(self, name: str, mode: int = 0o644) -> bytes:
        bytes_ = io.BytesIO()
        with zipfile.ZipFile(bytes_, "w") as archive:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, b"x = 1")
        return bytes_.getvalue()

    def test_a_wheel_is_unpacked(self) -> None:
        unpack(self.wheel("plugin/__init__.py"), self.folder)
        self.assertEqual((self.folder / "plugin/__init__.py").read_text(), "x = 1")

    def test_a_package_is_on_disk_before_it_has_its_name(self) -> None:
        wheel = self.wheel("plugin.py")
        package = Package("p", hashlib.sha256(wheel).hexdigest(), ("plugin",))
        seen: list[list[str]] = []
        service = Service("http://127.0.0.1:1", "t", 1)
        with (
            patch.object(service, "wheel", return_value=wheel),
            patch("os.sync", lambda: seen.append([path.name for path in self.folder.rglob("*")])),
        ):
            folder = Packages(self.folder, service).fetch(package)
        self.assertTrue(folder.is_dir())
        self.assertEqual(("plugin.py" in seen[0], folder.name in seen[0]), (True, False))

    def test_nothing_leaves_the_folder(self) -> None:
        for name in ("../x", "/x", "a/../../x", "a\\..\\x"):
            self.assertRaises(PackageError, unpack, self.wheel(name), self.folder)
        self.assertRaises(PackageError, unpack, self.wheel("link", 0o120777), self.folder)
        self.assertRaises(PackageError, unpack, b"no archive", self.folder)
        damaged = bytearray(self.wheel("plugin.py"))
        damaged[damaged.index(b"x = 1")] ^= 1
        self.assertRaises(PackageError, unpack, bytes(damaged), self.folder)


class AnsweringInItsPlace(BaseHTTPRequestHandler):
    """A proxy that answers for Signalbox."""

    status, page = 200, b"<html>We are back soon.</html>"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


class ServiceTest(InFolder):
    def service(self, status: int, page: bytes) -> Service:
        handler = type("Handler", (AnsweringInItsPlace,), {"status": status, "page": page})
        server = HTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return Service(f"http://127.0.0.1:{server.server_address[1]}", "t", 10)

    def test_an_answer_of_others_ends_nothing_and_loses_no_value(self) -> None:
        buffer = self.buffer()
        buffer.add(values(1))
        batch = buffer.next(10)
        assert batch is not None
        page = AnsweringInItsPlace.page
        answers = ((200, page), (200, b"[]"), (200, b"null"), (301, b""), (404, page), (405, b""), (502, page))
        for status, said in answers:
            with self.subTest(status=status, said=said):
                service = self.service(status, said)
                self.assertRaises(Away, service.send, batch)
                if status != 404 and status != 405 and said != b"[]":
                    for call in (service.instances, service.packages, service.latest):
                        self.assertRaises(Away, call)
        for status in (400, 413, 422):
            self.assertRaises(Refused, self.service(status, b'{"detail": "no"}').send, batch)


class SettingsTest(unittest.TestCase):
    def test_a_token_is_needed_and_addresses_are_checked(self) -> None:
        self.assertEqual(read([], {"SIGNALBOX_TOKEN": " t "}).token, "t")
        for arguments, environment in (
            ([], {}),
            ([], {"SIGNALBOX_TOKEN": "t\nt"}),
            ([], {"SIGNALBOX_TOKEN": "t\u00fc"}),
            (["--url", "x"], {"SIGNALBOX_TOKEN": "t"}),
            (["--poll", "0"], {"SIGNALBOX_TOKEN": "t"}),
        ):
            self.assertRaises(SettingsError, read, arguments, environment)


PLUGIN = """
import os, sys, time
from signalbox_plugins import ChannelDescriptor, ChannelDirection, DevicePlugin, PluginMeta

class Plugin(DevicePlugin):
    meta = PluginMeta("echo", "Echo", "1.0.0")

    def get_channels(self):
        return [ChannelDescriptor("in", "In"),
                ChannelDescriptor("out", "Out", ChannelDirection.OUTPUT, safe_value=0.0)]

    async def _do_connect(self): print("noise on the standard output")
    async def _do_disconnect(self): pass

    async def _do_read(self, channel_id):
        return float(os.environ.get("SIGNALBOX_TOKEN") is not None)

    async def _do_write(self, channel_id, value):
        if value == 66:
            os._exit(3)
        if value == 55:
            time.sleep(8)
        with open(FILE, "a") as file:
            file.write(f"{value}\\n")
"""


class RunningTest(unittest.IsolatedAsyncioTestCase):
    """An instance in a process of its own."""

    async def asyncSetUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.written = self.folder / "written"
        package = self.folder / "package"
        (package / "echo-1.dist-info").mkdir(parents=True)
        (package / "echo-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: echo\nVersion: 1\n")
        (package / "echo-1.dist-info/entry_points.txt").write_text("[signalbox.plugins]\necho = echo_plugin:Plugin\n")
        (package / "echo_plugin.py").write_text(f"FILE = {str(self.written)!r}\n{PLUGIN}")
        os.environ["SIGNALBOX_TOKEN"] = "secret"
        self.addCleanup(os.environ.pop, "SIGNALBOX_TOKEN")
        channels = (Channel("in", False, "event-in"), Channel("out", True, "event-out"))
        instance = Instance("1", "echo", "Echo", False, json.dumps({"poll_interval_ms": 50}), channels)
        settings = Settings("http://x", "t", self.folder)
        self.buffer = Buffer(settings.buffer_file, settings.buffer)
        self.addCleanup(self.buffer.close)
        self.running = Running(instance, package, settings, lambda: None)
        self.addAsyncCleanup(self.running.stop)

    def values(self) -> list[Value]:
        batch = self.buffer.next(1000)
        return batch.values if batch else []

    async def until(self, is_so: object) -> None:
        async with asyncio.timeout(20):
            while not is_so():  # type: ignore[operator]
                await asyncio.sleep(0.02)

    def order(self, value: float, second: int) -> None:
        self.running.obey({"event-out": Latest(value, f"2026-03-01T10:00:{second:02}Z")})

    def orders(self) -> list[str]:
        return self.written.read_text().split() if self.written.exists() else []

    async def test_values_come_and_orders_go_and_stopping_is_safe(self) -> None:
        await self.until(lambda: len(self.buffer) >= 3)
        self.assertEqual(
            {(value.event, value.value) for value in self.values()}, {("event-in", 0.0)}, "it knows the token"
        )
        self.assertEqual(self.running.status, "connected")
        self.order(7, 1)
        self.order(7, 1)
        self.order(8, 2)
        await self.until(lambda: "8.0" in self.orders())
        self.assertIn(self.orders(), (["7.0", "8.0"], ["8.0"]), "an order is carried out once")
        await self.running.stop()
        self.assertEqual(self.orders()[-1], "0.0")

    async def test_an_order_right_before_the_end_keeps_no_output_from_its_safe_state(self) -> None:
        await self.until(lambda: len(self.buffer))
        await self.running.stop()
        self.written.unlink()
        first = json.dumps(self.running._first()).encode() + b"\n"
        out, lines = io.StringIO(), asyncio.StreamReader()
        lines.feed_data(first)
        host = asyncio.create_task(Host(out).run(lines))
        await self.until(lambda: '"connected"' in out.getvalue())
        # Both are there before the instance continues.
        lines.feed_data(b'{"write": {"out": 7}}\n')
        lines.feed_eof()
        await self.until(host.done)
        self.assertEqual(self.orders()[-1:], ["0.0"])

    async def test_an_instance_that_is_lost_to_another_controller_leaves_its_outputs(self) -> None:
        await self.until(lambda: len(self.buffer))
        self.order(7, 1)
        await self.until(lambda: "7.0" in self.orders())
        process = self.running._process
        assert process is not None
        await self.running.stop(is_lost=True)
        self.assertEqual((self.orders(), process.returncode), (["7.0"], 0))

    async def test_a_plugin_that_blocks_its_process_is_an_error_until_it_continues(self) -> None:
        with patch("signalbox_controller.running._SILENT_SECONDS", 4.0):
            await self.until(lambda: self.running.status == "connected")
            self.order(55, 1)
            await self.until(lambda: self.running.status == "error")
            self.assertIn("blocks its process", self.running.error or "")
            await self.until(lambda: self.running.status == "connected")

    async def test_a_plugin_that_crashes_is_an_error_and_runs_again(self) -> None:
        await self.until(lambda: len(self.buffer))
        self.order(66, 1)
        await self.until(lambda: self.running.status == "error")
        self.assertIn("status 3", self.running.error or "")
        known = len(self.buffer)
        await self.until(lambda: len(self.buffer) > known and self.running.status == "connected")


if __name__ == "__main__":
    sys.exit(unittest.main())
