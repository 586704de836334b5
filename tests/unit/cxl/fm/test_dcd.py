# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic capacity by the fabric manager's commands: offers, sharing, release, refusals."""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.cxl.fm import dcd_messages as layout
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.dcd_messages import DcdOpcode
from nupa.cxl.fm.server.manager import Manager
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.media.dcd import DynamicCapacity, Policy
from nupa.cxl.media.extents import DcRegion, Extent
from nupa.cxl.media.parts import Memory
from tests.unit.cxl.rack import Rack

UNIT = 256 << 20
BLOCK = 2 << 20
OWN, SHARED = 0, 1
TAG, OTHER = UUID(int=1 << 64), UUID(int=2 << 64)


class Site:
    """A site with a device at port 4; one of its regions is shareable."""

    def __init__(self) -> None:
        rack = Rack()
        regions = [DcRegion(UNIT, UNIT, sanitize=True), DcRegion(2 * UNIT, UNIT, shareable=True)]
        self.device = DynamicCapacity(Memory.anonymous(3 * UNIT), regions, hosts=4, extents_max=40)
        rack.mld.dynamic = self.device
        self.fm = FabricManager.of(Manager(rack.switch))
        self.capacity = self.fm.capacity(4)

    def give(self, host: int, region: int, size: int, tag: UUID) -> list[Extent]:
        """Offer capacity, and have the host accept it."""
        self.capacity.add(host, region, size, tag=tag)
        offer = self.device.hosts[host].offers[0]
        self.device.accept(host, [(extent.dpa, extent.size) for extent in offer])
        return self.capacity.extents(host)


def code_of(call: object, *args: object, **options: object) -> Code:
    with pytest.raises(CommandError) as refused:
        call(*args, **options)  # type: ignore[operator]
    return refused.value.code


def test_a_manager_sees_the_regions_of_a_device() -> None:
    site = Site()
    assert site.capacity.info() == (4, 2, 2 * UNIT)
    regions, limits = site.capacity.regions(3)
    assert regions == site.device.regions
    assert limits == (40, 40, 128, 128)
    answer = site.fm.tunnel(4, DcdOpcode.INFO)
    assert len(answer) == 0x54
    assert int.from_bytes(answer[0x14:0x1C], "little") == (1 << 29) - (1 << 6)
    assert code_of(site.capacity.regions, 4) is Code.INVALID_INPUT


def test_a_host_has_what_it_accepts_and_the_manager_takes_it_back() -> None:
    site = Site()
    (extent,) = site.give(0, OWN, 3 * BLOCK, TAG)
    assert extent == Extent(UNIT, 3 * BLOCK, TAG)
    site.capacity.release(0, TAG)  # asked, not taken
    assert site.capacity.extents(0) == [extent]
    site.capacity.release(0, [(UNIT, BLOCK)], forced=True)
    assert site.capacity.extents(0) == [Extent(UNIT + BLOCK, 2 * BLOCK, TAG)]
    site.capacity.release(0, TAG, forced=True)
    assert site.capacity.extents(0) == []
    assert site.device.free(OWN) == [(UNIT, UNIT)]


def test_extents_are_shared_by_their_tag() -> None:
    site = Site()
    mine = site.give(0, SHARED, BLOCK, TAG)
    site.capacity.add(1, SHARED, tag=TAG, policy=Policy.SHARED)
    site.device.accept(1, [(extent.dpa, extent.size) for extent in mine])
    assert site.capacity.extents(1) == mine
    site.capacity.release(0, TAG, forced=True)
    assert site.capacity.extents(1) == mine


def test_a_host_is_offered_the_extents_that_the_manager_names() -> None:
    site = Site()
    wanted = [(UNIT + 4 * BLOCK, BLOCK), (UNIT, BLOCK)]
    site.capacity.add(2, OWN, policy=Policy.PRESCRIPTIVE, extents=wanted)
    assert [extent[:2] for extent in site.device.hosts[2].offers[0]] == wanted
    again = code_of(site.capacity.add, 1, OWN, policy=Policy.PRESCRIPTIVE, extents=wanted)
    assert again is Code.INVALID_EXTENT_LIST
    assert code_of(site.capacity.add, 1, OWN, BLOCK, extents=wanted) is Code.INVALID_INPUT


def test_a_long_list_of_extents_comes_in_several_answers() -> None:
    site = Site()
    for _ in range(20):
        site.give(0, OWN, BLOCK, TAG)
    assert len(site.capacity.extents(0)) == 20
    request = layout.EXTENTS_REQUEST.pack(layout.ExtentsRequest(0, 3, 18))
    answer = site.fm.tunnel(4, DcdOpcode.EXTENTS, request)
    assert layout.EXTENTS.unpack(answer)[:4] == (0, 18, 2, 20)
    past = layout.EXTENTS_REQUEST.pack(layout.ExtentsRequest(0, 3, 21))
    assert code_of(site.fm.tunnel, 4, DcdOpcode.EXTENTS, past) is Code.INVALID_INPUT


