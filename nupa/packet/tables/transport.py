# SPDX-License-Identifier: BSD-3-Clause
"""Layouts of the InfiniBand headers: routing (IBTA 7.7, 8.3), transport (9.2, 9.3) and annexes.

Names of fields are those of scapy's contrib/roce, where it has them.
"""

from __future__ import annotations

from nupa.packet.tables.layout import Field, Layout, reserved
from nupa.packet.tables.opcodes import NAMES

MTUS = (256, 512, 1024, 2048, 4096)  # path MTUs, bytes of payload
ATOMIC_BYTES = 8  # 9.4.5: operands and what an atomic returns
PSN_MASK, PSN_HALF = 0xFFFFFF, 0x800000

# 9.9.2.1: bits 6-5 of the syndrome are its kind, bits 4-0 its value
SYNDROME_KIND, SYNDROME_VALUE = 0x60, 0x1F
ACK, RNR_NAK, NAK = 0x00, 0x20, 0x60
SYNDROMES = {
    0x1F: "ACK_WITHOUT_CREDITS",
    0x60: "NAK_PSN_SEQUENCE_ERROR",
    0x61: "NAK_INVALID_REQUEST",
    0x62: "NAK_REMOTE_ACCESS_ERROR",
    0x63: "NAK_REMOTE_OPERATIONAL_ERROR",
    0x64: "NAK_INVALID_RD_REQUEST",
}

# 9.7.5.2.8: the wait that the five bits of an RNR NAK ask for, in units of 10 µs
RNR_TIMER_10_US = (
    *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
    *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576),
    *(32768, 49152),
)

LNH_RAW, LNH_IPV6, LNH_LOCAL, LNH_GLOBAL = range(4)
NEXT_HEADER_IBA = 0x1B  # in GRH.nexthdr

LRH = Layout(
    "LRH",
    "lrh",
    "Local Route Header",
    "IBTA 7.7",
    Field("vl", 4, "Virtual lane"),
    Field("lver", 4, "Link version"),
    Field("sl", 4, "Service level"),
    reserved("resv2", 2),
    Field("lnh", 2, "Link next header", {0: "RAW", 1: "IPV6", 2: "LOCAL", 3: "GLOBAL"}),
    Field("dlid", 16, "Destination LID", hex=True),
    reserved("resv5", 5),
    Field("pktlen", 11, "Length in words of 4 bytes, without VCRC"),
    Field("slid", 16, "Source LID", hex=True),
)

RWH = Layout(
    "RWH",
    "rwh",
    "Raw Header",
    "IBTA 5.3",
    reserved("resv16", 16),
    Field("type", 16, "Ethertype", hex=True),
)

GRH = Layout(
    "GRH",
    "grh",
    "Global Route Header",
    "IBTA 8.3",
    Field("ipver", 4, "IP version", default=6),
    Field("tclass", 8, "Traffic class"),
    Field("flowlabel", 20, "Flow label", hex=True),
    Field("paylen", 16, "Bytes behind this header, with ICRC, without VCRC"),
    Field("nexthdr", 8, "Next header", {NEXT_HEADER_IBA: "IBA"}, default=NEXT_HEADER_IBA),
    Field("hoplmt", 8, "Hop limit", default=64),
    Field("sgid", 128, "Source GID", kind="ipv6"),
    Field("dgid", 128, "Destination GID", kind="ipv6"),
)

BTH = Layout(
    "BTH",
    "bth",
    "Base Transport Header",
    "IBTA 9.2",
    Field("opcode", 8, "Opcode", NAMES),
    Field("solicited", 1, "Solicited event"),
    Field("migreq", 1, "Migration state"),
    Field("padcount", 2, "Pad bytes behind the payload"),
    Field("version", 4, "Transport header version"),
    Field("pkey", 16, "Partition key", hex=True, default=0xFFFF),
    Field("fecn", 1, "Forward congestion notification"),
    Field("becn", 1, "Backward congestion notification"),
    reserved("resv6", 6),
    Field("dqpn", 24, "Destination QP"),
    Field("ackreq", 1, "Acknowledge request"),
    reserved("resv7", 7),
    Field("psn", 24, "Packet sequence number"),
)

