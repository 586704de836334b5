# SPDX-License-Identifier: BSD-3-Clause
"""Releases and a fabric.  `make test-distributions` sets NUPA_DISTRIBUTIONS: nothing runs without
it, as the packages are 170 MB."""

from __future__ import annotations

import os
import platform

import pytest

from tests.distributions.release import SUITES, Release, fetch, table
from tests.programs.conftest import fabric, make_stage, stage

__all__ = ["fabric", "make_stage", "stage"]

collect_ignore_glob = [] if os.environ.get("NUPA_DISTRIBUTIONS") else ["test_*.py"]
_fetched: list[Release] = []


@pytest.fixture(scope="session", params=SUITES)
def release(request: pytest.FixtureRequest) -> Release:
    if platform.machine() != "x86_64":
        pytest.skip("the packages are of amd64")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("APT_CONFIG", raising=False)
        found = fetch(request.param, print)
    _fetched.append(found)
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _fetched:
        terminalreporter.section("versions that ran")
        terminalreporter.write_line(table(_fetched))
