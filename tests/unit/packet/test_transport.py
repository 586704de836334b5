# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of the InfiniBand transport: built packets are dissected; no field is trusted."""

from __future__ import annotations

import doctest
import subprocess
import sys
from socket import AF_INET6, inet_ntop, inet_pton
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Padding, Raw, fuzz

from nupa.packet.decode import fast
from nupa.packet.scapy import cm, icrc, transport
from nupa.packet.scapy.cm import IPCM, MAD, MESSAGES
from nupa.packet.scapy.fields import LayoutLayer
from nupa.packet.scapy.routing import RWH
from nupa.packet.scapy.transport import (
    AETH,
    BTH,
    DETH,
    EXTENDED,
    GRH,
    IETH,
    LRH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    CNPPadding,
    ImmDt,
)
from nupa.packet.tables import transport as transport_tables
from nupa.packet.tables.opcodes import CODES, OPCODES, Opcode, Transport

LAYERS: list[type[LayoutLayer]] = [LRH, RWH, GRH, BTH, *EXTENDED.values()]


def _address(packed: bytes) -> str:
    return inet_ntop(AF_INET6, packed)


def values_of(layer: type[LayoutLayer]) -> st.SearchStrategy[dict[str, Any]]:
    """Returns any values of the layer's fields."""
    return st.fixed_dictionaries(
        {
            field.name: st.binary(min_size=16, max_size=16).map(_address)
            if field.kind == "ipv6"
            else st.integers(0, field.largest)
            for field in layer.layout.fields
        }
    )


@st.composite
def transports(draw: st.DrawFn) -> Any:
    """Returns a BTH with the headers of its opcode and a payload; no field is computed."""
    opcode = draw(st.sampled_from(list(OPCODES.values())))
    load = draw(st.binary(max_size=70)) if opcode.payload else b""
    count = -len(load) % 4
    given_too = {
        "opcode": opcode.code,
        "padcount": count,
        "pad": draw(st.binary(min_size=count, max_size=count)),
        "icrc": draw(st.integers(0, 2**32 - 1)),
    }
    packet = BTH(**(draw(values_of(BTH)) | given_too))
    for name in opcode.headers:
        packet /= EXTENDED[name](**draw(values_of(EXTENDED[name])))
    if packet.getlayer(DETH) is not None:
        packet.dqpn = max(packet.dqpn, 2)  # QP 1 gets no raw data
    return packet / Raw(load) if load else packet


@settings(max_examples=50, deadline=None)
@given(transports())
def test_what_is_built_is_dissected(packet: Any) -> None:
    assert BTH(bytes(packet)) == packet
    assert bytes(BTH(bytes(packet))) == bytes(packet)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_each_layer_keeps_any_values_of_its_fields(
    layer: type[LayoutLayer], data: st.DataObject
) -> None:
    values = data.draw(values_of(layer))
    head = bytes(layer(**values))[: layer.layout.bytes]
    again = layer(head + bytes(8))
    for name, value in values.items():
        assert again.getfieldval(name) == value, name
    numbers = {name: _number(value) for name, value in values.items()}
    assert head == layer.layout.encode(**numbers)


def _number(value: int | str) -> int:
    return value if isinstance(value, int) else int.from_bytes(inet_pton(AF_INET6, value), "big")


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
@settings(max_examples=50, deadline=None)
@given(data=st.binary(min_size=1, max_size=120))
def test_random_bytes_are_a_packet_or_scapys_own_error(
    layer: type[LayoutLayer], data: bytes
) -> None:
    needed = layer.layout.bytes + (icrc.ICRC_BYTES if layer is BTH else 0)
    if len(data) < needed:
        with pytest.raises(Scapy_Exception, match=f"{needed} bytes are needed, {len(data)} are"):
            layer(data)
        return
    packet = layer(data)
    assert packet.show(dump=True)
    built = bytes(packet)
    if layer is LRH and packet.vcrc is None:  # one that was not captured is computed
        assert built[:-2] == data
    else:
        assert built == data


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=120), st.booleans())
def test_random_bytes_in_a_datagram_are_dissected_without_an_error(data: bytes, v6: bool) -> None:
    network = IPv6(dst="::2") if v6 else IP(dst="10.0.0.2")
    frame = bytes(Ether(dst="02:00:0a:00:00:02") / network / UDP(dport=4791, sport=50000) / data)
    debug, conf.debug_dissector = conf.debug_dissector, True  # raise instead of showing Raw
    try:
        packet = Ether(frame)
    except Scapy_Exception:
        return
    finally:
        conf.debug_dissector = debug
    assert bytes(packet) == frame


