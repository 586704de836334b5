# SPDX-License-Identifier: BSD-3-Clause
"""Boot files of guests, and the consoles of guests in which a test failed.

Each module has a fixture `machine`, so that its guests boot once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from nupa.fabric import NupaError
from nupa.vm.boot import boot

from .kernel import PATIENCE
from .machine import Machine


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if PATIENCE != 1 else ():
        limit = item.get_closest_marker("timeout")
        if limit:
            item.add_marker(pytest.mark.timeout(limit.args[0] * PATIENCE))


@pytest.fixture(scope="session", autouse=True)
def _bootable() -> None:
    """Fetches QEMU and a kernel where they are missing; fails where that fails."""
    if os.environ.get("NUPA_GUESTS") == "0":
        pytest.skip("guests are not wanted: NUPA_GUESTS=0")
    try:
        boot.prepare(None, lambda line: print(line, file=sys.stderr))
    except NupaError as error:
        pytest.fail(f"no guests ({error}); NUPA_GUESTS=0 runs the tests without them", False)


@pytest.fixture(scope="session", autouse=True)
def _ended_in_order() -> Iterator[None]:
    """Guests go, too, when a signal other than SIGINT ends us."""

    def end(number: int, _frame: object) -> None:
        pytest.exit(f"ended by {signal.Signals(number).name}", 128 + number)

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    machine = getattr(item, "funcargs", {}).get("machine")
    if report.failed and isinstance(machine, Machine):
        report.sections.append((f"consoles at the end of {call.when}", machine.consoles()))
    return report
