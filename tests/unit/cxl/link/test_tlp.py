# SPDX-License-Identifier: BSD-3-Clause
"""TLPs of CXL.io: their bytes, and a host that finds and programs the same with and without
them."""

from __future__ import annotations

from random import Random

import pytest

from nupa.base.errors import RemoteError
from nupa.cxl.host.decode import FixedWindow, below
from nupa.cxl.host.host import Host
from nupa.cxl.host.tlp_root import TlpHop, TlpRoot
from nupa.cxl.link.bdf import Bdf
from nupa.cxl.link.tlp import Completion, ConfigRequest, CplStatus, MemRequest, TlpError, unpack
from nupa.cxl.registers.block import AccessError
from nupa.cxl.registers.config import ConfigSpace
from nupa.packet.tables import pcie as pcie_tables
from tests.unit.cxl.host_model import BASE, STEP
from tests.unit.cxl.host_model import Host as Machine

WHO, WHERE = Bdf(0x12, 3, 4), Bdf(0x56, 7, 1)
TLPS = [
    ("MRd32", MemRequest(address=0xC000_0000, dw=2, last_be=0x7, first_be=0xC, tag=0x2AB)),
    ("MRd64", MemRequest(address=1 << 40, dw=1024, last_be=0xF, requester=WHO, tc=5, attr=5)),
    ("MWr32", MemRequest(address=4, data=b"abcd", ep=1)),
    ("MWr64", MemRequest(address=(1 << 64) - 8, dw=2, last_be=1, data=b"abcdefgh", tag=255)),
    ("CfgRd0", ConfigRequest(bdf=WHERE, offset=0xFFC, first_be=2, requester=WHO, tag=9)),
    ("CfgRd1", ConfigRequest(bdf=WHERE, offset=0, type1=True)),
    ("CfgWr0", ConfigRequest(bdf=WHERE, offset=0x104, data=b"wxyz")),
    ("CfgWr1", ConfigRequest(bdf=WHERE, offset=4, data=b"wxyz", type1=True, attr=4)),
    ("Cpl", Completion(completer=WHERE, status=CplStatus.UNSUPPORTED_REQUEST, requester=WHO)),
    ("CplD", Completion(completer=WHERE, data=b"data", byte_count=3, lower_address=0x41, tag=77)),
]
WINDOW = FixedWindow(BASE, 8 * STEP, (10,))


@pytest.mark.parametrize(("name", "tlp"), TLPS)
def test_a_tlp_has_the_bytes_that_the_tables_of_captures_say(
    name: str, tlp: MemRequest | ConfigRequest | Completion
) -> None:
    raw = tlp.pack()
    assert unpack(raw) == tlp
    assert tlp.name == name
    first = pcie_tables.TLP.decode(raw)
    kind = pcie_tables.TYPES[first["fmt"], first["type"]]
    assert kind == {"Cpl": "Cpl", "CplD": "CplD"}.get(name, name)
    assert first["t9"] << 9 | first["t8"] << 8 == tlp.tag & 0x300
    assert (first["tc"], first["ep"], first["attr2"] << 2 | first["attr"]) == (
        tlp.tc,
        tlp.ep,
        tlp.attr,
    )
    if isinstance(tlp, MemRequest):
        layout = pcie_tables.MEM64 if name.endswith("64") else pcie_tables.MEM32
        found = layout.decode(raw, 4)
        assert (found["address"], first["length"]) == (tlp.address, tlp.dw % 1024)
        assert (found["first_be"], found["last_be"]) == (tlp.first_be, tlp.last_be)
        assert raw[4 + layout.bytes :] == tlp.data
    elif isinstance(tlp, Completion):
        found = pcie_tables.COMPLETION.decode(raw, 4)
        assert (found["completer"], found["status"]) == (0x5639, tlp.status)
        assert (found["byte_count"], found["lower_address"]) == (
            tlp.byte_count,
            tlp.lower_address,
        )
    else:  # 2.2.7.1: bus, device and function, then ten bits of register number
        assert raw[8:12] == bytes((0x56, 0x39, tlp.offset >> 8, tlp.offset & 0xFF))


@pytest.mark.parametrize(
    "tlp",
    [
        MemRequest(address=2),
        MemRequest(address=1 << 64),
        MemRequest(address=0, dw=0),
        MemRequest(address=0, dw=2, data=b"abcd"),
        MemRequest(address=0, tag=1024),
        ConfigRequest(bdf=WHERE, offset=4096),
        ConfigRequest(bdf=WHERE, offset=2),
        ConfigRequest(bdf=WHERE, offset=0, data=b"ab"),
        Completion(completer=WHERE, data=b"abc"),
    ],
)
def test_a_tlp_that_cannot_be_is_refused(tlp: MemRequest | ConfigRequest | Completion) -> None:
    with pytest.raises(TlpError):
        tlp.pack()


def test_bytes_that_are_no_tlp_are_refused() -> None:
    random = Random(4)
    for _, tlp in TLPS:
        raw = tlp.pack()
        for end in range(0, len(raw), 3):
            with pytest.raises(TlpError):
                unpack(raw[:end])
        for _ in range(50):
            damaged = bytearray(raw[:64])
            damaged[random.randrange(len(damaged))] = random.randrange(256)
            try:
                assert unpack(unpack(bytes(damaged)).pack())
            except TlpError:
                continue


