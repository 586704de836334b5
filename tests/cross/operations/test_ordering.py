# SPDX-License-Identifier: BSD-3-Clause
"""Order on one queue pair (IBTA 10.8.3.3), and peers that are not ready yet."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from nupa.verbs import enums as e
from tests.cross.conftest import Pair

MakePair = Callable[..., Pair]

MARK = b"\x11" * 64
OLD = b"\x22" * 64

# An RNR timer of 0.64 ms is connect()'s default; 12 ms here, so that much can happen in between.
SLOW_RNR = {"min_rnr_timer": 20, "rnr_retry": 7}


@pytest.mark.parametrize("op", ["write", "read", "cas", "write_imm"])
def test_a_one_sided_operation_waits_for_the_send_before_it(
    make_pair: MakePair, mover: str | None, op: str
) -> None:
    pair = make_pair(mover=mover, path=SLOW_RNR)
    pair.a.store(MARK)
    pair.a.store(MARK, offset=4096)
    pair.b.store(OLD)
    length = 8 if op == "cas" else 64
    before = int.from_bytes(OLD[:8], "little")
    after = int.from_bytes(MARK[:8], "little")

    # No receive is posted: the SEND cannot be executed, so later requests must not be.
    pair.a.post("send", 0, 0, 32, wr_id=1)
    pair.a.post(op, 0, 4096, length, to=pair.b_region, operands=(before, after), wr_id=2)
    for _ in range(20):
        assert pair.a.poll() == []
        assert pair.b.load(0, 0, 64) == OLD
        assert pair.a.load(0, 4096, 64) == MARK
    pair.b.recv(0, 8192, 64, wr_id=3)
    if op == "write_imm":
        pair.b.recv(wr_id=4)

    assert [(d.wr_id, d.status) for d in pair.a.wait(2)] == [(1, "SUCCESS"), (2, "SUCCESS")]
    assert pair.b.wait()[0].wr_id == 3
    there, here = pair.b.load(0, 0, length), pair.a.load(0, 4096, length)
    assert (there, here) == (
        (OLD if op == "read" else MARK)[:length],
        (OLD if op in ("read", "cas") else MARK)[:length],
    )


def test_a_send_tells_that_the_write_before_it_has_arrived(
    make_pair: MakePair, mover: str | None
) -> None:
    pair = make_pair(mover=mover)
    length = 200_000

    for round_ in range(1, 20):
        pair.a.store(bytes([round_]) * length)
        pair.b.recv(0, length, 8)
        pair.a.post("write", 0, 0, length, to=pair.b_region, flags=0)
        pair.a.post("send", 0, 0, 8)
        assert pair.b.wait()[0].status == "SUCCESS"
        assert pair.b.load(0, 0, length) == bytes([round_]) * length
        assert pair.a.wait()[0].status == "SUCCESS"


def test_a_read_sees_the_write_before_it(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)
    length = 150_000

    for round_ in range(1, 10):
        pair.a.store(bytes([round_]) * length)
        pair.a.post("write", 0, 0, length, to=pair.b_region, flags=0)
        pair.a.post("read", 0, length, length, to=pair.b_region)
        assert pair.a.wait()[0].status == "SUCCESS"
        assert pair.a.load(0, length, length) == bytes([round_]) * length


def test_a_fenced_send_carries_what_the_read_before_it_fetched(
    make_pair: MakePair, mover: str | None
) -> None:
    pair = make_pair(mover=mover)
    length = 150_000
    pair.a.store(OLD * 16)
    pair.b.store(MARK * (length // 64))
    pair.b.recv(0, 400_000, 64)

    pair.a.post("read", 0, 0, length, to=pair.b_region, flags=0)
    pair.a.post("send", 0, 0, 64, flags=e.IBV_SEND_FENCE | e.IBV_SEND_SIGNALED)

    assert pair.a.wait()[0].status == "SUCCESS"
    assert pair.b.wait()[0].status == "SUCCESS"
    assert pair.b.load(0, 400_000, 64) == MARK


def test_completions_come_in_the_order_of_posting(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)
    ops = ["write", "send", "read", "faa", "send", "write_imm", "read", "write"] * 4
    for _ in ops:
        pair.b.recv()

    for wr_id, op in enumerate(ops):
        pair.a.post(op, 0, 0, 8 if op == "faa" else 50_000, to=pair.b_region, wr_id=wr_id)

    done = pair.a.wait(len(ops))
    assert [d.wr_id for d in done] == list(range(len(ops)))
    assert {d.status for d in done} == {"SUCCESS"}


# --- peers that are not ready -------------------------------------------------------------------


@pytest.mark.parametrize("op", ["send", "write", "read", "faa", "write_imm"])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_a_request_to_a_peer_not_yet_in_rtr_is_retried(
    make_pair: MakePair, mover: str, op: str
) -> None:
    pair = make_pair(mover=mover, connected=False)
    pair.a.connect(pair.b_address, timeout=16, retry_cnt=7)
    pair.a.post(op, 0, 0, 8, to=pair.b_region, operands=(1, 0))
    for _ in range(20):
        assert pair.a.poll() == []

    pair.b.to_rtr(pair.a_address)
    pair.b.recv()

    assert pair.a.wait()[0].status == "SUCCESS"
    assert (pair.a.state(), pair.b.state()) == ("RTS", "RTR")


@pytest.mark.parametrize("op", ["send", "write"])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_a_peer_that_never_gets_to_rtr_is_given_up_after_the_timeout(
    make_pair: MakePair, mover: str, op: str
) -> None:
    pair = make_pair(mover=mover, connected=False)
    # 4.096 us * 2^13 * 4: 134 ms.
    pair.a.connect(pair.b_address, timeout=13, retry_cnt=3)
    start = time.monotonic()

    pair.a.post(op, 0, 0, 8, to=pair.b_region)

    assert pair.a.wait()[0].status == "RETRY_EXC_ERR"
    assert 0.134 <= time.monotonic() - start < 2


def test_a_peer_that_does_not_exist_is_given_up_after_the_timeout(make_pair: MakePair) -> None:
    pair = make_pair(connected=False)
    pair.b.destroy_qp()
    pair.a.connect(pair.b_address, timeout=8, retry_cnt=1)

    pair.a.post("write", 0, 0, 8, to=pair.b_region)

    assert pair.a.wait()[0].status == "RETRY_EXC_ERR"


@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_waiting_for_a_receive_for_ever_outlives_the_timeout_of_the_path(
    make_pair: MakePair, mover: str
) -> None:
    pair = make_pair(mover=mover, connected=False)
    # Retried for up to 8.4 ms because B is not there, then for ever because it does not receive.
    pair.a.connect(pair.b_address, timeout=9, retry_cnt=3, rnr_retry=7)
    pair.b.connect(pair.a_address, min_rnr_timer=1)
    pair.a.post("send", 0, 0, 8)
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        assert pair.a.poll() == []

    pair.b.recv()

    assert pair.a.wait()[0].status == "SUCCESS"


def test_a_receive_that_never_comes_fails_after_rnr_retry(make_pair: MakePair) -> None:
    pair = make_pair(path={"rnr_retry": 2, "min_rnr_timer": 14})

    pair.a.post("send", 0, 0, 8)

    assert pair.a.wait()[0].status == "RNR_RETRY_EXC_ERR"
    assert pair.a.state() == "ERR"
    assert pair.b.state() == "RTS"
