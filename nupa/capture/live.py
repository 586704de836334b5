# SPDX-License-Identifier: BSD-3-Clause
"""A fabric as a source of batches, like those of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.core.levels import ETHERNET_LEVELS
from nupa.core.watch import Watch, ports_of
from nupa.packet.pcapng.blocks import OPT_COMMENT, Interface, Option, encode_options
from nupa.packet.pcapng.reader import Batch
from nupa.packet.tables.record import LINKTYPE_ETHERNET, LINKTYPE_NUPA, comment_of

if TYPE_CHECKING:
    from nupa.core.watch import WatchCounts
    from nupa.fabric import Fabric

_ROOM_BYTES = 4 << 20
_BATCH_PACKETS = 8192
_NONE = 0xFFFFFFFF
_ORDER = "<" if sys.byteorder == "little" else ">"
_COMMENTED_FLAGS = range(0, 1 << 10, 4)  # all but first and last: csrc/capture/watch_index.h


class Live(Closing):
    """Batches of what crosses a fabric; *interfaces*: one for each port and link type.

    *where*: hosts, ports or links, or "any".  *levels*, *snap_bytes* and errors are those of
    nupa.core.watch.Watch.
    """

    def __init__(
        self, fabric: Fabric, where: Iterable[str], levels: Iterable[str], snap_bytes: int = 0
    ) -> None:
        ports, every = ports_of(fabric, where), fabric.ports
        self._watch = Watch(fabric, levels, snap_bytes=snap_bytes, ports=ports)
        self.levels = self._watch.levels
        linktypes = dict.fromkeys(
            LINKTYPE_ETHERNET if level in ETHERNET_LEVELS else LINKTYPE_NUPA
            for level in self.levels
        )
        shown = ports or tuple(host.port for host in fabric.hosts)
        self.interfaces: list[Interface] = []
        self._numbers = ffi.new("uint32_t[]", [_NONE] * (2 * len(every)))
        self._n_ports = len(every)
        for port in shown:
            for linktype in linktypes:
                number = len(self.interfaces)
                self._numbers[2 * port + (linktype == LINKTYPE_NUPA)] = number
                interface = Interface(number, linktype, snap_bytes, every[port].name, ())
                self.interfaces.append(interface)
        self._begin_buffer()

    def _begin_buffer(self) -> None:
        """Allocates the buffer, which begins with the comments that packets may have."""
        texts = [comment_of(flags) for flags in _COMMENTED_FLAGS]
        blocks = [
            encode_options([Option(OPT_COMMENT, text.encode())], _ORDER) if text else b""
            for text in texts
        ]
        offsets = accumulate((len(block) for block in blocks), initial=0)
        places = [(at, len(block)) for at, block in zip(offsets, blocks, strict=False)]
        head = b"".join(blocks)
        head += bytes(-len(head) % 8)
        self._options = ffi.new("struct nupa_watch_options[]", places)
        self._first = len(head)
        self._buffer = ffi.new("uint8_t[]", len(head) + _ROOM_BYTES)
        ffi.memmove(self._buffer, head, len(head))
        self._records = ffi.new("struct nupa_pcapng_record[]", _BATCH_PACKETS)

    def batches(self) -> Iterator[Batch]:
        """Yields the packets recorded since the last call, in order of time.

        A batch is valid until the next one.
        """
        used, _ = self._watch.read_into(self._buffer, self._first)
        end = self._first + used
        data, place = ffi.buffer(self._buffer, end), ffi.new("size_t *", self._first)
        while place[0] < end:
            count = lib.nupa_watch_index(
                self._buffer,
                end,
                self._numbers,
                self._n_ports,
                self._options,
                self._records,
                _BATCH_PACKETS,
                place,
            )
            if count:
                yield Batch(data, self._records, count, self.interfaces, _ORDER)

    @property
    def counts(self) -> WatchCounts:
        return self._watch.counts

    def stop(self) -> None:
        """Stops recording; packets recorded before can still be read."""
        self._watch.stop()

    def close(self) -> None:
        self._watch.close()
