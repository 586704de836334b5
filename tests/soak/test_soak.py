# SPDX-License-Identifier: BSD-3-Clause
"""A soak of a minute; `make soak` runs a longer one."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest

from .soak import run_soak

HEADER = Path("/usr/include/infiniband/verbs.h")


@pytest.mark.timeout(240)
def test_processes_that_die_stop_or_leave_harm_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    if not HEADER.exists():
        pytest.skip(f"no {HEADER}: apt-get install libibverbs-dev")
    if not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("no C compiler: apt-get install gcc")
    lines: list[str] = []
    report = run_soak(
        seconds=60, seed=secrets.randbits(32), n_workers=8, n_links=16, say=lines.append
    )
    with capsys.disabled():
        print(f"\n{report.text()}")
    assert report.good, "\n".join([*lines, report.text()])
    assert report.found.operations > 1000
    assert report.found.strikes["kill"] > 50
    assert report.found.notices_ms
