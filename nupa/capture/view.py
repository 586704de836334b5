# SPDX-License-Identifier: BSD-3-Clause
"""The packets of a batch as columns, for filters and lines.

A batch is decoded once, and only in the parts that are used.  The parts are the blocks themselves
(`r_`, csrc/packet/pcapng.h), headers of Ethernet packets (`h_`, decode.h), and NUPA's records
(`n_`, records.h).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from nupa.packet.decode import fast, records
from nupa.packet.decode.columns import Columns, blocks_of
from nupa.packet.pcapng.blocks import Interface, commented_flags
from nupa.packet.pcapng.reader import Batch


def node_of(port: str) -> str:
    """Returns the host or switch of a port, by its name: `host0/1` is of host0."""
    return port.rpartition("/")[0] or port


class View:
    """A batch of packets.  *check_icrc*: ICRCs are computed for the column h_icrc_state."""

    def __init__(self, batch: Batch, *, check_icrc: bool = False) -> None:
        self.batch = batch
        self._check_icrc = check_icrc

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def blocks(self) -> Columns:
        return blocks_of(self.batch)

    @cached_property
    def headers(self) -> fast.Headers:
        return fast.decode_batch(self.batch, check_icrc=self._check_icrc)

    @cached_property
    def records(self) -> Columns:
        return records.decode_batch(self.batch)

    def data(self, index: int) -> bytes:
        """Returns the captured bytes of a packet."""
        at = self.blocks.offset[index]
        return bytes(self.batch.data[at : at + self.blocks.captured_bytes[index]])

    def interface(self, index: int) -> Interface:
        return self.batch.interfaces[self.blocks.interface[index]]

    def column(self, name: str) -> list[Any]:
        """Returns the values of a column: `r_`, `h_` or `n_` and its name, or a name in MADE."""
        if name in MADE:
            return list(MADE[name](self))
        table = {"r": self.blocks, "h": self.headers, "n": self.records}[name[0]]
        values: list[Any] = getattr(table, name[2:]).tolist()
        return values

    def _of_interfaces(self, of: Callable[[Interface], str]) -> Iterator[str]:
        names = [of(interface) for interface in self.batch.interfaces]
        return map(names.__getitem__, self.blocks.interface)

    def ports(self) -> Iterator[str]:
        return self._of_interfaces(lambda interface: interface.name)

    def hosts(self) -> Iterator[str]:
        return self._of_interfaces(lambda interface: node_of(interface.name))

    def sources(self) -> Iterator[bytes]:
        return self.headers.sources()

    def destinations(self) -> Iterator[bytes]:
        return self.headers.destinations()

    def commented_flags(self) -> Iterator[int]:
        """Yields the flags in packets' comments; NUPA's records have theirs in their headers."""
        blocks, order = self.blocks, self.batch.order
        for at, size in zip(blocks.options_offset, blocks.options_bytes, strict=True):
            yield commented_flags(self.batch.data[at : at + size], order) if at else 0


#: Columns that are computed from others.
MADE: dict[str, Callable[[View], Iterable[Any]]] = {
    "m_port": View.ports,
    "m_host": View.hosts,
    "m_source": View.sources,
    "m_destination": View.destinations,
    "m_flags": View.commented_flags,
}
