# SPDX-License-Identifier: BSD-3-Clause
"""Wires inside the kernel's WireGuard and IPsec: tests/wire/test_tunnels.py runs in a guest, whose
kernel has both, between two of its network namespaces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.machine import Machine

from .ends import DEADLINE_S

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1800)]

_TEST = Path(__file__).parents[2] / "wire" / "test_tunnels.py"
_TESTS = ("test_programs_run_and_the_network_sees_the_tunnel_alone", "test_the_wire_is_well")
_OWN = ("env", "-u", "LD_PRELOAD", "-u", "LD_LIBRARY_PATH", "-u", "NUPA_FABRIC", "-u", "NUPA_HOST")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with closing(Machine(1, "ivshmem", "--mem", "64M")) as found:
        found.up()
        yield found


@pytest.mark.parametrize("kind", ["WireGuard of the kernel", "IPsec"])
def test_a_wire_runs_inside_a_tunnel_of_the_kernel(machine: Machine, kind: str) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-m",
        "long",
        "-p",
        "no:cacheprovider",
    ]
    command += [f"--timeout={DEADLINE_S:g}", *(f"{_TEST}::{name}[{kind}]" for name in _TESTS)]
    with machine.program(machine.argv("host0", [*_OWN, *command])) as program:
        outcome = machine.wait(program, 2 * DEADLINE_S)
    assert outcome.ok, outcome.describe()
    assert "2 passed" in outcome.stdout, outcome.describe()
