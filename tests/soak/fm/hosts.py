# SPDX-License-Identifier: BSD-3-Clause
"""A host of the soak: it enumerates what it has, makes regions, answers its devices' events as a
driver does, and reads and writes lines that the ledger knows."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random
from threading import Event, Thread

from nupa.cxl.bus import MemoryAccessError, Status
from nupa.cxl.cci import CommandError
from nupa.cxl.endpoint import Type3
from nupa.cxl.events import Change, Log
from nupa.cxl.expander import Expander
from nupa.cxl.host import Host, Region, RegionError
from nupa.cxl.parts import PartedMedia

from .ledger import LINE, WrongByteError
from .rack import BLOCK, LDS, Rack

_HOT_LINES = 64  # of each part: few, so that others meet them again
_AT_ONCE = 40
_EVENT = struct.Struct("<BxHBB2xQQ")


@dataclass(slots=True)
class Figures:
    reads: int = 0
    writes: int = 0
    exact: int = 0  # what was written was read back by its only writer
    lost: dict[str, int] = field(default_factory=dict)  # accesses that failed, by their status
    refused: int = 0  # what a host may not read, it could not
    rebuilt: int = 0
    accepted: int = 0
    given_back: int = 0


class SoakHost(Thread):
    """Host *number*; it ends once *stop* is set, and `error` is what ended it before."""

    def __init__(self, rack: Rack, number: int, seed: int, stop: Event) -> None:
        super().__init__(name=f"host{number}", daemon=True)
        self.figures = Figures()
        self.error: BaseException | None = None
        self._rack = rack
        self._number = number
        self._random = Random(seed)
        self._stop_event = stop
        self._changed = True
        self._host: Host | None = None
        self._regions: list[tuple[Region, Type3]] = []
        rack.switch.watchers.append(lambda vcs, *_: self._change(vcs))
        for port in rack.switch.ports:
            port.watchers.append(lambda _: self._change(number))

    def _change(self, vcs: int) -> None:
        if vcs == self._number:
            self._changed = True

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                if self._changed:
                    self._rebuild()
                self._drive()
                self._try_others()
                for _ in range(_AT_ONCE):
                    self._access()
                if not self._regions:
                    self._stop_event.wait(0.001)
            self._leave()
        except BaseException as error:
            self.error = error

    # What it has

    def _rebuild(self) -> None:
        with self._rack.manager.lock:
            self._leave()
            self._changed = False
            root = self._rack.roots[self._number]
            self._host = host = Host(root, self._rack.windows, bars_at=0xC000_0000)
            for device in host.devices:
                try:
                    region = host.create_region([device])
                    model = self._model(region)
                    if model.media is not None and model.media.size > device.capacity:
                        host.destroy_region(region)  # it has dynamic capacity, too
                        device.capacity = model.media.size
                        region = host.create_region([device])
                except RegionError:
                    continue  # its link is down, or it has been left by another as it was
                self._regions.append((region, model))
            self.figures.rebuilt += 1

    def _model(self, region: Region) -> Type3:
        found = region.host.bus.find(region.base)
        if found is None:
            raise RegionError(f"nobody decodes {region.base:#x}")
        return found[0]

    def _leave(self) -> None:
        if self._host is None:
            return
        with self._rack.manager.lock:
            for region in reversed(tuple(self._host.regions)):
                self._host.destroy_region(region)
            self._host.bus.close()
            self._host, self._regions = None, []

    # Its driver

    def _lds(self) -> list[tuple[int, Expander]]:
        """Of the device with dynamic capacity, those that it has."""
        functions = [device for _, device in self._regions]
        for mld in self._rack.mlds.values():
            if mld.dynamic is not None:
                return [(n, mld.logical[n]) for n in range(LDS) if mld.lds[n] in functions]
        return []

    def _drive(self) -> None:
        """Answer what the logs say; what is taken meanwhile is refused, and that is all."""
        with self._rack.manager.lock:
            for _, ld in self._lds():
                log = ld.memory.events[Log.DYNAMIC_CAPACITY]
                group: list[tuple[int, int]] = []
                for record in log.get(8).records:
                    change, _, _, more, dpa, size = _EVENT.unpack_from(record.data)
                    group.append((dpa, size))
                    ld.memory.events.clear(Log.DYNAMIC_CAPACITY, [record.handle])
                    if not more:
                        self._answer(ld, change, group)
                        group = []

    def _answer(self, ld: Expander, change: int, group: list[tuple[int, int]]) -> None:
        if change == Change.ADD:
            taken = [] if self._random.random() < 0.1 else group
            try:
                self._update(ld, 0x4802, taken)
                self.figures.accepted += len(taken)
            except CommandError:  # it is dead (9.13.3.3), and can only be refused
                self._update(ld, 0x4802, [])
        elif change == Change.RELEASE:
            try:
                self._update(ld, 0x4803, group)
                self.figures.given_back += len(group)
            except CommandError:
                pass  # taken by force since

    def _update(self, ld: Expander, opcode: int, extents: list[tuple[int, int]]) -> None:
        rows = b"".join(struct.pack("<QQ8x", *extent) for extent in extents)
        ld.memory.mailbox.execute(opcode, struct.pack("<IB3x", len(extents), 0) + rows)

    # Its data

    def _try_others(self) -> None:
        """Capacity that its host has not accepted is nobody's to read."""
        with self._rack.manager.lock:
            for number, ld in self._lds():
                host = self._rack.capacity.host(number)
                part = self._random.choice(self._rack.capacity.regions)
                dpa = part.dpa + self._random.randrange(part.size // BLOCK // 4) * BLOCK
                region = next(each for each, device in self._regions if device is ld.function)
                if host.reaches(dpa) or dpa + LINE > region.size:
                    continue
                try:
                    region.read(dpa, LINE)
                except MemoryAccessError:
                    self.figures.refused += 1
                else:
                    raise WrongByteError(f"LD {number} reaches {dpa:#x}, which it has not")

    def _access(self) -> None:
        if not self._regions:
            return
        region, device = self._random.choice(self._regions)
        media = device.media
        parts = media.parts if isinstance(media, PartedMedia) else ()
        if not parts:
            return
        part = self._random.choice(parts)
        line = self._random.randrange(_HOT_LINES) * LINE
        if self._random.random() < 0.5:
            line += part.size - _HOT_LINES * LINE  # at its end
        if part.dpa + line + LINE > region.size:
            return
        # Of what is shared each line has one writer.
        writes = self._random.random() < 0.5
        if part.shared and line // LINE % LDS != self._number:
            writes = False
        try:
            self._check(
                region, part.dpa + line, self._rack.where(part.memory, part.offset + line), writes
            )
        except MemoryAccessError as error:
            name = Status(error.status).name
            self.figures.lost[name] = self.figures.lost.get(name, 0) + 1
            if error.status is not Status.NO_MEMORY:
                self._changed = True

    def _check(self, region: Region, at: int, where: int, writes: bool) -> None:
        ledger = self._rack.ledger
        entry = ledger.entry(where)
        written = 0
        if writes:
            written, data = ledger.issue(where, entry, self._number)
            region.write(at, data)
            entry.confirmed = max(entry.confirmed, written)
            self.figures.writes += 1
        low = entry.confirmed
        found = region.read(at, LINE)
        self.figures.reads += 1
        if not ledger.is_current(where, entry):
            return  # cleared meanwhile: another will say what was read
        version = ledger.check(where, found, low, entry.issued)
        if writes:
            if version != written:
                raise WrongByteError(f"line {where:#x}: wrote {written}, and read {version} back")
            self.figures.exact += 1
