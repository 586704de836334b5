# SPDX-License-Identifier: BSD-3-Clause
"""Hosts whose caches share memory: reads, messages, and a comparison with plain bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nupa.base.errors import LocalError
from nupa.cxl.cache.coherence import (
    KINDS,
    CacheShape,
    Directory,
    HostCache,
    Mesi,
    Snoop,
    SnoopFilter,
)
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.host.bus import Bus, MemoryAccessError, RequestStatus
from nupa.cxl.media.dcd import Policy
from nupa.cxl.media.parts import Memory
from nupa.cxl.site.site import Site
from nupa.packet.tables import cxl_mem as cxl_tables
from tests.unit.cxl.host_model import BASE, STEP
from tests.unit.cxl.shared import shared_bus


class Pair:
    """Two hosts."""

    def __init__(self, stack: ExitStack) -> None:
        self.memory = Memory.anonymous(STEP)
        self.filter = SnoopFilter(self.memory, sets=16, ways=2)
        shapes = [CacheShape(host, sets=4, ways=2) for host in range(2)]
        self.buses = [stack.enter_context(shared_bus(self.memory, shape)) for shape in shapes]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def cache_of(bus: Bus) -> HostCache:
    assert bus.cache is not None
    return bus.cache


def test_a_host_reads_what_the_other_has_written_and_the_trace_says_how(pair: Pair) -> None:
    first, second = pair.buses
    first.write(BASE + 0x40, b"from the first")
    assert pair.memory.read(0x40, 14) == bytes(14)  # it is in the cache alone
    pair.filter.trace()
    assert second.read(BASE + 0x40, 14) == b"from the first"
    assert [str(message) for message in pair.filter.take()] == [
        "M2S Req MemRd S SnpData 0x40 host 1",
        "S2M BISnp BISnpData 0x40 host 0",
        "M2S RwD MemWr S 0x40 host 0",
        "S2M NDR Cmp 0x40 host 0",
        "M2S BIRsp BIRspS 0x40 host 0",
        "S2M NDR Cmp-S 0x40 host 1",
        "S2M DRS MemData 0x40 host 1",
    ]
    assert pair.memory.read(0x40, 14) == b"from the first"
    assert cache_of(first).state(BASE + 0x40) == cache_of(second).state(BASE + 0x7F) == Mesi.S
    assert pair.filter.state(0, 0x40) == pair.filter.state(1, 0x40) == Directory.S
    assert pair.filter.counts(1).messages == {"MemRd": 1, "Cmp-S": 1, "MemData": 1}
    assert cache_of(first).counts()[:2] == (0, 1)


def test_the_kinds_of_messages_are_those_of_the_packets() -> None:
    tables = {
        "M2S Req": cxl_tables.REQ_OPCODES,
        "M2S RwD": cxl_tables.RWD_OPCODES,
        "M2S BIRsp": cxl_tables.BIRSP_OPCODES,
        "S2M BISnp": cxl_tables.BISNP_OPCODES,
        "S2M NDR": cxl_tables.NDR_OPCODES,
        "S2M DRS": cxl_tables.DRS_OPCODES,
    }
    assert set(tables) == set(cxl_tables.CHANNELS.values())
    for kind in KINDS:
        assert tables[kind.channel][kind.opcode] == kind.name
    for state in Directory:
        name = {"I": "Invalid", "A": "Any", "S": "Shared"}[state.name]
        assert cxl_tables.META_VALUES[state] == name
    for snoop in Snoop:
        name = "No-Op" if snoop is Snoop.NONE else f"Snp{snoop.name.capitalize()}"
        assert cxl_tables.SNOOPS[snoop] == name


def test_a_bus_without_a_cache_is_coherent_too(pair: Pair) -> None:
    with shared_bus(pair.memory, None) as third:
        assert third.cache is None
        pair.buses[0].write(BASE, b"a")
        pair.filter.trace()
        assert third.read(BASE, 1) == b"a"
        third.write(BASE, b"b")
        assert pair.buses[0].read(BASE, 1) == b"b"
        assert [str(message) for message in pair.filter.take() if message.host is None] == [
            "M2S Req MemRd I SnpCur 0x0 no cache",
            "S2M NDR Cmp 0x0 no cache",
            "S2M DRS MemData 0x0 no cache",
            "M2S RwD MemWrPtl I SnpInv 0x0 no cache",
            "S2M NDR Cmp 0x0 no cache",
        ]


def test_the_device_reads_writes_and_takes_back_what_hosts_have(pair: Pair) -> None:
    bus = pair.buses[0]
    bus.write(BASE, bytes(range(256)))
    assert pair.filter.read(3, 100) == bytes(range(3, 103))
    assert cache_of(bus).state(BASE) == Mesi.E
    pair.filter.write(0, b"device")
    assert cache_of(bus).state(BASE) == Mesi.I
    assert bus.read(BASE, 8) == b"device\6\7"
    pair.filter.recall(0, 256)
    counts = pair.filter.counts()
    assert counts.entries == 0
    assert counts.messages["BISnpInvBlk"] == counts.messages["BIRspIBlk"] == 1
    assert pair.memory.read(0, 8) == b"device\6\7"


def test_a_flush_leaves_memory_and_nothing_else(pair: Pair) -> None:
    first, second = pair.buses
    first.write(BASE, b"1")
    second.write(BASE + 64, b"2")
    cache_of(first).flush(BASE, 128)
    assert pair.memory.read(0, 1) + pair.memory.read(64, 1) == b"12"
    assert pair.filter.counts().entries == 0
    first.write(BASE, b"3")
    cache_of(first).flush()
    assert pair.memory.read(0, 1) == b"3"
    with pytest.raises(LocalError, match="no memory at"):
        cache_of(first).flush(BASE - 64)


def test_a_bus_that_closes_writes_back_and_its_cache_is_closed(pair: Pair) -> None:
    bus = pair.buses[0]
    cache = cache_of(bus)
    bus.write(BASE, b"kept")
    bus.close()
    assert pair.buses[1].read(BASE, 4) == b"kept"
    with pytest.raises(LocalError, match="closed"):
        cache.counts()
    cache.close()


def test_a_link_that_goes_down_takes_changes_with_it(pair: Pair) -> None:
    first, second = pair.buses
    first.write(BASE, b"lost")
    port = next(iter(first._ports))
    first.set_link(port, up=False)
    assert cache_of(first).counts().lost == 1
    with pytest.raises(MemoryAccessError) as caught:
        second.read(BASE, 4)
    assert caught.value.status is RequestStatus.POISON
    first.set_link(port, up=True)
    second.write(BASE, bytes(64))
    assert first.read(BASE, 4) == bytes(4)


def test_a_trace_that_is_too_short_says_so(pair: Pair) -> None:
    pair.filter.trace(2)
    pair.buses[0].read(BASE, 1)
    with pytest.raises(LocalError, match="1 messages had no room"):
        pair.filter.take()


@pytest.mark.parametrize(
    "bad", [{"sets": 3}, {"sets": 0}, {"ways": 65}, {"host": 64}, {"host": -1}]
)
def test_a_cache_that_cannot_be_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(LocalError):
        shared_bus(Memory.anonymous(STEP), CacheShape(0)._replace(**bad))


def test_a_filter_that_cannot_be_is_refused(pair: Pair) -> None:
    with pytest.raises(LocalError):
        SnoopFilter(pair.memory)
    with pytest.raises(LocalError):
        SnoopFilter(Memory.anonymous(4096), sets=12)
    with pytest.raises(LocalError):
        pair.filter.counts(65)
    with pytest.raises(LocalError):
        pair.filter.state(0, STEP)
    with pytest.raises(LocalError):
        pair.filter.read(STEP - 1, 2)
    with pytest.raises(LocalError):
        pair.filter.write(STEP, b"x")
    with pytest.raises(LocalError):
        pair.filter.recall(0, 64, Snoop.NONE)


def test_two_hosts_in_threads_hand_a_line_to_each_other(pair: Pair) -> None:
    """Each waits for the other's number, and writes the next."""
    turns = 300

    def play(bus: Bus, parity: int) -> None:
        number = parity
        while number < turns:
            if int.from_bytes(bus.read(BASE, 8), "little") == number:
                bus.write(BASE, (number + 1).to_bytes(8, "little"))
                number += 2

    threads = [Thread(target=play, args=(bus, i)) for i, bus in enumerate(pair.buses)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
        assert not thread.is_alive()
    assert pair.filter.read(0, 8) == turns.to_bytes(8, "little")


def test_hosts_of_a_switch_cache_what_is_shared_until_it_is_taken_away() -> None:
    with Site(2, [], [2 * STEP], dynamic_bytes=2 * STEP) as site:
        fm, tag, regions = FabricManager.of(site.manager), UUID(int=7), []
        for number, policy in enumerate((Policy.CONTIGUOUS, Policy.SHARED)):
            fm.bind(number, 0, 2, number)
            host = site.host(number)
            regions.append(host.create_dynamic_region(host.devices[0], 1))
            size = 0 if number else 2 << 20
            fm.capacity(2).add(number, 1, size, tag=tag, policy=policy)
            host.bus.use_cache(CacheShape(number))
        snoops = site.host(0).bus.filter_at(regions[0].base)
        with pytest.raises(LocalError, match="no memory of a device"):
            site.host(0).bus.filter_at(regions[0].base + (2 << 20))
        with pytest.raises(LocalError):
            site.host(0).bus.use_cache(CacheShape(5))
        one, other = regions
        one.write(0, b"written by one")
        assert cache_of(site.host(0).bus).state(one.base) is Mesi.M
        assert other.read(0, 14) == b"written by one"
        one.write(64, b"and never read")
        fm.capacity(2).release(0, tag, forced=True)
        with pytest.raises(MemoryAccessError):
            one.read(0, 1)
        assert other.read(64, 14) == b"and never read"
        assert snoops.counts(0).messages["MemWr"] == 2
        assert snoops.state(0, 0) is Directory.I


SPAN = 2048
PLACES = st.integers(0, SPAN - 1)
HOSTS = st.integers(0, 7)


class Hosts(RuleBasedStateMachine):
    """Random requests, compared with one bytearray."""

    @initialize(
        ways=st.lists(st.integers(0, 2), min_size=2, max_size=8),
        filter_ways=st.integers(1, 3),
        tells=st.booleans(),
    )
    def start(self, ways: list[int], filter_ways: int, tells: bool) -> None:
        self.stack = ExitStack()
        memory = Memory.anonymous(STEP)
        self.model = bytearray(SPAN)
        self.filter = SnoopFilter(memory, sets=4, ways=filter_ways)
        shapes = [CacheShape(i, 2, n, tells) if n else None for i, n in enumerate(ways)]
        self.buses = [self.stack.enter_context(shared_bus(memory, shape)) for shape in shapes]

    def _bus(self, host: int) -> Bus:
        return self.buses[host % len(self.buses)]

    @rule(host=HOSTS, at=PLACES, size=st.integers(1, 300))
    def read(self, host: int, at: int, size: int) -> None:
        size = min(size, SPAN - at)
        assert self._bus(host).read(BASE + at, size) == self.model[at : at + size]

    @rule(host=HOSTS, at=PLACES, data=st.binary(min_size=1, max_size=200))
    def write(self, host: int, at: int, data: bytes) -> None:
        data = data[: SPAN - at]
        self._bus(host).write(BASE + at, data)
        self.model[at : at + len(data)] = data

    @rule(host=HOSTS, line=st.integers(0, SPAN // 64 - 1), value=st.integers(0, 255))
    def write_line(self, host: int, line: int, value: int) -> None:
        self.write(host, 64 * line, bytes([value]) * 64)

    @rule(at=PLACES, data=st.binary(min_size=1, max_size=300))
    def device_write(self, at: int, data: bytes) -> None:
        data = data[: SPAN - at]
        self.filter.write(at, data)
        self.model[at : at + len(data)] = data

    @rule(at=PLACES, size=st.integers(1, 300))
    def device_read(self, at: int, size: int) -> None:
        size = min(size, SPAN - at)
        assert self.filter.read(at, size) == self.model[at : at + size]

    @rule(host=HOSTS)
    def flush(self, host: int) -> None:
        cache = self._bus(host).cache
        if cache is not None:
            cache.flush()

    @invariant()
    def one_writes_or_many_read_and_the_filter_knows(self) -> None:
        for offset in range(0, SPAN, 64):
            caches = [bus.cache for bus in self.buses]
            states = [cache.state(BASE + offset) if cache else Mesi.I for cache in caches]
            owners = sum(state >= Mesi.E for state in states)
            assert owners == 0 or (owners == 1 and Mesi.S not in states)
            for host, state in enumerate(states):
                if state is not Mesi.I:
                    known = self.filter.state(host, offset)
                    assert known is (Directory.S if state is Mesi.S else Directory.A)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()
            assert self.filter.memory.read(0, SPAN) == self.model


TestHosts = Hosts.TestCase
TestHosts.settings = settings(max_examples=25, stateful_step_count=30, derandomize=True)
