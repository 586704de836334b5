# SPDX-License-Identifier: BSD-3-Clause
"""Every operation between two processes, with each mover forced."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from nupa.fabric import Fabric
from nupa.verbs import enums as e
from tests.cross.conftest import SIZE, Pair
from tests.cross.peers.node import GRH_BYTES, pattern

MakePair = Callable[..., Pair]

# One line of the fast channel, a staged message, one that is pulled, several parts of a channel.
LENGTHS = [1, 8, 33, 4096, 9000, 300_000, SIZE]
EDGE = 64


def test_the_forced_mover_is_the_one_that_is_used(
    fabric: Fabric, make_pair: MakePair, mover: str | None
) -> None:
    make_pair(mover=mover)

    movers = {found["mover"] for found in fabric.show()["movers"]}

    # The ring says how private memory moves: beside the pool, by relay.
    assert movers == {{None: "shared", "pool": "relay"}.get(mover, mover)}


@pytest.mark.parametrize("qp_type", ["rc", "uc"])
def test_send_arrives_whole(make_pair: MakePair, mover: str | None, qp_type: str) -> None:
    pair = make_pair(qp_type, mover=mover)

    for length in LENGTHS:
        pair.a.store(pattern(length, length))
        pair.b.store(bytes(SIZE))
        pair.b.recv(wr_id=length)
        pair.a.post("send", 0, 0, length, wr_id=7)
        (sent,), (received,) = pair.a.wait(), pair.b.wait()
        assert (sent.status, sent.opcode, sent.wr_id) == ("SUCCESS", "SEND", 7)
        assert (received.status, received.opcode) == ("SUCCESS", "RECV")
        assert (received.wr_id, received.byte_len) == (length, length)
        assert pair.b.load() == pattern(length, length) + bytes(SIZE - length)


def test_send_gathers_from_several_pieces_and_takes_inline_data(
    make_pair: MakePair, mover: str | None
) -> None:
    pair = make_pair(mover=mover, inline=220)

    for length, pieces, flags in [
        (4001, 3, 0),
        (100_001, 4, 0),
        (220, 2, e.IBV_SEND_INLINE),
        (0, 1, 0),
    ]:
        pair.a.store(pattern(length, length))
        pair.b.recv()
        pair.a.post("send", 0, 0, length, pieces=pieces, flags=flags | e.IBV_SEND_SIGNALED)
        assert pair.a.wait()[0].status == "SUCCESS"
        (received,) = pair.b.wait()
        assert (received.status, received.byte_len) == ("SUCCESS", length)
        assert pair.b.load(0, 0, length) == pattern(length, length)


def test_send_with_immediate_carries_it(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)

    for length in (0, 16, 100_000):
        pair.b.recv()
        pair.a.post("send_imm", 0, 0, length, imm=0xDEADBEEF)
        assert pair.a.wait()[0].status == "SUCCESS"
        (received,) = pair.b.wait()
        assert (received.byte_len, received.imm) == (length, 0xDEADBEEF)


def test_send_with_invalidate_ends_the_key(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)
    victim = pair.b.register(4096)
    pair.b.recv()

    pair.a.post("send_inv", 0, 0, 8, rkey=victim.rkey)
    assert pair.a.wait()[0].status == "SUCCESS"
    (received,) = pair.b.wait()
    assert (received.status, received.imm) == ("SUCCESS", victim.rkey)

    pair.a.post("write", 0, 0, 8, to=victim)
    assert pair.a.wait()[0].status == "REM_ACCESS_ERR"


@pytest.mark.parametrize("qp_type", ["rc", "uc"])
def test_write_changes_exactly_its_bytes(
    make_pair: MakePair, mover: str | None, qp_type: str
) -> None:
    pair = make_pair(qp_type, mover=mover)
    pair.b.recv()

    for length in [n for n in LENGTHS if n <= SIZE - 2 * EDGE]:
        pair.a.store(pattern(length, length))
        pair.b.store(b"\xaa" * SIZE)
        pair.a.post("write", 0, 0, length, to=pair.b_region, at=EDGE)
        assert pair.a.wait()[0].status == "SUCCESS"
        if qp_type == "uc":
            # Unreliable: only something behind it says that it has arrived.
            pair.a.post("write_imm", 0, 0, 0, to=pair.b_region)
            assert pair.a.wait()[0].status == "SUCCESS"
            assert pair.b.wait()[0].status == "SUCCESS"
            pair.b.recv()
        rest = SIZE - EDGE - length
        assert pair.b.load() == b"\xaa" * EDGE + pattern(length, length) + b"\xaa" * rest


@pytest.mark.parametrize("qp_type", ["rc", "uc"])
def test_write_with_immediate_takes_a_receive_after_its_data(
    make_pair: MakePair, mover: str | None, qp_type: str
) -> None:
    pair = make_pair(qp_type, mover=mover)

    for length in (8, 5000, 300_000):
        pair.a.store(pattern(length, length))
        pair.b.recv(wr_id=9)
        pair.a.post("write_imm", 0, 0, length, to=pair.b_region, imm=77)
        assert pair.a.wait()[0].status == "SUCCESS"
        (received,) = pair.b.wait()
        assert (received.wr_id, received.opcode) == (9, "RECV_RDMA_WITH_IMM")
        assert (received.imm, received.byte_len) == (77, length)
        assert pair.b.load(0, 0, length) == pattern(length, length)


def test_read_fetches_exactly_its_bytes(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)

    for length in [n for n in LENGTHS if n <= SIZE - 2 * EDGE]:
        pair.b.store(pattern(length, length), offset=EDGE)
        pair.a.store(b"\xaa" * SIZE)
        pair.a.post("read", 0, EDGE, length, to=pair.b_region, at=EDGE, pieces=min(length, 3))
        (done,) = pair.a.wait()
        assert (done.status, done.opcode, done.byte_len) == ("SUCCESS", "RDMA_READ", length)
        rest = SIZE - EDGE - length
        assert pair.a.load() == b"\xaa" * EDGE + pattern(length, length) + b"\xaa" * rest


def test_atomics_return_what_was_there(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)
    word = struct.Struct("<Q")
    top = (1 << 64) - 1

    def run(op: str, *operands: int) -> tuple[int, int]:
        pair.a.post(op, 0, 0, 8, to=pair.b_region, at=8, operands=operands)
        assert pair.a.wait()[0].status == "SUCCESS"
        return word.unpack(pair.a.load(0, 0, 8))[0], word.unpack(pair.b.load(0, 8, 8))[0]

    pair.b.store(word.pack(5), offset=8)
    assert run("faa", 3, 0) == (5, 8)
    assert run("faa", top, 0) == (8, 7)
    assert run("cas", 1, 99) == (7, 7)
    assert run("cas", 7, top) == (7, top)
    assert run("faa", 2, 0) == (top, 1)


def test_atomics_of_both_ends_on_one_word_lose_nothing(
    make_pair: MakePair, mover: str | None
) -> None:
    pair = make_pair(mover=mover)
    count = 300

    # B reaches the same word through two QPs connected to each other.
    loop_a = pair.b.make_qp()
    loop_b = pair.b.make_qp()
    pair.b.connect(loop_b, -2)
    pair.b.connect(loop_a, -1)
    pair.b.register(8)
    adding = [
        pair.a.begin("add", pair.b_region, count, 0, 0),
        pair.b.begin("add", pair.b_region, count, 1, -1),
    ]

    seen = [value for each in adding for value in each.result()]

    assert sorted(seen) == list(range(2 * count))


def test_datagrams_arrive_behind_their_grh(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair("ud", mover=mover)

    for length in (0, 1, 16, 17, 1024, 4096):
        pair.a.store(pattern(length, max(1, length)))
        pair.b.recv()
        pair.a.post("send_imm", 0, 0, length, imm=length, peer=pair.b_address)
        assert pair.a.wait()[0].status == "SUCCESS"
        (received,) = pair.b.wait()
        assert (received.status, received.imm) == ("SUCCESS", length)
        assert received.byte_len == length + GRH_BYTES
        assert pair.b.load(0, GRH_BYTES, length) == pattern(length, max(1, length))[:length]


def test_a_datagram_beyond_the_mtu_fails_at_its_sender(make_pair: MakePair) -> None:
    pair = make_pair("ud")

    pair.a.post("send", 0, 0, 4097, peer=pair.b_address)

    assert pair.a.wait()[0].status == "LOC_LEN_ERR"


@pytest.mark.parametrize("length", [8, 3000, 20_000])
def test_counted_messages_stay_in_order(
    make_pair: MakePair, mover: str | None, length: int
) -> None:
    pair = make_pair(mover=mover)
    pair.b.prepare_stream_in(length)
    receiving = pair.b.begin("stream_in", length, 1000)

    assert pair.a.stream_out(length, 1000) == (1000, "SUCCESS")
    assert receiving.result() == (1000, "SUCCESS")


def test_both_directions_at_once(make_pair: MakePair, mover: str | None) -> None:
    pair = make_pair(mover=mover)
    adding = [
        pair.a.begin("stream_ops", "write", 100_000, pair.b_region, 300),
        pair.b.begin("stream_ops", "read", 100_000, pair.a_region, 300),
    ]

    assert [each.result() for each in adding] == [(300, "SUCCESS")] * 2
