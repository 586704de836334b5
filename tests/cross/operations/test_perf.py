# SPDX-License-Identifier: BSD-3-Clause
"""`nupa perf` between processes: all combinations, its checks of data, and ends that die."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from nupa.measure import perf
from nupa.measure.perf_end import End
from nupa.programs.pair import NUPA
from nupa.verbs.base.errors import CompletionError

SIZES = ((1, 40), (8, 40), (3000, 40), (100_001, 40))
WAIT_S = 20.0  # a deadline, far beyond what anything here takes


def job(
    operation: perf.Operation, kind: perf.Kind, qp_type: perf.QpType = "RC", **changes: float
) -> perf.PerfJob:
    sizes = ((8, 300),) if operation == "atomic" else SIZES
    if qp_type == "UD":
        sizes = ((1, 3000), (4096, 3000))
    depth = 7 if kind == "bw" else 128
    return perf.PerfJob(operation, kind, sizes, qp_type, depth, **changes)


@pytest.mark.parametrize("mover", ["cma", "relay", "pool"])
@pytest.mark.parametrize("kind", perf.KINDS)
@pytest.mark.parametrize("operation", perf.OPERATIONS)
def test_each_operation_is_measured_and_its_data_is_intact(
    fabric: Fabric, operation: perf.Operation, kind: perf.Kind, mover: str
) -> None:
    what = job(operation, kind)
    found = perf.measure(what, fabric=fabric.name, mover=mover)
    assert found.mover == mover
    assert [(row["size_bytes"], row["iterations"]) for row in found.results] == list(what.runs)
    for row in found.results:
        if kind == "lat":
            names = ("min", "typical", "p99", "p99_9", "max")
            values = [row[f"latency_{name}_us"] for name in names]
            assert values == sorted(values)
            assert 0 < values[0] <= row["latency_mean_us"] <= values[-1] < 1e6 * WAIT_S
        else:
            assert 0 < row["elapsed_s"] < WAIT_S
            rate = row["iterations"] / row["elapsed_s"] / 1e6
            assert row["message_rate_m_per_s"] == pytest.approx(rate)
            assert row["bandwidth_mb_per_s"] == pytest.approx(rate * row["size_bytes"])


@pytest.mark.parametrize(
    ("operation", "qp_type"), [("write", "UC"), ("send", "UC"), ("send", "UD")]
)
@pytest.mark.parametrize("kind", perf.KINDS)
def test_unreliable_queue_pairs_lose_nothing_that_is_measured(
    fabric: Fabric, operation: perf.Operation, kind: perf.Kind, qp_type: perf.QpType
) -> None:
    for mover in ("cma", "relay"):
        what = job(operation, kind, qp_type)
        found = perf.measure(what, fabric=fabric.name, mover=mover)
        assert len(found.results) == len(what.runs)


def test_the_command_prints_json_and_leaves_no_fabric(nupa_dir: Path) -> None:
    argv = [*NUPA, "perf", "write", "bw", "--size", "64", "--iterations", "500", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=True)
    found = json.loads(done.stdout)
    assert (found["mover"], found["hosts"]) == ("shared", ["host0", "host1"])
    assert found["results"][0]["bandwidth_mb_per_s"] > 0
    assert done.stderr == ""
    assert list(nupa_dir.iterdir()) == []


# --- two ends in this process -------------------------------------------------------------------


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, fabric: Fabric, what: perf.PerfJob) -> tuple[End, End]:
    """Returns the active end and the passive one, of which only one can be in its loop."""
    active, passive = (
        End(stack, what, fabric=fabric.name, host=host, mover=None) for host in ("host0", "host1")
    )
    cards = active.card(), passive.card()
    active.connect(cards[1])
    passive.connect(cards[0])
    active.set_run(*what.runs[0], active=True)
    passive.set_run(*what.runs[0], active=False)
    return active, passive


def one_size(operation: perf.Operation, kind: perf.Kind, **limits: float) -> perf.PerfJob:
    return perf.PerfJob(operation, kind, ((8, 50),), **limits)


def test_one_wrong_byte_is_found_and_named(fabric: Fabric, stack: ExitStack) -> None:
    active, passive = connected(stack, fabric, one_size("write", "bw"))
    active.bandwidth(True)
    passive.check_data(False)
    passive._c.inbox[5] ^= 0xFF
    with pytest.raises(perf.PerfError, match="was sent as byte 5 of 8"):
        passive.check_data(False)


def test_a_read_that_fetched_something_else_is_found(fabric: Fabric, stack: ExitStack) -> None:
    active, passive = connected(stack, fabric, one_size("read", "lat"))
    passive._c.outbox[0] ^= 0xFF
    active.latency(True)
    with pytest.raises(perf.PerfError, match="was sent as byte 0 of 8"):
        active.check_data(True)


@pytest.mark.parametrize("kind", perf.KINDS)
def test_an_atomic_that_is_lost_or_done_twice_is_found(
    fabric: Fabric, stack: ExitStack, kind: perf.Kind
) -> None:
    active, passive = connected(stack, fabric, one_size("atomic", kind))
    passive._c.inbox[0] = 1
    with pytest.raises(perf.PerfError, match="is not the one that was expected"):
        active.latency(True) if kind == "lat" else active.bandwidth(True)


@pytest.mark.parametrize("operation", ["write", "send"])
def test_a_peer_that_never_answers_is_given_up(
    fabric: Fabric, stack: ExitStack, operation: perf.Operation
) -> None:
    what = one_size(operation, "lat", stall_s=0.1)
    active, _ = connected(stack, fabric, what)
    with pytest.raises(perf.PerfError, match=r"nothing moved for 0\.1 s"):
        active.latency(True)


def test_what_takes_too_long_is_ended_though_it_moves(fabric: Fabric, stack: ExitStack) -> None:
    what = perf.PerfJob("read", "bw", ((1 << 16, perf.ITERATIONS_MAX),), limit_s=0.1)
    active, _ = connected(stack, fabric, what)
    with pytest.raises(perf.PerfError, match=r"not done after 0\.1 s .* fewer --iterations"):
        active.bandwidth(True)


def test_a_peer_that_closes_is_a_failed_work_request(fabric: Fabric, stack: ExitStack) -> None:
    with ExitStack() as inner:
        what = one_size("write", "bw")
        active = End(stack, what, fabric=fabric.name, host="host0", mover=None)
        passive = End(inner, what, fabric=fabric.name, host="host1", mover=None)
        card = active.card()
        active.connect(passive.card())
        passive.connect(card)
        active.set_run(8, 50, active=True)
    with pytest.raises(CompletionError):
        active.bandwidth(True)


# --- ends that die ------------------------------------------------------------------------------


@contextlib.contextmanager
def endless(fabric: Fabric, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Yields a `nupa perf` that would go on for long, once both ends are at work."""
    argv = [*NUPA, "perf", *arguments, "--fabric", fabric.name]
    argv += ["--iterations", str(perf.ITERATIONS_MAX)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            end_s = time.monotonic() + WAIT_S
            while not fabric.show()["movers"]:
                assert time.monotonic() < end_s
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.01)
                    pytest.fail(f"it ended: {process.communicate()}")
            yield process
        finally:
            process.kill()


