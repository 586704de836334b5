# SPDX-License-Identifier: BSD-3-Clause
"""CXL.mem of a host: reads and writes of 64 bytes, through its decoders to devices, in C.

csrc/cxl/transact.h.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, Protocol
from weakref import WeakMethod, WeakSet

from nupa._engine import ffi, lib
from nupa.base.closing import Closing
from nupa.base.errors import LocalError, RemoteError
from nupa.cxl.cache.coherence import CacheShape, HostCache, SnoopFilter
from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.port import Port
from nupa.cxl.host.bus_errors import is_isolated, isolate, leave_traces
from nupa.cxl.host.bus_table import DecoderTable, part_row, usable
from nupa.cxl.host.decode import AddressMap, FixedWindow, below
from nupa.cxl.host.root import RootComplex
from nupa.cxl.media.media import MediaError
from nupa.cxl.media.parts import Memory, Part, PartedMedia


class RequestStatus(IntEnum):
    """The status of a request."""

    OK = lib.NUPA_CXL_OK
    NO_DECODER = lib.NUPA_CXL_NO_DECODER
    LINK_DOWN = lib.NUPA_CXL_LINK_DOWN
    VIRAL = lib.NUPA_CXL_VIRAL
    POISON = lib.NUPA_CXL_POISON
    NO_MEMORY = lib.NUPA_CXL_NO_MEMORY


class MemoryAccessError(RemoteError):
    """A failed access to memory: *hpa* is the first line's address, *status* the reason."""

    def __init__(self, asked: str, hpa: int, status: RequestStatus) -> None:
        super().__init__(f"{asked}: at {hpa:#x}: {_REASONS[status]}")
        self.hpa = hpa
        self.status = status


_REASONS = {
    RequestStatus.NO_DECODER: "no device decodes it",
    RequestStatus.LINK_DOWN: "a port on the way has no link, or is isolated",
    RequestStatus.VIRAL: "the device is viral: it has an uncorrected error and gives no data",
    RequestStatus.POISON: "it is poisoned: write the whole line, or clear it by the mailbox",
    RequestStatus.NO_MEMORY: "no memory is there: its host has accepted no such dynamic capacity",
}


class Mapped(Protocol):
    """Memory of a bus that is mapped (nupa/cxl/host/window.py)."""

    def settle(self) -> None:
        """Revokes the mapping if its memory is not the same any more."""

    def revoke(self) -> None: ...


class Counters(NamedTuple):
    """Lines that passed a port; *refused* ended there, as its link is down."""

    reads: int
    writes: int
    partial_writes: int
    refused: int
    poison: int


def memory_of(device: Type3) -> PartedMedia | mmap.mmap:
    """Returns the memory behind *device*; for registers alone, memory of this process."""
    if device.media is not None:
        return device.media
    return mmap.mmap(-1, max(device.memory_bytes, mmap.PAGESIZE))


@dataclass(slots=True)
class _Backed:
    """A device's number in C, and its memory; C has *parts* of it, and whether it is *viral*."""

    number: int
    media: PartedMedia
    parts: tuple[Part, ...] = ()
    viral: bool = False


