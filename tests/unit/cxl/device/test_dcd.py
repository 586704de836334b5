# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic capacity: offers, answers, sharing, release and forced release, as hosts see them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.media.dcd import DynamicCapacity, Policy
from nupa.cxl.media.events import DYNAMIC_CAPACITY, DcEventType, Log
from nupa.cxl.media.extents import DcdError, DcRegion, Extent
from nupa.cxl.media.media import PlainMedia
from nupa.cxl.media.parts import Memory
from tests.unit.cxl.driver import Driver

UNIT = 256 << 20
BLOCK = 2 << 20
OWN, SHARED = 0, 1
TAG = UUID("00112233-4455-6677-8899-aabbccddeeff")


def capacity(**options: int) -> DynamicCapacity:
    regions = [DcRegion(UNIT, UNIT, sanitize=True), DcRegion(2 * UNIT, UNIT, shareable=True)]
    return DynamicCapacity(Memory.anonymous(3 * UNIT), regions, hosts=2, **options)


class Host(Driver):
    """A driver of host *number*."""

    def __init__(self, device: DynamicCapacity, number: int = 0, **options: object) -> None:
        super().__init__(dynamic=(device, number), **options)

    def update(self, opcode: int, *extents: tuple[int, int], flags: int = 0) -> Code:
        payload = struct.pack("<IB3x", len(extents), flags)
        return self.send(opcode, payload + b"".join(struct.pack("<QQ8x", *e) for e in extents))[0]

    def extents(self) -> list[tuple[int, int, bytes, int]]:
        answer = self.ok(0x4801, struct.pack("<II", 50, 0))
        assert struct.unpack_from("<I", answer)[0] == (len(answer) - 16) // 40
        return list(struct.iter_unpack("<QQ16sH6x", answer[16:]))

    def events(self) -> list[tuple[int, ...]]:
        """Return (type, host, region, more, dpa, size) of each record, and clear them."""
        log = self.memory.events[Log.DYNAMIC_CAPACITY]
        records = log.get(log.limit).records
        assert {record.kind for record in records} <= {DYNAMIC_CAPACITY}
        if records:
            self.memory.events.clear(Log.DYNAMIC_CAPACITY, [record.handle for record in records])
        return [struct.unpack_from("<BxHBB2xQQ", record.data) for record in records]


def code_of(call: object, *args: object, **options: object) -> Code:
    with pytest.raises(CommandError) as refused:
        call(*args, **options)  # type: ignore[operator]
    return refused.value.code


def snapshot(device: DynamicCapacity) -> object:
    return [(list(h.accepted), [list(o) for o in h.offers], h.generation) for h in device.hosts]


def pairs(extents: Sequence[Extent]) -> list[tuple[int, int]]:
    return [(extent.dpa, extent.size) for extent in extents]


def test_capacity_is_a_hosts_once_it_accepts_what_it_is_offered() -> None:
    device, answers = capacity(), []
    device.watchers.append(
        lambda change, host, extents: answers.append((change, host, pairs(extents)))
    )
    host = Host(device)
    host.ok(0x0103, bytes([0, 0, 0, 0, 1]))
    device.add(0, OWN, 3 * BLOCK, tag=TAG)
    assert host.interrupts == [1]
    assert host.device["status"]["events.dynamic_capacity"] == 1
    assert host.events() == [(DcEventType.ADD, 0, OWN, 0, UNIT, 3 * BLOCK)]
    assert host.extents() == []
    assert not device.hosts[0].reaches(UNIT)
    assert host.update(0x4802, (UNIT, 2 * BLOCK)) is Code.SUCCESS
    assert host.extents() == [(UNIT, 2 * BLOCK, TAG.bytes, 0)]
    assert answers == [(DcEventType.ANSWERED, 0, [(UNIT, 2 * BLOCK)])]
    assert device.hosts[0].reaches(UNIT, 2 * BLOCK)
    assert not device.hosts[0].reaches(UNIT, 2 * BLOCK + 1)
    assert device.free(OWN) == [(UNIT + 2 * BLOCK, UNIT - 2 * BLOCK)]
    assert host.update(0x4802) is Code.INVALID_INPUT


def test_an_answer_without_extents_refuses_the_oldest_offer() -> None:
    device = capacity()
    host = Host(device)
    device.add(0, OWN, BLOCK)
    second = device.add(0, OWN, BLOCK)
    assert host.update(0x4802) is Code.SUCCESS
    assert host.extents() == []
    assert host.update(0x4802, *pairs(second)) is Code.SUCCESS
    assert [extent[0] for extent in host.extents()] == [UNIT + BLOCK]


