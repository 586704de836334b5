# SPDX-License-Identifier: BSD-3-Clause
"""The decoder without scapy agrees with our scapy layers, and survives what they survive."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcapng

from nupa._engine import ffi, lib
from nupa.packet.decode import fast
from nupa.packet.decode.fast import (
    BthFlag,
    FrameFault,
    Header,
    Headers,
    Icrc,
    Layer,
    address_text,
)
from nupa.packet.pcapng.reader import Reader
from nupa.packet.scapy.cm import MAD
from nupa.packet.scapy.transport import (
    AETH,
    BTH,
    DETH,
    GRH,
    IETH,
    LRH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from nupa.packet.tables import cm as cm_tables
from nupa.packet.tables.opcodes import OPCODES
from tests.unit.packet import roce_dialogues

LINKTYPES = (
    fast.LINKTYPE_ETHERNET,
    fast.LINKTYPE_RAW,
    fast.LINKTYPE_SLL,
    fast.LINKTYPE_SLL2,
    fast.LINKTYPE_INFINIBAND,
)


def decoded(frames: Sequence[bytes], linktype: int = 1, *, check_icrc: bool = True) -> Headers:
    """Decodes all frames from one buffer."""
    spans, at = [], 0
    for frame in frames:
        spans.append((at, len(frame)))
        at += len(frame)
    return fast.decode(b"".join(frames), spans, linktype, check_icrc=check_icrc)


def agree(packet: Packet, headers: Headers, index: int) -> None:
    """Checks that each column has what scapy's layers have."""
    bth = packet[BTH]
    assert headers.layer[index] == Layer.TRANSPORT
    assert headers.fault[index] == FrameFault.NONE
    wanted = {name: getattr(bth, name) for name in ("opcode", "padcount", "pkey", "dqpn", "psn")}
    wanted |= {"icrc": bth.icrc, "icrc_state": Icrc.RIGHT}
    wanted["headers"] = sum(Header[name] for name in OPCODES[bth.opcode].headers)
    flags = ("solicited", "migreq", "fecn", "becn", "ackreq")
    wanted["bth_flags"] = sum(BthFlag[name.upper()] for name in flags if getattr(bth, name))
    for layer, columns in {
        UDP: {"source_port": "sport", "destination_port": "dport"},
        LRH: {"dlid": "dlid", "slid": "slid"},
        Dot1Q: {"vlan": "vlan"},
        RDETH: {"eecn": "eecnxt"},
        XRCETH: {"xrc_srqn": "srqn"},
        DETH: {"qkey": "qkey", "source_qpn": "srcqp"},
        RETH: {"va": "va", "rkey": "rkey", "dma_bytes": "dmalen"},
        AtomicETH: {"va": "va", "rkey": "rkey", "swap": "swap", "compare": "compare"},
        AETH: {"syndrome": "syndrome", "msn": "msn"},
        AtomicAckETH: {"original": "orig"},
        ImmDt: {"imm": "data"},
        IETH: {"rkey": "rkey"},
        MAD: {"mad_class": "mgmt_class", "mad_attribute": "attribute_id"},
    }.items():
        for column, field in columns.items():
            if layer in packet:
                wanted[column] = getattr(packet[layer], field)
            else:
                wanted.setdefault(column, 0)
    if Dot1Q in packet:
        wanted["vlan"] |= packet[Dot1Q].prio << 13
    assert {name: getattr(headers, name)[index] for name in wanted} == wanted
    addresses = [address_text(headers.source(index)), address_text(headers.destination(index))]
    network = packet.getlayer(IP) or packet.getlayer(IPv6)
    if network is not None:
        assert addresses == [network.src, network.dst]
    elif GRH in packet:
        assert addresses == [packet.sgid, packet.dgid]
    at, size = headers.payload_offset[index], headers.payload_bytes[index]
    load = bytes(packet[MAD]) if MAD in packet else packet[Raw].load if Raw in packet else b""
    assert bytes(packet)[at : at + size] == load


def test_the_table_of_opcodes_is_that_of_the_scapy_layers() -> None:
    for code in range(256):
        found = lib.nupa_opcode(code)
        opcode = OPCODES.get(code)
        assert bool(found.known) is (opcode is not None), hex(code)
        if opcode is None:
            continue
        bits = [Header[name] for name in opcode.headers]
        assert found.headers == sum(bits)
        assert bits == sorted(bits), "they lie in the order of their bits"
        assert (bool(found.payload), bool(found.request)) == (opcode.payload, opcode.request)


@pytest.mark.parametrize(("version", "vlan"), [(4, None), (6, None), (4, 7), (6, 9)])
def test_dialogues_are_decoded_as_scapy_dissects_them(version: int, vlan: int | None) -> None:
    frames = [bytes(packet) for packet in roce_dialogues.packets(version=version, vlan=vlan)]
    headers = decoded(frames)
    assert headers.transports == len(headers) == len(frames)
    for index, frame in enumerate(frames):
        agree(Ether(frame), headers, index)


