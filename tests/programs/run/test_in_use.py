# SPDX-License-Identifier: BSD-3-Clause
"""A fabric that is in use: the refusal names programs and pids."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nupa.fabric import Fabric, LocalError
from nupa.programs.pair import NUPA, Program
from nupa.topology.topology import star

DEADLINE_S = 30.0
OPENS = """
import time
from nupa.verbs import Context
with Context(name="nupa_rdma0"):
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def fabric(folder: Path) -> Iterator[str]:  # noqa: ARG001
    with Fabric.create("lab", star(2)):
        pass
    yield "lab"
    Fabric.remove("lab", force=True)


def refusal(name: str) -> str:
    with pytest.raises(LocalError) as caught:
        Fabric.remove(name)
    assert caught.value.errno == errno.EBUSY
    return str(caught.value)


def test_a_program_that_has_not_opened_its_device_is_named_with_its_command(fabric: str) -> None:
    command = ["sh", "-c", "echo pid $$; sleep 60; true"]
    with Program([*NUPA, "run", "--fabric", fabric, "--", *command]) as program:
        program.wait_said("pid ", DEADLINE_S)
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        comm = Path(f"/proc/{program.pid}/comm").read_text().strip()
        wanted = f"in use by {comm} (pid {program.pid}) for sh (pid {children[0]}): end its users"
        assert wanted in refusal(fabric)


def test_a_program_that_opened_it_is_named_once_with_its_host(fabric: str) -> None:
    python = ["python3", "-c", OPENS]
    words = [*NUPA, "run", "--fabric", fabric, "--host", "host1", "--", *python]
    with Program(words) as program:
        program.wait_said("open", DEADLINE_S)
        said = refusal(fabric)
        assert said.count("(pid ") == 1
        assert " on host1: end its users first" in said


def test_a_fabric_that_a_program_has_open_names_that_program(fabric: str) -> None:
    comm = Path("/proc/self/comm").read_text().strip()
    with Fabric.open(fabric):
        assert f"in use by {comm} (pid {os.getpid()})" in refusal(fabric)


def test_a_capture_is_named(fabric: str, tmp_path: Path) -> None:
    words = [*NUPA, "capture", "--fabric", fabric, "-w", str(tmp_path / "x.pcapng")]
    with Program(words) as program:
        program.wait_said("capturing", DEADLINE_S)
        assert f"(pid {program.pid})" in refusal(fabric)
