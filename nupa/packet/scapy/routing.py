# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of InfiniBand routing: local (LRH, with the VCRC) and global (GRH) headers.

RoCE v1 has a GRH behind Ethernet; captures of native links begin with an LRH.
"""

from __future__ import annotations

from typing import Any

from scapy.config import conf
from scapy.fields import Field as ScapyField
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_layers
from scapy.utils import lhex

from nupa.packet.scapy import icrc
from nupa.packet.scapy.claim import ours_or_scapys
from nupa.packet.scapy.fields import LayoutLayer, fields_of
from nupa.packet.tables import transport as tables
from nupa.packet.tables.ip import Ethertype

LINKTYPE_INFINIBAND = 247


class TrailerField(ScapyField[Any, Any]):
    """A field behind the payload, which the layer itself appends and removes."""

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        return s

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:
        return s, None

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        return lhex(x) if isinstance(x, int) else repr(x)

    def randval(self) -> Any:
        """Returns None: fuzz() leaves it to be computed."""
        return None


class LRH(LayoutLayer):
    """Local route header.  `pktlen` and `vcrc` are filled in; a vcrc of None was not captured."""

    layout = tables.LRH
    fields_desc = [  # noqa: RUF012
        *fields_of(layout, pktlen=None, lnh=tables.LNH_LOCAL),
        TrailerField("vcrc", None, "!H"),
    ]

    def do_dissect(self, s: bytes) -> bytes:
        rest = super().do_dissect(s)
        end = self._payload_bytes()
        crc = rest[end : end + icrc.VCRC_BYTES]
        whole = len(crc) == icrc.VCRC_BYTES
        self.fields["vcrc"] = int.from_bytes(crc, "big") if whole else None
        self.raw_packet_cache = None  # it would leave out the VCRC
        return rest[:end] + rest[end + icrc.VCRC_BYTES :] if whole else rest

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        end = self._payload_bytes()
        return s[:end], s[end:]

    def _payload_bytes(self) -> int:
        words: int = self.pktlen
        return max(words * 4 - icrc.LRH_BYTES, 0)

    def header(self, payload_bytes: int) -> bytes:
        """Builds this header alone, in front of *payload_bytes* bytes."""
        head: bytes = self.self_build()
        if self.pktlen is None:
            head = self.put(head, "pktlen", (icrc.LRH_BYTES + payload_bytes) // 4)
        return head

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        packet = self.header(len(pay)) + pay
        crc = icrc.vcrc(packet) if self.vcrc is None else self.vcrc
        return packet + crc.to_bytes(icrc.VCRC_BYTES, "big")


class RWH(LayoutLayer):
    """Raw header: a packet that is not InfiniBand, by its Ethertype."""

    layout = tables.RWH


class GRH(LayoutLayer):
    """Global route header.  `paylen` is filled in."""

    layout = tables.GRH
    fields_desc = fields_of(layout, paylen=None)

    @classmethod
    def dispatch_hook(cls, _pkt: Any = None, *_args: Any, **kwargs: Any) -> type[Packet]:
        return ours_or_scapys(cls, kwargs.get("_underlayer"))

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return s[: self.paylen], s[self.paylen :]

    def header(self, payload_bytes: int) -> bytes:
        """Builds this header alone, in front of *payload_bytes* bytes."""
        head: bytes = self.self_build()
        if self.paylen is None:
            head = self.put(head, "paylen", payload_bytes)
        return head

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        return self.header(len(pay)) + pay


conf.l2types.register(LINKTYPE_INFINIBAND, LRH)
bind_layers(Ether, GRH, type=int(Ethertype.ROCE))
bind_layers(LRH, RWH, lnh=tables.LNH_RAW)
bind_layers(LRH, IPv6, lnh=tables.LNH_IPV6)
bind_layers(LRH, GRH, lnh=tables.LNH_GLOBAL)
