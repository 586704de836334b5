# SPDX-License-Identifier: BSD-3-Clause
"""Decoding of a host's address: fixed windows, host bridges, switches and devices in turn.

CXL 3.1 9.18.1.3, 8.2.4.20.13.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.function import Function
from nupa.cxl.function.hdm import Committed, DecoderSet
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.function.port import Port
from nupa.cxl.host.root import HostBridge, RootComplex
from nupa.cxl.registers.component_tables import STEP_BITS
from nupa.cxl.registers.pcie_tables import PortType

ONE_WAY = Interleave()


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """A CXL fixed memory window of a host (CFMWS, 9.18.1.3): *targets* are the uids of host
    bridges, one for each way.  ValueError: not a possible window."""

    base: int
    size: int
    targets: tuple[int, ...]
    interleave: Interleave = ONE_WAY

    def __post_init__(self) -> None:
        ways, step = self.interleave.ways, 1 << STEP_BITS
        if len(self.targets) != ways:
            raise ValueError(f"{ways} ways have as many targets, not {len(self.targets)}")
        if self.base % step or self.size % (ways * step) or not self.size:
            raise ValueError(f"{self.size:#x} bytes at {self.base:#x} are not {ways} times 256 MiB")

    @property
    def end(self) -> int:
        return self.base + self.size

    def __contains__(self, hpa: int) -> bool:
        return self.base <= hpa < self.end


@dataclass(frozen=True, slots=True)
class Leaf:
    """A device that decodes the address; *hops* are the ports on the way."""

    device: Type3
    decoder: Committed
    hops: tuple[Port, ...]

    def dpa(self, hpa: int) -> int:
        return self.decoder.dpa + self.decoder.interleave.dpa_offset(hpa - self.decoder.base)


@dataclass(frozen=True, slots=True)
class InterleaveStep:
    """A selection among *choices* by interleaving."""

    interleave: Interleave
    choices: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """A way that ends at the last of *hops*: nothing is behind that port now."""

    hops: tuple[Port, ...]


#: The way of an address; None: nothing decodes it.
Route = InterleaveStep | Leaf | DeadEnd | None


class AddressMap:
    """A host's address map, by the current state of its decoders."""

    def __init__(self, root: RootComplex, windows: Sequence[FixedWindow]) -> None:
        self.windows = sorted(windows, key=lambda window: window.base)
        self._bridges = {bridge.uid: bridge for bridge in root.bridges}
        for one, two in pairwise(self.windows):
            if one.end > two.base:
                raise ValueError(f"windows at {one.base:#x} and {two.base:#x} overlap")

    def find(self, hpa: int) -> tuple[Leaf, int] | None:
        """Returns the decoding device of *hpa*, and the address in its memory."""
        route = self.way(hpa)
        return (route, route.dpa(hpa)) if isinstance(route, Leaf) else None

    def way(self, hpa: int) -> Leaf | DeadEnd | None:
        """Returns the end of the way of a request to *hpa*."""
        route = self._route(hpa)
        while isinstance(route, InterleaveStep):
            route = route.choices[route.interleave.target(hpa)]
        return route

    def pieces(self) -> Iterator[tuple[int, int, Route]]:
        """Yields (first address, end, route) of ranges that are decoded alike, in order."""
        edges = {edge for each in self._decoders() for edge in _edges(each)}
        for window in self.windows:
            inside = {edge for edge in edges if edge in window}
            cuts = sorted(inside | {window.base, window.end})
            for first, end in pairwise(cuts):
                route = self._route(first)
                if route:
                    yield first, end, route

    def _decoders(self) -> Iterator[DecoderSet]:
        for bridge in self._bridges.values():
            yield bridge.decoders
            yield from (each.decoders for each in below(bridge.below) if each.decoders)

    def _route(self, hpa: int) -> Route:
        window = next((each for each in self.windows if hpa in each), None)
        if not window:
            return None
        bridges = [self._bridges.get(uid) for uid in window.targets]
        return _step(window.interleave, [_bridge(each, hpa) for each in bridges])


def below(functions: Mapping[int, Function]) -> Iterator[Port | Type3]:
    """Yields all ports and devices of a tree, from the top down."""
    for function in functions.values():
        if isinstance(function, Port):
            yield function
            yield from below(function.below)
        elif isinstance(function, Type3):
            yield function


def _edges(decoders: DecoderSet) -> Iterator[int]:
    for each in decoders.decoders:
        if each:
            yield from (each.base, each.end)


def _step(interleave: Interleave, choices: Iterable[Route]) -> Route:
    there = tuple(choices)
    if not any(there):
        return None
    return there[0] if interleave.ways == 1 else InterleaveStep(interleave, there)


def _bridge(bridge: HostBridge | None, hpa: int) -> Route:
    return _targets(bridge.decoders, bridge.below, hpa, ()) if bridge else None


def _targets(
    decoders: DecoderSet, ports: Mapping[int, Function], hpa: int, hops: tuple[Port, ...]
) -> Route:
    """Returns the route behind a host bridge or a switch: its targets are ports below, by their
    numbers (8.2.4.20.8)."""
    decoder = decoders.find(hpa)
    if not decoder:
        return None
    numbers = {each.number: each for each in ports.values() if isinstance(each, Port)}
    reached = (numbers.get(number) for number in decoder.targets)
    return _step(decoder.interleave, [_beyond(port, hpa, hops) for port in reached])


def _beyond(port: Port | None, hpa: int, hops: tuple[Port, ...]) -> Route:
    """Returns the route behind a root port or a downstream port."""
    if not port:
        return None
    there, between = port.below.get(0), port.between()
    if not there or between is None:
        return DeadEnd((*hops, port))
    hops = (*hops, port, *between)
    if isinstance(there, Type3):
        decoder = there.decoders.find(hpa)
        enabled = there.config["device"]["control.mem_enable"]  # 8.1.3.2
        return Leaf(there, decoder, hops) if decoder and enabled else None
    if isinstance(there, Port) and there.port_type is PortType.UPSTREAM and there.decoders:
        return _targets(there.decoders, there.below, hpa, (*hops, there))
    return None
