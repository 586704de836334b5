# SPDX-License-Identifier: BSD-3-Clause
"""Windows of hosts on interleaved devices: bytes are at their decoded places, until the decoders
change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest

from nupa.cxl.cache.coherence import SnoopFilter
from nupa.cxl.device.expander import Expander
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.host.bus import MemoryAccessError
from nupa.cxl.host.decode import FixedWindow as Cfmws
from nupa.cxl.host.host import CxlRegion, Host
from nupa.cxl.media.dcd import Policy
from nupa.cxl.media.parts import PartedMedia, SparseFile
from nupa.cxl.media.pool_store import PoolStore
from nupa.cxl.site.site import Site
from nupa.fabric import Fabric, LocalError
from nupa.memory import atomic_fetch_add, atomic_load
from tests.unit.cxl.host_model import Host as Machine

STEP = 256 << 20
PAGE = 4096
ONES = b"\xff" * 8


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(1, [STEP] * 4) as site:
        for vppb in range(4):
            site.bind(0, vppb, vppb + 1)
        yield site


def region_of(host: Host, ways: int, granularity: int) -> CxlRegion:
    return host.create_region(host.devices[:ways], granularity=granularity)


@pytest.mark.parametrize(("ways", "granularity"), [(1, 256), (2, 4096), (4, 8192), (2, 16384)])
def test_loads_and_requests_see_the_same_bytes(site: Site, ways: int, granularity: int) -> None:
    host = site.host(0)
    region = region_of(host, ways, granularity)
    offset, size = 4 * 16384, 8 * 16384
    with host.map(region, offset, size) as window:
        assert len(window) == size
        for at in range(0, size, 512):
            window[at : at + 8] = at.to_bytes(8, "little")
        for at in range(0, size, 512):
            assert region.read(offset + at, 8) == at.to_bytes(8, "little")
        region.write(offset + 512 * 77, b"by a bus")
        assert window[512 * 77 : 512 * 77 + 8] == b"by a bus"
        assert window.read(512 * 77, 8) == b"by a bus"
        assert atomic_fetch_add(window, 8, 3) == 0
        assert region.read(offset + 8, 8) == b"\3" + bytes(7)


@pytest.mark.parametrize("xor", [False, True])
@pytest.mark.parametrize("numbers", [[1, 5], [0, 4, 2, 6], [0, 4, 2, 6, 1, 5, 3, 7]])
def test_stores_are_dealt_to_the_devices_of_two_bridges(numbers: list[int], xor: bool) -> None:
    at, ways, blocks = 1 << 40, len(numbers), 64
    bits = (12, 15, 20) if xor else (12,)  # of an address, which make its bridge's number
    maps = (sum(1 << bit for bit in bits),) if xor else ()
    windows = [Cfmws(at, 32 * STEP, (10, 11), Interleave(2, PAGE, maps))]
    machine = Machine(windows)
    with SparseFile(16 * STEP) as store:
        media = {each: PartedMedia.of(store.take(2 * STEP), 2 * STEP) for each in machine.devices}
        with Host(machine.root, windows, memory=media.__getitem__) as host:
            region = host.create_region([host.devices[n] for n in numbers], granularity=PAGE)
            start = (1 << 20) - blocks // 2 * PAGE
            data = Random(5).randbytes(blocks * PAGE)
            with host.map(region, start, len(data)) as window:
                window.memory[:] = data
                assert region.read(start, len(data)) == data
            dealt = dict.fromkeys(numbers, b"")
            for i in range(blocks):
                address = region.base + start + i * PAGE
                bridge = sum(address >> bit & 1 for bit in bits) % 2
                turn = address // PAGE % ways & ~1 | bridge
                dealt[numbers[turn]] += data[i * PAGE : (i + 1) * PAGE]
            for number, wanted in dealt.items():
                found = media[machine.devices[number]].read(start // ways, len(wanted))
                assert found == wanted


def test_two_windows_on_one_region_share_it_and_caches_do_not(site: Site) -> None:
    host = site.host(0)
    region = region_of(host, 2, PAGE)
    with (
        host.map(region, 0, 4 * PAGE) as one,
        host.map(region, 2 * PAGE, 4 * PAGE) as two,
        host.map(region, 0, 4 * PAGE, coherence="software") as cache,
    ):
        one[2 * PAGE : 2 * PAGE + 4] = b"same"
        assert two[0:4] == b"same"
        assert cache.read(2 * PAGE, 4) == bytes(4)
        cache.invalidate()
        assert cache.read(2 * PAGE, 4) == b"same"
        cache.write(0, b"mine")
        assert one[0:4] == bytes(4)
        cache.flush()
        assert one[0:4] == b"mine"


def test_turns_of_less_than_a_page_cannot_be_mapped(site: Site) -> None:
    host = site.host(0)
    region = region_of(host, 2, 256)
    with pytest.raises(LocalError, match="use read and write of the host's bus"):
        host.map(region, 0, 8 * PAGE)


@pytest.mark.parametrize(
    ("offset", "size"), [(PAGE, 4 * PAGE), (0, 3 * PAGE), (-PAGE, PAGE), (0, 4 * STEP), (0, 0)]
)
def test_a_window_of_partial_turns_is_refused(site: Site, offset: int, size: int) -> None:
    host = site.host(0)
    region = region_of(host, 2, PAGE)
    with pytest.raises(LocalError):
        host.map(region, offset, size)


def test_poison_raises_by_read_and_is_ones_to_loads(site: Site) -> None:
    host = site.host(0)
    region = region_of(host, 2, PAGE)
    device = site.devices[2]
    assert isinstance(device, Expander)
    with (
        host.map(region, 0, 4 * PAGE, on_loss="raise") as loud,
        host.map(region, 0, 4 * PAGE) as quiet,
    ):
        quiet[PAGE : PAGE + 8] = b"to lose "
        host.bus.set_poison(device.function, 0)
        assert quiet[PAGE : PAGE + 8] == ONES
        assert quiet.read(PAGE, 8) == ONES
        with pytest.raises(MemoryAccessError, match="poisoned"):
            loud.read(PAGE, 8)
        assert loud.read(0, 8) == bytes(8)  # other hosts are not affected
        loud.write(PAGE, bytes(64))
        assert loud.read(PAGE, 8) == bytes(8)
        assert not quiet.revoked


def test_a_window_is_lost_with_its_device_and_no_other_is(site: Site) -> None:
    host = site.host(0)
    region = region_of(host, 2, PAGE)
    alone = host.create_region([host.devices[2]])
    with (
        host.map(region, 0, 4 * PAGE) as window,
        host.map(region, 0, 2 * PAGE, on_loss="raise") as loud,
        host.map(alone, 0, PAGE) as other,
    ):
        window[0:5] = other[0:5] = b"bytes"
        words = window.array("u8")
        site.switch.port(2).remove()  # surprise
        assert window.revoked
        assert (words == 2**64 - 1).all()
        assert atomic_load(window, 0) == 2**64 - 1
        with pytest.raises(MemoryAccessError):
            loud.read(PAGE, 8)
        window[0:8] = b"nobody's"
        assert not other.revoked
        assert other[0:5] == b"bytes"


def test_a_window_is_lost_with_its_decoders_a_link_or_a_viral_device(site: Site) -> None:
    host = site.host(0)
    region = region_of(host, 1, 256)
    window = host.map(region, 0, PAGE)
    host.destroy_region(region)
    assert window.revoked
    region = region_of(host, 1, 256)
    with host.map(region, 0, PAGE) as window:
        host.bus.set_link(site.switch.vcs(0).upstream, False)
        assert window.revoked
        with pytest.raises(LocalError, match="not inside of one region"):
            host.map(region, 0, PAGE)
        host.bus.set_link(site.switch.vcs(0).upstream, True)
    device = site.devices[1]
    assert isinstance(device, Expander)
    with host.map(region, 0, PAGE) as window:
        device.function.viral.fail()
        assert window.revoked


def test_a_window_is_lost_with_its_host(site: Site) -> None:
    host = site.host(0)
    with host.map(region_of(host, 1, 256), 0, PAGE) as window:
        host.close()
        assert window.revoked


def test_a_forced_release_takes_an_extent_from_one_window_and_leaves_the_other() -> None:
    with Site(2, [], [2 * STEP], dynamic_bytes=2 * STEP) as site:
        fm, tag = FabricManager.of(site.manager), UUID(int=7)
        windows = []
        for number in range(2):
            fm.bind(number, 0, 2, number)
            host = site.host(number)
            region = host.create_dynamic_region(host.devices[0], 1)
            with pytest.raises(LocalError, match="all answer"):
                host.map(region, 0, PAGE)
            fm.capacity(2).add(
                number,
                1,
                0 if number else 2 << 20,
                tag=tag,
                policy=Policy.SHARED if number else Policy.CONTIGUOUS,
            )
            windows.append(host.map(region, PAGE, 2 * PAGE))
        one, other = windows
        one[0:6] = b"shared"
        assert other[0:6] == b"shared"
        fm.capacity(2).release(0, tag, forced=True)
        assert one.revoked
        assert one[0:8] == ONES
        one[0:6] = b"stray!"
        assert not other.revoked
        assert other[0:6] == b"shared"
        assert atomic_fetch_add(other, 8, 1) == 0


def test_memory_that_hosts_cache_is_not_mapped_past_its_snoop_filter(site: Site) -> None:
    host = site.host(0)
    region = region_of(host, 2, PAGE)
    device = site.devices[2]
    assert isinstance(device, Expander)
    SnoopFilter(host.bus.media(device.function).parts[0].memory)
    with pytest.raises(LocalError, match="has a snoop filter"):
        host.map(region, 0, 2 * PAGE)


def test_devices_whose_memory_is_of_a_fabric_are_mapped_from_its_pool() -> None:
    with (
        Fabric(hosts=2) as fabric,
        Site(1, [STEP, STEP], store=lambda size: PoolStore(fabric, size)) as site,
    ):
        for vppb in range(2):
            site.bind(0, vppb, vppb + 1)
        host = site.host(0)
        with host.map(region_of(host, 2, PAGE), 0, 4 * PAGE) as window:
            window[PAGE : PAGE + 4] = b"pool"
            assert host.regions[0].read(PAGE, 4) == b"pool"


def test_memory_may_be_garbage_of_a_cycle() -> None:
    with SparseFile(PAGE) as store:
        cycle: list[object] = [store.take(PAGE)]
        cycle.append(cycle)
        watched = weakref.ref(cycle[0])
        del cycle
        gc.collect()
        assert watched() is None
