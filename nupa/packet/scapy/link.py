# SPDX-License-Identifier: BSD-3-Clause
"""The scapy layer of NUPA's link type: the header, and the layers that may follow it."""

from __future__ import annotations

from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.fields import StrLenField
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_bottom_up, bind_top_down

from nupa.packet.scapy.cxl_cache import CxlCache
from nupa.packet.scapy.cxl_mem import CxlMem
from nupa.packet.scapy.fields import LayoutLayer, fields_of
from nupa.packet.scapy.queue import CQE, WQE, Doorbell
from nupa.packet.scapy.tlp import TLP
from nupa.packet.tables.record import HEADER, LINKTYPE_NUPA, VERSION, Kind, Level


class Nupa(LayoutLayer):
    """A record of a capture.

    `level` and `kind` are set from the layer above.  `extra`: bytes that a newer version appends to
    the header.
    """

    name = "NUPA"
    layout = HEADER
    fields_desc = [  # noqa: RUF012
        *fields_of(HEADER, header_bytes=None),
        StrLenField("extra", b"", length_from=lambda pkt: max(pkt.header_bytes - HEADER.bytes, 0)),
    ]

    def do_dissect(self, s: bytes) -> bytes:
        rest = super().do_dissect(s)
        if not HEADER.bytes <= self.header_bytes <= len(s):
            raise Scapy_Exception(
                f"NUPA record: it says that its header has {self.header_bytes} bytes; it has "
                f"{HEADER.bytes} at least, and {len(s)} are there"
            )
        return rest

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.header_bytes is None:
            pkt = self.put(pkt, "header_bytes", len(pkt))
        return pkt + pay

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        if self.version != VERSION:
            return self.default_payload_class(payload)
        return super().guess_payload_class(payload)

    def mysummary(self) -> str:
        return self.sprintf("NUPA %Nupa.level% port %Nupa.port% transfer %Nupa.transfer%")


LAYERS: dict[Kind, tuple[Level, type[Packet]]] = {
    Kind.PCIE_TLP: (Level.TLP, TLP),
    Kind.CXL_MEM: (Level.TLP, CxlMem),
    Kind.DOORBELL: (Level.QUEUE, Doorbell),
    Kind.WQE: (Level.QUEUE, WQE),
    Kind.CQE: (Level.QUEUE, CQE),
    Kind.ETHERNET: (Level.NET, Ether),
    Kind.CXL_CACHE: (Level.CACHE, CxlCache),
}
for _kind, (_level, _layer) in LAYERS.items():
    bind_top_down(Nupa, _layer, level=int(_level), kind=int(_kind))
    bind_bottom_up(Nupa, _layer, kind=int(_kind))

conf.l2types.register(LINKTYPE_NUPA, Nupa)
