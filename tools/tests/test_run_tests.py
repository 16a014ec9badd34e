"""Tests of tools/run-tests."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "run-tests"


def load():
    loader = importlib.machinery.SourceFileLoader("run_tests", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    loader.exec_module(module)
    return module


run_tests = load()


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, script=None):
        file = self.folder / name
        if script is not None:
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
        return run_tests.Program({
            "executable": str(file),
            "manifest_path": str(self.folder / "Cargo.toml"),
            "package_id": f"path+file://{self.folder}#parts@0.1.0",
            "target": {"name": name, "src_path": str(self.folder / "tests" / name)},
        })

    def run_all(self, *programs):
        shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(shown):
            failed = run_tests.run_all(programs)
        shown.flush()
        return failed, shown.buffer.getvalue().decode()

    def test_all_are_run_and_those_that_failed_are_named(self):
        failed, shown = self.run_all(
            self.program("first", "echo one; exit 3"),
            self.program("second", "kill -9 $$"),
            self.program("third", "echo three; pwd"),
        )
        self.assertEqual(failed, ["parts: tests/first", "parts: tests/second"])
        self.assertIn("one\n== parts: tests/first: FAILED (3)", shown)
        self.assertIn(f"three\n{self.folder}\n== parts: tests/third: ok", shown)

    def test_one_that_cannot_be_started_is_no_success(self):
        with self.assertRaises(OSError):
            self.run_all(self.program("first", "true"), self.program("missing"), self.program("third", "true"))


if __name__ == "__main__":
    unittest.main()
