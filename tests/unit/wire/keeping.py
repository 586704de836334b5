# SPDX-License-Identifier: BSD-3-Clause
"""A keeper in this process, its other end as a plain socket, and packets that scapy makes."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

from scapy.layers.inet import IP, UDP
from scapy.packet import Packet, Raw

from nupa.fabric import Fabric
from nupa.fabric.wires.entry import WireEntry
from nupa.packet.scapy.transport import BTH, DETH

PORT = 4791
HELLO = struct.Struct("=IIII")
WELCOME = struct.Struct("=IIIIII")
ENVELOPE = struct.Struct("=16s16sHBBIIHH")
MAGIC = 0x5750554E  # csrc/segment/port_protocol.h
REQUEST = 0x5250554E
WAIT_S = 20.0
GSI_QKEY = 0x80010000


def address(number: int) -> str:
    """Returns an address of loopback that no other process of tests uses: pids have 22 bits."""
    pid = os.getpid()
    second = (number >> 1 ^ 1) << 7 | pid >> 15 & 127
    return f"127.{second}.{pid >> 7 & 255}.{(pid & 127) << 1 | number & 1}"


def mapped(text: str) -> bytes:
    return bytes(10) + b"\xff\xff" + socket.inet_aton(text)


def await_wire(fabric: Fabric, holds: Callable[[WireEntry], bool], host: str = "far") -> WireEntry:
    """Waits until the wire's entry is as wished, and returns it."""
    end_s = time.monotonic() + WAIT_S
    while not holds(entry := fabric.wires.of(host)):
        assert time.monotonic() < end_s, entry
        time.sleep(0.01)
    return entry


class Member:
    """A process at a keeper's socket; it says a hello, by default that of its attachment."""

    def __init__(self, path: str, hello: bytes) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(path)
        self.socket.send(hello)
        data, fds, _, _ = socket.recv_fds(self.socket, 64, 4)
        self.welcome = WELCOME.unpack(data)
        self.udp = [socket.socket(fileno=fd) for fd in fds]
        for udp in self.udp:
            udp.settimeout(WAIT_S)

    @classmethod
    def of(cls, fabric: Fabric, host: int, far: str = "far") -> Member:
        """Joins as the attachment of this process to a host."""
        slot = next(slot for slot in fabric.processes() if slot.host == host)
        member = cls(fabric.wires.of(far).socket, HELLO.pack(MAGIC, 1, slot.slot, slot.epoch))
        assert member.status == 0
        member.slot = slot.slot
        return member

    slot = 0

    @property
    def status(self) -> int:
        return self.welcome[2]

    def close(self) -> None:
        self.socket.close()
        for udp in self.udp:
            udp.close()

    def passed(self) -> tuple[bytes, bytes, bytes]:
        """Returns source, destination and bytes of a packet that the keeper passed on."""
        data = self.socket.recv(8192)
        src, dst, *_, count, _port, _ = ENVELOPE.unpack_from(data)
        assert count == len(data) - ENVELOPE.size
        return src, dst, data[ENVELOPE.size :]

    def pass_on(self, packet: bytes, src: str, dst: str, port: int = PORT) -> None:
        """Gives a packet to the keeper, as one that came by the wrong socket."""
        head = ENVELOPE.pack(mapped(src), mapped(dst), 0, 0, 64, 0, len(packet), port, 0)
        self.socket.send(head + packet)


class Far:
    """The machine at the other end: a socket that sends with identification 0."""

    def __init__(self, own: str, to: str) -> None:
        self.own, self.to = own, to
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
        self.socket.bind((own, PORT))
        self.socket.settimeout(WAIT_S)

    def close(self) -> None:
        self.socket.close()

    def send(self, packet: bytes) -> None:
        self.socket.sendto(packet, (self.to, PORT))

    def receive(self) -> tuple[Packet, int]:
        """Returns the next packet, whose ICRC scapy finds right, and its UDP source port."""
        data, (_, port) = self.socket.recvfrom(8192)
        found = roce(self.to, self.own, BTH(data), port)
        assert found[BTH].computed_icrc() == int.from_bytes(data[-4:], "big")
        return found, port


def expect(far: Far, member: Member, psn: int) -> None:
    """A packet for a member's slot arrives there, by its socket or by the keeper."""
    sent = packet(far.own, far.to, send_to(member.slot, psn))
    far.send(sent)
    (udp,) = member.udp
    for _ in range(2000):
        udp.settimeout(0.005)
        try:
            assert udp.recv(8192) == sent
            return
        except TimeoutError:
            pass
        try:
            member.socket.settimeout(0.001)
            assert member.passed() == (mapped(far.own), mapped(far.to), sent)
            return
        except TimeoutError:
            pass
    raise AssertionError("the packet is lost")


def roce(src: str, dst: str, bth: Packet, port: int = PORT) -> Packet:
    return IP(src=src, dst=dst, id=0, flags="DF") / UDP(sport=port, dport=PORT, chksum=0) / bth


def packet(src: str, dst: str, bth: Packet, port: int = PORT) -> bytes:
    """Returns a packet with its ICRC, from the BTH on."""
    return bytes(roce(src, dst, bth, port))[28:]


def send_to(slot: int, psn: int = 1) -> Packet:
    """A SEND for a queue pair of a slot."""
    return BTH(opcode="UC_SEND_ONLY", dqpn=slot << 16 | 5, psn=psn) / Raw(bytes(8))


def mad_packet(mad: bytes) -> Packet:
    head = BTH(opcode="UD_SEND_ONLY", dqpn=1, psn=3, pkey=0xFFFF)
    return head / DETH(qkey=GSI_QKEY, srcqp=1) / Raw(mad)
