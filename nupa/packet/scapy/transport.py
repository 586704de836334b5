# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of the InfiniBand transport, as RoCE v2, RoCE and on native links.

    >>> from scapy.layers.inet import IP, UDP
    >>> from nupa.packet.scapy.transport import BTH, RETH
    >>> write = IP() / UDP() / BTH(opcode="RC_RDMA_WRITE_ONLY", dqpn=18) / RETH(dmalen=5) / b"hello"
    >>> IP(bytes(write))[BTH].padcount, IP(bytes(write))[BTH].payload
    (3, <RETH  va=0x0 rkey=0x0 dmalen=5 |<Raw  load=b'hello' |>>)

The opcode of a BTH says which headers follow (`nupa.packet.tables.opcodes`).  Lengths, padding and
CRCs that are None are filled in.  BTH, AETH and GRH have the fields of scapy's contrib/roce, which
is not loaded: see `nupa.packet.scapy.claim`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scapy.error import Scapy_Exception, warning
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, bind_bottom_up, bind_layers, bind_top_down

from nupa.packet.scapy import icrc
from nupa.packet.scapy.claim import UDP_PORT, ours_or_scapys
from nupa.packet.scapy.fields import LayoutLayer, fields_of
from nupa.packet.scapy.routing import GRH, LRH, TrailerField
from nupa.packet.tables import transport as tables
from nupa.packet.tables.opcodes import CNP, CODES, OPCODES

QP1 = 1
GSI_QKEY = 0x80010000  # IBTA 10.2.5: of QP1

__all__ = [
    "AETH",
    "BTH",
    "DETH",
    "FETH",
    "GRH",
    "IETH",
    "LRH",
    "RDETH",
    "RETH",
    "XRCETH",
    "AtomicAckETH",
    "AtomicETH",
    "CNPPadding",
    "ImmDt",
]


class BTH(LayoutLayer):
    """Base transport header.  `padcount`, `pad` (the bytes) and `icrc` are filled in unless given.

    icrc: as a big-endian read gives it; None if the capture has cut it off.
    """

    layout = tables.BTH
    fields_desc = [  # noqa: RUF012
        *fields_of(layout, padcount=None),
        TrailerField("pad", None),
        TrailerField("icrc", None, "!I"),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: Any = None, *_args: Any, **kwargs: Any) -> type[Packet]:
        return ours_or_scapys(cls, kwargs.get("_underlayer"))

    def do_dissect(self, s: bytes) -> bytes:
        # By hand: every packet has these, and scapy's bit fields are slow.
        here = len(s)
        udp = self.underlayer
        whole = not (isinstance(udp, UDP) and udp.len is not None and udp.len - 8 > here)
        needed = icrc.BTH_BYTES + (icrc.ICRC_BYTES if whole else 0)
        if here < needed:
            raise Scapy_Exception(f"BTH with its ICRC: {needed} bytes are needed, {here} are there")
        flags, notes, request = s[1], s[4], s[8]
        end, pad, padcount = here, b"", flags >> 4 & 3
        if whole:
            end = max(here - icrc.ICRC_BYTES - padcount, icrc.BTH_BYTES)
            pad = s[end : here - icrc.ICRC_BYTES]
        self.fields = {
            "opcode": s[0],
            "solicited": flags >> 7,
            "migreq": flags >> 6 & 1,
            "padcount": padcount,
            "version": flags & 15,
            "pkey": s[2] << 8 | s[3],
            "fecn": notes >> 7,
            "becn": notes >> 6 & 1,
            "resv6": notes & 63,
            "dqpn": int.from_bytes(s[5:8], "big"),
            "ackreq": request >> 7,
            "resv7": request & 127,
            "psn": int.from_bytes(s[9:12], "big"),
            "pad": pad,
            "icrc": int.from_bytes(s[-icrc.ICRC_BYTES :], "big") if whole else None,
        }
        self.raw_packet_cache = None  # it would leave out the bytes behind the payload
        self.explicit = 1
        return s[icrc.BTH_BYTES : end]

    def guess_payload_class(self, payload: bytes) -> Any:
        return _NEXT.get((self.opcode, BTH)) or super().guess_payload_class(payload)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        padcount, pad = self.padcount, self.pad
        if padcount is None:  # extended headers are whole words
            padcount = len(pad) & 3 if pad is not None else -len(pay) % 4
            pkt = self.put(pkt, "padcount", padcount)
        body = pkt + pay + (bytes(padcount) if pad is None else pad)
        crc = self._icrc_of(body) if self.icrc is None else self.icrc
        return body + crc.to_bytes(icrc.ICRC_BYTES, "big")

    def computed_icrc(self) -> int:
        """Returns the right ICRC of this packet; 0 without a header below, which it covers, too."""
        return self._icrc_of(self.do_build()[: -icrc.ICRC_BYTES])

    def _icrc_of(self, body: bytes) -> int:
        """Computes the ICRC; *body*: from this header to the last byte before the ICRC."""
        below = self.underlayer
        whole_bytes = len(body) + icrc.ICRC_BYTES
        if isinstance(below, GRH):
            return icrc.roce_v1(below.header(whole_bytes) + body)
        if isinstance(below, LRH):
            return icrc.local(below.header(whole_bytes) + body)
        udp = below
        packet, udp_bytes = body + bytes(icrc.ICRC_BYTES), 0
        while below is not None:
            built = below.self_build()
            cached = below.raw_packet_cache is not None
            packet = built + packet if cached else below.post_build(built, packet)
            if below is udp:
                udp_bytes = len(packet)
            if isinstance(below, IP | IPv6) and isinstance(udp, UDP):
                version = 4 if isinstance(below, IP) else 6
                covered = packet[: -icrc.ICRC_BYTES]
                return icrc.roce_v2(covered, len(packet) - udp_bytes, version)
            below = below.underlayer
        warning("BTH: no IP header, GRH or LRH is below, which an ICRC covers, too: it is 0")
        return 0

    def mysummary(self) -> str:
        return str(self.sprintf("%BTH.opcode% qp %BTH.dqpn% psn %BTH.psn%"))


