# SPDX-License-Identifier: BSD-3-Clause
"""All opcodes: each request is answered with a code of the specification, and refusals change
nothing."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest

from nupa.base.errors import LocalError
from nupa.cxl.fm import dcd_messages as dcd
from nupa.cxl.fm.client.fabric_manager import FabricManager
from nupa.cxl.fm.dcd_messages import DcdOpcode
from nupa.cxl.fm.messages import FmOpcode
from nupa.cxl.fm.server.manager import Manager, Session
from nupa.cxl.fm.server.session import CLEAR_EVENTS, GET_EVENTS, GET_POLICY, GET_REFUSAL, SET_POLICY
from nupa.cxl.function.cci import Code, Command, CommandError
from nupa.cxl.media.dcd import DynamicCapacity, Policy
from nupa.cxl.media.extents import DcRegion
from nupa.cxl.media.parts import Memory
from tests.unit.cxl.rack import STEP, Rack

TAG = UUID(int=5)
LOGS = {0x0400, 0x0401, 0x0402, 0x0403, 0x0405}
EVENTS = {GET_EVENTS, CLEAR_EVENTS, GET_POLICY, SET_POLICY, GET_REFUSAL}
SWITCH = {
    *(FmOpcode.IDENTIFY, FmOpcode.BACKGROUND_STATUS, FmOpcode.ABORT),
    *(opcode for opcode in FmOpcode if 0x5100 <= opcode < 0x5400),
    *EVENTS,
    *LOGS,
}
DEVICE = {
    *(FmOpcode.IDENTIFY, FmOpcode.BACKGROUND_STATUS, FmOpcode.ABORT),
    *(opcode for opcode in FmOpcode if opcode >= 0x5400),
    FmOpcode.TUNNEL,
    *DcdOpcode,
    *EVENTS,
    *LOGS,
}
#: Of the specification's, those that this switch and its devices have a reason for.
LEGAL = {
    Code.INVALID_INPUT,
    Code.UNSUPPORTED,
    Code.BUSY,
    Code.INVALID_PAYLOAD_LENGTH,
    Code.INVALID_HANDLE,
    Code.INVALID_LOG,
    Code.INVALID_PHYSICAL_ADDRESS,
    Code.RESOURCES_EXHAUSTED,
    Code.INVALID_EXTENT_LIST,
    Code.RETRY_REQUIRED,
}


class Site:
    """A rack whose device at port 4 has dynamic capacity, some of it accepted by a host; one vPPB
    is bound."""

    def __init__(self) -> None:
        self.rack = Rack()
        regions = [DcRegion(STEP, STEP, sanitize=True), DcRegion(2 * STEP, STEP, shareable=True)]
        self.capacity = DynamicCapacity(
            Memory.anonymous(3 * STEP), regions, hosts=4, extents_max=20
        )
        self.rack.mld.dynamic = self.capacity
        self.fm = FabricManager.of(Manager(self.rack.switch))
        self.fm.bind(0, 0, 2)
        for region in (0, 1):
            self.capacity.add(0, region, STEP // 2, tag=TAG if region else UUID(int=6))
        offer = self.capacity.hosts[0].offers[0]
        self.capacity.accept(0, [(extent.dpa, extent.size) for extent in offer])

    def state(self) -> object:
        """Return all state that commands may change."""
        switch, mld, capacity = self.rack.switch, self.rack.mld, self.capacity
        functions = [mld.fm_ld, *mld.lds, *(port.ppb for port in switch.ports)]
        functions += [vppb for virtual in switch.virtual for vppb in virtual.vppbs]
        return (
            [bytes(function.config) for function in functions],
            [bytes(bar) for function in mld.lds for bar in function.bars.values()],
            [port.in_reset for port in switch.ports],
            [virtual.secret for virtual in switch.virtual],
            (self.rack.bound(), mld.allocated, mld.qos, mld.bandwidth, mld.bandwidth_limit),
            [(list(host.accepted), [list(o) for o in host.offers]) for host in capacity.hosts],
            (capacity.regions.copy(), dict(capacity.references), capacity.generation),
            [(each.port, each.event.handle) for each in self.fm.events()],
        )


def ask(site: Site, where: str, opcode: int, payload: bytes) -> bytes:
    if where == "switch":
        return site.fm.request(opcode, payload)
    return site.fm.tunnel(4, opcode, payload)


def code_of(site: Site, where: str, opcode: int, payload: bytes) -> Code:
    try:
        ask(site, where, opcode, payload)
    except CommandError as refused:
        return refused.code
    return Code.SUCCESS


def lengths_of(opcode: int) -> range:
    """Return the allowed lengths."""
    return next((table[opcode].lengths for table in TABLES if opcode in table), range(8))


def payloads(random: Random, lengths: range) -> Iterator[bytes]:
    """Yield payloads of every length up to some past the shortest allowed one, then of allowed
    lengths with small numbers, which are valid more often."""
    for size in range(min(lengths.start + 3, 80)):
        yield random.randbytes(size)
    for _ in range(25):
        size = random.choice(lengths[:4])
        yield bytes(random.choice((0, 0, 0, 0, 1, 4, random.randrange(256))) for _ in range(size))


def tables() -> list[dict[int, Command]]:
    """Return the tables of a switch, of a device, and of the events of both."""
    rack = Site().rack
    manager = Manager(rack.switch)
    device = manager.device(4)
    assert device is not None
    return [manager.component.commands, device.commands, Session(manager).inbox(device).commands]


TABLES = tables()
CASES = [("switch", opcode) for opcode in sorted(SWITCH)]
CASES += [("device", opcode) for opcode in sorted(DEVICE)]


def test_random_bytes_of_every_length_are_done_or_refused_without_a_change() -> None:
    random = Random(7)
    site, now = Site(), None
    done: set[tuple[str, int]] = set()
    for where, opcode in CASES:
        for payload in payloads(random, lengths_of(opcode)):
            before = site.state() if now is None else now
            code = code_of(site, where, opcode, payload)
            now = site.state()
            if code is Code.SUCCESS:
                done.add((where, opcode))
                if now != before:
                    site, now = Site(), None
                continue
            assert code in LEGAL, (where, hex(opcode), payload)
            assert now == before, (where, hex(opcode), payload)
    assert len(done) > 28  # that bytes at random can mean


@pytest.mark.parametrize("where", ["switch", "device"])
def test_an_opcode_of_nobody_is_unsupported_and_changes_nothing(where: str) -> None:
    site, random = Site(), Random(8)
    before = site.state()
    known = SWITCH if where == "switch" else DEVICE
    unknown = [opcode for opcode in range(0x5000, 0x5900) if opcode not in known]
    unknown += [random.randrange(1 << 16) for _ in range(200)]
    for opcode in unknown:
        if opcode not in known:
            with pytest.raises(CommandError) as refused:
                ask(site, where, opcode, random.randbytes(random.randrange(40)))
            assert refused.value.code is Code.UNSUPPORTED, hex(opcode)
    assert site.state() == before


def test_all_that_the_specification_has_is_there() -> None:
    switch, device, events = TABLES
    assert {*switch, *events} == SWITCH
    assert {*device, *events} == DEVICE
    assert {opcode >> 8 for opcode in DEVICE} == {0, 1, 4, 0x53, 0x54, 0x56, 0xC0}
    sets = {0, 1, 4, 0x51, 0x52, 0x53, 0x54, 0x56, 0xC0}
    assert {opcode >> 8 for opcode in SWITCH | DEVICE} == sets
    assert {opcode for opcode in SWITCH if opcode >> 8 == 0x51} == set(range(0x5100, 0x5108))
    assert {opcode for opcode in DEVICE if opcode >> 8 == 0x54} == set(range(0x5400, 0x540A))
    assert {opcode for opcode in DEVICE if opcode >> 8 == 0x56} == set(range(0x5600, 0x5609))


@pytest.mark.parametrize("where", ["switch", "device"])
def test_the_command_effects_log_has_all_commands(where: str) -> None:
    site = SITE
    effects = UUID("0da9c0b5-bf41-4b78-8f79-96b1623b3f17")  # CXL 3.1 8.2.9.5.2.1
    supported = ask(site, where, 0x0400, b"")
    assert supported[8:24] == effects.bytes
    size = int.from_bytes(supported[24:28], "little")
    log = ask(site, where, 0x0401, effects.bytes + bytes(4) + size.to_bytes(4, "little"))
    rows = {int.from_bytes(log[at : at + 2], "little"): log[at + 2] for at in range(0, size, 4)}
    assert rows.keys() == (SWITCH if where == "switch" else DEVICE)
    assert rows.get(FmOpcode.BIND, 1 << 6) & 1 << 6  # a background operation


@pytest.mark.parametrize(("where", "opcode"), CASES)
def test_a_length_that_is_wrong_has_that_code(where: str, opcode: int) -> None:
    site, lengths = SITE, lengths_of(opcode)
    before = site.state()
    for size in range(lengths.start + lengths.step + 1):
        if size not in lengths:
            with pytest.raises(CommandError) as refused:
                ask(site, where, opcode, bytes(size))
            assert refused.value.code is Code.INVALID_PAYLOAD_LENGTH
    assert site.state() == before


SITE = Site()


def test_a_host_sets_what_tells_its_hierarchy_from_others_once() -> None:
    fm, secret = Site().fm, UUID(int=99)
    assert fm.secret(1) is None
    assert fm.request(FmOpcode.VCS_SECRET, b"\1") == bytes(16)
    assert not fm.has_secret(1)
    fm.set_secret(1, secret)
    assert (fm.secret(0), fm.secret(1), fm.has_secret(1)) == (None, secret, True)
    for call, code in (
        (lambda: fm.set_secret(1, secret), Code.INVALID_INPUT),
        (lambda: fm.set_secret(2, secret), Code.INVALID_INPUT),
        (lambda: fm.secret(2), Code.INVALID_INPUT),
        (lambda: fm.request(FmOpcode.SET_SECRET, bytes(16)), Code.UNSUPPORTED),
        (lambda: fm.request(FmOpcode.SECRET_STATE), Code.UNSUPPORTED),
        (lambda: fm.request(FmOpcode.VCS_SECRET, b"\1", host=1), Code.UNSUPPORTED),
    ):
        with pytest.raises(CommandError) as refused:
            call()
        assert refused.value.code is code
    with pytest.raises(LocalError, match="endpoints are for"):
        fm.has_secret(239)


def test_an_ld_that_a_host_has_is_not_the_managers_to_touch() -> None:
    fm = Site().fm
    assert fm.ld_config_read(4, 1, 8) >> 8 == 0x050210
    fm.bind(1, 0, 4, 1)
    for call in (
        lambda: fm.ld_config_read(4, 1, 8),
        lambda: fm.ld_config_write(4, 1, 4, 2),
        lambda: fm.ld_read(4, 1, 0x1000, 4),
    ):
        with pytest.raises(CommandError) as refused:
            call()
        assert refused.value.code is Code.INVALID_INPUT
    assert fm.ld_config_read(4, 2, 8) >> 8 == 0x050210


def test_the_mailbox_of_an_ld_is_behind_two_tunnels() -> None:
    fm = Site().fm
    identity = fm.tunnel(4, 0x4000, ld=1)
    assert int.from_bytes(identity[0x10:0x18], "little") == 2  # times 256 MiB: rack's LD 1
    labels = (0).to_bytes(4, "little") + bytes(4) + b"labels"
    fm.tunnel(4, 0x4103, labels, ld=1)
    assert fm.tunnel(4, 0x4102, bytes([0, 0, 0, 0, 6, 0, 0, 0]), ld=1) == b"labels"
    assert fm.tunnel(4, 0x4102, bytes([0, 0, 0, 0, 6, 0, 0, 0]), ld=2) == bytes(6)
    for port, ld, opcode, size, code in (
        (4, 4, 0x4000, 0, Code.INVALID_INPUT),
        (4, 0xFF, 0x4000, 0, Code.INVALID_INPUT),
        (4, 1, 0x4000, 1, Code.INVALID_PAYLOAD_LENGTH),
        (4, 1, 0x5400, 0, Code.UNSUPPORTED),
        (2, 0, 0x4000, 0, Code.INVALID_INPUT),  # no tunnel ends at a single logical device
    ):
        with pytest.raises(CommandError) as refused:
            fm.tunnel(port, opcode, bytes(size), ld=ld)
        assert refused.value.code is code
    with pytest.raises(CommandError) as refused:
        fm.tunnel(2, 0x4000)
    assert refused.value.code is Code.INVALID_INPUT


def test_a_tag_that_the_manager_keeps_outlives_its_hosts() -> None:
    site = Site()
    capacity, device = site.fm.capacity(4), site.capacity
    offer = device.hosts[0].offers[0]
    device.accept(0, [(extent.dpa, extent.size) for extent in offer])
    capacity.keep(TAG)
    capacity.keep(TAG)  # again: no effect
    assert [tuple(row) for row in capacity.tags()] == [
        (TAG, True, {0}, set()),
        (UUID(int=6), False, {0}, set()),
    ]
    device._media.write(offer[0].dpa, b"kept")
    capacity.release(0, TAG, forced=True)
    assert device.free(1) == [(2 * STEP + STEP // 2, STEP // 2)]
    capacity.add(2, 1, tag=TAG, policy=Policy.SHARED)
    assert capacity.tags()[0] == (TAG, True, set(), {2})
    capacity.release(2, TAG, forced=True)  # an offered extent: dead
    assert device.hosts[2].offers == [[]]
    with pytest.raises(CommandError):
        device.accept(2, [(offer[0].dpa, offer[0].size)])
    device.add(2, 0, STEP // 8)  # a driver that leaves dead offers unanswered gets the next one
    (own,) = device.hosts[2].offers[1]
    device.accept(2, [(own.dpa, own.size)])
    assert device.hosts[2].offers == []
    device.force_back(2, [(own.dpa, own.size)])
    assert device._media.read(offer[0].dpa, 4) == b"kept"
    generation = dcd.TAGS.unpack(tags_answer(site)).generation
    capacity.let_go(TAG)
    assert device.free(1) == [(2 * STEP, STEP)]
    assert dcd.TAGS.unpack(tags_answer(site)).generation != generation
    for call in (capacity.keep, capacity.let_go):
        for tag in (TAG, UUID(int=6)):  # unknown, and not shared
            with pytest.raises(CommandError) as refused:
                call(tag)
            assert refused.value.code is Code.INVALID_INPUT


def tags_answer(site: Site) -> bytes:
    return site.fm.tunnel(4, DcdOpcode.LIST_TAGS, dcd.TAGS_REQUEST.pack(dcd.TagsRequest(0, 0)))


def test_a_release_names_all_of_a_tag_or_extents_that_the_host_has() -> None:
    site = Site()
    tag, half = UUID(int=6), STEP // 2

    def code(flags: int, size: int, tag: UUID, *extents: tuple[int, int]) -> Code:
        head = dcd.ChangeRequest(
            0, flags, 0xFF, size, tag.bytes, len(extents)
        )  # byte 3 is reserved
        rows = (dcd.ExtentRecord(dpa, length, bytes(16), 0) for dpa, length in extents)
        payload = dcd.CHANGE.pack(head) + b"".join(map(dcd.EXTENT.pack, rows))
        try:
            site.fm.tunnel(4, DcdOpcode.RELEASE, payload)
        except CommandError as refused:
            return refused.code
        return Code.SUCCESS

    forced = dcd.FORCED
    assert code(dcd.BY_TAG, half + 1, tag) is Code.RESOURCES_EXHAUSTED
    assert code(dcd.BY_TAG, half - 1, tag) is Code.INVALID_INPUT
    assert code(dcd.BY_TAG, half, UUID(int=7)) is Code.INVALID_INPUT
    assert code(dcd.BY_TAG, half, TAG) is Code.INVALID_INPUT  # only offered
    assert code(dcd.BY_LIST, 0, tag, (2 * STEP, half)) is Code.INVALID_PHYSICAL_ADDRESS  # offered
    assert code(dcd.BY_LIST, 0, tag, (3 * STEP, half)) is Code.INVALID_PHYSICAL_ADDRESS  # nowhere
    assert code(dcd.BY_LIST, 0, tag, (STEP + half, half)) is Code.INVALID_EXTENT_LIST  # free
    assert code(dcd.BY_LIST | dcd.SANITIZE | forced, 0, tag, (2 * STEP, half)) is (
        Code.INVALID_INPUT
    )
    assert code(dcd.BY_LIST | forced, 0, tag, (2 * STEP, half)) is Code.SUCCESS
    assert site.capacity.hosts[0].offers == [[]]
    assert code(dcd.BY_TAG | dcd.SANITIZE | forced, half, tag) is Code.SUCCESS
    assert site.capacity.hosts[0].accepted == []


def test_a_part_of_what_is_shared_is_not_released() -> None:
    site = Site()
    device = site.capacity
    device.accept(0, [(extent.dpa, extent.size) for extent in device.hosts[0].offers[0]])
    with pytest.raises(CommandError) as refused:
        site.fm.capacity(4).release(0, [(2 * STEP, STEP // 4)], forced=True)
    assert refused.value.code is Code.INVALID_INPUT


def test_a_bug_in_the_model_is_an_internal_error_and_no_other_command_suffers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    monkeypatch.setattr(site.rack.switch, "bind", None)
    with pytest.raises(CommandError) as refused:
        site.fm.bind(0, 1, 3)
    assert refused.value.code is Code.INTERNAL_ERROR
    assert "0x5201" in caplog.text
    assert site.fm.switch().ports == 6
