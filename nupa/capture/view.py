# SPDX-License-Identifier: BSD-3-Clause
"""Many packets of a capture at once, as columns: what filters and lines are made of.

A batch is decoded once, and only as far as somebody asks: the blocks themselves (`r_`, csrc/packet/
pcapng.h), headers of Ethernet packets (`h_`, decode.h), NUPA's records (`n_`, records.h).
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
    """The host or switch that a port is of, by its name: `host0/1` is of host0."""
    return port.rpartition("/")[0] or port


class View:
    """A batch of packets.  *check_icrc*: the column h_icrc_state says whether ICRCs are right."""

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
        """The packet's bytes, as many as were captured."""
        at = self.blocks.offset[index]
        return bytes(self.batch.data[at : at + self.blocks.captured_bytes[index]])

    def interface(self, index: int) -> Interface:
        return self.batch.interfaces[self.blocks.interface[index]]

    def column(self, name: str) -> list[Any]:
        """The values of `r_`, `h_` or `n_` and a column's name; or of MADE by its own."""
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
        """The flags that packets' comments say; those of NUPA's records are in their headers."""
        blocks, order = self.blocks, self.batch.order
        for at, size in zip(blocks.options_offset, blocks.options_bytes, strict=True):
            yield commented_flags(self.batch.data[at : at + size], order) if at else 0


#: Columns that are not simply there.
MADE: dict[str, Callable[[View], Iterable[Any]]] = {
    "m_port": View.ports,
    "m_host": View.hosts,
    "m_source": View.sources,
    "m_destination": View.destinations,
    "m_flags": View.commented_flags,
}
