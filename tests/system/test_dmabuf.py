# SPDX-License-Identifier: BSD-3-Clause
"""Regions of dma-bufs in a guest, whose kernel has /dev/udmabuf and /dev/dma_heap."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.programs.pair import ProgramOutcome
from tests.suites.upstream import PYPI

from .machine import Machine, booted
from .programs import net_up

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]

TESTS = Path(__file__).parents[1]
FILES = ("unit/verbs/memory/udmabuf.py", "cross/memory/udmabuf.py")
#: Python and pytest start slowly in an emulated guest.
DEADLINE_S = 400.0


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with booted(1) as machine:
        yield machine


def run_python(machine: Machine, *arguments: str) -> ProgramOutcome:
    command = [sys.executable, "-P", "-m", *arguments]
    return machine.run(machine.hosts[0], command, deadline_s=DEADLINE_S)


def test_regions_of_dmabufs_pass_their_tests_where_there_are_dmabufs(machine: Machine) -> None:
    place = ["--rootdir", str(TESTS.parent), "-c", str(TESTS.parent / "pyproject.toml")]
    files = [str(TESTS / name) for name in FILES]
    told = run_python(machine, "pytest", "-q", "-p", "no:cacheprovider", *place, *files)
    last = told.stdout.splitlines()[-1]
    assert re.match(r"\d+ passed in ", last), told.describe()  # and nothing was skipped


def test_rdma_cores_own_tests_of_dmabufs_pass(machine: Machine) -> None:
    program = PYPI / "tests" / "run_tests.py"
    if not program.exists():
        pytest.skip("PyPI's pyverbs is not there: make build/pyverbs/built")
    net_up(machine, *machine.hosts)
    told = run_python(machine, "nupa.verbs", str(program), "-k", "DmaBuf")
    assert "Ran 10 tests" in told.stderr, told.describe()
    assert told.stderr.rstrip().endswith("\nOK"), told.describe()  # and none was skipped
