# SPDX-License-Identifier: BSD-3-Clause
"""Requests that a responder has to refuse: completion, both QPs, the event, and no byte moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nupa.verbs import enums as e
from tests.cross.conftest import Pair
from tests.cross.peers.node import ALL_ACCESS, Region

MakePair = Callable[..., Pair]

BYTES = 4096
FILL = b"\x5a" * BYTES

READ_ONLY = e.IBV_ACCESS_REMOTE_READ
WRITE_ONLY = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
ALL_BUT_ATOMIC = WRITE_ONLY | e.IBV_ACCESS_REMOTE_READ


def _of_another_pd(pair: Pair) -> tuple[Region, dict[str, Any]]:
    pd = pair.b.make_pd()
    return pair.b.register(BYTES, pd=pd), {}


def _deregistered(pair: Pair) -> tuple[Region, dict[str, Any]]:
    region = _inside(pair)
    pair.b.deregister(region.index)
    return region, {}


def _a_byte_beyond(pair: Pair) -> tuple[Region, dict[str, Any]]:
    return _inside(pair), {"at": 1}


def _a_byte_before(pair: Pair) -> tuple[Region, dict[str, Any]]:
    return _inside(pair), {"at": -1}


def _at_the_end_of_addresses(pair: Pair) -> tuple[Region, dict[str, Any]]:
    region = _inside(pair)
    return region, {"at": (1 << 64) - BYTES // 2 - region.addr}


def _a_key_never_given(pair: Pair) -> tuple[Region, dict[str, Any]]:
    region = _inside(pair)
    return region, {"rkey": region.rkey ^ 0xFFF}


def _an_index_out_of_the_table(pair: Pair) -> tuple[Region, dict[str, Any]]:
    return _inside(pair), {"rkey": 0xFFFFFFFF}


def _inside(pair: Pair) -> Region:
    """Returns a region in the middle of memory of the peer's, which a test can look at around
    it."""
    region: Region = pair.b.register_part(0, BYTES, BYTES, ALL_ACCESS)
    return region


CASES = [
    _of_another_pd,
    _deregistered,
    _a_byte_beyond,
    _a_byte_before,
    _at_the_end_of_addresses,
    _a_key_never_given,
    _an_index_out_of_the_table,
]


def refused(pair: Pair, op: str, region: Region, **how: Any) -> None:
    """Posts *op*; checks all that has to follow.  Region 0 of both is left as it was."""
    length = 8 if op in ("cas", "faa") else BYTES
    pair.a.store(FILL)
    pair.b.store(FILL * 3)
    pair.b.recv(wr_id=50)

    pair.a.post(op, 0, 0, length, to=region, operands=(1, 1), wr_id=1, **how)
    pair.a.post("send", 0, 0, 8, wr_id=2)

    assert [(d.wr_id, d.status) for d in pair.a.wait(2)] == [
        (1, "REM_ACCESS_ERR"),
        (2, "WR_FLUSH_ERR"),
    ]
    assert [(d.wr_id, d.status) for d in pair.b.wait()] == [(50, "WR_FLUSH_ERR")]
    assert (pair.a.state(), pair.b.state()) == ("ERR", "ERR")
    assert pair.b.event() == "QP_ACCESS_ERR"
    assert pair.a.no_event()
    assert pair.a.load(0, 0, BYTES) == FILL
    assert pair.b.load(0, 0, 3 * BYTES) == FILL * 3


@pytest.mark.parametrize("op", ["write", "write_imm", "read", "faa"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__[1:])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_a_key_that_does_not_allow_it_is_refused(
    make_pair: MakePair, mover: str, op: str, case: Callable[[Pair], Any]
) -> None:
    pair = make_pair(mover=mover)
    region, how = case(pair)
    if op == "faa" and how.get("at") in (1, -1):
        how["at"] = BYTES if how["at"] == 1 else -8  # atomics are aligned

    refused(pair, op, region, **how)


@pytest.mark.parametrize("case", [_of_another_pd, _deregistered, _a_byte_beyond])
def test_a_key_of_the_pool_is_refused_as_well(
    make_pair: MakePair, case: Callable[[Pair], Any]
) -> None:
    pair = make_pair(mover="pool")
    pd = pair.b.make_pd() if case is _of_another_pd else -1
    region = pair.b.register(BYTES * 16, pd=pd, pool=True)
    if case is _deregistered:
        pair.b.deregister(region.index)

    refused(pair, "write", region, at=BYTES * 15 + 1 if case is _a_byte_beyond else 0)


@pytest.mark.parametrize(
    ("op", "access"),
    [("write", READ_ONLY), ("write_imm", READ_ONLY), ("read", WRITE_ONLY), ("faa", ALL_BUT_ATOMIC)],
)
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_access_that_the_region_does_not_give_is_refused(
    make_pair: MakePair, mover: str, op: str, access: int
) -> None:
    pair = make_pair(mover=mover)

    refused(pair, op, pair.b.register_part(0, BYTES, BYTES, access))


@pytest.mark.parametrize("op", ["write", "read", "faa"])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_access_that_the_qp_does_not_give_is_refused(
    make_pair: MakePair, mover: str, op: str
) -> None:
    pair = make_pair(mover=mover, path={"access": e.IBV_ACCESS_LOCAL_WRITE})

    refused(pair, op, pair.b_region, at=BYTES)


def test_a_relayed_write_of_many_parts_that_ends_a_byte_beyond_changes_nothing(
    make_pair: MakePair,
) -> None:
    pair = make_pair(mover="relay")
    size = pair.b_region.length
    region = pair.b.register_part(0, 0, size - 1, WRITE_ONLY)
    pair.b.store(bytes(size))
    pair.a.store(b"\xff" * size)

    pair.a.post("write", 0, 0, size, to=region)

    assert pair.a.wait()[0].status == "REM_ACCESS_ERR"
    assert pair.b.load() == bytes(size)


@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_an_atomic_that_is_not_aligned_is_an_invalid_request(
    make_pair: MakePair, mover: str
) -> None:
    pair = make_pair(mover=mover)
    pair.b.store(FILL)

    pair.a.post("faa", 0, 0, 8, to=pair.b_region, at=4, operands=(1, 0))

    assert pair.a.wait()[0].status == "REM_INV_REQ_ERR"
    assert (pair.a.state(), pair.b.state()) == ("ERR", "ERR")
    assert pair.b.event() == "QP_REQ_ERR"
    assert pair.b.load(0, 0, BYTES) == FILL


@pytest.mark.parametrize("qp_type", ["uc"])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_an_unreliable_write_that_is_refused_is_lost_without_a_word(
    make_pair: MakePair, mover: str, qp_type: str
) -> None:
    pair = make_pair(qp_type, mover=mover)
    pair.b.store(FILL)
    pair.b.recv()

    pair.a.post("write", 0, 0, BYTES, to=pair.b_region, rkey=pair.b_region.rkey ^ 1)
    pair.a.post("send", 0, 0, 8)

    assert [d.status for d in pair.a.wait(2)] == ["SUCCESS", "SUCCESS"]
    assert pair.b.wait()[0].status == "SUCCESS"
    assert (pair.a.state(), pair.b.state()) == ("RTS", "RTS")
    assert pair.b.load(0, 8, BYTES - 8) == FILL[8:]


@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_local_memory_that_does_not_allow_it_fails_at_its_poster(
    make_pair: MakePair, mover: str
) -> None:
    pair = make_pair(mover=mover)
    local = pair.a.register_part(0, 0, BYTES, READ_ONLY)
    pair.b.store(FILL)

    pair.a.post("read", local.index, 0, 8, to=pair.b_region)

    assert pair.a.wait()[0].status == "LOC_PROT_ERR"
    assert pair.a.state() == "ERR"


@pytest.mark.parametrize("length", [BYTES + 1, 100_000])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_a_message_longer_than_the_receive_fails_at_both_ends(
    make_pair: MakePair, mover: str, length: int
) -> None:
    pair = make_pair(mover=mover)
    pair.b.store(FILL * 2)
    pair.b.recv(0, 0, BYTES, wr_id=3)

    pair.a.post("send", 0, 0, length)

    assert pair.a.wait()[0].status == "REM_INV_REQ_ERR"
    assert [(d.wr_id, d.status) for d in pair.b.wait()] == [(3, "LOC_LEN_ERR")]
    assert (pair.a.state(), pair.b.state()) == ("ERR", "ERR")
    assert pair.b.load(0, BYTES, BYTES) == FILL


def test_a_receive_into_memory_that_is_gone_fails_at_both_ends(make_pair: MakePair) -> None:
    pair = make_pair()
    gone = pair.b.register(BYTES)
    pair.b.recv(gone.index, wr_id=4)
    pair.b.deregister(gone.index)

    pair.a.post("send", 0, 0, 8)

    assert pair.a.wait()[0].status == "REM_OP_ERR"
    assert [(d.wr_id, d.status) for d in pair.b.wait()] == [(4, "LOC_PROT_ERR")]
