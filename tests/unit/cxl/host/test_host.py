# SPDX-License-Identifier: BSD-3-Clause
"""A host enumerates, makes regions and uses them: each byte is where the dealer puts it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from nupa.base.errors import LocalError
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.function.port import root_port
from nupa.cxl.host.bus import MemoryAccessError
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.host.enumerate import Walk
from nupa.cxl.host.host import CxlRegion, Host, RegionError
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.registers.pcie_tables import PortType
from tests.unit.cxl.host_model import BASE, STEP
from tests.unit.cxl.host_model import Host as Machine

PAIR = 1 << 40
WINDOWS = [
    FixedWindow(BASE, 32 * STEP, (10,)),
    FixedWindow(PAIR, 32 * STEP, (10, 11), Interleave(2, 1024)),
]
#: Bit 0 of the bridge's number by address bits 10, 13 and 20.
XOR = Interleave(2, 1024, (1 << 10 | 1 << 13 | 1 << 20,))


@pytest.fixture
def machine() -> Machine:
    return Machine(WINDOWS)


def host_of(machine: Machine, windows: Sequence[FixedWindow] = WINDOWS) -> Host:
    return Host(machine.root, windows, memory=machine.memory.__getitem__)


def make(host: Host, numbers: Sequence[int], *, size: int = 0, granularity: int = 256) -> CxlRegion:
    devices = [host.devices[number] for number in numbers]
    return host.create_region(devices, size=size, granularity=granularity)


def test_the_walk_finds_all_ports_and_devices_with_their_decoders(machine: Machine) -> None:
    with host_of(machine) as host:
        kinds = [each.kind for each in host.functions]
        assert [kinds.count(kind) for kind in (PortType.ROOT, PortType.UPSTREAM)] == [4, 4]
        assert [kinds.count(kind) for kind in (PortType.DOWNSTREAM, PortType.ENDPOINT)] == [8, 8]
        assert len({each.bdf for each in host.functions}) == len(kinds) == 24
        with_decoders = [each.kind for each in host.functions if each.hdm]
        assert set(with_decoders) == {PortType.UPSTREAM, PortType.ENDPOINT}
        assert len(with_decoders) == 12
        assert [each.capacity for each in host.devices] == [2 * STEP] * 8
        assert [each.uid for each in host.devices] == [10] * 4 + [11] * 4
        routes = [[port for _, port in each.route] for each in host.devices]
        assert routes == [[root, down] for root in (1, 2) for down in (1, 2)] * 2


#: Devices in turn, and which one has block n (of 256, or 1024 bytes) by n's bits.
REGIONS = [
    ([2], 256),
    ([0, 1], 256),
    ([1, 2], 16384),
    ([0, 2, 1, 3], 512),
    ([1, 5], 1024),
    ([0, 4, 2, 6], 1024),
    ([6, 2, 7, 3], 1024),
    ([0, 4, 2, 6, 1, 5, 3, 7], 1024),
    ([3, 7, 1, 5, 2, 6, 0, 4], 1024),
]


def is_bridge_second(address: int, xor: bool) -> int:
    bits = (10, 13, 20) if xor else (10,)
    return sum(address >> bit & 1 for bit in bits) % 2


@pytest.mark.parametrize("xor", [False, True])
@pytest.mark.parametrize(("numbers", "granularity"), REGIONS)
def test_regions_of_1_2_4_and_8_ways_are_dealt_to_their_devices(
    numbers: list[int], granularity: int, xor: bool
) -> None:
    crosses = {number // 4 for number in numbers} == {0, 1}
    if crosses and numbers[0] // 4:  # its first turn is bridge 11's
        windows = [FixedWindow(PAIR, 32 * STEP, (11, 10), XOR if xor else Interleave(2, 1024))]
    elif crosses:
        windows = [FixedWindow(PAIR, 32 * STEP, (10, 11), XOR if xor else Interleave(2, 1024))]
    else:
        windows = WINDOWS
    machine, ways = Machine(windows), len(numbers)
    with host_of(machine, windows) as host:
        region = make(host, numbers, granularity=granularity)
        assert region.size == ways * 2 * STEP
        start, blocks = (1 << 20) - 8 * granularity * ways, 16 * ways
        data = Random(11).randbytes(blocks * granularity)
        region.write(start, data)
        assert region.read(start, len(data)) == data
        dealt = dict.fromkeys(numbers, b"")
        for i in range(blocks):
            address = region.base + start + i * granularity
            turn = address // granularity % ways
            if crosses:
                turn = turn & ~1 | is_bridge_second(address, xor)
            dealt[numbers[turn]] += data[i * granularity : (i + 1) * granularity]
        own = start // ways
        for number, device in enumerate(machine.devices):
            wanted = dealt.get(number, b"")
            assert machine.memory[device][own : own + len(wanted)] == wanted
            if not wanted:
                assert machine.memory[device][own : own + 4096] == bytes(4096)


def test_regions_share_devices_and_keep_apart(machine: Machine) -> None:
    with host_of(machine) as host:
        low = make(host, [1], size=STEP)
        one = make(host, [0, 4], size=2 * STEP)
        two = make(host, [0, 4], size=2 * STEP)
        assert (one.base, two.base, low.base) == (PAIR, PAIR + 2 * STEP, BASE)
        for i, region in enumerate((one, two, low)):
            region.write(region.size - 5000, bytes([i + 1]) * 5000)
        for i, region in enumerate((one, two, low)):
            assert region.read(region.size - 5000, 5000) == bytes([i + 1]) * 5000
        with pytest.raises(LocalError, match="the region has"):
            low.read(STEP - 1, 2)


def test_a_destroyed_region_is_gone_and_its_place_is_free(machine: Machine) -> None:
    with host_of(machine) as host:
        one, two = make(host, [0], size=STEP), make(host, [0])
        with pytest.raises(RegionError, match="destroy later ones first"):
            host.destroy_region(one)
        host.destroy_region(two)
        with pytest.raises(MemoryAccessError):
            two.read(0, 64)
        assert one.read(0, 64) == bytes(64)
        again = make(host, [1, 0], size=2 * STEP)
        assert again.base == two.base
        assert [each.used for each in host.devices[:2]] == [2 * STEP, STEP]


@pytest.mark.parametrize(
    ("numbers", "how", "why"),
    [
        ([], {}, "no window|each once"),
        ([0, 0], {}, "each once"),
        ([0, 1, 2], {}, "behind port|has a turn|no encoding"),
        ([4], {}, "no window"),
        ([4, 0], {}, "the turn of another bridge"),
        ([0, 1, 4, 5], {}, "the turn of another bridge"),
        ([0, 4, 2, 5, 1, 6, 3, 7], {}, "behind port"),
        ([0, 1, 2, 3], {}, "behind port"),
        ([0], {"size": 3 * STEP}, "less left"),
        ([0], {"size": STEP + 1}, "a multiple of 1"),
        ([0, 1], {"size": STEP}, "a multiple of 2"),
        ([0], {"size": 64 * STEP}, "the window ends"),
        ([0, 1], {"granularity": 300}, "no encoding"),
        ([0, 2, 1, 3], {"granularity": 16384}, "no encoding|is not committed"),
    ],
)
def test_an_impossible_region_is_refused_and_nothing_is_committed(
    machine: Machine, numbers: list[int], how: dict[str, int], why: str
) -> None:
    with host_of(machine) as host:
        with pytest.raises(RegionError, match=why):
            make(host, numbers, **how)
        assert not any(any(each.decoders.decoders) for each in machine.bridges)
        assert not any(any(each.decoders.decoders) for each in machine.devices)
        assert not any(each.decoders and any(each.decoders.decoders) for each in machine.ups)
        # The same devices make a good one then.
        assert make(host, [0, 2, 1, 3]).read(0, 4096) == bytes(4096)


def test_a_commit_that_hardware_refuses_is_taken_back(machine: Machine) -> None:
    """After a region in the window above, one in the window below is out of order."""
    with host_of(machine) as host:
        make(host, [0, 4], size=2 * STEP)
        with pytest.raises(RegionError, match="bridge 10: decoder 1 is not committed"):
            make(host, [0], size=STEP)
        make(host, [0, 4], size=2 * STEP).write(0, b"fine")


def test_decoders_run_out(machine: Machine) -> None:
    with host_of(machine) as host:
        for number in range(4):
            make(host, [number], size=STEP)
        with pytest.raises(RegionError, match="all 4 decoders are in use"):
            make(host, [0], size=STEP)


def test_a_walk_needs_buses_and_addresses() -> None:
    bridge = HostBridge(1, 0, 0, ports=2)
    for i in range(2):
        bridge.below[i << 3] = root_port(i)
    with pytest.raises(LocalError, match="are in use"):
        Walk(RootComplex(bridge), 0xC000_0000).bridge(0, 1)
    with pytest.raises(LocalError, match="more addresses"):
        Walk(RootComplex(bridge), 0xC000_0000, 0xC000_1000).bridge(0)


def test_decoders_that_somebody_else_has_committed_are_not_taken_over(machine: Machine) -> None:
    machine.interleave_all()
    with pytest.raises(LocalError, match="are committed already"):
        host_of(machine)