def test_other_links_are_decoded_too() -> None:
    above = BTH(opcode="RC_RDMA_WRITE_ONLY", dqpn=5, psn=6) / RETH(va=7, rkey=8) / b"12345"
    route = GRH(sgid="fe80::1", dgid="fe80::2", flowlabel=9, tclass=8, hoplmt=7)
    local = bytes(LRH(dlid=3, slid=4, vl=5) / above)
    globally = bytes(LRH(dlid=3, slid=4, vl=5) / route / above)
    native = decoded([local, globally], fast.LINKTYPE_INFINIBAND)
    agree(LRH(local), native, 0)
    agree(LRH(globally), native, 1)
    ether = bytes(Ether(dst="02:00:0a:00:00:02") / route / above)
    agree(Ether(ether), decoded([ether]), 0)
    raw = bytes(IP(dst="10.0.0.2") / UDP(chksum=0) / above)
    agree(IP(raw), decoded([raw], fast.LINKTYPE_RAW), 0)
    raw = bytes(IPv6(dst="fe80::2") / IPv6ExtHdrDestOpt() / UDP() / above)
    agree(IPv6(raw), decoded([raw], fast.LINKTYPE_RAW), 0)


def test_what_is_no_roce_is_understood_as_far_as_it_goes() -> None:
    ether = Ether(dst="02:00:0a:00:00:02")
    frames = [
        ether / ARP(),
        ether / IP(dst="10.0.0.2") / TCP(sport=5, dport=6),
        ether / IP(dst="10.0.0.2") / UDP(sport=5, dport=4790) / b"1234",
        ether / IP(dst="10.0.0.2", proto=132) / b"1234",
        ether / IP(dst="10.0.0.2", flags="MF") / UDP(dport=4791) / b"1234",
        ether / IPv6(dst="fe80::2") / IPv6ExtHdrFragment(nh=17) / UDP(dport=4791) / b"1234",
        ether / Dot1AD(vlan=3) / Dot1Q(vlan=4) / IPv6(dst="fe80::2") / TCP(),
    ]
    headers = decoded([bytes(frame) for frame in frames])
    assert [Layer(layer).name for layer in headers.layer] == [
        *("LINK", "PORTS", "PORTS", "NETWORK", "NETWORK", "NETWORK", "PORTS")
    ]
    assert [FrameFault(fault).name for fault in headers.fault] == [
        *("NONE", "NONE", "NONE", "NONE", "FRAGMENT", "FRAGMENT", "NONE")
    ]
    assert (headers.ethertype[0], headers.protocol[3], headers.vlan[6]) == (0x0806, 132, 3)
    assert headers.ethertype[6] == 0x86DD
    assert (headers.source_port[1], headers.destination_port[2]) == (5, 4790)
    assert headers.where(layer=Layer.PORTS, protocol=6) == [1, 6]


def test_a_wrong_icrc_is_found_and_unasked_not_looked_at() -> None:
    packet = IP(dst="10.0.0.2") / UDP(chksum=0) / BTH(opcode="RC_SEND_ONLY") / b"payload"
    right = bytes(packet)
    wrong = bytearray(right)
    wrong[-8] ^= 1
    routed = bytearray(right)
    routed[8] -= 1  # a router takes one from the time to live
    cut = right[:-1]
    states = decoded([right, bytes(wrong), bytes(routed), cut], fast.LINKTYPE_RAW).icrc_state
    assert list(states) == [Icrc.RIGHT, Icrc.WRONG, Icrc.RIGHT, Icrc.NONE]
    unasked = decoded([right, bytes(wrong)], fast.LINKTYPE_RAW, check_icrc=False).icrc_state
    assert list(unasked) == [Icrc.UNCHECKED] * 2


@pytest.mark.parametrize("name", ["reads", "atomics", "connection", "extended"])
def test_what_a_capture_cut_off_is_a_fault_only_where_a_header_is_missing(name: str) -> None:
    for packet in roce_dialogues.packets(name):
        frame = bytes(packet)
        end_of_headers = 14 + 20 + 8 + 12 + lib.nupa_opcode(packet[BTH].opcode).bytes
        headers = decoded([frame[:size] for size in range(len(frame))])
        for size in range(len(frame)):
            cut = FrameFault.NONE if size >= end_of_headers else FrameFault.CUT
            assert headers.fault[size] == cut, size
            assert headers.icrc_state[size] == Icrc.NONE
            assert headers.payload_offset[size] + headers.payload_bytes[size] == size or cut
            assert headers.psn[size] == (packet[BTH].psn if size >= 14 + 20 + 8 + 12 else 0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({16: 0, 17: 19}, FrameFault.LENGTH),  # IP's length: less than its header
        ({38: 0, 39: 7}, FrameFault.LENGTH),  # UDP's: less than its header
        ({38: 0xFF}, FrameFault.LENGTH),  # UDP's: more than IP has
        ({38: 0, 39: 19}, FrameFault.LENGTH),  # no room for BTH
        ({38: 0, 39: 23}, FrameFault.LENGTH),  # none for the ICRC
        ({14: 0x44}, FrameFault.LENGTH),  # an IP header of 16 bytes
        ({14: 0x55}, FrameFault.LENGTH),  # IP version 5
        ({42: 0x1E}, FrameFault.OPCODE),
        ({42: 0x0A}, FrameFault.LENGTH),  # a RETH, for which there is no room
        ({42: 0x04, 43: 0x30}, FrameFault.LENGTH),  # three pad bytes of none
    ],
)
def test_lengths_that_contradict_each_other_are_a_fault(
    change: dict[int, int], fault: FrameFault
) -> None:
    packet = Ether(dst="02:00:0a:00:00:02") / IP(dst="10.0.0.2") / UDP(chksum=0) / BTH()
    frame = bytearray(bytes(packet))
    for at, value in change.items():
        frame[at] = value
    assert FrameFault(decoded([bytes(frame)]).fault[0]) is fault


