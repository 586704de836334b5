# SPDX-License-Identifier: BSD-3-Clause
"""Windows, device memory, regions on demand and changed regions between processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nupa.verbs import enums as e
from tests.cross.conftest import Pair
from tests.cross.peers.memory import BINDABLE
from tests.cross.peers.node import ALL_ACCESS, Region, pattern
from tests.cross.peers.peer import Peer, PeerError

MakePair = Callable[..., Pair]
PAGE = 4096
OPS = ["write", "read", "faa"]


def status(pair: Pair, op: str, to: Region, at: int = 0, length: int = 64) -> str:
    """Returns how a's request ends; both are connected anew where it fails."""
    length = 8 if op in ("cas", "faa") else length
    pair.a.post(op, 0, 0, length, to=to, at=at, operands=(1, 1))
    result: str = pair.a.wait()[0].status
    if result != "SUCCESS":
        again(pair)
    return result


def again(pair: Pair) -> None:
    pair.a.reset()
    pair.b.reset()
    pair.connect()


# --- windows ---------------------------------------------------------------------------------


@pytest.fixture
def pair(make_pair: MakePair, mover: str | None) -> Pair:
    return make_pair(mover=mover)


def bindable(pair: Pair, mover: str | None) -> Region:
    """Returns a region of b whose own key gives access to no peer."""
    region: Region
    if mover == "pool":
        region = pair.b.register(16 * PAGE, access=BINDABLE, pool=True)
    else:
        region = pair.b.register(16 * PAGE, access=BINDABLE)
    return region


@pytest.mark.parametrize("mw_type", [1, 2])
def test_a_window_opens_its_part_of_a_region_and_no_more(
    pair: Pair, mover: str | None, mw_type: int
) -> None:
    region = bindable(pair, mover)
    pair.b.store(bytes(16 * PAGE), region.index)
    pair.b.make_mw(mw_type)
    done, window = pair.b.bind_mw(region.index, PAGE, PAGE)
    assert (done.status, done.opcode, done.wr_id) == ("SUCCESS", "BIND_MW", 77)
    pair.a.store(pattern(1, PAGE))
    assert status(pair, "write", window, 0, PAGE) == "SUCCESS"
    assert pair.b.load(region.index, PAGE, PAGE) == pattern(1, PAGE)
    assert status(pair, "read", window, PAGE - 64) == "SUCCESS"
    assert status(pair, "faa", window, PAGE - 8) == "SUCCESS"
    for op in OPS:
        assert status(pair, op, window, PAGE) == "REM_ACCESS_ERR"
        assert status(pair, op, window, -8) == "REM_ACCESS_ERR"
        assert status(pair, op, region, PAGE) == "REM_ACCESS_ERR"
    assert pair.b.load(region.index, 0, PAGE) == bytes(PAGE)
    assert pair.b.load(region.index, 2 * PAGE) == bytes(14 * PAGE)


@pytest.mark.parametrize("how", ["bind", "invalidate", "send_inv", "close", "destroy"])
def test_a_window_that_is_ended_is_closed(pair: Pair, mover: str | None, how: str) -> None:
    region = bindable(pair, mover)
    pair.b.store(bytes(16 * PAGE), region.index)
    pair.b.make_mw(1 if how == "bind" else 2)
    _, window = pair.b.bind_mw(region.index, 0, PAGE)
    pair.a.store(bytes(64))
    assert status(pair, "write", window) == "SUCCESS"
    if how == "bind":
        assert pair.b.bind_mw(region.index, 0, 0)[0].status == "SUCCESS"
    elif how == "invalidate":
        assert pair.b.invalidate(window.rkey).status == "SUCCESS"
    elif how == "send_inv":
        pair.b.recv()
        pair.a.post("send_inv", 0, 0, 8, rkey=window.rkey)
        assert [pair.a.wait()[0].status, pair.b.wait()[0].status] == ["SUCCESS"] * 2
    elif how == "close":
        pair.b.close_mw()
    else:
        pair.b.destroy_qp()
        pair.b_address = pair.b.make_qp()
        again(pair)
    for op in OPS:
        assert status(pair, op, window) == "REM_ACCESS_ERR"
    assert pair.b.load(region.index) == bytes(16 * PAGE)
    if how in ("invalidate", "send_inv", "destroy"):
        assert pair.b.bind_mw(region.index, 0, PAGE)[0].status == "SUCCESS"


