# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of CXL.cache messages (CXL 3.1, 3.2), in the layouts of tables.cxl_cache.

    >>> from nupa.packet.scapy.cxl_cache import CxlCache, D2HReq
    >>> bytes(CxlCache(at=0x1000) / D2HReq(opcode="RdOwn", cqid=7, address=0x1000)).hex()
    '010101010000000000000000000010008800700000000000000000001000'

The 64 bytes of the line follow D2H Data and H2D Data.  Byte enables come before them, so that a
capture with a short snap length has them.
"""

from __future__ import annotations

from scapy.fields import ConditionalField, XLongField
from scapy.packet import Packet, bind_layers

from nupa.packet.scapy.fields import LayoutLayer, fields_of
from nupa.packet.tables import cxl_cache as tables


class CxlCache(LayoutLayer):
    """The channel of a message, its line, and the states of that line in both hosts' caches."""

    name = "CXL.cache"
    layout = tables.CXL_CACHE


class _CacheMessage(LayoutLayer):
    """A message; its summary has the name of its opcode, if it has one."""

    def mysummary(self) -> str:
        if not hasattr(self, "opcode"):
            return str(self.name)
        name = self.__class__.__name__
        return self.sprintf(f"{self.name} %{name}.opcode%")


class D2HReq(_CacheMessage):
    name = "D2H Req"
    layout = tables.D2H_REQ
    fields_desc = fields_of(layout, opcode=3)


class D2HRsp(_CacheMessage):
    name = "D2H Rsp"
    layout = tables.D2H_RSP
    fields_desc = fields_of(layout, opcode=4)


class D2HData(_CacheMessage):
    """`byte_enables` are there if `bep` is set; bit n is byte n of the line."""

    name = "D2H Data"
    layout = tables.D2H_DATA
    fields_desc = [  # noqa: RUF012
        *fields_of(layout),
        ConditionalField(XLongField("byte_enables", 0), lambda pkt: bool(pkt.bep)),
    ]


class H2DReq(_CacheMessage):
    name = "H2D Req"
    layout = tables.H2D_REQ
    fields_desc = fields_of(layout, opcode=1)


class H2DRsp(_CacheMessage):
    name = "H2D Rsp"
    layout = tables.H2D_RSP
    fields_desc = fields_of(layout, opcode=4)


class H2DData(_CacheMessage):
    name = "H2D Data"
    layout = tables.H2D_DATA


LAYERS: dict[tables.CacheChannel, type[Packet]] = {
    tables.CacheChannel.D2H_REQ: D2HReq,
    tables.CacheChannel.D2H_RSP: D2HRsp,
    tables.CacheChannel.D2H_DATA: D2HData,
    tables.CacheChannel.H2D_REQ: H2DReq,
    tables.CacheChannel.H2D_RSP: H2DRsp,
    tables.CacheChannel.H2D_DATA: H2DData,
}
for _channel, _layer in LAYERS.items():
    bind_layers(CxlCache, _layer, channel=int(_channel))
