# SPDX-License-Identifier: BSD-3-Clause
"""The frames of a batch, with their decoded headers."""

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
# Linux's cooked headers: their length, and the offset of the sender's link address.
_COOKED = {fast.LINKTYPE_SLL: (16, 6), fast.LINKTYPE_SLL2: (20, 12)}
_SLL2_INTERFACE = 4  # byte of SLL2: the interface's index, 4 bytes
_INDEX_SHIFT = 16  # pcapng files have fewer interfaces
_NETWORK = int(Layer.NETWORK)

text_of_address = lru_cache(maxsize=4096)(fast.address_text)


class Frames:
    """Frame n is packet *places[n]* of the batch, without its first *skipped[n]* bytes."""

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
        """Returns the offset of the frame in the batch's data."""
        return int(self.blocks.offset[self.places[n]]) + self._skip(n)

    def _skip(self, n: int) -> int:
        return self._skipped[n] if self._skipped else 0

    def _captured(self, n: int) -> int:
        return int(self.blocks.captured_bytes[self.places[n]]) - self._skip(n)

    def _linktype(self, n: int) -> int:
        if self._skipped:  # a frame in one of NUPA's records
            return fast.LINKTYPE_ETHERNET
        return self.batch.interfaces[self.blocks.interface[self.places[n]]].linktype

    @cached_property
    def where(self) -> list[int]:
        """A number for the interface of each frame.

        `tcpdump -i any` records all interfaces of a host as one, so a frame that crosses a bridge
        is there more than once.  Linux's index distinguishes the copies.
        """
        interfaces: list[int] = self.blocks.interface.tolist()
        if not isinstance(self.places, range):
            return [interfaces[i] for i in self.places]
        if all(one.linktype != fast.LINKTYPE_SLL2 for one in self.batch.interfaces):
            return interfaces
        return [at | self.index(n) << _INDEX_SHIFT for n, at in enumerate(interfaces)]

    def index(self, n: int) -> int:
        """Returns Linux's index of the interface if the link header has it; else 0."""
        if self._linktype(n) != fast.LINKTYPE_SLL2:
            return 0
        return int.from_bytes(self.data(n, _SLL2_INTERFACE, 4), "big")

    def inner(self, n: int) -> bytes:
        """Returns the frame without a cooked header, the same at all interfaces."""
        start = _COOKED.get(self._linktype(n), (0, 0))[0]
        return self.data(n, start, self.original(n))

    def original(self, n: int) -> int:
        """Returns the length of the frame before it was cut."""
        return int(self.blocks.original_bytes[self.places[n]]) - self._skip(n)

    def data(self, n: int, at: int, count: int) -> bytes:
        """Returns *count* bytes from byte *at* of the frame on, or as many as were captured."""
        start = self.start(n)
        end = start + self._captured(n)
        return bytes(self.batch.data[min(start + at, end) : min(start + at + count, end)])

    def payload_bytes(self, n: int) -> int:
        """Returns the payload's length of a transport packet, with bytes that were not captured."""
        seen, original = int(self.headers.payload_bytes[n]), self.original(n)
        if original == self._captured(n):
            return seen
        behind = int(self.headers.padcount[n]) + _ICRC_BYTES
        return max(original - int(self.headers.payload_offset[n]) - behind, seen)

    @cached_property
    def _routes(self) -> list[tuple[bytes, bytes]]:
        return list(zip(self.headers.sources(), self.headers.destinations(), strict=True))

    def route(self, n: int) -> tuple[bytes, bytes]:
        """Returns source and destination, 16 bytes each; zeros without an IP address or GID."""
        return self._routes[n]

    def addresses(self, n: int) -> tuple[str, str]:
        """Returns source and destination: IP addresses or GIDs, else MAC addresses.

        They are empty if there are none, or if Linux's cooked capture does not keep them.
        """
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
        """Returns the flags in a packet's comments (docs/packet.md)."""
        i = self.places[n]
        at = self.blocks.options_offset[i]
        if not at:
            return 0
        options = self.batch.data[at : at + self.blocks.options_bytes[i]]
        return commented_flags(bytes(options), self.batch.order)
