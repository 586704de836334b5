# SPDX-License-Identifier: BSD-3-Clause
"""The table of a host's decoders in C: ranges, nodes and ports; and the parts of a device's memory.

csrc/cxl/hdm.h.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from nupa._engine import ffi, lib
from nupa.base.errors import FabricError
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.function.port import Port
from nupa.cxl.host.decode import ONE_WAY, DeadEnd, InterleaveStep, Leaf, Route
from nupa.cxl.media.parts import Part


class DecoderTable:
    """The rows of a `struct nupa_cxl_table`, by the numbers of *ports* and *devices*; *no_device*
    is the number for a missing device."""

    def __init__(self, ports: dict[Port, int], devices: dict[Type3, int], no_device: int) -> None:
        self._ports = ports
        self._numbers = devices
        self._no_device = no_device
        self._ranges: list[dict[str, int]] = []
        self._nodes: list[dict[str, Any]] = []
        self._hops: list[int] = []
        #: The ports where requests end.
        self.down: set[Port] = set()

    def add(self, first: int, end: int, route: Route) -> None:
        """Adds addresses *first* to *end*, which go by *route*."""
        self._ranges.append({"first": first, "last": end - 1, "node": len(self._nodes)})
        waiting = [(len(self._nodes), route)]
        self._nodes.append({})
        while waiting:
            at, each = waiting.pop()
            if isinstance(each, Leaf):
                self._nodes[at] = self._leaf(each)
            elif isinstance(each, DeadEnd):
                self._nodes[at] = {**_ways(ONE_WAY), **self._end(each.hops, self._no_device)}
                self.down.add(each.hops[-1])
            elif isinstance(each, InterleaveStep):
                maps = each.interleave.xor_maps
                self._nodes[at] = {
                    **_ways(each.interleave),
                    "kind": lib.NUPA_CXL_STEP,
                    "next": len(self._nodes),
                    "xor_maps": list(maps),
                    "n_maps": len(maps),
                }
                waiting += enumerate(each.choices, len(self._nodes))
                self._nodes += ({} for _ in each.choices)

    def _leaf(self, leaf: Leaf) -> dict[str, Any]:
        return {
            **_ways(leaf.decoder.interleave),
            **self._end(leaf.hops, self._numbers[leaf.device]),
            "hpa_base": leaf.decoder.base,
            "dpa_base": leaf.decoder.dpa,
        }

    def _end(self, hops: tuple[Port, ...], device: int) -> dict[str, Any]:
        start = len(self._hops)
        self._hops += (self._ports[hop] for hop in hops)
        kind, count = lib.NUPA_CXL_DEVICE, len(hops)
        return {"kind": kind, "next": start, "n_hops": count, "device": device}

    def build(self) -> Any:
        """Makes the table; it is valid as long as this object, and C copies it at once."""
        self._arrays = (
            ffi.new("struct nupa_cxl_range[]", self._ranges),
            ffi.new("struct nupa_cxl_node[]", self._nodes),
            ffi.new("uint16_t[]", self._hops),
        )
        sizes = (len(self._ranges), len(self._nodes), len(self._hops))
        return ffi.new("struct nupa_cxl_table *", (*self._arrays, *sizes))


def _ways(interleave: Interleave) -> dict[str, int]:
    thirds = int(interleave.ways % 3 == 0)
    return {"shift": interleave.shift, "bits": interleave.bits, "thirds": thirds}


def usable(device: Type3, parts: Iterable[Part]) -> Iterator[Part]:
    """Yields the parts whose memory is backed wherever a decoder leads; others cannot be used."""
    for part in parts:
        with suppress(FabricError):
            for decoder in filter(None, device.decoders.decoders):
                first, end = max(decoder.dpa, part.dpa), min(decoder.dpa_end, part.end)
                if first < end:
                    part.memory.back(part.offset + first - part.dpa, end - first)
            yield part


def part_row(part: Part) -> dict[str, Any]:
    return {
        "dpa": part.dpa,
        "bytes": part.size,
        "offset": part.offset,
        "memory": part.memory.handle,
    }
