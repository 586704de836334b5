# SPDX-License-Identifier: BSD-3-Clause
"""scapy layers of PCI Express transaction layer packets.

    >>> from nupa.packet.scapy.tlp import TLP, MemWrite64
    >>> bytes(TLP() / MemWrite64(requester=0x100, address=0x1_0000_0000) / b"abcd").hex()
    '600000010100000f000000010000000061626364'

`fmt` and `type` are set from the layer above TLP, `length` and byte enables from the data, and the
ECRC if `td` is set.  Headers are those outside Flit mode (tables.pcie).
"""

from __future__ import annotations

import zlib

from scapy.error import Scapy_Exception
from scapy.fields import ConditionalField, XLEIntField
from scapy.fields import Field as ScapyField
from scapy.packet import Packet, bind_bottom_up, bind_layers, bind_top_down

from nupa.packet.scapy.fields import LayoutLayer, fields_of, layer_class
from nupa.packet.tables import pcie as tables
from nupa.packet.tables.layout import Layout

LENGTH_DW_MAX = 1024  # PCIe 6.0, 2.2.2: encoded as 0
DIGEST_BYTES = 4


def ecrc(tlp: bytes) -> int:
    """Computes the end-to-end CRC of a TLP without its digest, as a little-endian number.

    PCIe 6.0, 2.7.1: CRC-32 of all bytes, with the variant bits Type[0] and EP taken as 1.
    """
    return zlib.crc32(bytes((tlp[0] | 0x01, tlp[1], tlp[2] | 0x40)) + tlp[3:])


class _DigestField(XLEIntField):
    """The last four bytes of a TLP; None if it was cut."""

    def addfield(self, _pkt: Packet, s: bytes, _val: int | None) -> bytes:
        return s  # TLP.post_build has the data before it

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, int | None]:  # type: ignore[override]
        end = pkt.header_and_data_bytes() - TLP.layout.bytes
        if len(s) < end + DIGEST_BYTES:
            return s, None
        digest = int.from_bytes(s[end : end + DIGEST_BYTES], "little")
        return s[:end] + s[end + DIGEST_BYTES :], digest


class TLP(LayoutLayer):
    """The first DW of a TLP, and its digest if it has one."""

    name = "PCIe TLP"
    layout = tables.TLP
    fields_desc = [  # noqa: RUF012
        *fields_of(layout, length=None),
        ConditionalField(_DigestField("ecrc", None), lambda pkt: pkt.td == 1),
    ]

    def header_and_data_bytes(self) -> int:
        """Returns the length that the first DW says."""
        header = 16 if self.fmt & 1 else 12
        return header + 4 * (self.length or LENGTH_DW_MAX) if self.fmt & 2 else header

    def post_dissect(self, s: bytes) -> bytes:
        if self.td and self.ecrc is not None:
            self.raw_packet_cache = None  # scapy assumes that this layer's bytes are contiguous
        return s

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        end = self.header_and_data_bytes() - self.layout.bytes
        return s[:end], s[end:]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        pkt = pkt[: self.layout.bytes]
        if self.fmt & 2 and len(pay) % 4:
            pay += bytes(-len(pay) % 4)
        if self.length is None:
            data = len(pay) - (12 if self.fmt & 1 else 8) if self.fmt & 2 else 4
            length = max(data, 4) // 4
            if length > LENGTH_DW_MAX:
                raise Scapy_Exception(
                    f"PCIe TLP: {data} bytes of data; at most {4 * LENGTH_DW_MAX} are possible"
                )
            pkt = self.put(pkt, "length", length % LENGTH_DW_MAX)
        if not self.td:
            return pkt + pay
        digest = ecrc(pkt + pay) if self.ecrc is None else self.ecrc
        return pkt + pay + digest.to_bytes(DIGEST_BYTES, "little")

    def mysummary(self) -> str:
        kind = tables.TYPES.get((self.fmt, self.type), f"TLP {self.fmt}/{self.type:#04x}")
        return f"PCIe {kind}"


