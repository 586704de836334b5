# SPDX-License-Identifier: BSD-3-Clause
"""A full /dev/shm, of a few MiB, in a mount namespace: errors that say so, never a SIGBUS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nupa.verbs import enums as e
from tests.cross.peers.node import Region
from tests.cross.peers.peer import Peer, PeerError

ENOMEM, ENOSPC = 12, 28
MIB = 1 << 20
SHM = "/dev/shm"
PAGE = 4096
HASTY = {"timeout": 10, "retry_cnt": 2}

Spawn = Callable[[], Peer]


@pytest.fixture
def spawn_small(own_shm: Callable[[int], Spawn]) -> Spawn:
    return own_shm(16 * MIB)


def says_that_it_is_full(error: PeerError) -> None:
    assert error.errno == ENOSPC
    assert error.kind in ("FabricError", "PyverbsRDMAError")
    assert "full" in error.text or "free some of" in error.text


def test_a_fabric_is_not_made_and_nothing_of_it_stays(spawn_small: Spawn) -> None:
    peer = spawn_small()
    peer.fill(SHM, 16 * PAGE)

    with pytest.raises(PeerError) as error:
        peer.make_fabric("cross")
    says_that_it_is_full(error.value)
    code, said = peer.nupa("up")
    assert code == 1
    assert "its file system is full" in said
    assert peer.nupa("run", "--", "true")[0] == 1

    assert peer.listing(SHM) == ["ballast"]
    peer.unfill(SHM)
    peer.make_fabric("cross")


def test_a_process_is_not_attached_and_its_slot_is_free_again(spawn_small: Spawn) -> None:
    first, second = spawn_small(), spawn_small()
    first.make_fabric("cross")
    first.attach("cross", 0)
    first.fill(SHM, 0)

    with pytest.raises(PeerError) as error:
        second.attach("cross", 1)
    says_that_it_is_full(error.value)

    first.unfill(SHM)
    assert second.attach("cross", 1) == 2


@pytest.mark.parametrize("pages", [0, 1, 2, 5, 9])
def test_regions_are_refused_when_their_table_cannot_grow(spawn_small: Spawn, pages: int) -> None:
    peer = spawn_small()
    peer.make_fabric("cross")
    peer.attach("cross", 0)
    peer.fill(SHM, pages * PAGE)

    made, error = peer.register_until_refused(10_000)

    assert 128 <= made < 10_000
    assert f"Errno: {ENOMEM}" in error
    # Regions that exist work, and with room there can be more.
    peer.register_until_refused(1)
    peer.unfill(SHM)
    assert peer.register_until_refused(1000) == (1000, "")


def test_a_region_that_cannot_have_memory_is_refused_and_takes_none(spawn_small: Spawn) -> None:
    peer = spawn_small()
    assert peer.nupa("up")[0] == 0
    peer.fill(SHM, 0)
    for _ in range(2):
        # First there is no room for their table, then for what they are.
        code, said = peer.nupa("pool", "alloc", "64K", "refused")
        assert code == 1
        assert "the file system that the fabric lies in is full: free some of /dev/shm" in said
        peer.unfill(SHM)
        assert peer.nupa("pool", "alloc", "64K")[0] == 0
        peer.fill(SHM, 15 * PAGE)

    said = peer.nupa("pool", "quota", "host0")[1]
    assert "128KiB" in said
    assert "refused" not in peer.nupa("pool", "ls")[1]


@pytest.mark.parametrize("pages", [0, 3])
def test_qps_are_refused_when_their_table_cannot_grow(spawn_small: Spawn, pages: int) -> None:
    peer = spawn_small()
    peer.make_fabric("cross")
    peer.attach("cross", 0)
    peer.fill(SHM, pages * PAGE)

    made, error = peer.make_many_qps(10_000)

    assert 128 <= made < 10_000
    assert f"Errno: {ENOMEM}" in error


@pytest.mark.parametrize("pages", [0, 1, 17, 18, 35])
@pytest.mark.parametrize("op", ["send", "write", "read", "faa"])
@pytest.mark.parametrize("mover", ["shared", "cma", "relay"])
def test_a_channel_that_cannot_be_opened_is_a_completion_in_error(
    spawn_small: Spawn, mover: str, op: str, pages: int
) -> None:
    a, b, region = two(spawn_small, mover)
    a.fill(SHM, pages * PAGE)

    connect(a, b, **HASTY)
    b.recv()
    a.post(op, 0, 0, 8, to=region, operands=(1, 0))
    (done,) = a.wait()

    # As far as the memory reaches: no answer in time, or one that there is no room for it, or all.
    assert done.status in ("SUCCESS", "RETRY_EXC_ERR", "REM_OP_ERR")
    if pages == 0:
        assert done.status == "RETRY_EXC_ERR"
    works_with_room(a, b, region)


@pytest.mark.parametrize("op", ["send", "write", "read"])
@pytest.mark.parametrize("pages", [0, 4])
def test_a_channel_without_room_for_bulk_is_a_completion_in_error(
    spawn_small: Spawn, op: str, pages: int
) -> None:
    a, b, region = two(spawn_small, "relay")
    connect(a, b, **HASTY)
    b.recv()
    a.post("send", 0, 0, 8)
    assert a.wait()[0].status == b.wait()[0].status == "SUCCESS"
    a.fill(SHM, pages * PAGE)

    b.recv()
    a.post(op, 0, 0, 100_000, to=region)
    a.post("send", 0, 0, 8)

    statuses = [d.status for d in a.wait(2)]
    assert statuses[0] in ("RETRY_EXC_ERR", "REM_OP_ERR")
    assert statuses[1] == "WR_FLUSH_ERR"
    works_with_room(a, b, region)


@pytest.mark.parametrize("op", ["write", "read"])
def test_bulk_goes_by_a_channel_that_cannot_grow(spawn_small: Spawn, op: str) -> None:
    a, b, region = two(spawn_small, "relay")
    connect(a, b, **HASTY)
    b.recv()
    a.post("send", 0, 0, 8)
    assert a.wait()[0].status == b.wait()[0].status == "SUCCESS"
    a.fill(SHM, 10 * PAGE)  # the first 32 KiB of a ring, but no more

    a.post(op, 0, 0, 100_000, to=region)

    assert a.wait()[0].status == "SUCCESS"


def test_bulk_goes_on_when_there_is_room_in_time(spawn_small: Spawn) -> None:
    a, b, region = two(spawn_small, "relay")
    connect(a, b, timeout=20, retry_cnt=7)
    a.fill(SHM, 0)
    a.store(b"\x77" * 100_000)
    a.post("write", 0, 0, 100_000, to=region)
    assert a.poll() == []

    b.unfill(SHM)

    assert a.wait()[0].status == "SUCCESS"
    assert b.load(0, 0, 100_000) == b"\x77" * 100_000


def test_pool_memory_is_refused(spawn_small: Spawn) -> None:
    peer = spawn_small()
    peer.make_fabric("cross")
    peer.attach("cross", 0)
    peer.fill(SHM, 4 * PAGE)

    with pytest.raises(PeerError) as error:
        peer.register(MIB, pool=True)
    assert error.value.errno == ENOSPC

    peer.unfill(SHM)
    assert peer.register(MIB, pool=True).length == MIB


def test_show_and_down_work_on_a_full_file_system(spawn_small: Spawn) -> None:
    a, b, region = two(spawn_small, "relay")
    connect(a, b)
    assert a.stream_ops("write", 100, region, 2) == (2, "SUCCESS")
    a.fill(SHM, 0)

    code, shown = b.nupa("show", "cross")

    assert code == 0, shown
    b.kill()
    a.recv()
    assert a.wait()[0].status == "WR_FLUSH_ERR"
    a.leave()
    assert a.nupa("down", "cross")[0] == 0
    assert a.listing(SHM) == ["ballast"]


def two(spawn_small: Spawn, mover: str) -> tuple[Peer, Peer, Region]:
    """Returns two attached processes with a QP each that are strangers yet; the region of the
    second."""
    a, b = spawn_small(), spawn_small()
    a.make_fabric("cross")
    regions = []
    for host, peer in enumerate((a, b)):
        peer.attach("cross", host, mover)
        regions.append(peer.register(MIB, e.IBV_ACCESS_LOCAL_WRITE | 0xE))
    return a, b, regions[1]


def connect(a: Peer, b: Peer, **options: int) -> None:
    ours, its = a.make_qp(), b.make_qp()
    a.connect(its, **options)
    b.connect(ours, **options)


def works_with_room(a: Peer, b: Peer, region: Region) -> None:
    a.unfill(SHM)
    connect(a, b)
    assert a.stream_ops("write", 100_000, region, 3) == (3, "SUCCESS")
    assert a.stream_ops("read", 100_000, region, 3) == (3, "SUCCESS")
