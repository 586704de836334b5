# SPDX-License-Identifier: BSD-3-Clause
"""CXL.mem messages as objects and as flits, and a host whose requests are flits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest

from nupa.base.errors import LocalError
from nupa.cli import main
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.fm.client import FabricManager
from nupa.cxl.function.port import root_port
from nupa.cxl.host.bus import MemoryAccessError, Status
from nupa.cxl.host.decode import Window
from nupa.cxl.host.host import Host, Region
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.link.flit import Fault, Flit, FlitError, Format, pack, unpack
from nupa.cxl.link.messages import (
    MEM_DATA_NXM,
    MEM_WR_PTL,
    M2SReq,
    M2SRwD,
    Message,
    Request,
    S2MDrs,
    S2MNdr,
    from_rows,
    to_rows,
)
from nupa.cxl.link.pbr_messages import PbrDrs, PbrNdr, PbrReq, PbrRwD
from nupa.cxl.site import rates
from nupa.cxl.site.flit_port import FlitPort, Hop, pids_of
from nupa.cxl.site.site import Site
from nupa.topology.topology import Host as Place
from nupa.topology.topology import Switch, Topology, Trunk
from tests.unit.cxl.rack import STEP

LINE = bytes(range(64))
ONES = b"\xff" * 64
MESSAGES: list[Message] = [
    M2SReq(0xF_FFFF_FFFF_FFC0, 0xFFFF, 0, 7, 2, 1, 3, 15),
    M2SRwD(0x1240, LINE, tag=9, poison=1, ld_id=3),
    M2SRwD(0x40, LINE, 0x8000_0000_0000_0001, 5, MEM_WR_PTL),
    S2MNdr(5, 2, 1, 3, 7, 2),
    S2MDrs(LINE, 77, MEM_DATA_NXM, poison=1, dev_load=3),
]


# Messages and flits


@pytest.mark.parametrize("shape", [Format.FLIT_68, Format.FLIT_256])
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_the_same_after_its_flits(message: Message, shape: Format) -> None:
    flits = pack(message, shape)
    assert [len(flit) for flit in flits] == [shape.bytes] * len(flits)
    assert unpack(flits, up=not isinstance(message, Request)) == message
    assert from_rows(memoryview(to_rows([message, message]))) == [message, message]


def test_a_write_in_68_byte_flits_is_as_the_specification_lays_it_out() -> None:
    """CXL 3.1 4.2.2, 4.2.3.1 (H4), 4.2.5: worked out by hand."""
    first, second = pack(M2SRwD(0x1240, LINE, tag=0xABCD, ld_id=0xA, tc=1, poison=1))
    assert (first.protocol_id, first.slot_formats) == (0x5555, (4, 0, 0, 0))
    assert first.header & 0x1F == 0b10000  # a protocol flit, a whole line, no byte enables
    bits = int.from_bytes(first.slots[0], "little")
    # Valid, MemWr, no snoop, meta 3/0, tag, address[51:6], poison, TC, LD-ID
    places = [(0, 1, 1), (1, 4, 1), (5, 3, 0), (8, 2, 3), (10, 2, 0), (12, 16, 0xABCD)]
    places += [(28, 46, 0x1240 >> 6), (74, 1, 1), (75, 2, 1), (77, 4, 0xA), (81, 15, 0)]
    assert bits == sum(value << at for at, _, value in places)
    assert all(bits >> at & (1 << width) - 1 == value for at, width, value in places)
    assert b"".join(first.slots[1:]) + second.slots[1] == LINE
    assert (second.slot_formats, any(second.slots[0])) == ((0, 0, 1, 1), False)


def test_a_read_in_a_256_byte_flit_has_two_crcs_and_no_data() -> None:
    """CXL 3.1 4.3.2, 6.2.3.1.2."""
    (flit,) = pack(M2SReq(0x1240, 7), Format.FLIT_256)
    assert (flit.protocol_id, flit.slot_formats) == (2, (4,))
    assert flit.crc[:6] != bytes(6) == flit.crc[6:]  # nothing is in the odd half
    assert not any(flit[16:122])
    assert "H4" in str(flit)


def test_messages_and_flits_can_be_read() -> None:
    assert str(MESSAGES[1]) == "M2S RwD MemWr, address 0x1240, tag 9, ld_id 3, poison 1"
    assert repr(S2MNdr(5)).startswith("S2MNdr(tag=5, opcode=0, meta_field=3")
    (flit,) = pack(S2MNdr(5))
    assert str(flit) == "id 5555, header 00004980, H4 310500000000000000000000, crc c13b"
    assert eval(repr(MESSAGES[2])) == MESSAGES[2]
    assert len({M2SReq(0, 1), M2SReq(0, 1), M2SReq(0, 2)}) == 2
    assert M2SReq(0) != S2MNdr(0) != "S2MNdr(0)"


def test_what_cannot_be_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bytes"):
        to_rows([M2SRwD(0, b"short")])
    with pytest.raises(ValueError, match="M2SReq"):
        to_rows([M2SReq(-1)])
    with pytest.raises(TypeError, match="among messages"):
        to_rows([Flit(b"")])  # type: ignore[list-item]
    with pytest.raises(LocalError, match="no flit can carry it"):
        pack(M2SReq(0x11))
    with pytest.raises(LocalError, match="a flit at least"):
        unpack([], up=True)
    assert to_rows([]) == b""
    assert from_rows(memoryview(b"")) == []
    assert from_rows(memoryview(bytes(96))) == [None]


@pytest.mark.parametrize(
    ("at", "fault"), [(20, Fault.CRC), (67, Fault.CRC), (0, Fault.FINE), (68, Fault.FINE)]
)
def test_a_damaged_flit_is_refused(at: int, fault: Fault) -> None:
    """But for half of a protocol ID: 6.2.2.8."""
    flits = pack(MESSAGES[1])
    raw = bytearray(b"".join(flits))
    raw[at] ^= 4
    damaged = [Flit(bytes(raw[:68])), Flit(bytes(raw[68:]))]
    if fault is Fault.FINE:
        assert unpack(damaged, up=False) == MESSAGES[1]
        return
    with pytest.raises(FlitError, match="the CRC is wrong") as refused:
        unpack(damaged, up=False)
    assert refused.value.fault is fault


def test_flits_of_other_messages_are_refused() -> None:
    first, _ = pack(MESSAGES[1])
    for flits, up, fault in (
        ([first], False, Fault.SHORT),
        (pack(MESSAGES[0]), True, Fault.SLOT),
        ([Flit(bytes(68))], False, Fault.PROTOCOL_ID),
        ([first, *pack(MESSAGES[1], Format.FLIT_256)], False, Fault.SHORT),
    ):
        with pytest.raises(FlitError) as refused:
            unpack(flits, up=up)
        assert refused.value.fault is fault


PBR: list[Message] = [
    PbrReq(0xF_FFFF_FFFF_FFC0, 1, spid=0xABC, dpid=0x123),
    PbrRwD(0x1240, LINE, 0x81, tag=9, opcode=MEM_WR_PTL, poison=1, spid=1, dpid=0xFFF),
    PbrNdr(5, dev_load=1, dpid=0x801),
    PbrDrs(LINE, 77, poison=1, dpid=0xFFF),
]


@pytest.mark.parametrize("message", PBR)
def test_a_message_that_is_routed_by_pids_is_the_same_after_its_flit(message: Message) -> None:
    up = not isinstance(message, Request)
    (flit,) = pack(message, Format.FLIT_PBR)
    assert unpack([flit], up=up) == message
    assert type(unpack([flit], up=up)) is type(message)
    assert flit.crc.hex() in str(flit)
    damaged = type(flit)(bytes([flit[0] ^ 1]) + flit[1:])
    for flits, fault in (([damaged], Fault.CRC), ([Flit(flit)], Fault.CRC)):
        with pytest.raises(FlitError) as refused:
            unpack(flits, up=up)
        assert refused.value.fault is fault
    for other in Format.FLIT_68, Format.FLIT_256:
        with pytest.raises(LocalError, match="no flit can carry"):
            pack(message, other)


def test_pids_of_a_request_lie_behind_its_address() -> None:
    """CXL 3.1 4.3.3, H4 and H14 of PBR: slot 0 from byte 2 on, behind 80 bits."""
    (flit,) = pack(PBR[0], Format.FLIT_PBR)
    assert int.from_bytes(flit[12:15], "little") == 0x123 << 12 | 0xABC
    with pytest.raises(LocalError, match="no flit can carry"):
        pack(PbrReq(0, ld_id=1), Format.FLIT_PBR)


# A host


@pytest.fixture(scope="module")
def scene() -> Iterator[tuple[Host, Region]]:
    with rates.scene() as made:
        yield made


@pytest.mark.parametrize("shape", [Format.FLIT_68, Format.FLIT_256])
def test_lines_in_flits_are_those_of_the_bus(scene: tuple[Host, Region], shape: Format) -> None:
    host, region = scene
    port, random = FlitPort(host.bus, shape), Random(5)
    wanted = dict.fromkeys(range(64), bytes(64))
    region.write(0, bytes(64 * 64))
    for _ in range(20):
        requests: list[Request] = []
        expected: list[bytes | None] = []
        for tag in range(random.randrange(1, 30)):
            at = random.randrange(64)
            if random.random() < 0.5:
                wanted[at] = random.randbytes(64)
                requests.append(M2SRwD(region.base + 64 * at, wanted[at], 0, tag))
                expected.append(None)
            else:
                requests.append(M2SReq(region.base + 64 * at, tag))
                expected.append(wanted[at])
        answers = port.transact(requests)
        assert [getattr(answer, "data", None) for answer in answers] == expected
        assert [answer.tag for answer in answers] == list(range(len(requests)))
    assert region.read(0, 64 * 64) == b"".join(wanted.values())
    port.write(region.base + 128, LINE)
    assert port.read(region.base + 128) == region.read(128, 64) == LINE


def test_each_hop_has_flits_of_its_own_and_a_logical_device_its_ld_id(
    scene: tuple[Host, Region],
) -> None:
    host, region = scene
    requests = [M2SRwD(region.base + 256 * i, LINE, 0, i) for i in range(2)]
    exchange = FlitPort(host.bus).exchange(requests)
    assert [(hop.link, hop.up) for hop in exchange.hops] == [
        (0, False),
        (1, False),
        (1, True),
        (0, True),
    ]
    found = [[unpack(hop.of(i), up=hop.up).ld_id for hop in exchange.hops] for i in range(2)]
    assert found == [[0, 0, 0, 0], [0, 3, 3, 0]]
    assert [message and message.ld_id for message in exchange.received] == [0, 3]
    assert exchange.answered == [S2MNdr(0), S2MNdr(1, ld_id=3)]
    assert exchange.answers == [S2MNdr(0), S2MNdr(1)]
    objects = [*requests, *exchange.received, *exchange.answered, *exchange.answers]
    objects += [flit for hop in exchange.hops for flit in hop.flits]
    assert len({id(each) for each in objects}) == 8 + 2 * (2 + 2 + 1 + 1)


def test_failures_have_answers_and_the_statuses_of_the_bus(scene: tuple[Host, Region]) -> None:
    host, region = scene
    port, here, nowhere = FlitPort(host.bus), region.base, region.base + region.size
    vppb = host.bus.map.find(here)[0].hops[-1]  # type: ignore[index]
    device = host.bus.map.find(here)[0].device  # type: ignore[index]
    region.write(0, LINE)

    def statuses() -> list[tuple[Status, Message]]:
        requests: list[Request] = [M2SReq(here, 1), M2SReq(nowhere, 2), M2SReq(here + 256, 3)]
        exchange = port.exchange(requests)
        assert exchange.statuses[2] is Status.OK
        host.bus.raises = False
        data = [answer.data for answer in exchange.answers if isinstance(answer, S2MDrs)]
        assert data == [host.bus.read(request.address, 64) for request in requests]
        host.bus.raises = True
        return list(zip(exchange.statuses, exchange.answers, strict=True))[:2]

    nobody = (Status.NO_DECODER, S2MDrs(ONES, 2, MEM_DATA_NXM))
    assert statuses() == [(Status.OK, S2MDrs(LINE, 1)), nobody]
    host.bus.set_link(vppb, False)
    assert statuses() == [(Status.LINK_DOWN, S2MDrs(ONES, 1, poison=1)), nobody]
    with pytest.raises(MemoryAccessError, match="no link"):
        port.write(here, LINE)
    host.bus.set_link(vppb, True)
    host.bus.set_poison(device, 0)
    assert statuses() == [(Status.POISON, S2MDrs(ONES, 1, poison=1)), nobody]
    with pytest.raises(MemoryAccessError, match="poisoned"):
        port.read(here)
    port.write(here, LINE)
    assert statuses()[0] == (Status.OK, S2MDrs(LINE, 1))
    port.transact([M2SRwD(here, LINE, poison=1)])
    assert host.bus.is_poisoned(device, 0)
    region.write(0, LINE)


def test_a_viral_device_answers_without_data_and_ports_note_it() -> None:
    with rates.scene(1) as (host, region):
        port, leaf = FlitPort(host.bus), host.bus.map.find(region.base)[0]  # type: ignore[index]
        for each in (leaf.device.config["device"], leaf.hops[0].config["port_extensions"]):
            each["control.viral_enable"] = 1
        leaf.device.viral.fail()
        exchange = port.exchange([M2SRwD(region.base, LINE), M2SReq(region.base)])
        assert exchange.statuses == [Status.VIRAL] * 2
        assert exchange.answers == [S2MNdr(0), S2MDrs(ONES, 0, poison=1)]
        assert leaf.hops[0].config["port_extensions"]["status.viral"] == 1


@pytest.mark.parametrize("stage", range(4))
def test_damage_on_a_link_is_an_error_that_names_who_refused_it(
    scene: tuple[Host, Region], stage: int
) -> None:
    host, region = scene
    seen: list[Hop] = []

    def wire(hop: Hop) -> list[Flit]:
        seen.append(hop)
        if len(seen) != stage + 1:
            return hop.flits
        raw = bytearray(hop.flits[0])
        raw[10] ^= 1
        return [Flit(bytes(raw)), *hop.flits[1:]]

    receiver = ("switch 1", "the device", "switch 1", "the host")[stage]
    with pytest.raises(FlitError, match=f"at {receiver}: the CRC is wrong") as refused:
        FlitPort(host.bus, wire=wire).read(region.base)
    assert refused.value.fault is Fault.CRC
    port = FlitPort(host.bus, wire=lambda hop: [Flit(b"\x54" + each[1:]) for each in hop.flits])
    region.write(0, LINE)
    assert (port.read(region.base), port.corrected) == (LINE, 6)
    with pytest.raises(LocalError, match="as many flits"):
        FlitPort(host.bus, wire=lambda _hop: []).read(region.base)
    with pytest.raises(LocalError, match="as many flits"):
        FlitPort(host.bus, wire=lambda hop: [Flit(b"cut")] * len(hop.flits)).read(region.base)


def test_a_device_at_a_root_port_is_one_link_away() -> None:
    bridge, port = HostBridge(0, 0, 1 << 40, ports=1), root_port(0)
    bridge.below[0] = port
    port.attach(Type3(STEP))
    with Host(RootComplex(bridge), [Window(1 << 36, STEP, (0,))]) as host:
        region = host.create_region(host.devices)
        exchange = FlitPort(host.bus).exchange([M2SRwD(region.base, LINE), M2SReq(region.base)])
        assert [(hop.link, hop.up) for hop in exchange.hops] == [(0, False), (0, True)]
        assert exchange.answers == [S2MNdr(0), S2MDrs(LINE, 0)]


def test_requests_of_one_batch_have_as_many_links_as_their_ways() -> None:
    """Device 2 is at the host's own switch, the logical device at another that is stacked."""
    places = (Place("a", "s"), Place("b", "t"))
    stacked = Topology("two", (Switch("s", 8), Switch("t", 8)), places, (Trunk(("s", "t")),))
    with Site(stacked, [STEP], [STEP]) as site:
        manager = FabricManager.of(site.manager)
        manager.allocate(3, 5, [STEP])
        manager.bind(0, 0, 2)
        manager.bind(0, 1, 3, 5)
        host = site.host(0)
        region = host.create_region(host.devices)
        lines = [bytes([i]) * 64 for i in range(4)]
        here = [region.base + 256 * i for i in range(4)]
        requests: list[Request] = [M2SRwD(at, line) for at, line in zip(here, lines, strict=True)]
        assert site.stack
        passage = site.stack.passage(0, 3)
        port = FlitPort(host.bus, pids=pids_of(site, 0))
        exchange = port.exchange([*requests, *map(M2SReq, here)])
        assert exchange.answers == [S2MNdr(0)] * 4 + [S2MDrs(line, 0) for line in lines]
        assert [there and there.ld_id for there in exchange.received] == [0, 5] * 4
        down, up = (hop for hop in exchange.hops if len(hop.of(1)) == 1 and hop.link == 1)
        assert unpack(down.of(1), up=False) == PbrRwD(
            here[1], lines[1], spid=passage.spid, dpid=passage.dpid
        )
        assert unpack(up.of(5), up=True) == PbrDrs(lines[1], 0, dpid=passage.spid)
        plain = FlitPort(host.bus).exchange(list(map(M2SReq, here)))
        assert plain.answers == [S2MDrs(line, 0) for line in lines]
        assert {len(flit) for hop in plain.hops for flit in hop.flits} == {68}
        crossed = [sum(bool(hop.of(i)) for hop in exchange.hops) for i in range(8)]
        assert crossed == [4, 6] * 4
        assert region.read(256, 64) == lines[1]