class _Extended(LayoutLayer):
    """An extended header; the opcode of the BTH says what follows it."""

    def base(self) -> Any:
        """Returns the BTH below; None if there is none."""
        layer = self.underlayer
        while isinstance(layer, _Extended):
            layer = layer.underlayer
        return layer if isinstance(layer, BTH) else None

    def guess_payload_class(self, payload: bytes) -> Any:
        base = self.base()
        following = _NEXT.get((base.opcode, type(self))) if base is not None else None
        return following or super().guess_payload_class(payload)


class RDETH(_Extended):
    layout = tables.RDETH


class DETH(_Extended):
    """Datagram header.  Bound layers follow on QP 1 only: nupa.packet.scapy.cm binds MADs."""

    layout = tables.DETH

    def guess_payload_class(self, payload: bytes) -> Any:
        following = super().guess_payload_class(payload)
        if issubclass(following, _Extended):
            return following
        base = self.base()
        return (
            following if base is not None and base.dqpn == QP1 else self.default_payload_class(b"")
        )


class RETH(_Extended):
    layout = tables.RETH


class AtomicETH(_Extended):
    layout = tables.AtomicETH


class AETH(_Extended):
    """ACK header.  `nupa.packet.tables.transport.syndrome_text` prints a syndrome."""

    layout = tables.AETH


class AtomicAckETH(_Extended):
    layout = tables.AtomicAckETH


class ImmDt(_Extended):
    layout = tables.ImmDt


class IETH(_Extended):
    layout = tables.IETH


class XRCETH(_Extended):
    layout = tables.XRCETH


class FETH(_Extended):
    layout = tables.FETH


class CNPPadding(_Extended):
    """The 16 reserved bytes behind the BTH of a congestion notification."""

    layout = tables.CNPPadding


EXTENDED: dict[str, type[_Extended]] = {cls.__name__: cls for cls in _Extended.__subclasses__()}


def _chains() -> dict[tuple[int, type[Packet]], type[Packet]]:
    """Returns the layer that follows each header, by the BTH's opcode."""
    chains: dict[tuple[int, type[Packet]], type[Packet]] = {}
    for opcode in OPCODES.values():
        headers: list[type[Packet]] = [BTH, *(EXTENDED[name] for name in opcode.headers)]
        for lower, upper in pairwise(headers):
            chains[opcode.code, lower] = upper
    return chains


_NEXT = _chains()

bind_bottom_up(UDP, BTH, dport=UDP_PORT)
bind_top_down(UDP, BTH, dport=UDP_PORT, sport=0xC000)  # 53, scapy's default, would make it DNS
bind_layers(GRH, BTH, nexthdr=tables.NEXT_HEADER_IBA)
bind_layers(LRH, BTH, lnh=tables.LNH_LOCAL)
bind_top_down(BTH, CNPPadding, opcode=CNP)
bind_top_down(BTH, DETH, opcode=CODES["UD_SEND_ONLY"])
