# SPDX-License-Identifier: BSD-3-Clause
"""A peer that is killed at any moment: its partner learns of it, and the fabric continues."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nupa.fabric import Fabric
from tests.cross.conftest import SIZE, Pair, exchange
from tests.cross.peers.peer import Peer
from tests.cross.peers.streams import WINDOW

MakePair = Callable[..., Pair]
Spawn = Callable[[], Peer]

NOTICE_S = 1.0
SEEDS = [1, 2, 3]
MOVERS = ["shared", "cma", "relay"]


def reusable(fabric: Fabric, survivor: Peer, spawn: Spawn, dead_slot: int) -> None:
    """Checks that a new process gets the slot of the dead one, and traffic flows to it."""
    newcomer = spawn()
    assert newcomer.attach(fabric.name, 1) == dead_slot
    exchange(survivor, newcomer, "write")


def killed(peer: Peer) -> float:
    """Kills it; the time at which it was dead."""
    peer.kill()
    return time.monotonic()


def dead_slot_of(fabric: Fabric, peer: Peer) -> int:
    return next(slot.slot for slot in fabric.processes() if slot.pid == peer.pid)


@pytest.mark.parametrize("length", [64, 20_000, 60_000])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mover", MOVERS)
def test_killed_while_sending(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn, mover: str, seed: int, length: int
) -> None:
    pair = make_pair(mover=mover)
    slot = dead_slot_of(fabric, pair.b)
    pair.a.prepare_stream_in(length)
    receiving = pair.a.begin("stream_in", length, note_every=1)
    pair.b.begin("stream_out", length)
    for _ in range(random.Random(seed).randrange(1, 200)):
        receiving.note()

    at = killed(pair.b)

    _, status = receiving.result()
    assert status == "WR_FLUSH_ERR"
    assert time.monotonic() - at < NOTICE_S
    assert pair.a.state() == "ERR"
    assert pair.a.event() == "QP_FATAL"
    reusable(fabric, pair.a, spawn, slot)


@pytest.mark.parametrize("length", [64, 20_000, 60_000])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mover", MOVERS)
def test_killed_while_receiving(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn, mover: str, seed: int, length: int
) -> None:
    pair = make_pair(mover=mover)
    slot = dead_slot_of(fabric, pair.b)
    pair.b.prepare_stream_in(length)
    pair.b.begin("stream_in", length)
    sending = pair.a.begin("stream_out", length, note_every=1)
    for _ in range(random.Random(seed).randrange(1, 200)):
        sending.note()

    at = killed(pair.b)

    _, status = sending.result()
    # Flushed: what was posted after the death, when nothing was under way at that moment.
    assert status in ("RETRY_EXC_ERR", "WR_FLUSH_ERR")
    assert time.monotonic() - at < NOTICE_S
    assert pair.a.state() == "ERR"
    reusable(fabric, pair.a, spawn, slot)


@pytest.mark.parametrize("op", ["write", "read", "faa"])
@pytest.mark.parametrize("mover", MOVERS)
def test_killed_while_its_memory_is_used(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn, mover: str, op: str
) -> None:
    pair = make_pair(mover=mover)
    slot = dead_slot_of(fabric, pair.b)
    length = 8 if op == "faa" else SIZE
    using = pair.a.begin("stream_ops", op, length, pair.b_region, note_every=1)
    for _ in range(20):
        using.note()

    at = killed(pair.b)

    _, status = using.result()
    assert status in ("RETRY_EXC_ERR", "WR_FLUSH_ERR")  # as above
    assert time.monotonic() - at < NOTICE_S
    reusable(fabric, pair.a, spawn, slot)


@pytest.mark.parametrize("op", ["write", "read", "faa"])
@pytest.mark.parametrize("mover", MOVERS)
def test_killed_while_it_uses_our_memory(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn, mover: str, op: str
) -> None:
    pair = make_pair(mover=mover)
    slot = dead_slot_of(fabric, pair.b)
    pair.a.recv(wr_id=5)
    using = pair.b.begin("stream_ops", op, 8 if op == "faa" else SIZE, pair.a_region, note_every=1)
    for _ in range(20):
        using.note()

    at = killed(pair.b)

    assert [(d.wr_id, d.status) for d in pair.a.wait()] == [(5, "WR_FLUSH_ERR")]
    assert time.monotonic() - at < NOTICE_S
    # It announced our region when it died: taking it back must not wait for that.
    pair.a.forget_regions()
    pair.a.register(SIZE)
    reusable(fabric, pair.a, spawn, slot)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("doing", ["register_for_ever", "poll_for_ever"])
def test_killed_while_registering_or_polling(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn, doing: str, seed: int
) -> None:
    pair = make_pair()
    slot = dead_slot_of(fabric, pair.b)
    pair.a.recv(wr_id=6)
    running = pair.b.begin(doing, 50)
    for _ in range(random.Random(seed).randrange(1, 100)):
        running.note()

    at = killed(pair.b)

    assert [(d.wr_id, d.status) for d in pair.a.wait()] == [(6, "WR_FLUSH_ERR")]
    assert time.monotonic() - at < NOTICE_S
    assert pair.a.event() == "QP_FATAL"
    reusable(fabric, pair.a, spawn, slot)


def test_killed_before_it_was_spoken_to(make_pair: MakePair) -> None:
    pair = make_pair(connected=False)
    pair.b.kill()

    pair.a.connect(pair.b_address, timeout=8, retry_cnt=1)
    pair.a.post("send", 0, 0, 8)

    assert pair.a.wait()[0].status == "RETRY_EXC_ERR"


def test_all_work_that_was_posted_to_a_dead_peer_completes_in_order(make_pair: MakePair) -> None:
    pair = make_pair(path={"rnr_retry": 7})
    for i in range(100):
        pair.a.post("send", 0, 0, 64, wr_id=i, flags=0)

    pair.b.kill()

    done = pair.a.wait(100)
    assert [d.wr_id for d in done] == list(range(100))
    assert [d.status for d in done] == ["RETRY_EXC_ERR"] + ["WR_FLUSH_ERR"] * 99
    # And what is posted from now on.
    pair.a.post("send", 0, 0, 8, wr_id=200)
    assert [(d.wr_id, d.status) for d in pair.a.wait()] == [(200, "WR_FLUSH_ERR")]


@pytest.mark.parametrize("mover", MOVERS)
def test_who_sleeps_until_an_event_is_woken(make_pair: MakePair, mover: str) -> None:
    pair = make_pair(mover=mover, path={"rnr_retry": 7})
    pair.a.recv(wr_id=1)
    pair.a.post("send", 0, 0, 8, wr_id=2)
    waiting = pair.a.begin("wait_asleep", 2)

    at = killed(pair.b)

    assert {(d.wr_id, d.status) for d in waiting.result()} == {
        (1, "WR_FLUSH_ERR"),
        (2, "RETRY_EXC_ERR"),
    }
    assert time.monotonic() - at < NOTICE_S


@pytest.mark.parametrize("qp_type", ["uc", "ud"])
def test_unreliable_sends_to_the_dead_complete(make_pair: MakePair, qp_type: str) -> None:
    pair = make_pair(qp_type)
    to = pair.b_address if qp_type == "ud" else None
    for length in (8, 4000) if qp_type == "ud" else (8, 4000, 100_000):
        pair.a.post("send", 0, 0, length, peer=to)
    pair.b.kill()
    for _ in range(10):
        pair.a.post("send", 0, 0, 8, peer=to)

    done = pair.a.wait(12 if qp_type == "ud" else 13)

    assert {d.status for d in done} == {"SUCCESS"}
    assert pair.a.state() == "RTS"


def test_messages_sent_before_death_are_received(make_pair: MakePair) -> None:
    pair = make_pair(mover="relay")
    pair.a.prepare_stream_in(64)
    assert pair.b.stream_out(64, WINDOW) == (WINDOW, "SUCCESS")
    pair.b.kill()

    assert pair.a.stream_in(64, WINDOW) == (WINDOW, "SUCCESS")


def test_other_connections_of_the_survivor_go_on(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn
) -> None:
    pair = make_pair()
    third = spawn()
    third.attach(fabric.name, 1)
    third.register(SIZE)
    address = third.make_qp()
    third.connect(pair.a.make_qp())
    pair.a.connect(address)
    third.prepare_stream_in(5000)
    receiving = third.begin("stream_in", 5000, note_every=100)
    sending = pair.a.begin("stream_out", 5000)
    receiving.note()

    pair.b.kill()

    for _ in range(10):
        receiving.note()
    sending.stop()
    sent, status = sending.result()
    assert status == "SUCCESS"
    receiving.stop()
    received, _ = receiving.result()
    # Stopped when it had seen them, or just before.
    assert 0 <= sent - received <= WINDOW


@pytest.mark.parametrize("how", ["exit", "_exit"])
def test_a_process_that_exits_without_closing_anything(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn, how: str
) -> None:
    pair = make_pair()
    slot = dead_slot_of(fabric, pair.b)
    pair.a.recv(wr_id=1)

    pair.b.begin("exit", how)
    pair.b.ended()
    at = time.monotonic()

    assert [(d.wr_id, d.status) for d in pair.a.wait()] == [(1, "WR_FLUSH_ERR")]
    assert time.monotonic() - at < NOTICE_S
    reusable(fabric, pair.a, spawn, slot)


def test_a_process_that_exits_right_after_its_last_send_has_sent_it(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.b.store(b"last words")
    pair.a.recv(wr_id=1)

    pair.b.post("send", 0, 0, 10)
    pair.b.begin("exit", "exit")

    assert [(d.wr_id, d.status) for d in pair.a.wait()] == [(1, "SUCCESS")]
    assert pair.a.load(0, 0, 10) == b"last words"


def test_the_memory_of_the_dead_is_given_back(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn
) -> None:
    pair = make_pair(mover="relay")
    newcomer = spawn()
    before = blocks(fabric)
    for _ in range(3):
        newcomer.attach(fabric.name, 1)
        newcomer.register(SIZE, pool=True)
        region = pair.b.register(100_000)
        mine = newcomer.make_qp()
        newcomer.connect(pair.a.make_qp())
        pair.a.connect(mine)
        newcomer.kill()
        pair.a.recv()
        assert pair.a.wait()[0].status == "WR_FLUSH_ERR"
        pair.b.deregister(region.index)
        fabric.processes()
        newcomer = spawn()
    pair.a.leave()
    pair.b.leave()

    assert blocks(fabric) <= before
    assert fabric.processes() == []


def blocks(fabric: Fabric) -> int:
    """Returns the memory that the segment takes, in bytes."""
    return Path(fabric.path).stat().st_blocks * 512


def test_qp_numbers_and_keys_are_not_given_out_again_at_once(
    fabric: Fabric, make_pair: MakePair, spawn: Spawn
) -> None:
    pair = make_pair()
    numbers = {pair.b_address.qp_num}
    keys = {pair.b_region.rkey}
    for _ in range(20):
        number = pair.b.make_qp().qp_num
        key = pair.b.register(4096).rkey
        assert number not in numbers
        assert key not in keys
        numbers.add(number)
        keys.add(key)
        pair.b.destroy_qp()
    pair.b.kill()

    heir = spawn()
    heir.attach(fabric.name, 1)
    for _ in range(20):
        assert heir.make_qp().qp_num not in numbers
        assert heir.register(4096).rkey not in keys
