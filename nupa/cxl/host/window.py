# SPDX-License-Identifier: BSD-3-Clause
"""Windows of a host on CXL memory: plain loads and stores at its decoded addresses."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from nupa.base.errors import LocalError
from nupa.cxl.cache.coherence import has_filter
from nupa.cxl.host.bus import MemoryAccessError
from nupa.cxl.host.decode import Leaf
from nupa.memory.window import Coherence, OnLoss, Window, WindowError

if TYPE_CHECKING:
    from nupa.cxl.host.bus import Bus
    from nupa.cxl.media.parts import Memory


class HostWindow(Window):
    """A `Window` on addresses of a host: see `map_addresses`.

    Loads and stores go to the mapping, and pass no port.  `read` and `write` are requests of 64
    bytes on the bus, and are counted.  With on_loss="raise" they raise MemoryAccessError for
    poison, viral devices and links that are down.  Loads of a poisoned line read all ones.  A
    window is lost when a decoder of its memory changes or a link goes down.  It is lost, too, when
    the device is removed, is viral, or releases an extent."""

    _bus: Bus
    _base: int
    _ways: _Ways | None

    def read(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        if self.coherence == "hardware":
            try:
                return self._bus.read(self._base + offset, size)
            except MemoryAccessError:
                if self.on_loss == "raise":
                    raise
        return super().read(offset, size)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        if self.coherence == "software":
            super().write(offset, data)
            return
        self._check(offset, memoryview(data).nbytes)
        try:
            self._bus.write(self._base + offset, data)
        except MemoryAccessError:
            if self.on_loss == "raise":
                raise

    def settle(self) -> None:
        """Revokes the window if its memory is elsewhere; the bus calls this after each change."""
        if not self.revoked and _ways(self._bus, self._base, self._size) != self._ways:
            self.revoke()


def map_addresses(
    bus: Bus,
    base: int,
    size: int,
    *,
    coherence: Coherence = "hardware",
    on_loss: OnLoss = "ones",
) -> HostWindow:
    """Maps *size* bytes at *base* of a host's memory: whole turns of all interleaved devices, or
    whole pages of a single one.

    LocalError: the range is not inside one region, the memory cannot be mapped, or the interleave
    granularity is less than a page.  Memory with a snoop filter is refused, too, as the filter
    cannot see plain loads.  `read` and `write` of the bus reach all of it.
    WindowError: the range has changed meanwhile."""
    name = f"window on {size:#x} bytes at {base:#x}"
    ways = _ways(bus, base, size)
    if ways is None:
        raise LocalError(
            f"{name}: it is not inside of one region whose devices all answer, or it does not "
            "begin and end with whole turns of them"
        )
    runs = [run for way in _leaves(bus, base, size) for run in way]
    stores = {run.memory.store for run in runs}
    store = stores.pop()
    if stores or store is None:
        raise LocalError(f"{name}: its memory is not all in one file that can be mapped")
    if any(has_filter(run.memory) for run in runs):
        raise LocalError(
            f"{name}: its memory has a snoop filter, so that hosts' caches may have newer lines: "
            "use read and write of the host's bus"
        )
    turn = gcd(*(each.size for each in runs))
    pieces = [
        run.memory.base + at
        for run in runs
        for at in range(run.offset, run.offset + run.size, turn)
    ]
    window = HostWindow.of_pieces(
        store.where, pieces, size, turn, coherence=coherence, on_loss=on_loss, name=name
    )
    window._bus, window._base, window._ways = bus, base, ways
    bus.mapped.add(window)
    window.settle()
    if window.revoked:
        raise WindowError(f"{name}: decoders or devices were changed meanwhile")
    return window


class _Run(NamedTuple):
    """*size* bytes of *memory* from *offset* on."""

    memory: Memory
    offset: int
    size: int


#: For each way of a range: the device's address, and the runs behind it.
_Ways = tuple[tuple[int, tuple[_Run, ...]], ...]


def _ways(bus: Bus, base: int, size: int) -> _Ways | None:
    """Returns the runs of each way, by the first turns of the range; None: it is not a possible
    range."""
    first = _answers(bus, base)
    if first is None:
        return None
    decoder, turn = first.decoder, first.decoder.interleave.granularity_bytes
    count = decoder.interleave.ways
    round_ = count * turn if count > 1 else 1
    if size <= 0 or base + size > decoder.base + decoder.size:
        return None
    if (base - decoder.base) % round_ or size % round_:
        return None
    found = []
    for start in range(base, base + count * turn, turn):
        way = _answers(bus, start)
        if way is None:
            return None
        runs = tuple(_runs(bus, way, way.dpa(start), size // count))
        if sum(each.size for each in runs) < size // count:
            return None
        found.append((way.dpa(start), runs))
    return tuple(found)


def _answers(bus: Bus, hpa: int) -> Leaf | None:
    way = bus.map.way(hpa)
    if not isinstance(way, Leaf) or way.device.viral.active or any(map(bus.is_down, way.hops)):
        return None
    return way


def _runs(bus: Bus, way: Leaf, dpa: int, size: int) -> Iterator[_Run]:
    """Yields the runs of *size* bytes at *dpa* of a device."""
    for part in bus.media(way.device).parts:
        first, end = max(dpa, part.dpa), min(dpa + size, part.end)
        if first < end:
            yield _Run(part.memory, part.offset + first - part.dpa, end - first)


def _leaves(bus: Bus, base: int, size: int) -> Iterator[Iterator[_Run]]:
    """Yields the runs of each turn, by the decoders themselves, as XOR maps may select."""
    way = bus.map.way(base)
    if isinstance(way, Leaf):
        interleave = way.decoder.interleave
        turn = interleave.granularity_bytes if interleave.ways > 1 else size
        for start in range(base, base + size, turn):
            way = bus.map.way(start)
            if isinstance(way, Leaf):
                yield _runs(bus, way, way.dpa(start), turn)


class Stretch(NamedTuple):
    """*size* bytes at *hpa*: turns of *granularity* bytes of each of *runs*."""

    hpa: int
    size: int
    granularity: int
    runs: tuple[_Run, ...]


def runs_of(bus: Bus, base: int, size: int) -> list[Stretch] | None:
    """Returns the runs of a whole range of decoders: one stretch for interleaved devices, a stretch
    for each run of a single one.  None: a device does not answer, lacks some of its memory, or is
    selected by XOR."""
    first = _answers(bus, base)
    if first is None:
        return None
    decoder = first.decoder
    count, turn = decoder.interleave.ways, decoder.interleave.granularity_bytes
    if count == 1:
        found, dpa = [], first.dpa(base)
        for part in bus.media(first.device).parts:
            start, end = max(dpa, part.dpa), min(dpa + size, part.end)
            if start < end:
                run = _Run(part.memory, part.offset + start - part.dpa, end - start)
                found.append(Stretch(base + start - dpa, end - start, 0, (run,)))
        return found
    ways = _ways(bus, base, size)
    window = next((each for each in bus.map.windows if base in each), None)
    if ways is None or window is None or window.interleave.xor_maps:
        return None
    if any(len(runs) > 1 for _, runs in ways):
        return None
    return [Stretch(base, size, turn, tuple(run for _, (run,) in ways))]
