# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of CXL.mem messages (CXL 3.1, 3.3), in the layouts of tables.cxl_mem.

    >>> from nupa.packet.scapy.cxl_mem import CxlMem, M2SReq
    >>> bytes(CxlMem() / M2SReq(opcode="MemRd", tag=7, address=0x1000)).hex()
    '010188c000070000000000000000000000001000'

64 bytes of data follow M2S RwD and S2M DRS.  Trailers come before the data here, so that a capture
with a short snap length has them.
"""

from __future__ import annotations

from scapy.fields import ConditionalField, XIntField, XLongField
from scapy.packet import Packet, bind_layers

from nupa.packet.scapy.fields import LayoutLayer, fields_of
from nupa.packet.tables import cxl_mem as tables


class CxlMem(LayoutLayer):
    """The channel of a message, and its kind of flit."""

    name = "CXL.mem"
    layout = tables.CXL_MEM


class _MemMessage(LayoutLayer):
    """A message; its summary has the name of its opcode."""

    def mysummary(self) -> str:
        name = self.__class__.__name__
        return self.sprintf(f"{self.name} %{name}.opcode%")


class M2SReq(_MemMessage):
    name = "M2S Req"
    layout = tables.M2S_REQ


def _has_ems(pkt: Packet) -> bool:
    """Tells whether the trailer has an Extended Meta-State (CXL 3.1, 3.3.6.1)."""
    return bool(pkt.meta_field == tables.META_EMS and (pkt.trp is None or pkt.trp))


def _is_partial(pkt: Packet) -> bool:
    return pkt.opcode in tables.PARTIAL_WRITES


class _WithTrailer(_MemMessage):
    """A message with trailers; sets `trp` unless it is given.  68B flits have no such bit."""

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.trp is None:
            lower = self.underlayer
            small = isinstance(lower, CxlMem) and lower.flit == 0
            partial = isinstance(self, M2SRwD) and _is_partial(self)
            pkt = self.put(pkt, "trp", int((partial or _has_ems(self)) and not small))
        return pkt + pay


_EMS = ConditionalField(XIntField("ems", 0), _has_ems)


class M2SRwD(_WithTrailer):
    """A request with data.  A partial write has `byte_enables`: bit n is byte n of the line."""

    name = "M2S RwD"
    layout = tables.M2S_RWD
    fields_desc = [  # noqa: RUF012
        *fields_of(layout, opcode=1, trp=None),
        ConditionalField(XLongField("byte_enables", 0), _is_partial),
        _EMS,
    ]


class M2SBIRsp(_MemMessage):
    name = "M2S BIRsp"
    layout = tables.M2S_BIRSP


class S2MBISnp(_MemMessage):
    name = "S2M BISnp"
    layout = tables.S2M_BISNP


class S2MNDR(_MemMessage):
    name = "S2M NDR"
    layout = tables.S2M_NDR


class S2MDRS(_WithTrailer):
    name = "S2M DRS"
    layout = tables.S2M_DRS
    fields_desc = [*fields_of(layout, trp=None), _EMS]  # noqa: RUF012


LAYERS: dict[tables.MemChannel, type[Packet]] = {
    tables.MemChannel.M2S_REQ: M2SReq,
    tables.MemChannel.M2S_RWD: M2SRwD,
    tables.MemChannel.M2S_BIRSP: M2SBIRsp,
    tables.MemChannel.S2M_BISNP: S2MBISnp,
    tables.MemChannel.S2M_NDR: S2MNDR,
    tables.MemChannel.S2M_DRS: S2MDRS,
}
for _channel, _layer in LAYERS.items():
    bind_layers(CxlMem, _layer, channel=int(_channel))
