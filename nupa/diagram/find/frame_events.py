# SPDX-License-Identifier: BSD-3-Clause
"""Describes frames for a diagram: InfiniBand transport packets, and frames of the netdev."""

from __future__ import annotations

from nupa.diagram.find.conversation import mad_name, protocol_name
from nupa.diagram.find.event import Event, Way
from nupa.diagram.find.frames import Frames
from nupa.diagram.find.operations import LABELS, ROLES, Role
from nupa.packet.decode.fast import FrameFault, Header, Layer
from nupa.packet.tables.ip import Ethertype, IpProtocol
from nupa.packet.tables.opcodes import (
    ACKNOWLEDGE,
    COMPARE_SWAP,
    MIDDLE,
    OPERATION_BITS,
    READ_RESPONSE_MIDDLE,
)
from nupa.packet.tables.transport import SYNDROME_KIND, syndrome_text

_MIDDLES = MIDDLE | {READ_RESPONSE_MIDDLE}

_ARP_OPERATION = 6  # byte of ARP
_ARP_NAMES = {1: "ARP request", 2: "ARP reply"}
_TCP_FLAGS = ((0x02, "SYN"), (0x01, "FIN"), (0x04, "RST"), (0x08, "PSH"), (0x10, "ACK"))
_TCP_BYTES = 20
_PORTS_BYTES = 4  # of TCP, before the payload that the decoder found
_ICMP_NAMES = {0: "echo reply", 3: "unreachable", 8: "echo request", 11: "time exceeded"}
_ICMPV6_NAMES = {
    1: "unreachable",
    2: "too big",
    128: "echo request",
    129: "echo reply",
    133: "router solicitation",
    134: "router advertisement",
    135: "neighbor solicitation",
    136: "neighbor advertisement",
    143: "listener report",
}


def describe_frame(event: Event, frames: Frames, n: int) -> None:
    """Fills in the event of frame n."""
    headers = frames.headers
    event.source, event.target = frames.addresses(n)
    event.identity = ("frame", frames.inner(n))
    if frames.index(n):
        event.interface += f"%{frames.index(n)}"
    if headers.layer[n] == Layer.TRANSPORT:
        event.level = "transport"
        _describe_transport(event, frames, n)
    else:
        event.level = "net"
        _describe_net(event, frames, n)


def _describe_transport(event: Event, frames: Frames, n: int) -> None:
    headers = frames.headers
    opcode, role = headers.opcode[n], ROLES[headers.opcode[n]]
    is_mad = bool(headers.mad_class[n])
    event.name = LABELS.get(opcode, f"opcode {opcode:#04x}")
    event.psn = headers.psn[n]
    if role == Role.CONGESTION or is_mad:
        event.way = Way.BY_ADDRESS
    else:
        event.way = Way.RESPONSE if role == Role.RESPONSE else Way.REQUEST
    if is_mad:
        event.name = mad_name(headers.mad_class[n], headers.mad_attribute[n])
    event.is_error = bool(headers.headers[n] & Header.AETH and headers.syndrome[n] & SYNDROME_KIND)
    if event.is_error or opcode & OPERATION_BITS == ACKNOWLEDGE:
        event.name = syndrome_text(headers.syndrome[n])
    else:
        _describe_payload(event, frames, n)
    if role == Role.CONGESTION:
        event.fold = ("transport", opcode, event.source)
    elif opcode & OPERATION_BITS in _MIDDLES and role in (Role.GO_ON, Role.RESPONSE):
        event.fold = ("transport", opcode)


def _describe_payload(event: Event, frames: Frames, n: int) -> None:
    headers = frames.headers
    has = headers.headers[n]
    payload = frames.payload_bytes(n)
    if has & Header.RETH and not payload:
        event.size_bytes = headers.dma_bytes[n]  # of a READ request
    elif payload or not has & Header.AtomicETH:
        event.size_bytes = payload
    if has & (Header.RETH | Header.AtomicETH):
        event.address = headers.va[n]
    if has & Header.AtomicETH:
        event.size_bytes = None
        if headers.opcode[n] & OPERATION_BITS == COMPARE_SWAP:
            event.extra.append(f"{headers.compare[n]:#x} -> {headers.swap[n]:#x}")
        else:
            event.extra.append(f"+{headers.swap[n]:#x}")
    if has & Header.AtomicAckETH:
        event.size_bytes = None
        event.extra.append(f"was {headers.original[n]:#x}")
    if has & Header.ImmDt:
        event.extra.append(f"imm {headers.imm[n]:#x}")
    if has & Header.IETH:
        event.extra.append(f"rkey {headers.rkey[n]:#x}")


def _describe_net(event: Event, frames: Frames, n: int) -> None:
    headers = frames.headers
    protocol, at = headers.protocol[n], headers.payload_offset[n]
    event.name = protocol_name(headers.ethertype[n], headers.ip_version[n], protocol)
    event.size_bytes = frames.original(n)
    if headers.ethertype[n] == Ethertype.ARP:
        code = int.from_bytes(frames.data(n, at + _ARP_OPERATION, 2), "big")
        event.name = _ARP_NAMES.get(code, event.name)
    elif headers.fault[n] in (FrameFault.FRAGMENT, FrameFault.CUT, FrameFault.LENGTH):
        event.extra.append(FrameFault(headers.fault[n]).name.lower())
    elif protocol == IpProtocol.TCP and headers.layer[n] == Layer.PORTS:
        _describe_tcp(event, frames, n)
    elif protocol == IpProtocol.UDP and headers.layer[n] == Layer.PORTS:
        event.fold = ("net", event.name, event.source)
    elif protocol in (IpProtocol.ICMP, IpProtocol.ICMPV6) and headers.layer[n] == Layer.NETWORK:
        names = _ICMP_NAMES if protocol == IpProtocol.ICMP else _ICMPV6_NAMES
        kind = frames.data(n, at, 1)
        if kind:
            event.name += f" {names.get(kind[0], f'type {kind[0]}')}"
    else:
        event.fold = ("net", event.name, event.source)


def _describe_tcp(event: Event, frames: Frames, n: int) -> None:
    at = frames.headers.payload_offset[n] - _PORTS_BYTES
    header = frames.data(n, at, _TCP_BYTES)
    if len(header) < _TCP_BYTES:
        event.extra.append("cut")
        return
    length = (header[12] >> 4) * 4
    names = [name for bit, name in _TCP_FLAGS if header[13] & bit]
    event.name = " ".join(["TCP", *names])
    payload = frames.headers.payload_bytes[n] + _PORTS_BYTES - length
    missing = frames.original(n) - len(frames.data(n, 0, frames.original(n)))
    event.size_bytes = max(payload + missing, 0)
    if set(names) <= {"PSH", "ACK"}:
        event.name = "TCP" if event.size_bytes else "TCP ACK"
        event.fold = ("net", event.name, event.source)