def test_a_type_2_window_works_on_the_qp_it_was_bound_on(pair: Pair, mover: str | None) -> None:
    region = bindable(pair, mover)
    pair.b.store(bytes(16 * PAGE), region.index)
    pair.b.make_mw(2)
    _, window = pair.b.bind_mw(region.index, 0, PAGE)
    assert status(pair, "read", window) == "SUCCESS"
    a2, b2 = pair.a.make_qp(), pair.b.make_qp()
    pair.a.connect(b2)
    pair.b.connect(a2)
    pair.a.store(pattern(2, 64))
    for op in OPS:
        pair.a.post(op, 0, 0, 8, to=window, operands=(1, 1))
        assert pair.a.wait()[0].status == "REM_ACCESS_ERR"
        pair.a.reset()
        pair.b.reset()
        pair.a.connect(b2)
        pair.b.connect(a2)
    assert pair.b.load(region.index) == bytes(16 * PAGE)


def test_a_bind_that_is_refused_ends_the_binding_side_alone(pair: Pair, mover: str | None) -> None:
    region = bindable(pair, mover)
    pair.b.make_mw(1)
    done, _ = pair.b.bind_mw(region.index, PAGE, 16 * PAGE)
    assert done.status == "MW_BIND_ERR"
    assert (pair.a.state(), pair.b.state()) == ("RTS", "ERR")


# --- device memory ---------------------------------------------------------------------------


def test_device_memory_is_reached_from_other_processes(pair: Pair) -> None:
    region = pair.b.make_dm(64 * PAGE, PAGE)
    pair.a.store(pattern(3, 8 * PAGE))
    assert status(pair, "write", region, 5, 8 * PAGE) == "SUCCESS"
    assert pair.b.load(region.index, 4, 4) == b"\0" + pattern(3, 8 * PAGE)[:3]
    assert pair.b.load(region.index, 8 * PAGE, 4) == pattern(3, 8 * PAGE)[8 * PAGE - 5 : -1]
    assert status(pair, "faa", region, 16 * PAGE) == "SUCCESS"
    assert pair.b.load(region.index, 16 * PAGE, 8) == (1).to_bytes(8, "little")
    for op in OPS:
        assert status(pair, op, region, 63 * PAGE) == "REM_ACCESS_ERR"


def test_sends_go_from_device_memory_to_device_memory(pair: Pair) -> None:
    source, sink = pair.a.make_dm(16 * PAGE), pair.b.make_dm(16 * PAGE)
    pair.a.store(pattern(4, 12 * PAGE), source.index)
    pair.b.recv(sink.index, 0, 12 * PAGE)
    pair.a.post("send", source.index, 0, 12 * PAGE)
    assert [pair.a.wait()[0].status, pair.b.wait()[0].status] == ["SUCCESS"] * 2
    assert pair.b.load(sink.index, 0, 12 * PAGE) == pattern(4, 12 * PAGE)


# --- on demand, and changed ------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_memory_that_is_not_there_fails_the_request_and_not_the_process(
    make_pair: MakePair, op: str, mover: str | None
) -> None:
    pair = make_pair(mover=mover)
    region = pair.b.register_on_demand(4 * PAGE)
    assert status(pair, op, region, PAGE) == "SUCCESS"
    pair.b.take_away(region.index, PAGE, PAGE)
    assert status(pair, op, region, PAGE) == "REM_OP_ERR"
    assert status(pair, op, region, 2 * PAGE) == "SUCCESS"
    pair.b.give_back(region.index, PAGE, PAGE)
    assert status(pair, op, region, PAGE) == "SUCCESS"
    # Large, and only its last page is missing.
    pair.b.take_away(region.index, 3 * PAGE, PAGE)
    if op != "faa":
        assert status(pair, op, region, 0, 4 * PAGE) == "REM_OP_ERR"


