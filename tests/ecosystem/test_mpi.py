# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI over UCX: programs of ours (mpi/*.c), compiled by mpicc and started by mpirun."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.programs.needs import needs

from .lab import Lab

SOURCES = Path(__file__).with_name("mpi")
TRANSPORTS = ["rc_v", "ud_verbs"]
RANKS = 4
pytestmark = pytest.mark.timeout(120)


def mpirun(ranks: int, transport: str) -> list[str]:
    """Returns the command line up to the program; shared memory of the host is not among its
    ways."""
    command = [needs("mpirun", "openmpi-bin"), "-n", str(ranks), "--oversubscribe"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    chosen = {"pml": "ucx", "osc": "ucx", "btl": "^openib", "btl_base_warn_component_unused": "0"}
    for name, value in chosen.items():
        command += ["--mca", name, value]
    return [*command, "-x", f"UCX_TLS={transport},self", "-x", "UCX_NET_DEVICES=nupa_rdma0:1"]


def program(lab: Lab, name: str) -> str:
    needs("mpirun", "openmpi-bin")
    return lab.compile(SOURCES / f"{name}.c", compiler=needs("mpicc", "libopenmpi-dev"))


def right_ranks(output: str) -> list[int]:
    found = re.findall(rf"^rank (\d) of {RANKS}: \d+ elements right$", output, re.MULTILINE)
    return sorted(int(rank) for rank in found)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_four_ranks_of_one_host_reduce_exchange_and_put(fabric: Lab, transport: str) -> None:
    command = [*mpirun(RANKS, transport), program(fabric, "allreduce")]
    output = fabric.must(fabric.on("host0", *command))
    assert right_ranks(output) == [0, 1, 2, 3]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_four_ranks_each_on_a_host_of_its_own_move_their_data_through_the_fabric(
    fabric: Lab, transport: str
) -> None:
    before = fabric.moved_bytes()
    rank = fabric.on(None, program(fabric, "allreduce"))
    output = fabric.must([*mpirun(RANKS, transport), *rank])
    assert right_ranks(output) == [0, 1, 2, 3]
    after = fabric.moved_bytes()
    # The largest all-to-all alone sends each rank 3 blocks of 2 MiB.
    assert [after[host] - before[host] > 3 * (2 << 20) for host in before] == [True] * RANKS


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_pingpong_measures_all_sizes_with_its_data_intact(fabric: Lab, transport: str) -> None:
    rank = fabric.on(None, program(fabric, "pingpong"), "50")
    output = fabric.must([*mpirun(2, transport), *rank])
    lines = re.findall(r"^(\d+) ([\d.]+) ([\d.]+)$", output, re.MULTILINE)
    assert [int(bytes_) for bytes_, _, _ in lines] == [4**power for power in range(12)]
    assert all(float(microseconds) > 0 and float(rate) > 0 for _, microseconds, rate in lines)