def test_requests_that_are_not_modelled_or_too_many_are_refused(
    scene: tuple[Host, Region],
) -> None:
    host, region = scene
    port = FlitPort(host.bus)
    for request, why in (
        (M2SReq(region.base, opcode=8), "not modelled"),
        (M2SReq(region.base, tc=4), "no flit can carry"),
        (M2SRwD(region.base, b""), "64 bytes"),
        (S2MNdr(0), "not modelled"),
    ):
        with pytest.raises(LocalError, match=why):
            port.transact([request])  # type: ignore[list-item]
    with pytest.raises(LocalError, match="not modelled"):
        FlitPort(host.bus, Format.FLIT_PBR).read(region.base)
    with pytest.raises(LocalError, match="at most 4096"):
        port.transact([M2SReq(region.base)] * 4097)
    assert port.transact([]) == []


# The command


def test_the_command_measures_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["fabric", "transactions", "--seconds", "0.01"]
    assert main([*quick, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(rates.Rates._fields)
    assert all(value > 1000 for value in found.values())
    assert main([*quick, "--flits", "256", "--ways", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["c", "packet"]
    assert main(["fabric", "transactions", "--show", "3"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines() if line and line[0] != " "] == [
        "MemWr",
        "MemRd",
        "MemWr",
    ]
    assert "device received  M2S RwD MemWr, address 0x1000000100, tag 2, ld_id 3" in text
    for wrong in (["--seconds", "0"], ["--seconds", "x"], ["--show", "0"], ["--ways", "3"]):
        with pytest.raises(SystemExit):
            main([*quick, *wrong])