# A host


def image_of(machine: Machine) -> list[tuple[bytes, ...]]:
    functions = [each for bridge in machine.bridges for each in below(bridge.below)]
    bridges = [(bytes(bridge.component),) for bridge in machine.bridges]
    spaces = [(bytes(each.config), *map(bytes, each.bars.values())) for each in functions]
    return [*bridges, *spaces]


def test_a_host_finds_and_programs_the_same_with_tlps_as_without() -> None:
    images, found = [], []
    for with_tlps in (False, True):
        machine, crossed = Machine([WINDOW]), 0

        def wire(hop: TlpHop) -> bytes:
            nonlocal crossed
            crossed += 1
            return hop.raw

        root = TlpRoot(machine.root, wire=wire) if with_tlps else machine.root
        with Host(root, [WINDOW], memory=machine.memory.__getitem__) as host:
            region = host.create_region(host.devices[:4:2])
            region.write(1000, b"through decoders that TLPs have programmed")
            found.append([(each.bdf, each.kind, each.hdm) for each in host.functions])
            images.append(image_of(machine))
            assert region.read(1000, 42) == b"through decoders that TLPs have programmed"
        assert (crossed > 1000) is with_tlps
    assert found[0] == found[1]
    assert images[0] == images[1]


def enumerated() -> tuple[TlpRoot, Host]:
    machine = Machine([WINDOW])
    root = TlpRoot(machine.root)
    return root, Host(root, [WINDOW], memory=machine.memory.__getitem__)


def test_a_request_of_type_1_is_type_0_on_its_last_link_and_the_answer_names_the_device() -> None:
    root, host = enumerated()
    device = host.devices[1].function.bdf
    vendor = root.config_read(device, 0, 2)
    tlps = [unpack(hop.raw) for hop in root.hops]
    assert [tlp.name for tlp in tlps] == ["CfgRd1", "CfgRd0", "CplD", "CplD"]
    assert [hop.up for hop in root.hops] == [False, False, True, True]
    assert [hop.function.name for hop in root.hops] == [
        "upstream0",
        "device1",
        "device1",
        "upstream0",
    ]
    assert isinstance(tlps[0], ConfigRequest)
    assert (tlps[0].bdf, tlps[0].first_be) == (device, 3)
    assert isinstance(tlps[2], Completion)
    assert (tlps[2].completer, tlps[2].data[:2]) == (device, vendor.to_bytes(2, "little"))
    hdm = host.devices[1].decoders.base
    root.write(hdm + 0x10, 8, 0)
    assert [unpack(hop.raw).name for hop in root.hops] == ["MWr32"] * 2  # posted
    assert root.read(hdm + 4, 4) == 2
    answer = unpack(root.hops[-1].raw)
    assert isinstance(answer, Completion)
    assert (answer.byte_count, answer.lower_address) == (4, hdm + 4 & 0x7F)
    host.bus.close()


def test_requests_without_completer_read_as_all_ones_and_impossible_accesses_are_refused() -> None:
    root, host = enumerated()
    device = host.devices[0].function.bdf
    empty = device._replace(device=5)
    assert root.config_read(empty, 0, 4) == 0xFFFF_FFFF
    (answer, _) = [unpack(hop.raw) for hop in root.hops if hop.up]
    assert isinstance(answer, Completion)
    assert answer.status is CplStatus.UNSUPPORTED_REQUEST
    root.config_write(empty, 0, 4, 7)
    bar = host.devices[0].decoders.base & ~0xFFFF
    outside = next(at for at in range(bar, bar + (1 << 20), 1 << 12) if root.place(at) is None)
    assert root.read(outside, 8) == (1 << 64) - 1
    root.write(outside, 4, 7)
    for access in (
        lambda: root.config_read(device, 1, 2),
        lambda: root.config_read(device, 0, 3),
        lambda: root.read(bar + 0xFFE, 4),
        lambda: root.read(bar, 16),
    ):
        with pytest.raises(AccessError):
            access()
    host.bus.close()


def test_a_completion_of_something_else_is_an_error() -> None:
    root, host = enumerated()
    device = host.devices[0].function.bdf
    other = Completion(completer=device, tag=999, data=b"data").pack()
    for answer, error in ((other, RemoteError), (b"short", TlpError)):
        liar = TlpRoot(root, wire=lambda hop, raw=answer: raw if hop.up else hop.raw)  # type: ignore[misc]
        with pytest.raises(error):
            liar.config_read(device, 0, 4)
        echo = TlpRoot(root, wire=lambda _hop: other)
        with pytest.raises(RemoteError, match="do not go down"):
            echo.config_read(device, 0, 4)
    assert isinstance(host.devices[0].function.bdf, Bdf)
    host.bus.close()


def test_registers_and_configuration_space_are_those_of_the_device() -> None:
    root, host = enumerated()
    function = root.function(host.devices[0].function.bdf)
    assert function
    assert isinstance(function.config, ConfigSpace)
    for offset in range(0, 256, 4):
        bdf = host.devices[0].function.bdf
        assert root.config_read(bdf, offset, 4) == function.config.read(offset, 4)
        assert root.config_read(bdf, offset + 3, 1) == function.config.read(offset + 3, 1)
    host.bus.close()
