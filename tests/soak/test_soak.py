# SPDX-License-Identifier: BSD-3-Clause
"""A short soak; `make soak` runs one of ten minutes."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest

from .director import DRESSES, SERVICES
from .soak import run_soak

HEADERS = {
    Path("/usr/include/infiniband/verbs.h"): "libibverbs-dev",
    Path("/usr/include/rdma/rdma_cma.h"): "librdmacm-dev",
}


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_processes_that_die_stop_or_leave_harm_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    for header, package in HEADERS.items():
        if not header.exists():
            pytest.skip(f"no {header}: apt-get install {package}")
    if not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("no C compiler: apt-get install gcc")
    lines: list[str] = []
    report = run_soak(seconds=60, seed=secrets.randbits(32), workers=24, links=48, say=lines.append)
    with capsys.disabled():
        print(f"\n{report.text()}")
    assert report.good, "\n".join([*lines, report.text()])
    assert report.found.operations > 1000
    assert report.found.strikes["kill"] > 50
    assert report.found.notices_ms
    assert report.found.dials > 10
    assert set(SERVICES) | set(DRESSES) == set(report.found.links)