class Bus(Closing):
    """Memory requests of the host of *root*, by the *windows* of its address map.

    The bus follows the decoders.  A commit, a decommit, a reset, hot plug and changes of a device's
    memory take effect once requests in progress have ended.

    *memory* returns the bytes of a device (a PartedMedia, or a writable buffer of its size).  It is
    called each time a device is plugged in.

    A failed request reads as all ones and writes nothing (PCIe 6.0 2.3.2); with *raises* it is a
    MemoryAccessError, too.  Registers and logs report it in any case (nupa/cxl/host/bus_errors.py).

    With a *cache* (nupa/cxl/cache/coherence.py) memory with a snoop filter is cached, coherently.

    A bus is closed, or used as a context manager."""

    def __init__(
        self,
        root: RootComplex,
        windows: Sequence[FixedWindow],
        *,
        memory: Callable[[Type3], Any] = memory_of,
        raises: bool = True,
        devices: int = 256,
        ports: int = 1024,
        cache: CacheShape | None = None,
    ) -> None:
        self.raises = raises
        self._root = root
        self.map = AddressMap(root, windows)
        self._memory = memory
        bus = lib.nupa_cxl_bus_new(devices + 1, ports)
        if bus == ffi.NULL:
            raise LocalError(f"cannot make a bus of {devices} devices and {ports} ports", ffi.errno)
        self._bus = ffi.gc(bus, lib.nupa_cxl_bus_free)
        self.cache: HostCache | None = None
        if cache is not None:
            self.use_cache(cache)
        self._free = list(range(devices))[::-1]
        self._no_device = devices
        self._ports: dict[Port, int] = {}
        self._n_ports = ports
        self._devices: dict[Type3, _Backed] = {}
        self._broken: set[Port] = set()  # by `set_link`
        self._down: set[Port] = set()
        self._watched: set[object] = set()
        #: Called after each refresh.
        self.on_refresh: list[Callable[[], None]] = []
        #: Windows to settle after each refresh.
        self.mapped: WeakSet[Mapped] = WeakSet()
        again = WeakMethod(self.refresh)  # a handler must not keep the bus alive
        self._changed = lambda: refresh() if (refresh := again()) else None
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the bus; no request may be in progress.  Later requests are a LocalError; windows
        on its memory are lost."""
        for window in tuple(self.mapped):
            window.revoke()
        bus, self._bus = self._bus, ffi.NULL
        if bus != ffi.NULL:
            if self.cache is not None:
                self.cache.close()
            ffi.release(bus)
        self._devices.clear()

    # Requests

    def read(self, hpa: int, size: int) -> bytes:
        """Reads *size* bytes.  MemoryAccessError: see the class."""
        found = bytearray(size)
        result = lib.nupa_cxl_read(self._open, hpa, ffi.from_buffer(found), size)
        self._judge("read", hpa, size, result)
        return bytes(found)

    def write(self, hpa: int, data: bytes | bytearray | memoryview) -> None:
        """Writes bytes.  MemoryAccessError: see the class; lines that could be written are."""
        view = ffi.from_buffer(data)
        result = lib.nupa_cxl_write(self._open, hpa, view, len(view))
        self._judge("write", hpa, len(view), result)

    def use_cache(self, shape: CacheShape) -> HostCache:
        """Caches memory with a snoop filter from now on.  LocalError: it has a cache, or the shape
        is not possible."""
        self.cache = HostCache(self._open, shape)
        return self.cache

    def find(self, hpa: int) -> tuple[Type3, int] | None:
        """Returns the device of *hpa* and the address in its memory; None: no device decodes it."""
        device, dpa = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        if not lib.nupa_cxl_bus_find(self._open, hpa, device, dpa):
            return None
        for each, backed in tuple(self._devices.items()):
            if backed.number == device[0]:
                return each, int(dpa[0])
        return None

    def filter_at(self, hpa: int, *, sets: int = 1024, ways: int = 8) -> SnoopFilter:
        """Makes a snoop filter on the memory of *hpa*.  LocalError: there is none."""
        device, dpa = self.find(hpa) or (None, 0)
        for part in self.media(device).parts if device else ():
            if part.dpa <= dpa < part.end:
                return SnoopFilter(part.memory, sets=sets, ways=ways)
        raise LocalError(f"{hpa:#x}: no memory of a device is there")

    def media(self, device: Type3) -> PartedMedia:
        """Returns the memory of *device*.  LocalError: it is not plugged in."""
        self._number(device)
        return self._devices[device].media

    @property
    def handle(self) -> Any:
        """The bus in C, for requests on other ways.  LocalError: it is closed."""
        return self._open

    @property
    def _open(self) -> Any:
        if self._bus == ffi.NULL:
            raise LocalError("the bus is closed: make another")
        return self._bus

    def _judge(self, what: str, hpa: int, size: int, result: Any) -> None:
        if result.status == RequestStatus.OK:
            return
        with self._root.lock:
            leave_traces(self, range(hpa, hpa + size))
        if self.raises:
            asked = f"{what} of {size} bytes"
            raise MemoryAccessError(asked, int(result.hpa), RequestStatus(result.status))

    # Poison, links and counters

    def set_poison(self, device: Type3, dpa: int, size: int = 64, *, poisoned: bool = True) -> None:
        """Poisons lines, or clears them; *dpa* and *size* are multiples of 64 bytes.  A poisoned
        line loses its data and reads as all ones.  LocalError: outside its memory."""
        number = self._number(device)
        with suppress(MediaError):  # refused below
            for memory, offset, length in self._devices[device].media.pieces(dpa, size):
                memory.back(offset, length)
        _must(
            lib.nupa_cxl_bus_set_poison(self._open, number, dpa, size, poisoned),
            f"poison of {size} bytes at {dpa:#x} of {device.name}: whole lines of its memory",
        )

    def is_poisoned(self, device: Type3, dpa: int) -> bool:
        """Tells whether the line at *dpa* is poisoned.  LocalError: outside its memory."""
        answer = lib.nupa_cxl_bus_is_poisoned(self._open, self._number(device), dpa)
        _must(answer, f"poison at {dpa:#x} of {device.name}")
        return bool(answer)

    def set_link(self, port: Port, up: bool) -> None:
        """Sets the link of a port of this host for requests alone; nothing is reset."""
        self._port(port)
        (self._broken.discard if up else self._broken.add)(port)
        self.refresh()

    def is_down(self, port: Port) -> bool:
        """Tells whether requests end at *port*."""
        return port in self._down

    def counters(self, port: Port) -> Counters:
        """Returns the counters of a port since the bus was made."""
        found = ffi.new("struct nupa_cxl_counters *")
        _must(lib.nupa_cxl_bus_counters(self._open, self._port(port), found), port.name)
        return Counters(*(int(getattr(found, name)) for name in Counters._fields))

    def _number(self, device: Type3) -> int:
        if device not in self._devices:
            raise LocalError(f"{device.name} is not plugged in below this host")
        return self._devices[device].number

    def _port(self, port: Port) -> int:
        if port not in self._ports:
            raise LocalError(f"{port.name} is not a port of this host")
        return self._ports[port]

    # The table in C

    def refresh(self) -> None:
        """Updates the table in C; called also by those who change the tree without its ports.
        LocalError: more devices or ports than the bus was made for."""
        if self._bus == ffi.NULL:
            return
        there = [each for bridge in self._root.bridges for each in below(bridge.below)]
        for bridge in self._root.bridges:
            self._watch(bridge.decoders.on_change, bridge)
        for each in there:
            self._meet(each)
        numbers = {device: backed.number for device, backed in self._devices.items()}
        table = DecoderTable(self._ports, numbers, self._no_device)
        for first, end, route in self.map.pieces():
            table.add(first, end, route)
        for port in table.down - self._down:
            isolate(port)
        isolated = set(filter(is_isolated, self._ports))
        down = (table.down | self._broken | isolated) & self._ports.keys()
        self._set_links(down - self._down, up=False)
        _must(lib.nupa_cxl_bus_set_table(self._bus, table.build()), "a table of decoders")
        for gone in self._devices.keys() - set(there):
            self._supply(gone.name, self._devices[gone], (), viral=False)
            self._free.append(self._devices.pop(gone).number)
        for device, backed in self._devices.items():
            parts = tuple(usable(device, backed.media.parts))
            self._supply(device.name, backed, parts, viral=device.viral.active)
        self._set_links(self._down - down, up=True)
        self._down = down
        for handler in tuple(self.on_refresh):
            handler()
        for window in tuple(self.mapped):
            window.settle()

    def _set_links(self, ports: Iterable[Port], *, up: bool) -> None:
        for port in ports:
            number = self._ports[port]
            _must(lib.nupa_cxl_bus_set_link(self._bus, number, up), f"link of {port.name}")

    def _supply(self, name: str, backed: _Backed, parts: tuple[Part, ...], *, viral: bool) -> None:
        if parts != backed.parts:
            rows = ffi.new("struct nupa_cxl_part[]", [part_row(part) for part in parts])
            answer = lib.nupa_cxl_bus_set_parts(self._bus, backed.number, rows, len(parts))
            _must(answer, f"memory of {name}")
            backed.parts = parts
        if viral != backed.viral:
            _must(lib.nupa_cxl_bus_set_viral(self._bus, backed.number, viral), f"viral {name}")
            backed.viral = viral

    def _meet(self, function: Port | Type3) -> None:
        if isinstance(function, Port):
            for port in (function, *(function.between() or ())):
                if port not in self._ports and len(self._ports) == self._n_ports:
                    raise LocalError(f"the bus was made for {self._n_ports} ports: ask for more")
                self._ports.setdefault(port, len(self._ports))
        elif function not in self._devices:
            self._back(function)
        if function.decoders:
            self._watch(function.decoders.on_change, function.decoders)
        if isinstance(function, Port):
            self._watch(function.on_change, function)
            if "isolation" in function.component:
                self._watch(partial(_on_exit, function), function.component)
        else:
            self._watch(partial(_on_enable, function), function)

    def _back(self, device: Type3) -> None:
        if not self._free:
            raise LocalError("the bus was made for fewer devices: ask for more")
        media = self._memory(device)
        if not isinstance(media, PartedMedia):
            memory = Memory(media)
            if memory.size < device.memory_bytes:
                raise LocalError(
                    f"{device.name} has {device.memory_bytes} bytes, and {memory.size} were given"
                )
            media = PartedMedia.of(memory, device.memory_bytes)
        self._watch(media.on_change, media)
        self._watch(device.viral.on_change, device.viral)
        self._devices[device] = _Backed(self._free.pop(), media)

    def _watch(self, on_change: Callable[[Callable[[], None]], None], what: object) -> None:
        if what not in self._watched:
            self._watched.add(what)
            on_change(self._changed)


def _on_enable(device: Type3, handler: Callable[[], None]) -> None:
    """Calls *handler* when Mem_Enable is written (CXL 3.1 8.1.3.2)."""
    device.config["device"].on_write("control.mem_enable", lambda _written, _old: handler())


def _on_exit(port: Port, handler: Callable[[], None]) -> None:
    """Calls *handler* when software clears the isolation status (CXL 3.1 8.2.4.24.3)."""
    isolation = port.component["isolation"]
    isolation.on_write("status.mem_isolation", lambda _written, _old: handler())


def _must(answer: int, asked: str) -> None:
    """Raises LocalError for a negative errno."""
    if answer < 0:
        raise LocalError(f"{asked}: refused", -answer)
