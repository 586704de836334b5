# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of management datagrams (MADs) and messages of connection management.

    >>> from nupa.packet.scapy.cm import MAD, REQ, IPCM
    >>> mad = MAD() / REQ(service_id=0x1064712) / IPCM(source="::10.0.0.1") / b"hello"
    >>> len(mad), MAD(bytes(mad))[IPCM].source, MAD(bytes(mad)).load[:5]
    (256, '::10.0.0.1', b'hello')

Private data is the payload of a message; the MAD pads it to 256 bytes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.error import Scapy_Exception
from scapy.fields import StrFixedLenField
from scapy.packet import bind_bottom_up, bind_top_down

from nupa.packet.scapy.fields import LayoutLayer, fields_of
from nupa.packet.scapy.transport import DETH, GSI_QKEY, QP1
from nupa.packet.tables import cm as tables

_SEND = 0x03
_CLASS_VERSION = 2

__all__ = [
    "APR",
    "DREP",
    "DREQ",
    "IPCM",
    "LAP",
    "MAD",
    "MRA",
    "REJ",
    "REP",
    "REQ",
    "RTU",
    "SIDR_REP",
    "SIDR_REQ",
]


class MAD(LayoutLayer):
    """The common header; pads with zeros to 256 bytes."""

    layout = tables.MAD

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        return (pkt + pay).ljust(tables.MAD_BYTES, b"\0")


class _CmMessage(LayoutLayer):
    """A message of connection management."""

    information_bytes_max: ClassVar[int] = 0

    def do_dissect(self, s: bytes) -> bytes:
        needed = self.layout.bytes + self.information_bytes_max
        if len(s) < needed:
            raise Scapy_Exception(
                f"{self.layout.text}: {needed} bytes are needed, {len(s)} are there"
            )
        return super().do_dissect(s)


class _Requesting(_CmMessage):
    """A message whose private data begins with IP addresses if its service is an IP port."""

    def guess_payload_class(self, payload: bytes) -> Any:
        if self.service_id >> 24 == tables.IP_SERVICE_PREFIX:
            return IPCM
        return super().guess_payload_class(payload)


class _Informing(_CmMessage):
    """A message whose layout ends with 72 bytes of additional information."""

    information_bytes_max = tables.INFORMATION_BYTES


def _information() -> StrFixedLenField:
    return StrFixedLenField(
        "information", bytes(tables.INFORMATION_BYTES), tables.INFORMATION_BYTES
    )


class REQ(_Requesting):
    layout = tables.REQ


class MRA(_CmMessage):
    layout = tables.MRA


class REJ(_Informing):
    layout = tables.REJ
    fields_desc = [*fields_of(layout), _information()]  # noqa: RUF012


class REP(_CmMessage):
    layout = tables.REP


class RTU(_CmMessage):
    layout = tables.RTU


class DREQ(_CmMessage):
    layout = tables.DREQ


class DREP(_CmMessage):
    layout = tables.DREP


class LAP(_CmMessage):
    layout = tables.LAP


class APR(_Informing):
    layout = tables.APR
    fields_desc = [*fields_of(layout), _information()]  # noqa: RUF012


class SIDR_REQ(_Requesting):  # noqa: N801 (the message's name)
    layout = tables.SIDR_REQ


class SIDR_REP(_Informing):  # noqa: N801 (the message's name)
    layout = tables.SIDR_REP
    fields_desc = [*fields_of(layout), _information()]  # noqa: RUF012


class IPCM(LayoutLayer):
    """The IP addresses of rdma_cm, in front of the program's private data.

    IPv4 addresses are in the last four bytes: `::10.0.0.1`.
    """

    layout = tables.IPCM


MESSAGES: dict[str, type[_CmMessage]] = {
    cls.__name__: cls for cls in (REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR)
}

bind_bottom_up(DETH, MAD)  # DETH looks for it on QP 1 only
bind_top_down(DETH, MAD, qkey=GSI_QKEY, srcqp=QP1)
for _attribute, _message in tables.ATTRIBUTES.items():
    bind_bottom_up(MAD, MESSAGES[_message], mgmt_class=tables.COMM_MGT, attribute_id=_attribute)
    bind_top_down(
        MAD,
        MESSAGES[_message],
        mgmt_class=tables.COMM_MGT,
        class_version=_CLASS_VERSION,
        method=_SEND,
        attribute_id=_attribute,
    )
