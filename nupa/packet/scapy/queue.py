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

from nupa.packet.scapy.fields import Layer, fields_of
from nupa.packet.tables import queue as tables

SEGMENTS_BYTES_MAX = 0xFFFF - tables.WQE.bytes


class Segment(Layer):
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


def _segment_fields(kind: tables.Segment) -> list[Any]:
    layout = tables.SEGMENT_LAYOUTS[kind]
    rest = "data" if kind == tables.Segment.INLINE else "rest"
    return [
        *fields_of(layout, bytes=None),
        StrLenField(rest, b"", length_from=lambda pkt: max(pkt.bytes - layout.bytes, 0)),
    ]


class RemoteSegment(Segment):
    name = "Remote address"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.REMOTE]
    fields_desc = _segment_fields(tables.Segment.REMOTE)


class AtomicSegment(Segment):
    name = "Atomic operands"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.ATOMIC]
    fields_desc = _segment_fields(tables.Segment.ATOMIC)


class DatagramSegment(Segment):
    name = "Datagram address"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.DATAGRAM]
    fields_desc = _segment_fields(tables.Segment.DATAGRAM)


class XrcSegment(Segment):
    name = "XRC"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.XRC]
    fields_desc = _segment_fields(tables.Segment.XRC)


class BindSegment(Segment):
    name = "Bind memory window"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.BIND]
    fields_desc = _segment_fields(tables.Segment.BIND)


class DataSegment(Segment):
    name = "Data"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.DATA]
    fields_desc = _segment_fields(tables.Segment.DATA)


class InlineSegment(Segment):
    """Inline data, and segments of unknown types."""

    name = "Inline data"
    layout = tables.SEGMENT_LAYOUTS[tables.Segment.INLINE]
    fields_desc = _segment_fields(tables.Segment.INLINE)


SEGMENTS: dict[int, type[Segment]] = {
    tables.Segment.REMOTE: RemoteSegment,
    tables.Segment.ATOMIC: AtomicSegment,
    tables.Segment.DATAGRAM: DatagramSegment,
    tables.Segment.XRC: XrcSegment,
    tables.Segment.BIND: BindSegment,
    tables.Segment.DATA: DataSegment,
    tables.Segment.INLINE: InlineSegment,
}


def _next_segment(
    _wqe: Packet, _list: list[Any], _last: Packet | None, remain: bytes
) -> type[Packet] | None:
    return SEGMENTS.get(remain[0], InlineSegment) if remain else None


class Doorbell(Layer):
    name = "Doorbell"
    layout = tables.DOORBELL


class WQE(Layer):
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


class CQE(Layer):
    layout = tables.CQE
