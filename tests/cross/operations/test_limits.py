# SPDX-License-Identifier: BSD-3-Clause
"""The limits that a device names: what is at one can be made, what is one past it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nupa.fabric import Fabric
from tests.cross.conftest import SIZE, Pair
from tests.cross.peers.peer import Peer, PeerError

EINVAL, ENOMEM = 22, 12

# Issue 2, section 4: as a real HCA's.
LEAST = {
    "max_qp_wr": 16_384,
    "max_cqe": 1_048_576,
    "max_sge": 16,
    "max_qp": 65_536,
    "max_mr": 1_048_576,
}
INLINE_LEAST = 220


@pytest.fixture
def peer(fabric: Fabric, spawn: Callable[[], Peer]) -> Peer:
    peer = spawn()
    peer.attach(fabric.name, 0)
    return peer


def test_the_device_names_at_least_the_limits_of_a_real_one(peer: Peer) -> None:
    attr = peer.device_attr()

    assert {name: attr[name] >= least for name, least in LEAST.items()} == dict.fromkeys(
        LEAST, True
    )


def refused(peer: Peer, **how: Any) -> None:
    with pytest.raises(PeerError) as error:
        peer.make_qp(**how)
    assert error.value.kind == "PyverbsRDMAError"
    assert error.value.errno in (EINVAL, ENOMEM)


def test_a_qp_at_its_limits_and_one_past_each(peer: Peer) -> None:
    attr = peer.device_attr()
    most, sges = attr["max_qp_wr"], attr["max_sge"]

    peer.make_qp(depth=most, sges=sges, inline=INLINE_LEAST)

    refused(peer, depth=most + 1)
    refused(peer, sges=sges + 1)
    refused(peer, inline=1 << 20)


def test_a_cq_at_its_limit_and_one_past_it(peer: Peer) -> None:
    most = peer.device_attr()["max_cqe"]

    peer.make_qp(cqe=most)

    refused(peer, cqe=most + 1)
    refused(peer, cqe=0)


def test_a_full_send_queue_refuses_one_more(make_pair: Callable[..., Pair]) -> None:
    depth = 100
    pair = make_pair(depth=depth, path={"rnr_retry": 7})
    for i in range(depth):
        pair.a.post("send", 0, 0, 8, wr_id=i)

    with pytest.raises(PeerError) as error:
        pair.a.post("send", 0, 0, 8)

    assert error.value.errno == ENOMEM
    for _ in range(depth):
        pair.b.recv()
    assert [d.status for d in pair.a.wait(depth)] == ["SUCCESS"] * depth
    pair.b.recv()
    pair.a.post("send", 0, 0, 8)
    assert pair.a.wait()[0].status == "SUCCESS"


def test_a_full_receive_queue_refuses_one_more(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(depth=10)
    for _ in range(10):
        pair.b.recv()

    with pytest.raises(PeerError) as error:
        pair.b.recv()

    assert error.value.errno == ENOMEM


def test_deep_queues_hold_what_they_promise(make_pair: Callable[..., Pair]) -> None:
    depth = LEAST["max_qp_wr"]
    pair = make_pair("rc", depth=depth, cqe=depth)
    pair.b.recv_many(depth)

    pair.a.send_many(depth)

    assert pair.a.count_in_order(depth) == depth
    assert pair.b.count_in_order(depth) == depth


def test_all_qps_of_a_device_can_be_made_and_one_more_cannot(peer: Peer) -> None:
    most = peer.device_attr()["max_qp"]

    made, error = peer.make_many_qps(most + 1)

    assert made == most
    assert error
    # With the table full the process still works, and closing one makes room for one.
    peer.destroy_qp()
    peer.make_qp()


def test_a_region_at_every_index_of_the_table_and_one_more(
    spawn: Callable[[], Peer],
) -> None:
    peer = spawn()
    peer.make_fabric("small", mr_entries=3000)
    peer.attach("small", 0)

    made, error = peer.register_until_refused(3001)

    assert made == 3000
    assert "register" in error


def test_more_processes_than_slots_are_told_what_to_do(
    spawn: Callable[[], Peer],
) -> None:
    peers = [spawn() for _ in range(4)]
    peers[0].make_fabric("small", slots=4)
    for peer in peers[:3]:
        peer.attach("small")

    with pytest.raises(PeerError) as error:
        peers[3].attach("small")
    assert "all 3 attachments of fabric small are in use, by " in error.value.text
    assert all(f"(pid {peer.pid})" in error.value.text for peer in peers[:3])
    assert "end a process, or make it with more slots" in error.value.text

    peers[1].kill()
    peers[3].attach("small")
    region = peers[3].register(SIZE)
    peers[0].register(SIZE)
    mine, its = peers[0].make_qp(), peers[3].make_qp()
    peers[0].connect(its)
    peers[3].connect(mine)
    assert peers[0].stream_ops("write", SIZE, region, 3) == (3, "SUCCESS")