def ends(fabric: Fabric) -> dict[str, int]:
    """Returns the pids of both ends, by host."""
    return {fabric.hosts[slot.host].name: slot.pid for slot in fabric.processes()}


@pytest.mark.parametrize(
    ("arguments", "victim"),
    [
        ("write lat", "host0"),
        ("send bw --mover relay", "host1"),
        ("read bw", "host1"),
        ("read lat --mover relay", "host0"),
        ("write bw --qp-type UC", "host1"),
        ("send lat --qp-type UD", "host0"),
    ],
)
def test_an_end_that_is_killed_is_named_and_the_other_one_goes(
    fabric: Fabric, arguments: str, victim: str
) -> None:
    with endless(fabric, *arguments.split()) as process:
        os.kill(ends(fabric)[victim], signal.SIGKILL)
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (1, "")
    assert f"failed: {victim}: ended by SIGKILL" in err
    assert err.count("\n") == 1
    assert fabric.processes() == []


def test_a_port_that_goes_down_ends_it_with_the_reason(fabric: Fabric) -> None:
    with endless(fabric, "write", "bw") as process:
        fabric.set_port("host1", False)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "IBV_WC_RETRY_EXC_ERR" in err
    assert "the path is down" in err


def test_both_ends_die_with_the_command(fabric: Fabric) -> None:
    with endless(fabric, "send", "lat") as process:
        pidfds = [os.pidfd_open(pid) for pid in ends(fabric).values()]
        process.kill()
        poller = select.poll()
        for fd in pidfds:
            poller.register(fd, select.POLLIN)
        end_s = time.monotonic() + WAIT_S
        while len(poller.poll(1000)) < len(pidfds):
            assert time.monotonic() < end_s
    for fd in pidfds:
        os.close(fd)
    assert len(pidfds) == 2
    assert fabric.processes() == []