def test_an_answer_may_come_in_parts() -> None:
    device = capacity()
    host = Host(device)
    device.add(0, OWN, 2 * BLOCK)
    assert host.update(0x4802, (UNIT + BLOCK, BLOCK), flags=1) is Code.SUCCESS
    assert host.extents() == []
    assert host.update(0x4802, (UNIT, BLOCK)) is Code.SUCCESS
    assert len(host.extents()) == 2
    assert host.update(0x4803, (UNIT, BLOCK), flags=2) is Code.INVALID_INPUT
    wrong = struct.pack("<IB3x", 2, 0) + struct.pack("<QQ8x", UNIT, BLOCK)
    assert host.send(0x4803, wrong)[0] is Code.INVALID_PAYLOAD_LENGTH
    assert len(host.extents()) == 2


@pytest.mark.parametrize(
    ("extents", "code"),
    [
        ([(UNIT, 5 * BLOCK)], Code.INVALID_PHYSICAL_ADDRESS),
        ([(UNIT + 4 * BLOCK, BLOCK)], Code.INVALID_PHYSICAL_ADDRESS),
        ([(0, BLOCK)], Code.INVALID_PHYSICAL_ADDRESS),
        ([(3 * UNIT, BLOCK)], Code.INVALID_PHYSICAL_ADDRESS),
        ([(UNIT, 0)], Code.INVALID_PHYSICAL_ADDRESS),
        ([(UNIT, BLOCK - 64)], Code.INVALID_EXTENT_LIST),
        ([(UNIT + 64, BLOCK)], Code.INVALID_EXTENT_LIST),
        ([(UNIT, 2 * BLOCK), (UNIT + BLOCK, BLOCK)], Code.INVALID_EXTENT_LIST),
    ],
)
def test_extents_that_are_not_the_hosts_change_nothing(
    extents: list[tuple[int, int]], code: Code
) -> None:
    device = capacity()
    host = Host(device)
    device.add(0, OWN, 4 * BLOCK)
    before = snapshot(device)
    assert host.update(0x4802, *extents) is code
    assert snapshot(device) == before
    host.update(0x4802, (UNIT, 4 * BLOCK))
    before = snapshot(device)
    assert host.update(0x4803, *extents) is code
    assert snapshot(device) == before


def test_a_host_gives_back_a_part_from_the_middle() -> None:
    device, released = capacity(), []
    host = Host(device)
    host.update(0x4802, *pairs(device.add(0, OWN, 4 * BLOCK)))
    device.watchers.append(
        lambda change, host, extents: released.append((change, host, pairs(extents)))
    )
    device._media.write(UNIT + BLOCK, b"secret")
    assert pairs(device.ask_back(0, [(UNIT + BLOCK, BLOCK)])) == [(UNIT + BLOCK, BLOCK)]
    assert len(host.extents()) == 1
    assert host.update(0x4803, (UNIT + BLOCK, BLOCK)) is Code.SUCCESS
    assert [extent[:2] for extent in host.extents()] == [
        (UNIT, BLOCK),
        (UNIT + 2 * BLOCK, 2 * BLOCK),
    ]
    assert released == [(DcEventType.RELEASED, 0, [(UNIT + BLOCK, BLOCK)])]
    assert device._media.read(UNIT + BLOCK, 6) == bytes(6)
    assert host.update(0x4803) is Code.INVALID_INPUT


def test_a_forced_release_takes_at_once_and_tells_afterwards() -> None:
    device = capacity()
    host = Host(device)
    host.update(0x4802, *pairs(device.add(0, OWN, BLOCK, tag=TAG)))
    host.events()
    device.force_back(0, TAG)
    assert host.events() == [(DcEventType.FORCED_RELEASE, 0, OWN, 0, UNIT, BLOCK)]
    assert host.extents() == []
    assert not device.hosts[0].reaches(UNIT)
    assert code_of(device.force_back, 0, TAG) is Code.INVALID_INPUT
    assert code_of(device.ask_back, 0, [(UNIT, BLOCK)]) is Code.INVALID_EXTENT_LIST
    assert code_of(device.ask_back, 0, []) is Code.INVALID_EXTENT_LIST


