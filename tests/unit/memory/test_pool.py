# SPDX-License-Identifier: BSD-3-Clause
"""Regions of the pool in Python: owners, sharers, quotas, leaks, and refusals."""

from __future__ import annotations

import doctest
import errno
import os
from collections.abc import Iterator

import pytest

from nupa.fabric import Fabric, FabricError, LocalError, Region
from nupa.memory import pool
from nupa.topology.topology import SegmentConfig, star
from nupa.verbs import Context

EXTENT = 65536


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(hosts=3) as fabric:
        yield fabric


def test_a_region_says_whose_it_is_and_goes_with_its_block(fabric: Fabric) -> None:
    with fabric.pool.alloc(100_000, "log", ["host1", 2], coherence="software") as region:
        assert (region.tag, region.size, len(region)) == ("log", 100_000, 100_000)
        assert region.owner == ("host0", os.getpid())
        assert str(region.owner) == f"host0 (pid {os.getpid()})"
        assert region.share == ("host1", "host2")
        assert (region.coherence, region.ways, region.granularity) == ("software", 1, 0)
        assert (region.mapped, region.orphan, region.revoked) == (0, False, False)
        assert fabric.pool.find("log").info() == fabric.pool.find(region.id).info()
        assert [found.id for found in fabric.pool.regions()] == [region.id]
    assert region.revoked
    assert fabric.pool.regions() == []
    region.free()
    with pytest.raises(LocalError, match=r"cannot look at .*'log'.* it is gone") as gone:
        region.info()
    assert gone.value.errno == errno.ESTALE


def test_hosts_that_share_may_change_until_they_map(fabric: Fabric) -> None:
    region = fabric.pool.alloc(1, share="all", host="host1")
    assert region.share == ("host0", "host2")
    window = fabric.host("host0").map(region)
    region.share = [fabric.host("host0")]
    with pytest.raises(LocalError, match="would lose it"):
        region.share = ["host2"]
    with pytest.raises(
        LocalError,
        match=rf"windows in .*\(pid {os.getpid()}\) on host\d: close",
    ):
        region.free()
    assert (region.share, region.mapped) == (("host0",), 1)
    window.close()
    region.share = []
    with pytest.raises(LocalError) as refused:
        fabric.host("host0").map(region)
    assert refused.value.errno == errno.EACCES
    region.free()


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"size": 0}, "ask for 1 or more"),
        ({"size": 1 << 64}, "ask for 1 or more"),
        ({"size": 1, "tag": "x" * 32}, "at most 31 bytes"),
        ({"size": 1, "tag": "ü" * 16}, "at most 31 bytes"),
        ({"size": 1, "tag": "a\0b"}, "at most 31 bytes of text"),
        ({"size": 1, "share": "host1"}, r"give a list of hosts, as \['host1'\], or 'all'"),
        ({"size": 1, "share": ["host3"]}, "no host 'host3'"),
        ({"size": 1, "host": 3}, "no host 3"),
        ({"size": 1, "coherence": "none"}, "choose hardware or software"),
    ],
)
def test_what_cannot_be_is_refused(fabric: Fabric, wish: dict[str, object], why: str) -> None:
    with pytest.raises(LocalError, match=why):
        fabric.pool.alloc(**wish)  # type: ignore[arg-type]
    assert fabric.pool.regions() == []


def test_a_pool_without_room_says_so(fabric: Fabric) -> None:
    with pytest.raises(FabricError, match="no run of free memory in the pool is that long"):
        fabric.pool.alloc((7 << 29) + 1)


def test_a_quota_is_what_the_regions_of_a_host_may_take(fabric: Fabric) -> None:
    pool = fabric.pool
    assert pool.quota("host0") == (None, 0)
    pool.set_quota("host0", 2 * EXTENT)
    with pool.alloc(2 * EXTENT):
        assert pool.quotas() == {
            "host0": (2 * EXTENT, 2 * EXTENT),
            "host1": (None, 0),
            "host2": (None, 0),
        }
        with pytest.raises(LocalError, match="past the quota of its host") as refused:
            pool.alloc(1)
        assert refused.value.errno == errno.EDQUOT
        pool.alloc(1, host="host1").free()
    with pytest.raises(LocalError, match="past the quota"):
        pool.alloc(2 * EXTENT + 1)
    with pytest.raises(LocalError, match="0 or more, or None"):
        pool.set_quota("host0", -1)
    pool.set_quota("host0", None)
    pool.alloc(2 * EXTENT + 1).free()