def test_spans_outside_of_the_buffer_and_unknown_links_are_faults() -> None:
    frame = bytes(roce_dialogues.packets("congestion")[0])
    spans = [(0, len(frame)), (1, len(frame)), (len(frame) + 1, 0), (2**32 - 1, 2**32 - 1)]
    headers = fast.decode(frame, spans)
    assert list(headers.fault) == [
        FrameFault.NONE,
        FrameFault.SPAN,
        FrameFault.SPAN,
        FrameFault.SPAN,
    ]
    assert list(fast.decode(frame, spans[:1], 147).fault) == [FrameFault.LINK]
    c_spans = ffi.new("struct nupa_span[]", [(0, len(frame), len(frame), 1)])
    assert list(fast.decode_at(frame, c_spans, 16, 1, [1]).fault) == [FrameFault.SPAN]
    assert list(fast.decode(frame, [(len(frame), 0)]).fault) == [FrameFault.CUT]
    assert len(fast.decode(b"", [])) == 0
    with pytest.raises(OverflowError):
        fast.decode(frame, [(2**32, 0)])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=120), max_size=8), st.sampled_from(LINKTYPES))
def test_random_bytes_are_decoded_within_their_bounds(frames: list[bytes], linktype: int) -> None:
    headers = decoded(frames, linktype)
    for index, frame in enumerate(frames):
        end = headers.payload_offset[index] + headers.payload_bytes[index]
        assert end <= len(frame)
        Layer(headers.layer[index])
        FrameFault(headers.fault[index])


@settings(deadline=None)
@given(
    st.sampled_from(roce_dialogues.packets("atomics", "connection", "extended")),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 400),
)
def test_damaged_packets_are_decoded_within_their_bounds(
    packet: Packet, changes: list[tuple[int, int]], cut: int
) -> None:
    frame = bytearray(bytes(packet))
    for at, value in changes:
        frame[at % len(frame)] = value
    frame = frame[: max(cut, 1)]
    headers = decoded([bytes(frame)])
    assert headers.payload_offset[0] + headers.payload_bytes[0] <= len(frame)
    if headers.layer[0] == Layer.TRANSPORT and headers.fault[0] == FrameFault.NONE:
        found = Ether(bytes(frame)).getlayer(BTH)
        assert (found.opcode, found.psn) == (headers.opcode[0], headers.psn[0])


def test_a_pcapng_file_is_read_in_batches(tmp_path: Path) -> None:
    packets = roce_dialogues.packets()
    wrpcapng(str(tmp_path / "a.pcapng"), packets)
    frames = [bytes(packet) for packet in packets]
    found = 0
    for batch, headers in fast.read(tmp_path / "a.pcapng", check_icrc=True):
        assert len(batch) == len(headers)
        for index, (_ts, _id, _drops, at, size, *_) in enumerate(batch.rows()):
            assert bytes(batch.data[at : at + size]) == frames[found]
            agree(Ether(frames[found]), headers, index)
            found += 1
    assert found == len(frames)


def test_connection_messages_are_found_by_their_columns(tmp_path: Path) -> None:
    wrpcapng(str(tmp_path / "a.pcapng"), roce_dialogues.packets())
    with Reader(tmp_path / "a.pcapng") as reader:
        [batch] = reader.batches()
    headers = fast.decode_batch(batch)
    messages = [
        cm_tables.ATTRIBUTES[headers.mad_attribute[index]] for index in headers.where(mad_class=7)
    ]
    assert messages == [
        *("REQ", "MRA", "REP", "RTU", "LAP", "DREQ", "DREP", "REJ", "SIDR_REQ", "SIDR_REP")
    ]


def test_columns_are_views_of_numbers() -> None:
    frames = [bytes(packet) for packet in roce_dialogues.packets("sends")]
    headers = decoded(frames)
    assert headers.psn[1:3].tolist() == [headers.psn[1], headers.psn[2]]
    assert sum(headers.payload_bytes) == sum(
        len(Ether(frame)[Raw].load) for frame in frames if Raw in Ether(frame)
    )
    assert {headers.psn.format, headers.va.format, headers.opcode.format} == {"I", "Q", "B"}
    with pytest.raises(AttributeError, match="'spn' is not a column"):
        headers.spn  # noqa: B018


def test_scapy_is_not_needed() -> None:
    program = "import sys, nupa.packet.decode.fast\nprint('scapy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=50
    )
    assert done.stdout == "False\n"