def test_hosts_share_the_extents_of_a_tag_in_one_order() -> None:
    device = capacity()
    hosts = [Host(device, number) for number in range(2)]
    pieces = [(2 * UNIT + 4 * BLOCK, BLOCK), (2 * UNIT, BLOCK)]
    offer = device.add(0, SHARED, tag=TAG, policy=Policy.PRESCRIPTIVE, extents=pieces)
    assert [extent.sequence for extent in offer] == [1, 2]
    assert [event[3] for event in hosts[0].events()] == [1, 0]
    assert hosts[0].update(0x4802, pieces[0]) is Code.INVALID_EXTENT_LIST
    assert hosts[0].update(0x4802, *pieces) is Code.SUCCESS
    assert code_of(device.add, 0, SHARED, tag=TAG, policy=Policy.SHARED) is Code.INVALID_INPUT
    assert device.add(1, SHARED, tag=TAG, policy=Policy.SHARED) == offer
    assert hosts[1].update(0x4802, *pieces) is Code.SUCCESS
    assert hosts[0].extents() == hosts[1].extents()
    device.drop(0)
    assert device.free(SHARED)[0][0] == 2 * UNIT + BLOCK
    assert device.hosts[1].reaches(2 * UNIT, BLOCK)
    half = (2 * UNIT + 4 * BLOCK, BLOCK // 2)
    assert hosts[1].update(0x4803, half) is Code.INVALID_EXTENT_LIST
    device.drop(1)
    assert device.free(SHARED) == [(2 * UNIT, UNIT)]


def test_only_a_shareable_region_is_shared_and_only_under_a_new_tag() -> None:
    device = capacity()
    device.add(0, OWN, BLOCK, tag=TAG)
    device.add(1, OWN, BLOCK, tag=TAG)
    for region, tag, policy in (
        (OWN, TAG, Policy.SHARED),
        (SHARED, TAG, Policy.SHARED),
        (SHARED, TAG, Policy.FREE),
        (SHARED, UUID(int=0), Policy.FREE),
        (2, TAG, Policy.FREE),
    ):
        assert code_of(device.add, 1, region, BLOCK, tag=tag, policy=policy) is Code.INVALID_INPUT
    assert code_of(device.add, 2, OWN, BLOCK) is Code.INVALID_INPUT


def test_capacity_in_pieces_is_found_where_one_piece_is_not() -> None:
    device = capacity()
    device.add(0, OWN, policy=Policy.PRESCRIPTIVE, extents=[(UNIT + BLOCK, BLOCK)])
    rest = UNIT - BLOCK
    contiguous = code_of(device.add, 0, OWN, rest, policy=Policy.CONTIGUOUS)
    assert contiguous is Code.RESOURCES_EXHAUSTED
    assert code_of(device.add, 0, OWN, rest + BLOCK) is Code.RESOURCES_EXHAUSTED
    assert code_of(device.add, 0, OWN, BLOCK + 64) is Code.INVALID_INPUT
    assert code_of(device.add, 0, OWN) is Code.INVALID_INPUT
    taken = code_of(device.add, 0, OWN, policy=Policy.PRESCRIPTIVE, extents=[(UNIT, 2 * BLOCK)])
    assert taken is Code.INVALID_EXTENT_LIST
    assert pairs(device.add(1, OWN, rest)) == [(UNIT, BLOCK), (UNIT + 2 * BLOCK, rest - BLOCK)]
    assert device.free(OWN) == []


def test_one_extent_and_one_tag_more_than_there_are_is_refused() -> None:
    device = capacity(extents_max=2, tags_max=1)
    device.add(0, OWN, BLOCK, tag=TAG)
    assert code_of(device.add, 0, OWN, BLOCK, tag=UUID(int=7)) is Code.RESOURCES_EXHAUSTED
    device.add(0, OWN, BLOCK)
    assert code_of(device.add, 0, OWN, BLOCK) is Code.RESOURCES_EXHAUSTED
    device.drop(0)
    host = Host(device)
    host.update(0x4802, *pairs(device.add(0, OWN, 3 * BLOCK)))
    device.add(0, OWN, BLOCK)
    before = snapshot(device)
    assert host.update(0x4803, (UNIT + BLOCK, BLOCK)) is Code.RESOURCES_EXHAUSTED
    assert snapshot(device) == before
    tail = host.ok(0x4800, b"\1\0")[-16:]
    assert struct.unpack("<IIII", tail) == (2, 0, 1, 1)


def test_an_offer_that_the_event_log_has_no_room_for_is_refused() -> None:
    device = capacity()
    host = Host(device, event_limits=(1, 1, 1, 1, 1))
    offer = device.add(0, OWN, BLOCK)
    before = snapshot(device)
    assert code_of(device.add, 0, OWN, BLOCK) is Code.RETRY_REQUIRED
    assert snapshot(device) == before
    host.update(0x4802, *pairs(offer))
    device.force_back(0, pairs(offer))
    assert host.memory.events[Log.DYNAMIC_CAPACITY].overflow_count == 1
    assert host.extents() == []


def test_a_region_changes_only_while_nobody_has_any_of_it() -> None:
    device = capacity()
    host = Host(device)
    offer = device.add(0, OWN, BLOCK)
    assert code_of(device.configure, OWN, 64, sanitize=False) is Code.UNSUPPORTED
    host.update(0x4802)
    assert offer
    host.events()
    assert code_of(device.configure, OWN, 32, sanitize=False) is Code.INVALID_INPUT
    assert code_of(device.configure, OWN, 96, sanitize=False) is Code.INVALID_INPUT
    device.configure(OWN, 64, sanitize=False)
    assert host.events()[0][:3] == (DcEventType.REGION_UPDATED, 0, OWN)
    answer = host.ok(0x4800, b"\x08\x00")
    assert answer[:2] == bytes([2, 2])
    assert struct.unpack_from("<QQQQIB", answer, 8) == (UNIT, 1, UNIT, 64, 0, 0)
    assert host.ok(0x4800, b"\x01\x01")[:2] == bytes([2, 1])
    assert host.send(0x4800, b"\x01\x02")[0] is Code.INVALID_INPUT
    assert host.send(0x4801, struct.pack("<II", 1, 1))[0] is Code.INVALID_INPUT


@pytest.mark.parametrize(
    "regions",
    [
        [],
        [DcRegion(0, UNIT), DcRegion(0, UNIT)],
        [DcRegion(UNIT, 3 * UNIT)],
        [DcRegion(64, UNIT)],
        [DcRegion(0, UNIT, 96)],
        [DcRegion(0, UNIT, 32)],
        [DcRegion(0, 64 + UNIT)],
        [DcRegion(0, 0)],
    ],
)
def test_regions_that_no_device_has_are_refused(regions: list[DcRegion]) -> None:
    with pytest.raises(DcdError):
        DynamicCapacity(Memory.anonymous(3 * UNIT), regions)


def test_there_are_eight_regions_and_not_nine() -> None:
    class Large(PlainMedia):
        size = 9 * UNIT  # type: ignore[assignment]

    media = Large(memoryview(b""))
    regions = [DcRegion(i * UNIT, UNIT) for i in range(9)]
    DynamicCapacity(media, regions[:8])
    with pytest.raises(DcdError, match="9 regions"):
        DynamicCapacity(media, regions)


Step = tuple[str, int, int, int]
STEP = st.tuples(
    st.sampled_from(["add", "share", "accept", "refuse", "release", "force", "drop"]),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(1, 40),
)


@given(st.lists(STEP, max_size=30))
def test_exclusive_memory_always_has_one_holder(
    steps: list[tuple[str, int, int, int]],
) -> None:
    device = capacity(extents_max=12, tags_max=4)
    for action, number, region, count in steps:
        host, before = device.hosts[number], snapshot(device)
        tag = UUID(int=count % 3 + 1)
        try:
            if action == "add":
                device.add(number, region, count * BLOCK, tag=tag)
            elif action == "share":
                device.add(number, region, tag=tag, policy=Policy.SHARED)
            elif action == "accept":
                device.accept(number, pairs(host.offers[0]) if host.offers else [])
            elif action == "refuse":
                device.accept(number, [])
            elif action == "release":
                device.release(number, pairs(host.accepted)[:count])
            elif action == "force":
                device.force_back(number, tag)
            else:
                device.drop(number)
        except CommandError:
            assert snapshot(device) == before
        mine, others = (set(h.held()) for h in device.hosts)
        for one in mine:
            for other in others:
                apart = one.end <= other.dpa or other.end <= one.dpa
                assert apart or (one == other and one.sequence)
        for index, area in enumerate(device.regions):
            held = {e for e in mine | others if area.dpa <= e.dpa < area.end}
            used = sum(extent.size for extent in held)
            assert used + sum(size for _, size in device.free(index)) == area.size
        assert device.extents_left >= 0
        assert device.tags_left >= 0