@settings(max_examples=50, deadline=None)
@given(transports(), st.integers(20 + 8, 140))
def test_what_a_capture_cut_off_is_missing_and_nothing_else(packet: Any, captured: int) -> None:
    frame = bytes(IP(dst="10.0.0.2") / UDP(chksum=0) / packet)
    cut = IP(frame[:captured] if captured < len(frame) else frame)
    found = cut.getlayer(BTH)
    if captured < 20 + 8 + icrc.BTH_BYTES:
        assert found is None
        return
    assert found.psn == packet.psn
    if captured < len(frame):
        assert found.icrc is None
        assert found.pad == b""
    else:
        assert found == packet


@pytest.mark.parametrize("opcode", OPCODES.values(), ids=lambda opcode: opcode.name)
def test_the_headers_of_every_opcode_are_found(opcode: Opcode) -> None:
    packet = BTH(opcode=opcode.name, dqpn=7)
    for name in opcode.headers:
        packet /= EXTENDED[name]()
    load = b"seven b" if opcode.payload else b""
    found = BTH(bytes(packet / load))
    layers = [layer.__name__ for layer in found.layers()]
    assert layers == ["BTH", *opcode.headers, *(["Raw"] if load else [])]
    assert not load or found.load == load
    assert found.padcount == len(found.pad) == -len(load) % 4


def test_the_opcodes_are_those_of_the_specification() -> None:
    count = dict.fromkeys(Transport, 0)
    for code, opcode in OPCODES.items():
        assert code & 0xE0 == opcode.transport
        count[opcode.transport] += 1
    # table 38: RC and RD have 21 each, UC 12, UD 2; RESYNC; SEND with invalidate; A14; A17; A19
    assert count == {
        Transport.RC: 21 + 2 + 2,
        Transport.UC: 12,
        Transport.RD: 21 + 1,
        Transport.UD: 2,
        Transport.CNP: 1,
        Transport.XRC: 21 + 2,
    }
    assert CODES["RC_ACKNOWLEDGE"] == 0x11
    assert CODES["UD_SEND_ONLY_WITH_IMMEDIATE"] == 0x65
    assert CODES["XRC_SEND_ONLY_WITH_INVALIDATE"] == 0xB7
    assert OPCODES[0x4B].headers == ("RDETH", "DETH", "RETH", "ImmDt")
    assert OPCODES[0xB3].headers == ("XRCETH", "AtomicETH")
    assert OPCODES[0xB2].headers == ("AETH", "AtomicAckETH")


def test_an_opcode_that_is_none_has_a_payload() -> None:
    found = BTH(bytes(BTH(opcode=0xFF) / b"abcdefgh"))
    assert [layer.__name__ for layer in found.layers()] == ["BTH", "Raw"]
    assert found.load == b"abcdefgh"


@pytest.mark.parametrize("size", range(9))
def test_a_payload_is_padded_to_whole_words(size: int) -> None:
    packet = IP(dst="10.0.0.2") / UDP() / BTH(opcode="RC_SEND_ONLY") / bytes(range(size))
    found = IP(bytes(packet))
    assert found.len == 20 + 8 + 12 + (size + 3) // 4 * 4 + 4 == len(bytes(packet))
    assert found[UDP].len == found.len - 20
    assert found[BTH].padcount == -size % 4
    assert bytes(found[BTH].payload) == bytes(range(size))


def test_ethernet_padding_is_not_taken_for_the_icrc() -> None:
    below = Ether(dst="02:00:0a:00:00:02") / IP(dst="10.0.0.2") / UDP(chksum=0)
    frame = bytes(below / BTH(opcode="RC_ACKNOWLEDGE") / AETH())
    found = Ether(frame.ljust(64, b"\xee"))
    assert found[BTH].icrc == Ether(frame)[BTH].icrc == found[BTH].computed_icrc()
    assert found[Padding].load == b"\xee" * (64 - len(frame))


