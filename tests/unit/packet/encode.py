# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of TLPs and CXL.mem messages that split.py yields, as a capture has them."""

from __future__ import annotations

from struct import Struct

from nupa.packet.tables import cxl_mem as cxl_tables
from nupa.packet.tables.cxl_mem import LINE_BYTES, MemChannel
from tests.unit.packet.split import CxlMessage, Tlp

# The first DW, then the header of a request or a completion (pcie_tables).
_REQUEST32 = Struct(">BBHHBBI")
_REQUEST64 = Struct(">BBHHBBQ")
_COMPLETION = Struct(">BBHHHHBB")
_WITH_64_BITS = 0x20
_CPLD = 0x4A
_CODES = {"MRd": 0x00, "MWr": 0x40, "FetchAdd": 0x4C, "Swap": 0x4D, "CAS": 0x4E}
_ATOMICS = ("FetchAdd", "Swap", "CAS")

# CxlMem, then the message (cxl_tables).
_CXL_REQUEST = Struct(">4B4HQ")
_CXL_RESPONSE = Struct(">4B2H")
_VALID = 0x80
_NO_META = cxl_tables.META_NO_OP << 6
_TRAILER = 1
_OPCODES = {
    channel: {name: code for code, name in names.items()}
    for channel, names in cxl_tables.OPCODES.items()
}


def tlp_bytes(tlp: Tlp, data: bytes = b"", requester: int = 0, completer: int = 0) -> bytes:
    """Encodes *tlp* as in a capture, without a digest.

    *data*: of a write or a completion, `tlp.length` bytes, at their places in whole DWs; of an
    atomic, its operands in little endian.  ValueError for another length.
    """
    tag_high = (tlp.tag >> 9 & 1) << 7 | (tlp.tag >> 8 & 1) << 3
    tag, length = tlp.tag & 0xFF, tlp.dw & 0x3FF
    if tlp.kind == "CplD":
        head = _COMPLETION.pack(
            _CPLD,
            tag_high,
            length,
            completer,
            tlp.byte_count & 0xFFF,
            requester,
            tag,
            tlp.lower_address,
        )
    else:
        # PCIe 6.0, 2.2.4.1: addresses below 4 GiB are to have the short form
        wide = tlp.address >= 1 << 32
        head = (_REQUEST64 if wide else _REQUEST32).pack(
            _CODES[tlp.kind] | (_WITH_64_BITS if wide else 0),
            tag_high,
            length,
            requester,
            tag,
            tlp.last_be << 4 | tlp.first_be,
            tlp.address & ~3,
        )
    if tlp.kind == "MRd":
        size = 0
    else:
        size = 4 * tlp.dw if tlp.kind in _ATOMICS else tlp.length
    if len(data) != size:
        raise ValueError(f"a {tlp.kind} of {tlp.dw} DW with {len(data)} bytes: it has {size}")
    if tlp.kind == "MRd":
        return head
    return head + (bytes(tlp.address & 3) + data).ljust(4 * tlp.dw, b"\0")


def cxl_mem_bytes(message: CxlMessage, data: bytes = b"", ld_id: int = 0) -> bytes:
    """Encodes *message* as in a capture, of a 256B flit.

    *data*: of a message with data, its `data_bytes`, at their place in the line; the rest of the
    line is zeros.  ValueError for another length.
    """
    if len(data) != message.data_bytes:
        raise ValueError(
            f"{message.opcode} with {len(data)} bytes of data: it has {message.data_bytes}"
        )
    channel = message.channel
    first = _VALID | _OPCODES[channel][message.opcode] << 3
    if channel in (MemChannel.S2M_NDR, MemChannel.S2M_DRS):
        head = _CXL_RESPONSE.pack(channel, 1, first, _NO_META, message.tag, ld_id << 12)
    else:
        second = _NO_META | (_TRAILER if message.byte_enables else 0)
        head = _CXL_REQUEST.pack(
            channel, 1, first, second, message.tag, ld_id << 12, 0, 0, message.address
        )
    if channel not in (MemChannel.M2S_RWD, MemChannel.S2M_DRS):
        return head
    if message.byte_enables:
        head += message.byte_enables.to_bytes(8, "big")
    return head + (bytes(message.data_at) + data).ljust(LINE_BYTES, b"\0")
