# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures of faults between processes: nothing is lost, doubled or damaged on an RC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from nupa.fabric import Fabric, Fault, Faulty
from nupa.topology.topology import star
from tests.cross.conftest import Pair
from tests.cross.peers.node import pattern
from tests.cross.peers.peer import Peer
from tests.unit.fabric.fault_mixtures import BRIEF, FAULTS_MAX, LOSSY, mixtures, under, wait_judged

MakePair = Callable[..., Pair]
Mixture = list[tuple[str, Fault]]

#: A lost message is sent again after 17 ms (4.096 us * 2^12), seven times.
HASTY = {"timeout": 12, "retry_cnt": 7}
#: One folder of fabrics serves all examples of a test.
FEW = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
COUNT = 150
SENT = 20  # and as many receives as faults may make of them, of 128


def counted(fabric: Fabric) -> Counter[str]:
    """Returns the sums of all hosts' counters."""
    return sum((Counter(one) for one in fabric.hw_counters().values()), Counter())


@pytest.mark.parametrize("length", [64, 20_000])
@given(mixture=mixtures(LOSSY | BRIEF))
@FEW
def test_messages_arrive_once_in_order_and_intact(
    fabric: Fabric, make_pair: MakePair, length: int, mixture: Mixture
) -> None:
    pair = make_pair(path=HASTY)
    with under(fabric, mixture):
        pair.b.prepare_stream_in(length)
        receiving = pair.b.begin("stream_in", length, COUNT)
        assert pair.a.stream_out(length, COUNT) == (COUNT, "SUCCESS")
        assert receiving.result() == (COUNT, "SUCCESS")


@given(mixture=mixtures(LOSSY | BRIEF))
@FEW
def test_atomics_are_executed_once(fabric: Fabric, make_pair: MakePair, mixture: Mixture) -> None:
    pair = make_pair(path=HASTY)
    with under(fabric, mixture):
        # Each looks at what it found, and fails if that is not one more.
        assert pair.a.stream_ops("faa", 8, pair.b_region, COUNT) == (COUNT, "SUCCESS")
    assert int.from_bytes(pair.b.load(0, 0, 8), "little") == COUNT


@pytest.mark.parametrize("mover", ["shared", "cma", "relay", "pool"])
@given(mixture=mixtures(LOSSY | BRIEF))
@FEW
def test_what_is_written_and_read_is_intact(
    fabric: Fabric, make_pair: MakePair, mover: str, mixture: Mixture
) -> None:
    pair = make_pair(mover=mover, path=HASTY)
    half = pair.a_region.length // 2
    data = pattern(len(mixture), half)
    pair.a.store(data)
    with under(fabric, mixture):
        pair.a.post("write", 0, 0, half, to=pair.b_region, at=0)
        pair.a.post("read", 0, half, half, to=pair.b_region, at=0)
        assert [done.status for done in pair.a.wait(2)] == ["SUCCESS", "SUCCESS"]
    assert pair.b.load(0, 0, half) == data
    assert pair.a.load(0, half, half) == data


@pytest.mark.parametrize("qp_type", ["uc", "ud"])
@given(mixture=mixtures())
@FEW
def test_what_is_lost_otherwise_is_counted(
    fabric: Fabric, make_pair: MakePair, qp_type: str, mixture: Mixture
) -> None:
    pair = make_pair(qp_type)
    to = {"peer": pair.b_address} if qp_type == "ud" else {}
    before = counted(fabric)
    with under(fabric, mixture) as faults:
        for i in range((1 + FAULTS_MAX) * SENT + 1):
            pair.b.recv(0, i * 64, 64, wr_id=i)
        for i in range(SENT):
            pair.a.post("send", 0, 0, 8, wr_id=i, **to)
        assert [done.wr_id for done in pair.a.wait(SENT)] == list(range(SENT))
        wait_judged(faults[0], SENT)
    pair.a.post("send_imm", 0, 0, 8, imm=77, **to)
    received = 0
    while pair.b.wait()[0].imm != 77:
        received += 1
    counters = counted(fabric) - before
    lost = ("fault_dropped", "duplicate_request")
    came = SENT + counters["fault_duplicated"]
    assert received == came - sum(counters[name] for name in lost)


def test_who_is_elsewhere_is_left_alone(nupa_dir: Path, spawn: Callable[[], Peer]) -> None:  # noqa: ARG001
    with Fabric.create("cross", star(3)) as fabric, Faulty(fabric.port("host2"), "drop") as faulty:
        a, b = spawn(), spawn()
        addresses = []
        for host, peer in enumerate((a, b)):
            peer.attach("cross", host)
            peer.register(4096)
            addresses.append(peer.make_qp())
        a.connect(addresses[1])
        b.connect(addresses[0])
        b.recv(wr_id=7)
        a.post("send", 0, 0, 8)
        assert a.wait()[0].status == "SUCCESS"
        assert b.wait()[0].wr_id == 7
        assert faulty.seen == 0
