# SPDX-License-Identifier: BSD-3-Clause
"""Wires of medium RAW between two machines: at both ends, and at one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.common.impair import Impairment, impaired
from tests.common.namespaces import Namespace, machines
from tests.programs import users
from tests.wire.lab import HOSTS, Wired, wired
from tests.wire.test_connections import DEADLINE_S, PORT, listens, meet

ENDS = {"both": (0, 1), "left": (0,)}
MTUS_BYTES = (1500, 9000)
#: As many bytes as rping moves and checks: RDMA READs and WRITEs, each a group of packets.
CHECKED_BYTES = "65535"


def make_raw(stage: Wired, end: int) -> None:
    """Makes the wire of that end anew, with raw sockets."""
    side = stage.side(end)
    side.ok("wire", "remove", HOSTS[side.other])
    side.add_wire("--raw")


@pytest.fixture(scope="module", params=MTUS_BYTES)
def cabled(request: pytest.FixtureRequest) -> Iterator[tuple[Namespace, ...]]:
    with machines(2, mtu_bytes=request.param) as made:
        yield made


@pytest.fixture(scope="module", params=ENDS)
def raw(
    request: pytest.FixtureRequest, cabled: tuple[Namespace, ...]
) -> Iterator[tuple[Wired, tuple[int, ...]]]:
    """The stage, and which ends of its wire are RAW."""
    with wired(cabled, users.ourselves()) as stage:
        for end in ENDS[request.param]:
            make_raw(stage, end)
        yield stage, ENDS[request.param]


def check_counts(stage: Wired, ends: tuple[int, ...]) -> None:
    """No end has seen a wrong packet, and each says what it is."""
    for end in (0, 1):
        wire = stage.side(end).wire()
        wanted = ("RAW", "exact") if end in ends else ("UDP", "plausible")
        assert (wire["medium"], wire["icrc"]) == wanted
        assert wire["received_packets"] > 0
        # Not `foreign`, as which late packets to a program that has ended count.
        assert (wire["icrc_errors"], wire["malformed"]) == (0, 0)


def checked(stage: Wired) -> None:
    """Moves 64 KiB in each direction, checked by both programs."""
    options = ("-C", "20", "-S", CHECKED_BYTES, "-V", "-p", PORT, "-a")
    with stage.start(0, ("rping", "-s", *options, "0.0.0.0")) as server:
        while not listens(stage):
            assert server.running, server.outcome().describe()
        stage.on(1, ("rping", "-c", *options, stage.addresses[0]), DEADLINE_S).check()
        server.wait(DEADLINE_S).check()


def test_what_is_moved_in_groups_is_whole(raw: tuple[Wired, tuple[int, ...]]) -> None:
    stage, ends = raw
    checked(stage)
    check_counts(stage, ends)


@pytest.mark.parametrize(
    "program",
    [("ib_write_bw", "-s", "65536"), ("ib_send_lat", "-s", "64"), ("ib_read_bw", "-s", "65536")],
    ids=" ".join,
)
def test_perftest_runs(raw: tuple[Wired, tuple[int, ...]], program: tuple[str, ...]) -> None:
    stage, ends = raw
    stage.run_pair((*program, "-n", "200", "-F"))
    check_counts(stage, ends)


def test_programs_connect(raw: tuple[Wired, tuple[int, ...]]) -> None:
    stage, ends = raw
    for name in ("rping", "ucmatose"):
        meet(stage, name)
    check_counts(stage, ends)
    assert "none passes" in stage.side(ends[0]).ok("wire", "ls")
    assert "RAW" in stage.side(ends[0]).ok("show")


def test_corrupted_packets_are_counted_and_sent_again(
    raw: tuple[Wired, tuple[int, ...]], impair: str
) -> None:
    stage, _ends = raw
    left, right = stage.machines
    with impaired(impair, left, right, Impairment(corrupt=0.1), seed=5) as counts:
        for name in ("rping of two rounds", "ucmatose of two messages"):
            meet(stage, name)
    assert counts["corrupted"] > 0
    assert sum(stage.side(end).wire()["icrc_errors"] for end in (0, 1)) > 0
