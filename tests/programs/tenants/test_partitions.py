# SPDX-License-Identifier: BSD-3-Clause
"""perftest inside and across partitions that the command line makes, and hosts that come and go
under its traffic."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.programs.needs import needs
from tests.programs.stage import Stage, sizes_of

pytestmark = pytest.mark.timeout(120)

#: A peer that does not answer is given up after 0.13 s: perftest's -u is the QP's timeout.
QUICK = ("-F", "-u", "10")
LONG = (*QUICK, "-D", "60")
#: What a client that is refused says: a completion with an error, or no connection.
DEADLINE_S = 50.0


@pytest.fixture(autouse=True)
def perftest() -> None:
    needs("ib_write_bw", "perftest")


@pytest.fixture
def tenants(stage: Stage) -> Iterator[Stage]:
    """red: host0, host1; blue: host2, host3; host4 and host5 are absent."""
    stage.ok("up", "--topology", "tenants")
    yield stage
    stage.ok("down")


@pytest.mark.parametrize("verb", ["write", "read", "send", "atomic"])
def test_perftest_works_inside_a_partition_and_fails_across(tenants: Stage, verb: str) -> None:
    program = [f"ib_{verb}_bw", *QUICK, "-n", "20"]
    inside = tenants.pair(program, hosts=("host0", "host1"), deadline_s=DEADLINE_S).run()
    assert sizes_of(inside.check().client.stdout) in ([65536], [8])
    across = tenants.pair(program, hosts=("host0", "host2"), deadline_s=DEADLINE_S).run()
    assert not across.client.killed, across.client.describe()
    assert not across.client.ok
    assert sizes_of(across.client.stdout) == []


def test_a_partition_made_by_hand_lets_limited_members_reach_full_ones_only(stage: Stage) -> None:
    stage.ok("up", "--hosts", "3")
    stage.ok("partition", "add", "storage", "--pkey", "0x12")
    stage.ok("partition", "join", "storage", "host0")
    stage.ok("partition", "join", "storage", "host1", "host2", "--limited")
    program = ["ib_write_bw", *QUICK, "-n", "20"]
    stage.pair(program, hosts=("host0", "host1"), deadline_s=DEADLINE_S).run().check()
    limited = stage.pair(program, hosts=("host1", "host2"), deadline_s=DEADLINE_S).run()
    assert not limited.client.killed
    assert not limited.client.ok
    stage.ok("partition", "join", "storage", "host2")  # full now
    stage.pair(program, hosts=("host1", "host2"), deadline_s=DEADLINE_S).run().check()
    stage.ok("down")


def runs_long(stage: Stage, host: str) -> bool:
    """Whether a program on *host* has a queue pair."""
    hosts = json.loads(stage.ok("show", "--json"))["hosts"]
    (found,) = (each for each in hosts if each["name"] == host)
    return any(process["qps"] for process in found["processes"])


def await_qps(stage: Stage, host: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not runs_long(stage, host):
        assert time.monotonic() < until


def test_a_host_joins_and_leaves_under_traffic_of_others(tenants: Stage) -> None:
    pair = tenants.pair(
        ["ib_write_bw", *QUICK, "-n", "200000", "-s", "4096"],
        hosts=("host2", "host3"),
        deadline_s=DEADLINE_S,
    )
    with pair as others:
        others.start_server()
        others.start_client()
        assert "host4 is ready of tenant blue" in tenants.ok("host", "add", "host4")
        long = tenants.pair(["ib_write_bw", *LONG], hosts=("host2", "host4"), deadline_s=DEADLINE_S)
        with long as joined:
            joined.start_server()
            joined.start_client()
            await_qps(tenants, "host4")
            tenants.ok("host", "remove", "host4")
            result = joined.wait()
            assert not result.client.ok
            assert not result.client.killed, result.client.describe()
        others.wait().check()
    refused = tenants.run(tenants.nupa_run(["ib_write_bw"], "host4"))
    assert refused.returncode == 1
    assert "is absent: `nupa host add host4` lets it join" in refused.stderr


def test_a_program_that_opens_the_device_of_an_absent_host_gets_enodev(tenants: Stage) -> None:
    needs("ibv_rc_pingpong", "ibverbs-utils")
    words = ["env", "NUPA_HOST=host5", "ibv_rc_pingpong", "-g", "0"]
    outcome = tenants.run(tenants.nupa_run(words))
    assert outcome.returncode != 0
    assert "Couldn't get context for nupa_rdma0" in outcome.stderr
    assert "host5 of fabric default is absent: `nupa host add host5` lets it joi" in outcome.stderr


def test_a_member_that_leaves_fails_at_both_ends(tenants: Stage) -> None:
    pair = tenants.pair(["ib_send_bw", *LONG], hosts=("host0", "host1"), deadline_s=DEADLINE_S)
    with pair as running:
        running.start_server()
        running.start_client()
        await_qps(tenants, "host1")
        await_qps(tenants, "host0")
        tenants.ok("partition", "leave", "red-data", "host1")
        result = running.wait()
        assert not result.client.killed, result.client.describe()
        assert not result.client.ok


def test_a_draining_host_lets_a_program_finish(tenants: Stage) -> None:
    pair = tenants.pair(
        ["ib_write_bw", *QUICK, "-D", "4"],
        hosts=("host0", "host1"),
        deadline_s=DEADLINE_S,
    )
    with pair as running:
        running.start_server()
        running.start_client()
        await_qps(tenants, "host1")
        tenants.ok("host", "drain", "host1")
        refused = tenants.run(tenants.nupa_run(["true"], "host1"))
        assert "is draining and takes no new process" in refused.stderr
        running.wait().check()
    assert tenants.ok("host", "drain", "host1", "--wait", "--timeout", "30s") == (
        "host1 is draining: 0 programs left\n"
    )