def test_what_is_found_by_its_tag_is_the_only_one(fabric: Fabric) -> None:
    first, second = fabric.pool.alloc(1, "twin"), fabric.pool.alloc(1, "twin")
    with pytest.raises(LocalError, match=f"2 regions .* {first.id:#x}, {second.id:#x}"):
        fabric.pool.find("twin")
    first.free()
    assert fabric.pool.find("twin").id == second.id
    with pytest.raises(LocalError, match="no region 0xbeef"):
        fabric.pool.find(0xBEEF)


def test_a_kept_region_is_a_leak_when_nobody_needs_it(fabric: Fabric) -> None:
    kept = fabric.pool.alloc(1, "kept", keep=True, host=1, share=[0])
    fabric.pool.alloc(1, "mine", share=[1])
    assert kept.owner == ("host1", 0)
    ((leak,), window) = fabric.pool.leaks(), fabric.host(0).map(kept)
    assert (leak.region.tag, str(leak.owner)) == ("kept", "host1")
    assert "nothing runs on its host" in leak.why
    assert fabric.pool.leaks() == []
    window.close()
    with pytest.raises(LocalError, match="its owner is alive"):
        kept.adopt("host0")


def test_published_memory_costs_nothing_until_it_is_mapped(fabric: Fabric) -> None:
    memory = fabric.pool.reserve(4 * EXTENT)
    pieces = (memory.offset, memory.offset + 2 * EXTENT)
    with pytest.raises(LocalError, match="not whole multiples of the granularity"):
        fabric.pool.publish(pieces, 2 * EXTENT, granularity=1000)
    with pytest.raises(LocalError, match="17 pieces; give 1 to 16"):
        fabric.pool.publish([0] * 17, 17 * EXTENT, granularity=EXTENT)
    region = fabric.pool.publish(pieces, 2 * EXTENT, "device", [1], granularity=4096)
    assert (region.ways, region.granularity, region.pieces) == (2, 4096, pieces)
    assert region.published
    with pytest.raises(LocalError, match="a region is published over it: free that first"):
        memory.free()
    with fabric.host(1).map(region) as window:
        window.write(4096, b"second piece")
        assert memory[2 * EXTENT : 2 * EXTENT + 12] == b"second piece"  # type: ignore[index]
    region.free()
    memory.back(EXTENT, EXTENT)
    with pytest.raises(LocalError, match="not a part of"):
        memory.back(4 * EXTENT, 1)
    memory.free()
    with pytest.raises(LocalError, match="not pool memory of this process"):
        fabric.pool.publish(pieces[:1], EXTENT)


def test_machines_whose_memory_is_not_coherent_have_no_regions() -> None:
    topology = star(2, "apart")
    topology.segment = SegmentConfig(segment_bytes=64 << 20, coherence="software")
    with Fabric(topology=topology) as fabric:
        assert fabric.pool.regions() == []
        with pytest.raises(LocalError, match="memory that is not coherent"):
            fabric.pool.alloc(1)
        assert fabric.show()["regions"] == []


def test_machines_share_what_their_hosts_keep() -> None:
    topology = star(2, "machines")
    topology.segment = SegmentConfig(segment_bytes=64 << 20)
    with Fabric(topology=topology) as fabric:
        with pytest.raises(LocalError, match=r"open one on that host"):
            fabric.pool.alloc(1)
        region: Region = fabric.pool.alloc(1, "kept", "all", keep=True)
        assert fabric.show()["regions"] == [region.as_dict()]
        region.free()


def test_on_machines_a_region_goes_with_the_device_that_its_process_has_open() -> None:
    topology = star(2, "machines")
    topology.segment = SegmentConfig(segment_bytes=64 << 20)
    with Fabric(topology=topology) as fabric:
        with Context(fabric=fabric, host="host1"):
            region = fabric.pool.alloc(4096, "mine", host="host1")
            shared = fabric.pool.alloc(4096, "shared", "all", host="host1")
            with fabric.host("host1").map(region) as window:
                window.write(0, b"here")
                assert window.read(0, 4) == b"here"
            with pytest.raises(LocalError, match="open one on that host"):
                fabric.pool.alloc(1, host="host0")
        assert region.revoked
        assert [leak.region.id for leak in fabric.pool.leaks()] == [shared.id]


def test_doctests() -> None:
    result = doctest.testmod(pool)
    assert result.attempted > 0
    assert result.failed == 0