@pytest.mark.parametrize("layer", [*LAYERS, MAD, IPCM, *MESSAGES.values()])
def test_no_field_has_the_name_of_something_else_of_a_packet(layer: type[LayoutLayer]) -> None:
    taken = Packet.__all_slots__ | set(dir(Packet)) | {"layout"}
    assert not taken & {field.name for field in layer.fields_desc}


def test_what_is_fuzzed_has_right_lengths_and_crcs() -> None:
    for _ in range(20):
        packet = IP(dst="10.0.0.2") / UDP(chksum=0) / fuzz(BTH()) / b"payload"
        found = IP(bytes(packet))
        assert found[BTH].icrc == found[BTH].computed_icrc()


def test_congestion_notifications_need_no_opcode() -> None:
    found = BTH(bytes(BTH(dqpn=0xD2, becn=1) / CNPPadding()))
    assert found.opcode == CODES["CNP"]
    assert found[CNPPadding].reserved1 == 0


def test_a_native_packet_has_its_length_in_words_and_both_crcs() -> None:
    packet = LRH(dlid=4, slid=7, sl=2) / BTH(opcode="RC_SEND_ONLY", dqpn=9) / b"12345"
    frame = bytes(packet)
    found = LRH(frame)
    assert len(frame) == 8 + 12 + 8 + 4 + 2
    assert (found.pktlen, found.lnh) == (8, transport_tables.LNH_LOCAL)
    assert found[BTH].icrc == icrc.native(frame[:-6])
    assert found.vcrc == icrc.vcrc(frame[:-2])
    assert found.load == b"12345"
    changed = LRH(frame)
    changed.vl = 5  # a switch may: the ICRC holds, the VCRC does not
    del changed.vcrc
    assert LRH(bytes(changed))[BTH].icrc == changed[BTH].computed_icrc()
    assert LRH(bytes(changed)).vcrc != found.vcrc


def test_a_global_packet_has_the_icrc_of_roce_whatever_its_local_header() -> None:
    above = GRH(sgid="fe80::1", dgid="fe80::2") / BTH(opcode="RC_SEND_ONLY") / b"1234"
    in_ethernet = Ether(bytes(Ether(dst="02:00:0a:00:00:02") / above))
    native = LRH(bytes(LRH(dlid=4, slid=7) / above))
    assert in_ethernet[GRH].paylen == native[GRH].paylen == 12 + 4 + 4
    assert native.lnh == transport_tables.LNH_GLOBAL
    assert in_ethernet[BTH].icrc == native[BTH].icrc == icrc.roce_v1(bytes(in_ethernet[GRH])[:-4])


def test_raw_packets_of_a_native_link_are_known_by_their_ethertype() -> None:
    found = LRH(bytes(LRH() / RWH(type=0x0806) / b"1234"))
    assert (found.lnh, found[RWH].type, found.load) == (transport_tables.LNH_RAW, 0x0806, b"1234")


@pytest.mark.parametrize("module", [transport, transport_tables, cm, fast])
def test_doctests(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("syndrome", "text"),
    [
        (0x1F, "ACK"),
        (0x03, "ACK"),
        (0x20, "RNR NAK, retry after 655.36 ms"),
        (0x2E, "RNR NAK, retry after 1.28 ms"),
        (0x60, "NAK: psn sequence error"),
        (0x64, "NAK: invalid rd request"),
        (0x7F, "NAK: reserved 0x7f"),
    ],
)
def test_a_syndrome_has_words(syndrome: int, text: str) -> None:
    assert transport_tables.syndrome_text(syndrome) == text


def test_vlan_tags_and_extension_headers_may_stand_below() -> None:
    packet = (
        Ether(dst="02:00:0a:00:00:02")
        / Dot1Q(vlan=5)
        / IPv6(dst="fe80::2", src="fe80::1")
        / IPv6ExtHdrDestOpt()
        / UDP()
        / BTH(opcode="XRC_SEND_ONLY_WITH_INVALIDATE")
        / XRCETH(srqn=3)
        / IETH(rkey=4)
        / b"1234"
    )
    found = Ether(bytes(packet))
    assert (found[XRCETH].srqn, found[IETH].rkey, found.load) == (3, 4, b"1234")
    assert found[BTH].icrc == found[BTH].computed_icrc() != 0
    assert "XRC_SEND_ONLY_WITH_INVALIDATE" in found.summary()