def test_a_receive_into_memory_that_is_not_there_fails_both_ends(pair: Pair) -> None:
    region = pair.b.register_on_demand(4 * PAGE)
    for length in (8, 4 * PAGE):
        pair.b.take_away(region.index, 0, PAGE)
        pair.b.recv(region.index, 0, 4 * PAGE)
        pair.a.post("send", 0, 0, length)
        assert pair.b.wait()[0].status == "LOC_PROT_ERR"
        assert pair.a.wait()[0].status == "REM_OP_ERR"
        again(pair)
        pair.b.give_back(region.index, 0, PAGE)
        pair.b.recv(region.index, 0, 4 * PAGE)
        pair.a.post("send", 0, 0, length)
        assert [pair.a.wait()[0].status, pair.b.wait()[0].status] == ["SUCCESS"] * 2


def test_a_send_from_memory_that_is_not_there_fails_here(pair: Pair) -> None:
    region = pair.a.register_on_demand(4 * PAGE)
    pair.a.take_away(region.index, PAGE, PAGE)
    for length in (8, 3 * PAGE):
        pair.b.recv()
        pair.a.post("send", region.index, PAGE, length)
        assert pair.a.wait()[0].status == "LOC_PROT_ERR"
        again(pair)
        pair.b.wait(0)
    pair.a.give_back(region.index, PAGE, PAGE)
    pair.b.recv()
    pair.a.post("send", region.index, PAGE, PAGE)
    assert pair.a.wait()[0].status == "SUCCESS"


def test_a_change_of_access_is_seen_by_peers_at_once(pair: Pair, mover: str | None) -> None:
    region = pair.b.register(16 * PAGE, pool=mover == "pool")
    for _ in range(3):
        assert status(pair, "write", region) == "SUCCESS"
        pair.b.rereg(region.index, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
        assert status(pair, "write", region) == "REM_ACCESS_ERR"
        assert status(pair, "read", region) == "SUCCESS"
        pair.b.rereg(region.index, ALL_ACCESS)


# --- import ----------------------------------------------------------------------------------


def test_a_process_without_an_attachment_serves_another_ones_region(
    pair: Pair, spawn: Callable[[], Peer]
) -> None:
    """Three processes: b exports device memory, c imports it, a writes and reads through c's QP."""
    region = pair.b.make_dm(16 * PAGE)
    c = spawn()
    imported = c.import_region(*pair.b.export(region.index))
    assert (imported.rkey, imported.length) == (region.rkey, region.length)
    c_address, a_address = c.make_qp(), pair.a.make_qp()
    c.connect(a_address)
    pair.a.connect(c_address)
    pair.a.store(pattern(6, 2 * PAGE))
    pair.a.post("write", 0, 0, 2 * PAGE, to=imported, at=PAGE)
    assert pair.a.wait()[0].status == "SUCCESS"
    assert pair.b.load(region.index, PAGE, 2 * PAGE) == pattern(6, 2 * PAGE)
    # The exporter ends, and with it what was made of its memory; the importer's QP goes on.
    found = pair.b.export(region.index)
    pair.b.kill()
    with pytest.raises(PeerError, match="No such"):
        spawn().import_region(*found)
    own = c.register(PAGE)
    pair.a.post("write", 0, 0, PAGE, to=own)
    assert pair.a.wait()[0].status == "SUCCESS"
    for _ in range(1000):  # until the importer has heard of it, too
        pair.a.post("read", 0, 0, 64, to=imported, at=PAGE)
        if pair.a.wait()[0].status == "REM_ACCESS_ERR":
            break
        assert c.poll() == []
    else:
        pytest.fail("the region outlives the memory that it is over")
