"""Tests of tools/run-tests."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from script import load

run_tests = load("run-tests")


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
            outcome = run_tests.run_all(programs)
        shown.flush()
        return *outcome, shown.buffer.getvalue().decode()

    def test_all_are_run_and_those_that_failed_are_named(self):
        failed, unsteady, shown = self.run_all(
            self.program("first", "echo one; exit 3"),
            self.program("second", "kill -9 $$"),
            self.program("third", "echo three; pwd"),
        )
        self.assertEqual(failed, ["parts: tests/first", "parts: tests/second"])
        self.assertEqual(unsteady, [])
        self.assertIn("one\n== parts: tests/first: FAILED (3)", shown)
        self.assertIn(f"three\n{self.folder}\n== parts: tests/third: ok", shown)

    def failing(self, name, tests, again):
        """One whose tests fail, and which says `again` when it is run for these tests alone."""
        summary = "".join(f"    {test}\\n" for test in tests)
        why = f"---- {tests[0]} stdout ----\\nwhy\\n"
        failed = f"printf '\\nfailures:\\n\\n{why}\\nfailures:\\n{summary}\\ntest result: FAILED. 0'"
        return self.program(name, f'[ "$*" = "--exact {" ".join(tests)}" ] && {{ {again}; }}\n{failed}; exit 101')

    def test_a_test_that_passes_when_it_is_run_once_more_is_unsteady(self):
        failed, unsteady, shown = self.run_all(
            self.failing("first", ["a::b", "a::c"], "echo again; exit 0"),
            self.failing("second", ["d"], "exit 101"),
            self.failing("third", ["e", "f", "g", "h"], "exit 0"),
        )
        self.assertEqual(failed, ["parts: tests/second", "parts: tests/third"])
        self.assertEqual(unsteady, ["parts: tests/first: a::b", "parts: tests/first: a::c"])
        self.assertIn("again\n== parts: tests/first: ok", shown)

    def test_the_output_of_the_longest_is_shown_once(self):
        program = self.program("it", "echo one; sleep 0.5; echo two")
        program.is_longest = True
        failed, _, shown = self.run_all(program)
        self.assertEqual((failed, shown.split("==")[0]), ([], "one\ntwo\n"))

    def test_those_of_macros_find_the_libraries_of_the_compiler(self):
        failed, _, shown = self.run_all(self.program("first", 'ls "${LD_LIBRARY_PATH%%:*}" | grep libstd-.*so'))
        self.assertEqual(failed, [], shown)

    def test_one_that_cannot_be_started_is_no_success(self):
        with self.assertRaises(OSError):
            self.run_all(self.program("first", "true"), self.program("missing"), self.program("third", "true"))


if __name__ == "__main__":
    unittest.main()
