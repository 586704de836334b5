# SPDX-License-Identifier: BSD-3-Clause
"""Captures of RoCE v2: rdpcap with our scapy layers agrees with tshark."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgReader, RawPcapReader, rdpcap, wrpcap, wrpcapng

from nupa.packet.scapy.cm import DREP, DREQ, IPCM, MAD, REJ, REP, REQ, RTU
from nupa.packet.scapy.transport import (
    AETH,
    BTH,
    DETH,
    EXTENDED,
    GRH,
    IETH,
    LRH,
    RETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from nupa.packet.tables.opcodes import OPCODES, Transport
from tests.unit.packet import roce_dialogues, tshark

# tshark's name -> our layer and field
NUMBERS: dict[str, tuple[type[Packet], str]] = {
    "udp.srcport": (UDP, "sport"),
    "udp.dstport": (UDP, "dport"),
    "udp.length": (UDP, "len"),
    "ip.len": (IP, "len"),
    "ip.ttl": (IP, "ttl"),
    "ipv6.plen": (IPv6, "plen"),
    "vlan.id": (Dot1Q, "vlan"),
    "infiniband.lrh.vl": (LRH, "vl"),
    "infiniband.lrh.lver": (LRH, "lver"),
    "infiniband.lrh.sl": (LRH, "sl"),
    "infiniband.lrh.lnh": (LRH, "lnh"),
    "infiniband.lrh.dlid": (LRH, "dlid"),
    "infiniband.lrh.pktlen": (LRH, "pktlen"),
    "infiniband.lrh.slid": (LRH, "slid"),
    "infiniband.variant.crc": (LRH, "vcrc"),
    "infiniband.grh.ipver": (GRH, "ipver"),
    "infiniband.grh.tclass": (GRH, "tclass"),
    "infiniband.grh.flowlabel": (GRH, "flowlabel"),
    "infiniband.grh.paylen": (GRH, "paylen"),
    "infiniband.grh.nxthdr": (GRH, "nexthdr"),
    "infiniband.grh.hoplmt": (GRH, "hoplmt"),
    "infiniband.bth.opcode": (BTH, "opcode"),
    "infiniband.bth.se": (BTH, "solicited"),
    "infiniband.bth.m": (BTH, "migreq"),
    "infiniband.bth.padcnt": (BTH, "padcount"),
    "infiniband.bth.tver": (BTH, "version"),
    "infiniband.bth.p_key": (BTH, "pkey"),
    "infiniband.bth.destqp": (BTH, "dqpn"),
    "infiniband.bth.a": (BTH, "ackreq"),
    "infiniband.bth.reserved7": (BTH, "resv7"),
    "infiniband.bth.psn": (BTH, "psn"),
    "infiniband.invariant.crc": (BTH, "icrc"),
    "infiniband.deth.q_key": (DETH, "qkey"),
    "infiniband.deth.srcqp": (DETH, "srcqp"),
    "infiniband.reth.dmalen": (RETH, "dmalen"),
    "infiniband.atomiceth.swapdt": (AtomicETH, "swap"),
    "infiniband.atomiceth.cmpdt": (AtomicETH, "compare"),
    "infiniband.aeth.syndrome": (AETH, "syndrome"),
    "infiniband.aeth.msn": (AETH, "msn"),
    "infiniband.atomicacketh.origremdt": (AtomicAckETH, "orig"),
    "infiniband.immdt": (ImmDt, "data"),
    "infiniband.ieth": (IETH, "rkey"),
    "infiniband.mad.baseversion": (MAD, "base_version"),
    "infiniband.mad.mgmtclass": (MAD, "mgmt_class"),
    "infiniband.mad.classversion": (MAD, "class_version"),
    "infiniband.mad.method": (MAD, "method"),
    "infiniband.mad.status": (MAD, "status"),
    "infiniband.mad.classspecific": (MAD, "class_specific"),
    "infiniband.mad.transactionid": (MAD, "transaction_id"),
    "infiniband.mad.attributeid": (MAD, "attribute_id"),
    "infiniband.mad.attributemodifier": (MAD, "attribute_modifier"),
    "infiniband.cm.req": (REQ, "local_comm_id"),
    "infiniband.cm.req.serviceid": (REQ, "service_id"),
    "infiniband.cm.req.localcaguid": (REQ, "local_ca_guid"),
    "infiniband.cm.req.localqkey": (REQ, "local_qkey"),
    "infiniband.cm.req.localqpn": (REQ, "local_qpn"),
    "infiniband.cm.req.responderres": (REQ, "responder_resources"),
    "infiniband.cm.req.localeecn": (REQ, "local_eecn"),
    "infiniband.cm.req.initdepth": (REQ, "initiator_depth"),
    "infiniband.cm.req.remoteeecn": (REQ, "remote_eecn"),
    "infiniband.cm.req.remoteresptout": (REQ, "remote_cm_timeout"),
    "infiniband.cm.req.transpsvctype": (REQ, "transport_service"),
    "infiniband.cm.req.e2eflowctrl": (REQ, "flow_control"),
    "infiniband.cm.req.startpsn": (REQ, "starting_psn"),
    "infiniband.cm.req.localresptout": (REQ, "local_cm_timeout"),
    "infiniband.cm.req.retrcount": (REQ, "retry_count"),
    "infiniband.cm.req.pkey": (REQ, "pkey"),
    "infiniband.cm.req.pppmtu": (REQ, "path_mtu"),
    "infiniband.cm.req.rdcexist": (REQ, "rdc_exists"),
    "infiniband.cm.req.rnrretrcount": (REQ, "rnr_retry_count"),
    "infiniband.cm.req.maxcmretr": (REQ, "max_cm_retries"),
    "infiniband.cm.req.srq": (REQ, "srq"),
    "infiniband.cm.req.ext_transport": (REQ, "extended_transport"),
    "infiniband.cm.req.prim_locallid": (REQ, "primary_local_lid"),
    "infiniband.cm.req.prim_remotelid": (REQ, "primary_remote_lid"),
    "infiniband.cm.req.prim_tfcclass": (REQ, "primary_traffic_class"),
    "infiniband.cm.req.prim_hoplim": (REQ, "primary_hop_limit"),
    "infiniband.cm.req.prim_sl": (REQ, "primary_sl"),
    "infiniband.cm.req.prim_subnetlocal": (REQ, "primary_subnet_local"),
    "infiniband.cm.req.prim_reserved1": (REQ, "primary_resv3"),
    "infiniband.cm.req.prim_localacktout": (REQ, "primary_ack_timeout"),
    "infiniband.cm.req.prim_reserved2": (REQ, "primary_resv3b"),
    "infiniband.cm.req.alt_locallid": (REQ, "alternate_local_lid"),
    "infiniband.cm.req.alt_remotelid": (REQ, "alternate_remote_lid"),
    "infiniband.cm.req.alt_tfcclass": (REQ, "alternate_traffic_class"),
    "infiniband.cm.req.alt_hoplim": (REQ, "alternate_hop_limit"),
    "infiniband.cm.req.alt_sl": (REQ, "alternate_sl"),
    "infiniband.cm.req.alt_subnetlocal": (REQ, "alternate_subnet_local"),
    "infiniband.cm.req.alt_reserved1": (REQ, "alternate_resv3"),
    "infiniband.cm.req.alt_localacktout": (REQ, "alternate_ack_timeout"),
    "infiniband.cm.req.ip_cm.majv": (IPCM, "major"),
    "infiniband.cm.req.ip_cm.minv": (IPCM, "minor"),
    "infiniband.cm.req.ip_cm.ipv": (IPCM, "ip_version"),
    "infiniband.cm.req.ip_cm.reserved": (IPCM, "resv4"),
    "infiniband.cm.req.ip_cm.sport": (IPCM, "source_port"),
    "infiniband.cm.rep": (REP, "local_comm_id"),
    "infiniband.cm.rep.remotecommid": (REP, "remote_comm_id"),
    "infiniband.cm.rep.localqkey": (REP, "local_qkey"),
    "infiniband.cm.rep.localqpn": (REP, "local_qpn"),
    "infiniband.cm.rep.localeecn": (REP, "local_eecn"),
    "infiniband.cm.rep.startpsn": (REP, "starting_psn"),
    "infiniband.cm.rep.respres": (REP, "responder_resources"),
    "infiniband.cm.rep.initdepth": (REP, "initiator_depth"),
    "infiniband.cm.rep.tgtackdelay": (REP, "target_ack_delay"),
    "infiniband.cm.rep.failoveracc": (REP, "failover_accepted"),
    "infiniband.cm.rep.e2eflowctrl": (REP, "flow_control"),
    "infiniband.cm.rep.rnrretrcount": (REP, "rnr_retry_count"),
    "infiniband.cm.rep.srq": (REP, "srq"),
    "infiniband.cm.rep.reserved": (REP, "resv4"),
    "infiniband.cm.rep.localcaguid": (REP, "local_ca_guid"),
    "infiniband.cm.rtu.localcommid": (RTU, "local_comm_id"),
    "infiniband.cm.rtu.remotecommid": (RTU, "remote_comm_id"),
    "infiniband.cm.rej.localcommid": (REJ, "local_comm_id"),
    "infiniband.cm.rej.remotecommid": (REJ, "remote_comm_id"),
    "infiniband.cm.rej.msgrej": (REJ, "message"),
    "infiniband.cm.rej.reserved0": (REJ, "resv6"),
    "infiniband.cm.rej.rejinfolen": (REJ, "information_bytes"),
    "infiniband.cm.rej.reserved1": (REJ, "resv1"),
    "infiniband.cm.rej.reason": (REJ, "reason"),
    "infiniband.cm.dreq.localcommid": (DREQ, "local_comm_id"),
    "infiniband.cm.dreq.remotecommid": (DREQ, "remote_comm_id"),
    "infiniband.cm.req.remoteqpneecn": (DREQ, "remote_qpn"),
    "infiniband.cm.drsp.localcommid": (DREP, "local_comm_id"),
    "infiniband.cm.drsp.remotecommid": (DREP, "remote_comm_id"),
}

ADDRESSES: dict[str, tuple[type[Packet], str]] = {
    "ip.src": (IP, "src"),
    "ip.dst": (IP, "dst"),
    "ipv6.src": (IPv6, "src"),
    "ipv6.dst": (IPv6, "dst"),
    "infiniband.grh.sgid": (GRH, "sgid"),
    "infiniband.grh.dgid": (GRH, "dgid"),
    "infiniband.cm.req.prim_localgid_ipv4": (REQ, "primary_local_gid"),
    "infiniband.cm.req.prim_remotegid_ipv4": (REQ, "primary_remote_gid"),
    "infiniband.cm.req.prim_localgid": (REQ, "primary_local_gid"),
    "infiniband.cm.req.prim_remotegid": (REQ, "primary_remote_gid"),
    "infiniband.cm.req.alt_localgid": (REQ, "alternate_local_gid"),
    "infiniband.cm.req.alt_remotegid": (REQ, "alternate_remote_gid"),
    "infiniband.cm.req.ip_cm.sip4": (IPCM, "source"),
    "infiniband.cm.req.ip_cm.dip4": (IPCM, "destination"),
    "infiniband.cm.req.ip_cm.sip6": (IPCM, "source"),
    "infiniband.cm.req.ip_cm.dip6": (IPCM, "destination"),
}

# Its values of bytes or of parts of a field -> the same from our packet.
OTHERS: dict[str, Callable[[Packet], Any]] = {
    # of RETH and of AtomicETH
    "infiniband.reth.va": lambda p: p.va,
    "infiniband.reth.r_key": lambda p: p.rkey,
    "infiniband.aeth.syndrome.reserved": lambda p: p[AETH].syndrome >> 7,
    "infiniband.aeth.syndrome.opcode": lambda p: p[AETH].syndrome >> 5 & 3,
    "infiniband.aeth.syndrome.credit_count": lambda p: p[AETH].syndrome & 31,
    "infiniband.aeth.syndrome.timer": lambda p: p[AETH].syndrome & 31,
    "infiniband.aeth.syndrome.error_code": lambda p: p[AETH].syndrome & 31,
    "infiniband.cm.req.serviceid.prefix": lambda p: p[REQ].service_id >> 24,
    "infiniband.cm.req.serviceid.protocol": lambda p: p[REQ].service_id >> 16 & 0xFF,
    "infiniband.cm.req.serviceid.dport": lambda p: p[REQ].service_id & 0xFFFF,
    "infiniband.cm.req.ip_cm.private": lambda p: _number(p[IPCM].load),
    "infiniband.cm.rep.private": lambda p: _number(p[REP].load),
    "infiniband.cm.rtu.private": lambda p: _number(p[RTU].load),
    "infiniband.cm.rej.ari": lambda p: _number(p[REJ].information),
    "infiniband.cm.rej.private": lambda p: _number(p[REJ].load),
    "infiniband.cm.dreq.private": lambda p: _number(p[DREQ].load),
    "infiniband.cm.drsp.private": lambda p: _number(p[DREP].load),
    "data.data": lambda p: _number(p[Raw].load + p[BTH].pad),
}

# tshark 4.0 reads three bytes of the word that the 20 bits begin: it has 12 of them.
FLOW_LABELS = {
    "infiniband.cm.req.prim_flowlabel": "primary_flow_label",
    "infiniband.cm.req.alt_flowlabel": "alternate_flow_label",
}
# tshark 4.0 takes the packet rate, which ends the same word, from the word's first byte.
PACKET_RATES = {
    "infiniband.cm.req.prim_pktrate": ("primary_packet_rate", "primary_flow_label"),
    "infiniband.cm.req.alt_pktrate": ("alternate_packet_rate", "alternate_flow_label"),
}
#: tshark takes some payloads for Ethernet over InfiniBand.
GUESSED = "infiniband.eoib."
# The reserved bits between them: tshark 4.4 shows bits of the flow label there (IBTA 12.6.5).
RESERVED = {
    "infiniband.cm.req.prim_reserved0": "primary_resv6",
    "infiniband.cm.req.alt_reserved0": "alternate_resv6",
}

RESERVED_BYTES = "infiniband.reserved"

# Whole headers, whose fields are compared one by one; reserved bytes are, above, or below.
HEADERS = {
    "infiniband.lrh",
    "infiniband.lrh.reserved2",
    "infiniband.lrh.reserved5",
    "infiniband.grh",
    "infiniband.bth",
    "infiniband.deth",
    "infiniband.reth",
    "infiniband.atomiceth",
    "infiniband.aeth",
    "infiniband.atomicacketh",
    "infiniband.mad",
    "infiniband.mad.data",
    "infiniband.smplid.smpdata",
    "infiniband.cm.req.ip_cm",
    RESERVED_BYTES,
}


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _known(packet: Packet) -> bool:
    """Tells whether tshark 4.0 knows the headers of this opcode.  It does not know XRC and CNP, and
    takes RD's for those of a vendor's dynamic connections.  FLUSH and ATOMIC WRITE are newer."""
    opcode = OPCODES[packet[BTH].opcode]
    return opcode.transport not in (Transport.XRC, Transport.RD, Transport.CNP) and (
        opcode.code & 0x1F < 0x18
    )


def compare(packet: Packet, said: dict[str, list[str]]) -> set[str]:
    """Asserts that they agree in each field of tshark's; returns the names compared.

    Of opcodes that tshark does not know: in those of BTH, with its reserved byte.
    """
    compared = set()
    if not _known(packet):
        said = {name: said[name] for name in said if ".bth." in name or name == RESERVED_BYTES}
    for name, texts in said.items():
        text = texts[0]
        if name in NUMBERS:
            layer, field = NUMBERS[name]
            assert tshark.number(text) == packet[layer].getfieldval(field), (name, packet)
        elif name in ADDRESSES:
            layer, field = ADDRESSES[name]
            ours = ip_address(packet[layer].getfieldval(field))
            theirs = (
                ip_address(bytes.fromhex(text.replace(":", "")))
                if text.count(":") == 15
                else ip_address(text)
            )
            assert int(ours) & 0xFFFFFFFF == int(theirs) & 0xFFFFFFFF, (name, packet)
            assert theirs.version == 4 or ours == theirs, (name, packet)
        elif name in FLOW_LABELS:
            label = packet[REQ].getfieldval(FLOW_LABELS[name])
            assert tshark.number(text) in (label, label >> 8), (name, packet)
        elif name in PACKET_RATES:
            rate, label = map(packet[REQ].getfieldval, PACKET_RATES[name])
            assert tshark.number(text) in (rate, label >> 12 & 0x3F), (name, packet)
        elif name in RESERVED:
            assert packet[REQ].getfieldval(RESERVED[name]) == 0, (name, packet)
        elif name in OTHERS:
            assert tshark.number(text) == OTHERS[name](packet), (name, packet)
        else:
            known = name in HEADERS or name.startswith(GUESSED)
            assert known or not name.startswith("infiniband."), f"{name} is compared to nothing"
            continue
        compared.add(name)
    if RESERVED_BYTES in said:  # BTH's comes first, with the congestion bits
        bth = packet[BTH]
        notes = bth.fecn << 7 | bth.becn << 6 | bth.resv6
        assert int(said[RESERVED_BYTES][0], 16) == notes
    return compared


def both(file: Path, *options: str) -> list[tuple[Packet, dict[str, list[str]]]]:
    return list(zip(rdpcap(str(file)), tshark.dissect(file, *options), strict=True))


@pytest.mark.parametrize(
    ("version", "vlan", "write"),
    [(4, None, wrpcap), (6, 5, wrpcap), (4, None, wrpcapng)],
    ids=["pcap of IPv4", "pcap of IPv6 with VLAN tags", "pcapng of IPv4"],
)
def test_our_layers_and_tshark_agree_in_every_field(
    tmp_path: Path, version: int, vlan: int | None, write: Callable[..., None]
) -> None:
    file = tmp_path / "dialogues.pcap"
    write(str(file), roce_dialogues.packets(version=version, vlan=vlan))
    compared: set[str] = set()
    count = 0
    for packet, said in both(file):
        assert "_ws.malformed" not in said or not _known(packet)
        compared |= compare(packet, said)
        count += _known(packet)
    assert count > 70
    elsewhere = {name for name in (*NUMBERS, *ADDRESSES) if ".lrh" in name or ".grh" in name}
    elsewhere.add("infiniband.variant.crc")
    # Of a real capture: tests/packet/formats/test_rxe_captures.py.
    elsewhere |= {"infiniband.cm.req.ip_cm.sip6", "infiniband.cm.req.ip_cm.dip6"}
    elsewhere |= {"ip.src", "ip.dst", "ip.len", "ip.ttl"} if version == 6 else set()
    elsewhere |= {"ipv6.src", "ipv6.dst", "ipv6.plen"} if version == 4 else set()
    elsewhere |= {"vlan.id"} if vlan is None else set()
    gids = {"infiniband.cm.req.prim_localgid", "infiniband.cm.req.prim_remotegid"}
    elsewhere |= gids if version == 4 else {f"{name}_ipv4" for name in gids}
    assert {*NUMBERS, *ADDRESSES, *OTHERS, *FLOW_LABELS} - compared == elsewhere


def test_any_values_of_the_headers_are_what_tshark_reads(tmp_path: Path) -> None:
    random = Random(7)
    packets = []
    for opcode in OPCODES.values():
        packet = BTH(**_values(BTH, random) | {"opcode": opcode.code, "padcount": None})
        for name in opcode.headers:
            packet /= EXTENDED[name](**_values(EXTENDED[name], random))
        if opcode.payload:
            packet /= Raw(roce_dialogues.text(random.randrange(9, 40)))
        below = Ether(src="02:00:0a:00:00:01", dst="02:00:0a:00:00:02") / IP(dst="10.0.0.2")
        if _known(packet):
            packets.append(below / UDP(chksum=0) / packet)
    file = tmp_path / "random.pcap"
    wrpcap(str(file), packets)
    for packet, said in both(file):
        compared = compare(packet, said)
        assert {"infiniband.bth.psn", "infiniband.invariant.crc"} <= compared


def _values(layer: type[Any], random: Random) -> dict[str, int]:
    return {field.name: random.randint(0, field.largest) for field in layer.layout.fields}


def test_native_frames_are_what_tshark_reads_from_an_erf_file(tmp_path: Path) -> None:
    above = BTH(opcode="RC_RDMA_WRITE_ONLY", dqpn=0x123, psn=9) / RETH(va=1, rkey=2, dmalen=5)
    route = GRH(sgid="fe80::1", dgid="fe80::2", flowlabel=0x12345, tclass=3, hoplmt=4)
    packets = [
        LRH(dlid=4, slid=7, sl=2, vl=1) / above / b"12345",
        LRH(dlid=5, slid=8) / route / above / b"12345678",
    ]
    file = tmp_path / "native.erf.pcap"
    with file.open("wb") as out:  # LINKTYPE_ERF 197, records of type 21: InfiniBand
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 197))
        for packet in packets:
            frame = bytes(packet)
            size = 16 + len(frame)
            erf = struct.pack("<Q", 1 << 32) + struct.pack(">BBHHH", 21, 4, size, 0, len(frame))
            out.write(struct.pack("<IIII", 1, 0, size, size) + erf + frame)
    compared: set[str] = set()
    for packet, said in zip(packets, tshark.dissect(file), strict=True):
        compared |= compare(LRH(bytes(packet)), said)
    wanted = {name for name in (*NUMBERS, *ADDRESSES) if ".lrh" in name or ".grh" in name}
    assert wanted | {"infiniband.variant.crc", "infiniband.invariant.crc"} <= compared


def test_roce_in_ethernet_frames_is_what_tshark_reads(tmp_path: Path) -> None:
    file = tmp_path / "roce.pcap"
    ether = Ether(src="02:00:0a:00:00:01", dst="02:00:0a:00:00:02")
    route = GRH(sgid="fe80::1", dgid="fe80::2", flowlabel=0x12345)
    wrpcap(str(file), [ether / route / BTH(opcode="RC_ACKNOWLEDGE", psn=7) / AETH(msn=8)])
    [(packet, said)] = both(file)
    compared = compare(packet, said)
    assert {"infiniband.grh.sgid", "infiniband.bth.psn", "infiniband.aeth.msn"} <= compared


def test_tshark_finds_nothing_malformed_and_every_length_right(tmp_path: Path) -> None:
    file = tmp_path / "dialogues.pcap"
    packets = [packet for packet in roce_dialogues.packets() if _known(packet)]
    wrpcap(str(file), packets)
    options = ("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
    for said in tshark.dissect(file, *options):
        assert said["ip.checksum.status"] == ["1"]  # good
        assert not [name for name in said if name.startswith("_ws.")], said


def test_pcapng_and_pcap_files_give_the_same_packets(tmp_path: Path) -> None:
    packets = roce_dialogues.packets()
    wrpcap(str(tmp_path / "a.pcap"), packets)
    wrpcapng(str(tmp_path / "a.pcapng"), packets)
    with RawPcapReader(str(tmp_path / "a.pcap")) as reader:
        frames = [data for data, _ in reader]
    with PcapNgReader(str(tmp_path / "a.pcapng")) as reader:
        found = list(reader)
    assert [bytes(packet) for packet in found] == frames == [bytes(p) for p in packets]
