# SPDX-License-Identifier: BSD-3-Clause
"""Captures made by hand: the packets of requesters and a responder."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from nupa.packet.decode.fast import LINKTYPE_ETHERNET
from nupa.packet.pcapng.reader import Writer
from nupa.packet.scapy.transport import AETH, BTH, DETH, IETH, RETH, AtomicAckETH, AtomicETH, ImmDt

MTU = 256
ACK, RNR = 0x1F, 0x21
INVALID_REQUEST, REMOTE_ACCESS, REMOTE_OPERATION = 0x61, 0x62, 0x63
PSN_ERROR = 0x60
STEP_NS = 1000
BEGIN_NS = 1_700_000_000_000_000_000


class Tape:
    """The packets of a capture, in order."""

    def __init__(self, version: int = 4) -> None:
        self.packets: list[Packet] = []
        self.version = version

    def add(self, packet: Packet) -> Packet:
        self.packets.append(packet)
        return packet

    def below(self, source: int, destination: int) -> Packet:
        ether = Ether(src=f"02:00:0a:00:00:{source:02x}", dst=f"02:00:0a:00:00:{destination:02x}")
        if self.version == 4:
            ip: Packet = IP(src=f"10.0.0.{source}", dst=f"10.0.0.{destination}", ttl=64)
        else:
            ip = IPv6(src=f"fd4e:5550:4100::{source}", dst=f"fd4e:5550:4100::{destination}")
        return ether / ip / UDP(sport=0xC123, chksum=0)

    def frames(self) -> list[bytes]:
        return [bytes(packet) for packet in self.packets]

    def write(
        self,
        path: Path,
        *,
        snaplen: int = 0,
        frames: Iterable[bytes] | None = None,
        comments: dict[int, str] | None = None,
        step_ns: int = STEP_NS,
    ) -> Path:
        """Writes the frames to *path*; *comments* are of packets, by their places."""
        with Writer(path) as writer:
            port = writer.add_interface("h0/1", LINKTYPE_ETHERNET, snaplen=snaplen)
            for i, frame in enumerate(self.frames() if frames is None else frames):
                writer.write(
                    port,
                    BEGIN_NS + i * step_ns,
                    frame[: snaplen or None],
                    len(frame),
                    comment=(comments or {}).get(i, ""),
                )
        return path

    def datagram(self, payload: bytes, *, source_qpn: int = 7, dqpn: int = 9) -> None:
        bth = BTH(opcode="UD_SEND_ONLY", dqpn=dqpn, psn=len(self.packets))
        above = bth / DETH(qkey=0x11111111, srcqp=source_qpn) / payload
        self.add(self.below(1, 2) / above)


class Talk:
    """One direction of a connection: requests by one end, answers by the other."""

    def __init__(
        self,
        tape: Tape,
        *,
        source: int = 1,
        destination: int = 2,
        qpn: int = 0x111,
        peer_qpn: int = 0x222,
        psn: int = 0x9C4A10,
        transport: str = "RC",
    ) -> None:
        self.tape = tape
        self.ends = (source, destination)
        self.qpn, self.peer_qpn = qpn, peer_qpn
        self.psn = psn
        self.msn = 0
        self.transport = transport

    def request(self, opcode: str, *above: Any, psns: int = 1) -> int:
        """Adds a request; returns its PSN."""
        psn = self.psn & 0xFFFFFF
        self.psn += psns
        self.request_at(psn, opcode, *above)
        return psn

    def request_at(self, psn: int, opcode: str, *above: Any) -> None:
        packet = self.tape.below(*self.ends)
        packet /= BTH(opcode=f"{self.transport}_{opcode}", dqpn=self.peer_qpn, psn=psn, ackreq=1)
        for layer in above:
            packet /= layer
        self.tape.add(packet)

    def response(self, opcode: str, psn: int, *above: Any, syndrome: int | None = ACK) -> None:
        packet = self.tape.below(*reversed(self.ends))
        packet /= BTH(opcode=f"RC_{opcode}", dqpn=self.qpn, psn=psn & 0xFFFFFF)
        if syndrome is not None:
            packet /= AETH(syndrome=syndrome, msn=self.msn)
        for layer in above:
            packet /= layer
        self.tape.add(packet)

    def answer(self, syndrome: int = ACK, psn: int | None = None) -> None:
        """Adds an ACK or NAK, by default of the last packet."""
        if self.transport == "RC":
            self.response("ACKNOWLEDGE", self.psn - 1 if psn is None else psn, syndrome=syndrome)

    def _parts(self, name: str, first: list[Any], last: list[Any], data: bytes, end: str) -> None:
        pieces = [data[at : at + MTU] for at in range(0, len(data), MTU)] or [b""]
        if len(pieces) == 1:
            self.request(f"{name}_ONLY{end}", *first, *last, pieces[0])
            return
        self.request(f"{name}_FIRST", *first, pieces[0])
        for piece in pieces[1:-1]:
            self.request(f"{name}_MIDDLE", piece)
        self.request(f"{name}_LAST{end}", *last, pieces[-1])

    def send(
        self,
        data: bytes,
        *,
        imm: int | None = None,
        invalidates: int | None = None,
        answer: int | None = ACK,
    ) -> None:
        last, end = [], ""
        if imm is not None:
            last, end = [ImmDt(data=imm)], "_WITH_IMMEDIATE"
        elif invalidates is not None:
            last, end = [IETH(rkey=invalidates)], "_WITH_INVALIDATE"
        self._parts("SEND", [], last, data, end)
        if answer is not None:
            self.answer(answer)

    def store(
        self,
        va: int,
        data: bytes,
        *,
        rkey: int = 0x77,
        imm: int | None = None,
        answer: int | None = ACK,
    ) -> None:
        """Adds an RDMA WRITE."""
        reth = RETH(va=va, rkey=rkey, dmalen=len(data))
        last = [] if imm is None else [ImmDt(data=imm)]
        end = "" if imm is None else "_WITH_IMMEDIATE"
        self._parts("RDMA_WRITE", [reth], last, data, end)
        if answer is not None:
            self.answer(answer)

    def load(self, va: int, data: bytes, *, rkey: int = 0x77, refused: int | None = None) -> None:
        """Adds an RDMA READ that returns *data*."""
        pieces = [data[at : at + MTU] for at in range(0, len(data), MTU)] or [b""]
        reth = RETH(va=va, rkey=rkey, dmalen=len(data))
        psn = self.request("RDMA_READ_REQUEST", reth, psns=len(pieces))
        if refused is not None:
            self.answer(refused, psn)
            return
        self.read_responses(psn, pieces)

    def read_responses(self, psn: int, pieces: list[bytes]) -> None:
        if len(pieces) == 1:
            self.response("RDMA_READ_RESPONSE_ONLY", psn, pieces[0])
            return
        for place, piece in enumerate(pieces):
            part = {0: "FIRST", len(pieces) - 1: "LAST"}.get(place, "MIDDLE")
            syndrome = None if part == "MIDDLE" else ACK
            self.response(f"RDMA_READ_RESPONSE_{part}", psn + place, piece, syndrome=syndrome)

    def fetch_add(
        self, va: int, add: int, original: int, *, rkey: int = 0x77, refused: int | None = None
    ) -> None:
        self._atomic("FETCH_ADD", AtomicETH(va=va, rkey=rkey, swap=add), original, refused)

    def compare_swap(
        self, va: int, compare: int, swap: int, original: int, *, rkey: int = 0x77
    ) -> None:
        eth = AtomicETH(va=va, rkey=rkey, swap=swap, compare=compare)
        self._atomic("COMPARE_SWAP", eth, original, None)

    def _atomic(self, opcode: str, eth: Packet, original: int, refused: int | None) -> None:
        psn = self.request(opcode, eth)
        if refused is None:
            self.response("ATOMIC_ACKNOWLEDGE", psn, AtomicAckETH(orig=original))
        else:
            self.answer(refused, psn)


def word(value: int) -> bytes:
    """Returns a number as it lies in memory."""
    return value.to_bytes(8, sys.byteorder)


def pattern(size: int, seed: int = 0) -> bytes:
    return bytes((seed * 7 + i * 13 + i // 256) & 0xFF for i in range(size))