class _Mem(LayoutLayer):
    """A memory request.  Byte enables that are not given are those of whole DWs."""

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        lower = self.underlayer
        length = lower.length if isinstance(lower, TLP) else None
        if length is None:
            length = -(-len(pay) // 4) or 1
        if self.first_be is None:
            pkt = self.put(pkt, "first_be", 0xF)
        if self.last_be is None:
            pkt = self.put(pkt, "last_be", 0 if length == 1 else 0xF)
        return pkt + pay

    def mysummary(self) -> str:
        name = self.__class__.__name__
        return self.sprintf(f"{self.name} %{name}.address% tag %{name}.tag%")


class _OperandField(ScapyField[int, bytes]):
    """A little-endian number of 1, 2 or 4 DW, by the TLP's length (PCIe 6.0, 2.2.7).

    It has 8 bytes if there is no TLP below.
    """

    __slots__ = ("operands",)

    def __init__(self, name: str, operands: int) -> None:
        super().__init__(name, 0, "8s")
        self.operands = operands

    def _bytes(self, pkt: Packet) -> int:
        lower = pkt.underlayer
        length = lower.length if isinstance(lower, TLP) else None
        if length is None:
            return 8
        if length not in [size * self.operands for size in (1, 2, 4)]:
            raise Scapy_Exception(f"PCIe TLP: no atomic operation has {length} DW of operands")
        return int(length) * 4 // self.operands

    def addfield(self, pkt: Packet, s: bytes, val: int | None) -> bytes:
        size = self._bytes(pkt)
        if not 0 <= (val or 0) < 1 << 8 * size:
            raise Scapy_Exception(f"PCIe TLP: {self.name} = {val} does not fit {size} bytes")
        return s + (val or 0).to_bytes(size, "little")

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, int]:
        size = self._bytes(pkt)
        if len(s) < size:
            raise Scapy_Exception(f"PCIe TLP: {self.name} has {size} bytes, {len(s)} are there")
        return s[size:], int.from_bytes(s[:size], "little")

    def i2repr(self, _pkt: Packet | None, x: int) -> str:
        return hex(x)


def _requests(
    base: type[LayoutLayer], name: str, what: str, *operands: _OperandField, **defaults: int | None
) -> tuple[type[LayoutLayer], type[LayoutLayer]]:
    """Makes the layers of a request with 32-bit and with 64-bit addresses."""

    def made(bits: int, layout: Layout) -> type[LayoutLayer]:
        text, fields = f"{what}, {bits}-bit address", [*fields_of(layout, **defaults), *operands]
        return layer_class(base, f"{name}{bits}", layout, name=text, fields_desc=fields)

    return made(32, tables.MEM32), made(64, tables.MEM64)


MemRead32, MemRead64 = _requests(_Mem, "MemRead", "MRd", first_be=None, last_be=None)
MemWrite32, MemWrite64 = _requests(_Mem, "MemWrite", "MWr", first_be=None, last_be=None)
FetchAdd32, FetchAdd64 = _requests(LayoutLayer, "FetchAdd", "FetchAdd", _OperandField("operand", 1))
Swap32, Swap64 = _requests(LayoutLayer, "Swap", "Swap", _OperandField("operand", 1))
CAS32, CAS64 = _requests(
    LayoutLayer, "CAS", "CAS", _OperandField("compare", 2), _OperandField("swap", 2)
)


class _Completion(LayoutLayer):
    layout = tables.COMPLETION
    fields_desc = fields_of(tables.COMPLETION, byte_count=None)

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        if self.byte_count is None:
            # 2.2.9.1: 4 for what has no data, and 4096 is encoded as 0
            pkt = self.put(pkt, "byte_count", (len(pay) or 4) % 4096)
        return pkt + pay

    def answers(self, other: Packet) -> int:
        asked = (getattr(other, "requester", None), getattr(other, "tag", None))
        return int(asked == (self.requester, self.tag) and not isinstance(other, _Completion))


class Completion(_Completion):
    name = "Cpl"


class CompletionData(_Completion):
    name = "CplD"


class _MessageTlp(LayoutLayer):
    def mysummary(self) -> str:
        lower = self.underlayer
        routing = lower.type & 7 if isinstance(lower, TLP) else None
        way = tables.ROUTING.get(routing, "routing reserved") if routing is not None else ""
        return f"{self.name} {tables.MESSAGES.get(self.code, hex(self.code))} {way}".rstrip()


class Message(_MessageTlp):
    name = "Msg"
    layout = tables.MESSAGE


class MessageData(_MessageTlp):
    name = "MsgD"
    layout = tables.MESSAGE


LAYERS: dict[type[Packet], tuple[int, int]] = {
    MemRead32: (0, 0x00),
    MemRead64: (1, 0x00),
    MemWrite32: (2, 0x00),
    MemWrite64: (3, 0x00),
    FetchAdd32: (2, 0x0C),
    FetchAdd64: (3, 0x0C),
    Swap32: (2, 0x0D),
    Swap64: (3, 0x0D),
    CAS32: (2, 0x0E),
    CAS64: (3, 0x0E),
    Completion: (0, 0x0A),
    CompletionData: (2, 0x0A),
}
for _layer, (_fmt, _type) in LAYERS.items():
    bind_layers(TLP, _layer, fmt=_fmt, type=_type)

# A message's routing is part of its type: 4, local, unless the program says otherwise.
for _message, _fmt in ((Message, 1), (MessageData, 3)):
    bind_top_down(TLP, _message, fmt=_fmt, type=0x14)
    for _routing in range(8):
        bind_bottom_up(TLP, _message, fmt=_fmt, type=0x10 | _routing)