def test_requests_beyond_a_device_are_refused_with_their_code() -> None:
    site = Site()
    add, release = site.capacity.add, site.capacity.release
    assert code_of(add, 4, OWN, BLOCK) is Code.INVALID_INPUT
    assert code_of(add, 0, 2, BLOCK) is Code.INVALID_INPUT
    assert code_of(add, 0, OWN, BLOCK - 1) is Code.INVALID_INPUT
    assert code_of(add, 0, OWN, UNIT + BLOCK) is Code.RESOURCES_EXHAUSTED
    assert code_of(release, 0, TAG) is Code.INVALID_INPUT
    assert code_of(release, 4, TAG) is Code.INVALID_INPUT
    assert code_of(release, 0, []) is Code.INVALID_EXTENT_LIST
    site.give(0, OWN, BLOCK, TAG)
    assert code_of(site.capacity.configure, OWN, 64) is Code.UNSUPPORTED  # in use
    assert code_of(site.capacity.configure, SHARED, 63) is Code.INVALID_INPUT
    assert code_of(site.capacity.configure, 2, 64) is Code.INVALID_INPUT
    site.capacity.configure(SHARED, 1 << 20, sanitize=True)
    assert site.capacity.regions()[0][SHARED].block_bytes == 1 << 20


@pytest.mark.parametrize("flags", [4, 0xF])
def test_a_policy_that_is_none_is_refused(flags: int) -> None:
    site = Site()
    payload = layout.CHANGE.pack(layout.ChangeRequest(0, flags, OWN, BLOCK, TAG.bytes, 0))
    assert code_of(site.fm.tunnel, 4, DcdOpcode.ADD, payload) is Code.INVALID_INPUT
    assert code_of(site.fm.tunnel, 4, DcdOpcode.RELEASE, payload) is Code.INVALID_INPUT
    wrong = layout.CHANGE.pack(layout.ChangeRequest(0, 0, OWN, BLOCK, TAG.bytes, 1))
    assert code_of(site.fm.tunnel, 4, DcdOpcode.ADD, wrong) is Code.INVALID_PAYLOAD_LENGTH
    clear = layout.ChangeRequest(0, layout.SANITIZE, SHARED, 0, TAG.bytes, 0)
    refused = code_of(site.fm.tunnel, 4, DcdOpcode.RELEASE, layout.CHANGE.pack(clear))
    assert refused is Code.INVALID_INPUT


def test_an_ld_that_may_get_capacity_is_bound_before_it_has_any() -> None:
    site = Site()
    site.fm.bind(0, 0, 4, 3)  # it has no memory of its own
    assert site.fm.virtual_switches([0])[0].vppbs[0].ld == 3


def test_a_device_without_dynamic_capacity_has_no_such_commands() -> None:
    fm = FabricManager.of(Manager(Rack().switch))
    assert code_of(fm.capacity(4).info) is Code.UNSUPPORTED


HOST, REGION, BLOCKS = st.integers(0, 4), st.integers(0, 2), st.integers(0, 130)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "share", "accept", "release", "force"]),
            HOST,
            REGION,
            BLOCKS,
            st.sampled_from([TAG, OTHER]),
        ),
        max_size=20,
    )
)
def test_unshared_extents_always_have_one_holder(
    steps: list[tuple[str, int, int, int, UUID]],
) -> None:
    site = Site()
    for what, host, region, blocks, tag in steps:
        try:
            match what:
                case "add":
                    site.capacity.add(host, region, blocks * BLOCK, tag=tag)
                case "share":
                    site.capacity.add(host, region, tag=tag, policy=Policy.SHARED)
                case "accept":
                    offers = site.device.host(host).offers
                    site.device.accept(host, [(e.dpa, e.size) for e in offers[0]] if offers else [])
                case _:
                    site.capacity.release(host, tag, forced=what == "force")
        except CommandError:
            continue
    held: list[tuple[int, int, UUID]] = []
    for host in range(4):
        held += {(e.dpa, e.end, e.tag) for e in site.capacity.extents(host)}
    for i, (start, end, tag) in enumerate(held):
        for other_start, other_end, other_tag in held[:i]:
            apart = end <= other_start or other_end <= start
            shared = start >= 2 * UNIT and (start, end, tag) == (other_start, other_end, other_tag)
            assert apart or shared