_VA = Field("va", 64, "Virtual address", hex=True)
_RKEY = Field("rkey", 32, "Remote key", hex=True)

RDETH = Layout(
    "RDETH",
    "rdeth",
    "Reliable Datagram Extended Transport Header",
    "IBTA 9.3.1",
    reserved("resv8", 8),
    Field("eecnxt", 24, "End-to-end context"),
)
DETH = Layout(
    "DETH",
    "deth",
    "Datagram Extended Transport Header",
    "IBTA 9.3.2",
    Field("qkey", 32, "Queue key", hex=True),
    reserved("resv8", 8),
    Field("srcqp", 24, "Source QP"),
)
RETH = Layout(
    "RETH",
    "reth",
    "RDMA Extended Transport Header",
    "IBTA 9.3.3",
    _VA,
    _RKEY,
    Field("dmalen", 32, "Bytes of the whole message"),
)
AtomicETH = Layout(
    "AtomicETH",
    "atomiceth",
    "Atomic Extended Transport Header",
    "IBTA 9.3.4",
    _VA,
    _RKEY,
    Field("swap", 64, "Swap or add data", hex=True),
    Field("compare", 64, "Compare data", hex=True),
)
AETH = Layout(
    "AETH",
    "aeth",
    "ACK Extended Transport Header",
    "IBTA 9.3.5",
    Field("syndrome", 8, "Syndrome", SYNDROMES, hex=True),
    Field("msn", 24, "Message sequence number"),
)
AtomicAckETH = Layout(
    "AtomicAckETH",
    "atomicacketh",
    "Atomic ACK Extended Transport Header",
    "IBTA 9.3.5.3",
    Field("orig", 64, "Original remote data", hex=True),
)
ImmDt = Layout(
    "ImmDt",
    "immdt",
    "Immediate Data",
    "IBTA 9.3.6",
    Field("data", 32, "Immediate data", hex=True),
)
IETH = Layout("IETH", "ieth", "Invalidate Extended Transport Header", "IBTA 9.3.7", _RKEY)
XRCETH = Layout(
    "XRCETH",
    "xrceth",
    "XRC Extended Transport Header",
    "IBTA A14.3",
    reserved("resv8", 8),
    Field("srqn", 24, "SRQ of the receiver"),
)
FETH = Layout(
    "FETH",
    "feth",
    "Flush Extended Transport Header",
    "IBTA A19.4.1",
    reserved("resv26", 26),
    Field("selectivity", 2, "Selectivity level", {0: "RANGE", 1: "REGION"}),
    Field("placement", 4, "Placement type", {0: "VISIBLE", 1: "PERSISTENT"}, flags=True),
)
CNPPadding = Layout(
    "CNPPadding",
    "cnp",
    "Congestion Notification, reserved",
    "IBTA A17.9.3",
    Field("reserved1", 64, "Reserved", hex=True),
    Field("reserved2", 64, "Reserved", hex=True),
)


EXTENDED: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        *(RDETH, XRCETH, DETH, FETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH),
        CNPPadding,
    )
}


def nearest_psn(psn: int, to: int) -> int:
    """Returns the number nearest to *to* that ends in the 24 bits of *psn*.

    PSNs wrap; these numbers do not.

    >>> hex(nearest_psn(1, 0xFFFFFF)), nearest_psn(0xFFFFFF, 1)
    ('0x1000001', -1)
    """
    return to + ((psn - to + PSN_HALF) & PSN_MASK) - PSN_HALF


def syndrome_text(syndrome: int) -> str:
    """Prints what an AETH says.

    >>> syndrome_text(0x1F), syndrome_text(0x2C), syndrome_text(0x62)
    ('ACK', 'RNR NAK, retry after 0.64 ms', 'NAK: remote access error')
    """
    kind, value = syndrome & SYNDROME_KIND, syndrome & SYNDROME_VALUE
    if kind == ACK:
        return "ACK"
    if kind == RNR_NAK:
        return f"RNR NAK, retry after {RNR_TIMER_10_US[value] / 100:g} ms"
    name = SYNDROMES.get(syndrome & 0x7F, f"NAK_RESERVED_{syndrome:#04x}")
    return "NAK: " + name.removeprefix("NAK_").replace("_", " ").lower()
