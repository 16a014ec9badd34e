"""Files of certificates and keys whose paths come from the configuration, for both plugins that read them."""

from __future__ import annotations

import asyncio
import os
import time
import unittest
from typing import Any

from certificates import Authority, local
from peers import DeviceTest
from signalbox_plugins import PluginConnectionError
from signalbox_plugins.builtin.files import UnusableFileError, content_of
from signalbox_plugins.discovery import built_in_plugins

SETTINGS = {
    "mqtt": ("ca_file", "certificate_file", "key_file"),
    "opcua": ("certificate_file", "key_file", "server_certificate_file"),
}


class FilesTest(DeviceTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        authority = Authority(self.folder, "plant")
        certificate, key = authority.issue("controller", *local())
        own = {"certificate_file": str(certificate), "key_file": str(key)}
        # Files are read before a connection is tried.
        self.configs: dict[str, dict[str, Any]] = {
            "mqtt": {"port": 1, "tls": True, "ca_file": str(authority.file), **own},
            "opcua": {
                "url": "opc.tcp://127.0.0.1:1", "security": "Basic256Sha256",
                "server_certificate_file": str(certificate), **own,
            },
        }  # fmt: skip
        self.pipe = self.folder / "pipe"
        os.mkfifo(self.pipe)

    async def refusal(self, plugin: str, setting: str, path: str) -> str:
        device = built_in_plugins()[plugin]()
        device.configure({**self.configs[plugin], setting: path, "demo_mode": False})
        with self.assertRaises(PluginConnectionError) as caught:
            async with asyncio.timeout(60):
                await device.connect()
        return str(caught.exception)

    async def test_odd_files_are_refused_with_reason_and_remedy(self) -> None:
        long, empty = self.folder / "long.pem", self.folder / "empty.pem"
        long.write_bytes(b"\n" * ((1 << 20) + 1))
        empty.touch()
        odd = (
            ("/dev/zero", "is a folder, a pipe or a device"),
            (str(self.pipe), "is a folder, a pipe or a device"),
            (str(self.folder), "is a folder, a pipe or a device"),
            (str(long), "is longer than 1 MiB"),
            ("/nowhere/x.pem", "cannot be read on the controller's machine (No such file or directory)"),
            ("a\0b", "cannot be read on the controller's machine"),
            (str(empty), "certificate"),
        )
        for plugin, settings in SETTINGS.items():
            for setting in settings:
                for path, why in odd:
                    with self.subTest(plugin=plugin, setting=setting, path=path):
                        said = await self.refusal(plugin, setting, path)
                        self.assertIn(setting, said)
                        self.assertIn(path, said)
                        self.assertIn(why, said)
                        self.assertIn(": name ", said)

    async def test_a_pipe_or_device_is_the_state_of_an_instance_that_still_ends(self) -> None:
        for plugin, settings in SETTINGS.items():
            for path in (str(self.pipe), "/dev/zero"):
                with self.subTest(plugin=plugin, path=path):
                    self.run_plugin(plugin, {**self.configs[plugin], settings[-1]: path}, ["a"])
                    await self.until(lambda path=path: f"{path} is a folder, a pipe" in (self.running.error or ""), 30)
                    self.assertEqual(self.running.status, "error")
                    process, begun = self.running._process, time.monotonic()
                    await self.running.stop()
                    assert process is not None
                    self.assertEqual(process.returncode, 0, "it was killed")
                    self.assertLess(time.monotonic() - begun, 10)

    async def test_content_of_up_to_1_mib_is_read(self) -> None:
        file = self.folder / "file"
        file.write_bytes(b"x" * (1 << 20))
        link = self.folder / "link"
        link.symlink_to(file)
        self.assertEqual(await content_of("key_file", str(link)), file.read_bytes())
        # The kernel's file has the length 0 before it is read.
        self.assertIn(b"MemTotal", await content_of("key_file", "/proc/meminfo"))
        with self.assertRaises(UnusableFileError):
            await content_of("key_file", "/dev/random")


if __name__ == "__main__":
    unittest.main()
