# SPDX-License-Identifier: BSD-3-Clause
"""The kernel's device in two guests, used by programs with rdma-core's own libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.programs.needs import needs

from . import verbs
from .kernel import PATIENCE
from .machine import PLAIN, Machine, new_port

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1800)]

#: The most of a processor that nupa-port may use where nothing happens.
IDLE_MAX = 0.02
GUESTS = verbs.GUESTS
PERFTEST = [
    ("ib_send_bw", "-s", "8192"),
    ("ib_send_bw", "-c", "UC", "-s", "8192"),
    ("ib_send_lat", "-c", "UD", "-s", "1024"),
    ("ib_write_bw", "-s", "65536"),
    ("ib_write_bw", "-c", "UC", "-s", "65536"),
    ("ib_read_lat", "-s", "4096"),
    ("ib_atomic_lat",),
    ("ib_atomic_bw", "-A", "CMP_AND_SWAP"),
]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with verbs.booted_for_programs() as machine:
        yield machine


@pytest.fixture(autouse=True)
def _no_warnings(machine: Machine) -> Iterator[None]:
    yield
    assert [machine.warnings(host) for host in machine.hosts] == [[], []]


def test_ibv_devinfo_lists_the_kernels_device(machine: Machine) -> None:
    shown = machine.run("host0", [*PLAIN, needs("ibv_devinfo", "ibverbs-utils")]).stdout
    assert re.search(r"hca_id:\s+nupa_rdma0\n(.|\n)*state:\s+PORT_ACTIVE", shown)


@pytest.mark.parametrize(
    "command",
    [
        ("ibv_rc_pingpong", "-c"),
        ("ibv_rc_pingpong", "-c", "-e"),
        ("ibv_uc_pingpong", "-c"),
        ("ibv_ud_pingpong", "-c"),
        ("ibv_srq_pingpong",),
    ],
    ids=" ".join,
)
def test_examples_of_libibverbs_run_between_kernels(
    machine: Machine, command: tuple[str, ...]
) -> None:
    verbs.pingpong(machine, GUESTS, GUESTS, *command)


@pytest.mark.parametrize("way", verbs.MIXED_WAYS)
@pytest.mark.parametrize("name", ["ibv_uc_pingpong", "ibv_ud_pingpong"])
def test_unreliable_examples_run_with_drop_in_libraries(
    machine: Machine, name: str, way: str
) -> None:
    verbs.pingpong(machine, *verbs.WAYS[way], name, "-c")


@pytest.mark.parametrize("way", verbs.WAYS)
@pytest.mark.parametrize("command", PERFTEST, ids=" ".join)
def test_perftest(machine: Machine, command: tuple[str, ...], way: str) -> None:
    verbs.perftest(machine, *verbs.WAYS[way], *command)


def test_rdma_lists_objects_of_a_process_and_its_death_frees_them(machine: Machine) -> None:
    port = new_port()
    command = [*PLAIN, needs("ibv_srq_pingpong", "ibverbs-utils"), "-g", "1"]
    server = machine.start("host0", [*command, "-p", str(port)])
    machine.until(machine.tcp("host0", port), server)
    pid = machine.run("host0", ["pgrep", "-x", "ibv_srq_pingpon"]).stdout.strip()
    shown = verbs.run(machine, "host0", "resources", pid)
    assert shown.split() == ["pd", "cq", "qp", "mr", "srq"]
    machine.run("host0", ["kill", "-KILL", pid])
    machine.end(server)
    assert verbs.run(machine, "host0", "resources", pid, "gone") == "\n"


def test_rdma_statistic_shows_the_counters(machine: Machine) -> None:
    shown = machine.run("host0", [*PLAIN, "rdma", "statistic", "show"]).stdout
    assert "link nupa_rdma0/1" in shown
    assert "rcvd_rnr_err" in shown


def test_an_idle_kernel_attachment_takes_little_of_a_processor(machine: Machine) -> None:
    assert float(verbs.run(machine, "host1", "idle")) < IDLE_MAX * PATIENCE


def test_hostile_queues_end_their_queue_pair_alone(machine: Machine) -> None:
    """A program writes random indexes and requests into its queues, and the device goes on."""
    hostile = [*PLAIN, needs("/usr/bin/python3", "python3-pyverbs"), "-P", str(verbs.HOSTILE)]
    machine.run("host1", [*hostile, "7", "20"], deadline_s=180)
    verbs.pingpong(machine, GUESTS, GUESTS, "ibv_rc_pingpong", "-c")


def test_a_kernel_that_stood_still_attaches_again_by_loading_the_modules(
    machine: Machine,
) -> None:
    with verbs.standing_still(machine, "host1"):
        pass
    verbs.run(machine, "host1", "cycle", "1")
    verbs.pingpong(machine, GUESTS, GUESTS, "ibv_rc_pingpong", "-c")


def test_fifty_times_load_traffic_and_unload(machine: Machine) -> None:
    verbs.run(machine, "host1", "cycle", "50")
