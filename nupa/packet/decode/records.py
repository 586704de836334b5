# SPDX-License-Identifier: BSD-3-Clause
"""Decodes records of NUPA's link type, a batch at once, in C.

    >>> from collections import Counter
    >>> from nupa.packet.decode.records import read
    >>> def transfers(path):  # how many records each transfer has
    ...     found = Counter()
    ...     for batch, records in read(path):
    ...         found.update(records.transfer)
    ...     return found

csrc/packet/records.h describes the columns.  All fields of one record: the layers of
`nupa.packet.scapy.link`, or `nupa.packet.tables`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from os import PathLike
from typing import IO

from nupa._engine import ffi, lib
from nupa.packet.decode.columns import Columns, columns_of
from nupa.packet.pcapng.reader import Batch, Reader


class RecordFault(IntEnum):
    """The reason why a record was not decoded, or not to its end."""

    NONE = lib.NUPA_DECODED_FAULT_NONE
    SPAN = lib.NUPA_DECODED_FAULT_SPAN
    LINK = lib.NUPA_DECODED_FAULT_LINK
    CUT = lib.NUPA_DECODED_FAULT_CUT
    VERSION = lib.NUPA_DECODED_FAULT_VERSION
    LENGTH = lib.NUPA_DECODED_FAULT_LENGTH
    KIND = lib.NUPA_DECODED_FAULT_KIND


_COLUMNS = columns_of("nupa_decoded")
COLUMNS: tuple[str, ...] = tuple(_COLUMNS)


def decode_batch(batch: Batch) -> Columns:
    """Decodes a batch into columns.

    Damaged records raise nothing: `fault` has the reason.  It is LINK for other link types.
    """
    linktypes = [interface.linktype for interface in batch.interfaces]
    count = len(batch)
    out = ffi.new("struct nupa_decoded[]", max(count, 1))
    lib.nupa_decode_records(
        ffi.from_buffer(batch.data),
        len(batch.data),
        ffi.cast("struct nupa_span *", ffi.addressof(batch.records[0], "offset")),
        ffi.sizeof("struct nupa_pcapng_record"),
        count,
        ffi.new("uint32_t[]", linktypes),
        len(linktypes),
        out,
    )
    return Columns(out, count, "nupa_decoded", _COLUMNS)


def read(file: str | PathLike[str] | IO[bytes]) -> Iterator[tuple[Batch, Columns]]:
    """Yields the batches of a pcapng file with their records.  PcapngError as pcapng.Reader."""
    for batch in Reader(file).batches():
        yield batch, decode_batch(batch)
