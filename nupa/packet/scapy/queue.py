# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of queue entries: doorbell, WQE with its segments, CQE.

>>> from nupa.packet.scapy.queue import WQE, DataSegment
>>> WQE(bytes(WQE(opcode="SEND", segments=[DataSegment(length=8)]))).segments[0].length
8
"""

from __future__ import annotations

from typing import Any

from scapy.error import Scapy_Exception
from scapy.fields import PacketListField, StrLenField
from scapy.packet import Packet

from nupa.packet.scapy.fields import LayoutLayer, fields_of, layer_class
from nupa.packet.tables import queue as tables

SEGMENTS_BYTES_MAX = 0xFFFF - tables.WQE.bytes


class WqeSegment(LayoutLayer):
    """A part of a WQE: type, length, and the fields of its type.

    `rest`: bytes that a newer version appends to a segment.
    """

    def do_dissect(self, s: bytes) -> bytes:
        rest = super().do_dissect(s)
        if not self.layout.bytes <= self.bytes <= len(s):
            raise Scapy_Exception(
                f"{self.layout.text}: the segment says that it has {self.bytes} bytes; it needs "
                f"{self.layout.bytes}, and {len(s)} are there"
            )
        return rest

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.bytes is None:
            pkt = self.put(pkt, "bytes", len(pkt))
        return pkt + pay

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


def _segment(kind: tables.SegmentType) -> type[WqeSegment]:
    layout = tables.SEGMENT_LAYOUTS[kind]
    rest = "data" if kind == tables.SegmentType.INLINE else "rest"
    fields = [
        *fields_of(layout, bytes=None),
        StrLenField(rest, b"", length_from=lambda pkt: max(pkt.bytes - layout.bytes, 0)),
    ]
    return layer_class(WqeSegment, layout.name, layout, name=layout.text, fields_desc=fields)


SEGMENTS = {int(kind): _segment(kind) for kind in tables.SEGMENT_LAYOUTS}
RemoteSegment = SEGMENTS[tables.SegmentType.REMOTE]
AtomicSegment = SEGMENTS[tables.SegmentType.ATOMIC]
DatagramSegment = SEGMENTS[tables.SegmentType.DATAGRAM]
XrcSegment = SEGMENTS[tables.SegmentType.XRC]
BindSegment = SEGMENTS[tables.SegmentType.BIND]
DataSegment = SEGMENTS[tables.SegmentType.DATA]
InlineSegment = SEGMENTS[tables.SegmentType.INLINE]  # segments of unknown types, too


def _next_segment(
    _wqe: Packet, _list: list[Any], _last: Packet | None, remain: bytes
) -> type[Packet] | None:
    return SEGMENTS.get(remain[0], InlineSegment) if remain else None


class Doorbell(LayoutLayer):
    name = "Doorbell"
    layout = tables.DOORBELL


class WQE(LayoutLayer):
    layout = tables.WQE
    fields_desc = [  # noqa: RUF012
        *fields_of(layout, bytes=None),
        PacketListField(
            "segments",
            [],
            next_cls_cb=_next_segment,
            length_from=lambda pkt: max(pkt.bytes - tables.WQE.bytes, 0),
        ),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.bytes is None:
            if len(pkt) > tables.WQE.bytes + SEGMENTS_BYTES_MAX:
                raise Scapy_Exception(
                    f"WQE: {len(pkt)} bytes; with its segments it has at most 65535"
                )
            pkt = self.put(pkt, "bytes", len(pkt))
        return pkt + pay


class CQE(LayoutLayer):
    layout = tables.CQE
