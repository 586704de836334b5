# SPDX-License-Identifier: BSD-3-Clause
"""A host of the soak.  It makes regions of the memory that it has, and reads and writes lines that
the ledger knows."""

from __future__ import annotations

from collections import Counter
from random import Random
from threading import Event, Thread

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.host.bus import MemoryAccessError, RequestStatus
from nupa.cxl.host.host import Host
from nupa.cxl.host.memory import CxlRegion, RegionError
from nupa.cxl.media.parts import PartedMedia

from .ledger import LINE, WrongByteError
from .rack import BLOCK, LDS, Rack
from .views import WINDOW_BYTES, Views

_HOT_LINES = 64  # of each piece: few, so that others meet them again
_AT_ONCE = 40


class SoakHost(Thread):
    """Host *number*; it ends once *stop* is set, and `error` is what ended it before.

    `figures`: reads and writes; "exact" were read back as they had been written; "refused" could
    not be read, and should not; "regions" were made."""

    def __init__(self, rack: Rack, number: int, seed: int, stop: Event) -> None:
        super().__init__(name=f"host{number}", daemon=True)
        self.figures: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()  # accesses that failed, by their status
        self.error: BaseException | None = None
        self._rack = rack
        self._number = number
        self._random = Random(seed)
        self._stop_event = stop
        self._changed = True
        self._views = Views(rack.ledger, self._random, number, self.figures)

    def run(self) -> None:
        try:
            root = self._rack.roots[self._number]
            with Host(root, self._rack.windows, changed=self._look_again) as self._host:
                try:
                    while not self._stop_event.is_set():
                        self._once()
                finally:
                    self._views.close()
        except BaseException as error:
            self.error = error

    def _look_again(self) -> None:
        self._changed = True

    def _once(self) -> None:
        if self._changed:
            with self._rack.manager.lock:
                self._changed = False
                self._make_regions()
        self._try_others()
        for _ in range(_AT_ONCE):
            regions = [region for region in tuple(self._host.regions) if not region.lost]
            if not regions:
                self._stop_event.wait(0.001)
                return
            self._access(self._random.choice(regions))
            self._views.use(self._rack.manager.lock)

    # Its memory

    def _make_regions(self) -> None:
        """Makes regions of all that is new, as long as there are decoders."""
        host = self._host
        made = {(each.devices[0].name, each.dynamic) for each in host.regions if not each.lost}
        for device in host.devices:
            dynamic = device.driver.regions if device.driver else []
            for index, where in [(-1, None), *enumerate(dynamic)]:
                if (device.name, where) in made or (where is None and not device.capacity):
                    continue
                try:
                    if where is None:
                        host.create_region([device])
                    else:
                        host.create_dynamic_region(device, index)
                    self.figures["regions"] += 1
                except RegionError:
                    self.figures["regions refused"] += 1

    def _model(self, region: CxlRegion) -> tuple[Type3, int] | None:
        """Returns the device of the memory, and the offset at which it begins."""
        return self._host.bus.find(region.base)

    def _try_others(self) -> None:
        """Checks that no host reads capacity that its host has not accepted."""
        with self._rack.manager.lock:
            for region in self._host.regions:
                found = self._model(region)
                if region.lost or region.dynamic is None or found is None:
                    continue
                number = self._ld(found[0])
                at = self._random.randrange(region.size // BLOCK // 4) * BLOCK
                if self._rack.capacity.host(number).reaches(region.dynamic.dpa + at, LINE):
                    continue
                try:
                    region.read(at, LINE)
                except MemoryAccessError:
                    self.figures["refused"] += 1
                else:
                    raise WrongByteError(f"LD {number} reaches {at:#x}, which it has not")

    def _ld(self, model: Type3) -> int:
        lds = next(mld.lds for mld in self._rack.mlds.values() if mld.dynamic is not None)
        return lds.index(model)

    # Its data

    def _access(self, region: CxlRegion) -> None:
        pieces, found = region.extents, self._model(region)
        if not pieces or found is None or not isinstance(found[0].media, PartedMedia):
            return
        offset, size = self._random.choice(pieces)
        line = self._random.randrange(_HOT_LINES) * LINE
        if self._random.random() < 0.5:
            line += size - _HOT_LINES * LINE  # at its end
        model, base = found
        media = model.media
        assert media is not None
        dpa = base + offset + line
        part = next((each for each in media.parts if each.dpa <= dpa < each.end), None)
        if part is None:
            return  # taken meanwhile
        # Of what is shared each line has one writer.
        writes = self._random.random() < 0.5
        if part.shared and line // LINE % LDS != self._number:
            writes = False
        where = self._rack.where(part.memory, part.offset + dpa - part.dpa)
        if not part.shared and line < WINDOW_BYTES and self._random.random() < 0.02:
            with self._rack.manager.lock:
                if part in media.parts and self._model(region) == found:
                    self._views.add(self._host, region, offset, where - line)
        try:
            self._check(region, offset + line, where, writes)
            if region.dynamic is not None:
                self.figures["shared" if part.shared else "dynamic"] += 1
        except MemoryAccessError as error:
            self.lost[RequestStatus(error.status).name] += 1

    def _check(self, region: CxlRegion, at: int, where: int, writes: bool) -> None:
        ledger = self._rack.ledger
        entry = ledger.entry(where)
        written = 0
        if writes:
            written, data = ledger.issue(where, entry, self._number)
            region.write(at, data)
            entry.confirmed = max(entry.confirmed, written)
            self.figures["writes"] += 1
        low = entry.confirmed
        found = region.read(at, LINE)
        self.figures["reads"] += 1
        if not ledger.is_current(where, entry):
            return  # cleared meanwhile: another will say what was read
        version = ledger.check(where, found, low, entry.issued)
        if writes:
            if version != written:
                raise WrongByteError(f"line {where:#x}: wrote {written}, and read {version} back")
            self.figures["exact"] += 1
