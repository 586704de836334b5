# SPDX-License-Identifier: BSD-3-Clause
"""Frames of a batch, wherever they lie in it, with their headers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from nupa.packet.decode import fast
from nupa.packet.decode.columns import Columns
from nupa.packet.decode.fast import Layer
from nupa.packet.pcapng.blocks import commented_flags
from nupa.packet.pcapng.reader import Batch

_ICRC_BYTES = 4
_MAC_BYTES = 6
# Linux' cooked headers: their bytes, and where the sender's link address lies.
_COOKED = {fast.LINKTYPE_SLL: (16, 6), fast.LINKTYPE_SLL2: (20, 12)}
_SLL2_INTERFACE = 4  # byte of SLL2: the interface's index, 4 bytes
_INDEX_SHIFT = 16  # pcapng files have fewer interfaces
_NETWORK = int(Layer.NETWORK)

text_of_address = lru_cache(maxsize=4096)(fast.address_text)


class Frames:
    """Packet *places[n]* of the batch is frame n, behind its first *skipped[n]* bytes."""

    def __init__(
        self,
        batch: Batch,
        blocks: Columns,
        places: Sequence[int] | None = None,
        skipped: Sequence[int] = (),
    ) -> None:
        self.batch = batch
        self.blocks = blocks
        self._skipped = skipped
        if places is None:
            self.places: Sequence[int] = range(len(batch))
            self.headers = fast.decode_batch(batch)
        else:
            self.places = places
            spans = [(self.start(n), self._captured(n)) for n in range(len(places))]
            self.headers = fast.decode(batch.data, spans)

    def start(self, n: int) -> int:
        """Where the frame begins in the batch's data."""
        return int(self.blocks.offset[self.places[n]]) + self._skip(n)

    def _skip(self, n: int) -> int:
        return self._skipped[n] if self._skipped else 0

    def _captured(self, n: int) -> int:
        return int(self.blocks.captured_bytes[self.places[n]]) - self._skip(n)

    def _linktype(self, n: int) -> int:
        if self._skipped:  # a frame in a record of NUPA's
            return fast.LINKTYPE_ETHERNET
        return self.batch.interfaces[self.blocks.interface[self.places[n]]].linktype

    @cached_property
    def where(self) -> list[int]:
        """Where each frame was seen: equal numbers are one interface.  `tcpdump -i any` records all
        of a host's as one, so a frame that crosses a bridge is there more than once."""
        interfaces: list[int] = self.blocks.interface.tolist()
        if not isinstance(self.places, range):
            return [interfaces[i] for i in self.places]
        if all(one.linktype != fast.LINKTYPE_SLL2 for one in self.batch.interfaces):
            return interfaces
        return [at | self.index(n) << _INDEX_SHIFT for n, at in enumerate(interfaces)]

    def index(self, n: int) -> int:
        """Linux' index of the interface, where the link's header has it; else 0."""
        if self._linktype(n) != fast.LINKTYPE_SLL2:
            return 0
        return int.from_bytes(self.data(n, _SLL2_INTERFACE, 4), "big")

    def inner(self, n: int) -> bytes:
        """Returns the part that no interface changes: all but a cooked header."""
        start = _COOKED.get(self._linktype(n), (0, 0))[0]
        return self.data(n, start, self.original(n))

    def original(self, n: int) -> int:
        """Bytes that the frame had."""
        return int(self.blocks.original_bytes[self.places[n]]) - self._skip(n)

    def data(self, n: int, at: int, count: int) -> bytes:
        """*count* bytes from byte *at* of the frame on, or as many as were captured."""
        start = self.start(n)
        end = start + self._captured(n)
        return bytes(self.batch.data[min(start + at, end) : min(start + at + count, end)])

    def payload_bytes(self, n: int) -> int:
        """Of a transport packet, with what was not captured."""
        seen, original = int(self.headers.payload_bytes[n]), self.original(n)
        if original == self._captured(n):
            return seen
        behind = int(self.headers.padcount[n]) + _ICRC_BYTES
        return max(original - int(self.headers.payload_offset[n]) - behind, seen)

    @cached_property
    def _routes(self) -> list[tuple[bytes, bytes]]:
        return list(zip(self.headers.sources(), self.headers.destinations(), strict=True))

    def route(self, n: int) -> tuple[bytes, bytes]:
        """From and to, as 16 bytes each; zeros where there is no IP address and no GID."""
        return self._routes[n]

    def addresses(self, n: int) -> tuple[str, str]:
        """From and to: IP addresses or GIDs, else MAC addresses; empty where there are none, and
        where Linux' cooked capture does not keep them."""
        if self.headers.layer[n] >= _NETWORK:
            source, target = self.route(n)
            return text_of_address(source), text_of_address(target)
        if not self.headers.ethertype[n]:
            return "", ""
        cooked = _COOKED.get(self._linktype(n))
        if cooked:
            return self.data(n, cooked[1], _MAC_BYTES).hex(":"), ""
        macs = self.data(n, 0, 2 * _MAC_BYTES)
        return macs[_MAC_BYTES:].hex(":"), macs[:_MAC_BYTES].hex(":")

    def flags(self, n: int) -> int:
        """What the comment of a packet says of it (docs/packet.md)."""
        i = self.places[n]
        at = self.blocks.options_offset[i]
        if not at:
            return 0
        options = self.batch.data[at : at + self.blocks.options_bytes[i]]
        return commented_flags(bytes(options), self.batch.order)
