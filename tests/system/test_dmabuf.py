# SPDX-License-Identifier: BSD-3-Clause
"""Regions of dma-bufs in a guest, whose kernel has /dev/udmabuf and /dev/dma_heap."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .machine import booted

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]

TESTS = Path(__file__).parents[1]
FILES = ("unit/verbs/memory/udmabuf.py", "cross/memory/udmabuf.py")
#: Python and pytest start slowly in an emulated guest.
DEADLINE_S = 400.0


def test_regions_of_dmabufs_pass_their_tests_where_there_are_dmabufs() -> None:
    pytest_argv = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    rootdir = ["--rootdir", str(TESTS.parent), "-c", str(TESTS.parent / "pyproject.toml")]
    files = [str(TESTS / name) for name in FILES]
    with booted(1) as machine:
        outcome = machine.run("host0", [*pytest_argv, *rootdir, *files], deadline_s=DEADLINE_S)
    last = outcome.stdout.splitlines()[-1]
    assert re.match(r"\d+ passed in ", last), outcome.describe()  # and nothing was skipped
