# SPDX-License-Identifier: BSD-3-Clause
"""Networks as graphs: endpoints, switches and directed links, for the packet and flow engines."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nupa.model.errors import ModelError
from nupa.model.profile.profile import Profile

#: Limits: the packet engine's 32-bit indices, less those that it needs itself.
NODES_MAX = 1 << 24
LINKS_MAX = 1 << 26


class LinkKind(NamedTuple):
    """The common part of equal links.  The profile says how packets are sent over them.

    *name* is the class that answers print ("host", "leaf to spine").  *latency_ns* is the medium's
    and, at the end of the link, the switch's or the adapter's.  *buffer_bytes* is the room for
    packets that wait for this link, or, where links have credits, at its far end; 0: the engine
    takes what a round trip needs.
    """

    name: str
    rate_bytes_per_s: float
    latency_ns: float = 0.0
    buffer_bytes: int = 0
    profile: Profile | None = None


class Link(NamedTuple):
    """One direction of a cable, as `Graph.links` returns it."""

    source: int
    target: int
    kind: LinkKind


@dataclass
class Graph:
    """Nodes 0 to *endpoints* - 1 send and receive; the other *switches* only forward.

    Links are columns: link i leads from source[i] to target[i] and is a kinds[kind[i]].  Several
    links between two nodes are permitted.  A packet takes any of the paths with the fewest links,
    and no path leads through an endpoint, unless *routes* names its next links: then that table is
    used for the pair of a node and a destination.
    """

    name: str
    endpoints: int
    switches: int = 0
    kinds: list[LinkKind] = field(default_factory=list)
    source: array[int] = field(default_factory=lambda: array("I"))
    target: array[int] = field(default_factory=lambda: array("I"))
    kind: array[int] = field(default_factory=lambda: array("H"))
    routes: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.endpoints < 1 or self.switches < 0:
            raise ModelError(
                f"{self.name}: a graph has an endpoint at least: {self.endpoints} endpoints and "
                f"{self.switches} switches were asked"
            )
        self._check_nodes()

    @property
    def nodes(self) -> int:
        return self.endpoints + self.switches

    def add_switch(self) -> int:
        """Returns the number of a new switch."""
        self.switches += 1
        self._check_nodes()
        return self.nodes - 1

    def add_kind(self, kind: LinkKind) -> int:
        """Returns the index of a kind of links.  ModelError: it has no rate, or less than none."""
        if not kind.rate_bytes_per_s > 0 or kind.latency_ns < 0 or kind.buffer_bytes < 0:
            raise ModelError(
                f"{self.name}: {kind.name}: a link has a rate above 0 and no other "
                f"number below 0: {kind.rate_bytes_per_s:g} B/s, "
                f"{kind.latency_ns:g} ns, {kind.buffer_bytes} B"
            )
        if kind not in self.kinds:
            self.kinds.append(kind)
        return self.kinds.index(kind)

    def add_link(self, source: int, target: int, kind: int) -> int:
        """Returns the index of a new link, of one direction."""
        for node in (source, target):
            if not 0 <= node < self.nodes:
                raise ModelError(f"{self.name} has nodes 0 to {self.nodes - 1}: not {node}")
        if source == target:
            raise ModelError(f"{self.name}: a link from {source} to itself")
        if not 0 <= kind < len(self.kinds):
            raise ModelError(f"{self.name} has {len(self.kinds)} kinds of links: not {kind}")
        if len(self.source) == LINKS_MAX:
            raise ModelError(f"{self.name}: a graph has at most {LINKS_MAX} links")
        self.source.append(source)
        self.target.append(target)
        self.kind.append(kind)
        return len(self.source) - 1

    def add_cable(self, a: int, b: int, kind: int) -> tuple[int, int]:
        """Returns the indices of two new links: from *a* to *b*, and back."""
        return self.add_link(a, b, kind), self.add_link(b, a, kind)

    def links(self) -> Iterator[Link]:
        """Yields each link, in the order of its index."""
        for source, target, kind in zip(self.source, self.target, self.kind, strict=True):
            yield Link(source, target, self.kinds[kind])

    def _check_nodes(self) -> None:
        if self.nodes > NODES_MAX:
            raise ModelError(f"{self.name}: a graph has at most {NODES_MAX} nodes: {self.nodes}")
