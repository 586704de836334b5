# SPDX-License-Identifier: BSD-3-Clause
"""Runs modules of rdma-core's test suite and writes what became of each test, a JSON line each.

    python runner.py SEED LISTED RESULTS MODULE ...

LISTED gets the names of all their tests, before the first is run.  Stands alone: it is run by the
interpreter that the suite's pyverbs was built for, in the folder above the suite's `tests`.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
import unittest
from pathlib import Path


class Results(unittest.TestResult):
    """Appends {id, outcome, text, seconds} to a file; outcome: ok, skipped, failed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._started = time.monotonic()

    def write(self, test, outcome: str, text: str = "") -> None:
        # One write: a forked child of a test has no part of a line to write again.
        seconds = round(time.monotonic() - self._started, 3)
        line = {"id": test.id(), "outcome": outcome, "text": text, "seconds": seconds}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def startTest(self, test) -> None:  # noqa: N802
        self._started = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test) -> None:  # noqa: N802
        self.write(test, "ok")

    def addSkip(self, test, reason: str) -> None:  # noqa: N802
        self.write(test, "skipped", reason)

    def addError(self, test, err) -> None:  # noqa: N802
        super().addError(test, err)
        self.write(test, "failed", self.errors[-1][1])

    def addFailure(self, test, err) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.write(test, "failed", self.failures[-1][1])

    def addSubTest(self, test, subtest, err) -> None:  # noqa: ARG002, N802
        if err is not None:
            self.addError(test, err)


def flatten(tests):
    """Yields the tests themselves, out of suites of suites of them."""
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def main() -> int:
    seed, listed, results, *modules = sys.argv[1:]
    del sys.argv[1:]
    # As the suite's own run_tests.py has it: `tests` is a package, its parser a module beside.
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "tests")]
    from args_parser import parser

    parser.parse_args()
    load = unittest.defaultTestLoader.loadTestsFromModule
    tests = list(flatten(load(importlib.import_module(f"tests.{name}")) for name in modules))
    Path(listed).write_text("".join(f"{test.id()}\n" for test in tests))
    random.seed(int(seed))
    result = Results(results)
    unittest.TestSuite(tests).run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
