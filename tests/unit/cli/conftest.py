# SPDX-License-Identifier: BSD-3-Clause
"""`nupa` in this process, for the tests of commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from nupa.cli.run import program
from tests.unit.cli.command import Nupa


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses `nupa run` in a process with other threads, pytest-xdist's among them.

    The kernel could give them its SIGCHLD, and it would wait for ever.
    """
    run = program._run

    def checked(*args: Any) -> int:
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
        assert threads == 1, f"{threads} threads: use runs(), or failure_in_child()"
        return run(*args)

    monkeypatch.setattr(program, "_run", checked)


@pytest.fixture
def nupa(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Nupa:
    """Runs `nupa`, or the command that WORDS of the test's module names."""
    return Nupa(capsys, getattr(request.module, "WORDS", ()))


@pytest.fixture
def nupa_fails(nupa: Nupa) -> Callable[..., str]:
    return nupa.fails