def test_every_extended_header_can_be_asked_for() -> None:
    read = BTH(opcode="RD_RDMA_READ_REQUEST") / RDETH(eecnxt=1) / DETH(srcqp=2) / RETH(dmalen=3)
    atomic = BTH(opcode="RC_ATOMIC_ACKNOWLEDGE") / AETH(msn=4) / AtomicAckETH(orig=5)
    swap = BTH(opcode="RC_COMPARE_SWAP") / AtomicETH(swap=6, compare=7)
    imm = BTH(opcode="RC_SEND_ONLY_WITH_IMMEDIATE") / ImmDt(data=8)
    found = [BTH(bytes(packet)) for packet in (read, atomic, swap, imm)]
    assert (found[0].eecnxt, found[0].srcqp, found[0].dmalen) == (1, 2, 3)
    assert (found[1].msn, found[1].orig) == (4, 5)
    assert (found[2][AtomicETH].swap, found[2][AtomicETH].compare) == (6, 7)
    assert found[3].data == 8


# --- beside scapy's own layers -----------------------------------------------------------------

_SCAPYS_PROGRAM = """
from scapy.contrib.roce import AETH, BTH, GRH, cnp, opcode
from scapy.all import Ether, IP, IPv6, UDP, Raw
frames = [
    bytes(Ether(dst="02:00:0a:00:00:02", src="02:00:0a:00:00:01") / below / above)
    for below in (
        IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50000, chksum=0),
        IPv6(src="fe80::1", dst="fe80::2") / UDP(sport=50000),
    )
    for above in (
        BTH(opcode="RC_RDMA_WRITE_ONLY", psn=5) / Raw(bytes(range(24))),
        BTH(opcode="RC_ACKNOWLEDGE", psn=6) / AETH(msn=7),
        cnp(dqpn=9),
    )
]
for frame in frames:
    packet = Ether(frame)
    assert BTH in packet.layers() and type(packet[UDP].payload) is BTH
    print(frame.hex(), repr(packet), packet.summary())
"""


def _output(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=50
    ).stdout


@pytest.mark.parametrize("place", ["before", "after"])
def test_programs_of_scapys_layers_see_no_difference(place: str) -> None:
    ours = "import nupa.packet, nupa.packet.scapy.transport, nupa.packet.scapy.cm\n"
    parts = (ours, _SCAPYS_PROGRAM) if place == "before" else (_SCAPYS_PROGRAM, ours)
    if place == "after":  # the import, then all of it again
        parts = (*parts, _SCAPYS_PROGRAM)
    plain = _output(_SCAPYS_PROGRAM)
    assert plain
    assert _output("".join(parts)) == plain * (2 if place == "after" else 1)


def test_claiming_roce_gives_these_layers_the_port() -> None:
    program = """
import scapy.contrib.roce as theirs
from nupa.packet.scapy import claim, transport as ours
from scapy.all import Ether, IP, UDP
frame = bytes(Ether(dst="02:00:0a:00:00:02") / IP(dst="10.0.0.2") / UDP() / ours.BTH() / b"1234")
roce = bytes(Ether(dst="02:00:0a:00:00:02") / ours.GRH() / ours.BTH() / b"1234")
assert Ether(frame).haslayer(theirs.BTH) and not Ether(frame).haslayer(ours.BTH)
claim.claim()
assert Ether(frame).haslayer(ours.BTH) and not Ether(frame).haslayer(theirs.BTH)
assert Ether(roce).haslayer(ours.GRH) and Ether(roce).haslayer(ours.BTH)
print("claimed")
"""
    assert _output(program) == "claimed\n"


def test_importing_the_package_imports_neither_scapy_nor_the_engine() -> None:
    program = (
        "import sys, nupa.packet\nprint([m for m in ('scapy', 'nupa._engine') if m in sys.modules])"
    )
    assert _output(program) == "[]\n"
