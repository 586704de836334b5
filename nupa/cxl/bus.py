# SPDX-License-Identifier: BSD-3-Clause
"""CXL.mem of a host: its reads and writes, 64 bytes each, through its decoders to devices, in C.

Knows which device and which ports an address has, and how they fail; never who programmed the
decoders, nor what memory is used for.  csrc/cxl/transact.h.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple
from weakref import WeakMethod

from nupa._engine import ffi, lib
from nupa.cxl.decode import Leaf, Map, Route, Step, Window, below
from nupa.cxl.endpoint import Type3
from nupa.cxl.interleave import Interleave
from nupa.cxl.port import Port
from nupa.cxl.root import RootComplex
from nupa.fabric.errors import LocalError, RemoteError


class Status(IntEnum):
    """How a request ended."""

    OK = lib.NUPA_CXL_OK
    NO_DECODER = lib.NUPA_CXL_NO_DECODER
    LINK_DOWN = lib.NUPA_CXL_LINK_DOWN
    VIRAL = lib.NUPA_CXL_VIRAL
    POISON = lib.NUPA_CXL_POISON


class MemoryAccessError(RemoteError):
    """Memory that cannot be had: *hpa* is the first line's, *status* says why."""

    def __init__(self, asked: str, hpa: int, status: Status) -> None:
        super().__init__(f"{asked}: at {hpa:#x}: {_REASONS[status]}")
        self.hpa = hpa
        self.status = status


_REASONS = {
    Status.NO_DECODER: "no device decodes it",
    Status.LINK_DOWN: "a port on the way has no link",
    Status.VIRAL: "the device is viral: it has an uncorrected error and gives no data",
    Status.POISON: "it is poisoned: write the whole line, or clear it by the device's mailbox",
}


class Counters(NamedTuple):
    """Lines that passed a port; *refused* ended there, as its link is down."""

    reads: int
    writes: int
    partial_writes: int
    refused: int
    poison: int


def anonymous(device: Type3) -> mmap.mmap:
    """Memory for *device*, of this process and all zeros; pages that are not used cost nothing."""
    return mmap.mmap(-1, max(device.memory_bytes, mmap.PAGESIZE))


class Bus:
    """Memory requests of the host of *root*, by *windows* of its address map.

    It follows the decoders: a commit, a decommit, a reset or something plugged in or out is seen at
    once.  *memory* has the bytes of a device (a writable buffer of its size), and is asked each
    time it is plugged in somewhere below.  What fails reads as all ones (PCIe 6.0 2.3.2) and is not
    written, as loads and stores would have it; with *raises* there is a MemoryAccessError, too.

    A bus is closed, or used as a context manager.
    """

    def __init__(
        self,
        root: RootComplex,
        windows: Sequence[Window],
        *,
        memory: Callable[[Type3], Any] = anonymous,
        raises: bool = True,
        devices: int = 256,
        ports: int = 1024,
    ) -> None:
        self.raises = raises
        self._root = root
        self.map = Map(root, windows)
        self._memory = memory
        bus = lib.nupa_cxl_bus_new(devices, ports)
        if bus == ffi.NULL:
            raise LocalError(f"a bus of {devices} devices and {ports} ports", ffi.errno)
        self._bus = ffi.gc(bus, lib.nupa_cxl_bus_free)
        self._free = list(range(devices))[::-1]
        self._ports: dict[Port, int] = {}
        self._n_ports = ports
        self._devices: dict[Type3, tuple[int, Any]] = {}
        self._watched: set[object] = set()
        again = WeakMethod(self.refresh)  # who watches keeps nothing alive
        self._changed = lambda: refresh() if (refresh := again()) else None
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """No request may be under way.  What is asked afterwards is a LocalError."""
        bus, self._bus = self._bus, ffi.NULL
        if bus != ffi.NULL:
            ffi.release(bus)
        self._devices.clear()

    # Requests

    def read(self, hpa: int, size: int) -> bytes:
        """*size* bytes.  MemoryAccessError: see the class."""
        found = bytearray(size)
        result = lib.nupa_cxl_read(self._open, hpa, ffi.from_buffer(found), size)
        self._judge(f"read of {size} bytes", result)
        return bytes(found)

    def write(self, hpa: int, data: bytes | bytearray | memoryview) -> None:
        """MemoryAccessError: see the class; lines that could be written are."""
        view = ffi.from_buffer(data)
        result = lib.nupa_cxl_write(self._open, hpa, view, len(view))
        self._judge(f"write of {len(view)} bytes", result)

    def find(self, hpa: int) -> tuple[Type3, int] | None:
        """Which device has *hpa*, and where in its memory; None: nobody decodes it."""
        device, dpa = ffi.new("uint32_t *"), ffi.new("uint64_t *")
        if not lib.nupa_cxl_bus_find(self._open, hpa, device, dpa):
            return None
        there = next(each for each, (n, _) in self._devices.items() if n == device[0])
        return there, int(dpa[0])

    @property
    def _open(self) -> Any:
        if self._bus == ffi.NULL:
            raise LocalError("the bus is closed: make another")
        return self._bus

    def _judge(self, asked: str, result: Any) -> None:
        if result.status != Status.OK and self.raises:
            raise MemoryAccessError(asked, int(result.hpa), Status(result.status))

    # What goes wrong, and what is counted

    def set_poison(self, device: Type3, dpa: int, size: int = 64, *, poisoned: bool = True) -> None:
        """Of lines: multiples of 64 bytes.  LocalError: not in its memory."""
        number = self._number(device)
        _must(
            lib.nupa_cxl_bus_set_poison(self._open, number, dpa, size, poisoned),
            f"poison of {size} bytes at {dpa:#x} of {device.name}: whole lines of its memory",
        )

    def is_poisoned(self, device: Type3, dpa: int) -> bool:
        """LocalError: not in its memory."""
        answer = lib.nupa_cxl_bus_is_poisoned(self._open, self._number(device), dpa)
        _must(answer, f"poison at {dpa:#x} of {device.name}")
        return bool(answer)

    def set_viral(self, device: Type3, viral: bool) -> None:
        """CXL 3.1 12.4: a viral device gives no data and takes none."""
        number = self._number(device)
        _must(lib.nupa_cxl_bus_set_viral(self._open, number, viral), f"viral {device.name}")

    def set_link(self, port: Port, up: bool) -> None:
        """Of a port that this host has."""
        _must(lib.nupa_cxl_bus_set_link(self._open, self._port(port), up), f"link of {port.name}")

    def counters(self, port: Port) -> Counters:
        """Since the bus was made."""
        found = ffi.new("struct nupa_cxl_counters *")
        _must(lib.nupa_cxl_bus_counters(self._open, self._port(port), found), port.name)
        return Counters(*(int(getattr(found, name)) for name in Counters._fields))

    def _number(self, device: Type3) -> int:
        if device not in self._devices:
            raise LocalError(f"{device.name} is not plugged in below this host")
        return self._devices[device][0]

    def _port(self, port: Port) -> int:
        if port not in self._ports:
            raise LocalError(f"{port.name} is no port of this host")
        return self._ports[port]

    # What is decoded

    def refresh(self) -> None:
        """Bring the table up to what the model is now: who changes the tree past its ports says
        so.  LocalError: more devices or ports than the bus was made for."""
        if self._bus == ffi.NULL:
            return
        there = [each for bridge in self._root.bridges for each in below(bridge.below)]
        for bridge in self._root.bridges:
            self._watch(bridge.decoders.on_change, bridge)
        for each in there:
            self._meet(each)
        table = _Table()
        for first, end, route in self.map.pieces():
            table.add(first, end, route, self._ports, {d: n for d, (n, _) in self._devices.items()})
        _must(lib.nupa_cxl_bus_set_table(self._bus, table.build()), "a table of decoders")
        for gone in self._devices.keys() - set(there):
            number, _ = self._devices.pop(gone)
            _must(lib.nupa_cxl_bus_set_device(self._bus, number, ffi.NULL, 0), gone.name)
            self._free.append(number)

    def _meet(self, function: Port | Type3) -> None:
        if isinstance(function, Port):
            if function not in self._ports:
                if len(self._ports) == self._n_ports:
                    raise LocalError(f"the bus was made for {self._n_ports} ports: ask for more")
                self._ports[function] = len(self._ports)
        elif function not in self._devices:
            self._back(function)
        if function.decoders:
            self._watch(function.decoders.on_change, function.decoders)
        if isinstance(function, Port):
            self._watch(function.on_change, function)
        else:
            self._watch(partial(_on_enable, function), function)

    def _back(self, device: Type3) -> None:
        if not self._free:
            raise LocalError("the bus was made for fewer devices: ask for more")
        memory = ffi.from_buffer(self._memory(device), require_writable=True)
        if len(memory) < device.memory_bytes:
            raise LocalError(
                f"{device.name} has {device.memory_bytes} bytes, and {len(memory)} were given"
            )
        number = self._free.pop()
        _must(
            lib.nupa_cxl_bus_set_device(self._bus, number, memory, device.memory_bytes), device.name
        )
        self._devices[device] = number, memory

    def _watch(self, on_change: Callable[[Callable[[], None]], None], what: object) -> None:
        if what not in self._watched:
            self._watched.add(what)
            on_change(self._changed)


def _on_enable(device: Type3, handler: Callable[[], None]) -> None:
    """CXL 3.1 8.1.3.2, Mem_Enable."""
    device.config["device"].on_write("control.mem_enable", lambda _written, _old: handler())


class _Table:
    """The rows of a `struct nupa_cxl_table`."""

    def __init__(self) -> None:
        self._ranges: list[dict[str, int]] = []
        self._nodes: list[dict[str, Any]] = []
        self._hops: list[int] = []

    def add(
        self,
        first: int,
        end: int,
        route: Route,
        ports: dict[Port, int],
        devices: dict[Type3, int],
    ) -> None:
        """Addresses *first* to *end* go by *route*."""
        self._ranges.append({"first": first, "last": end - 1, "node": len(self._nodes)})
        waiting = [(len(self._nodes), route)]
        self._nodes.append({})
        while waiting:
            at, each = waiting.pop()
            if isinstance(each, Leaf):
                self._nodes[at] = self._leaf(each, ports, devices)
            elif isinstance(each, Step):
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

    def _leaf(
        self, leaf: Leaf, ports: dict[Port, int], devices: dict[Type3, int]
    ) -> dict[str, Any]:
        start = len(self._hops)
        self._hops += (ports[hop] for hop in leaf.hops)
        return {
            **_ways(leaf.decoder.interleave),
            "kind": lib.NUPA_CXL_DEVICE,
            "hpa_base": leaf.decoder.base,
            "dpa_base": leaf.decoder.dpa,
            "next": start,
            "n_hops": len(leaf.hops),
            "device": devices[leaf.device],
        }

    def build(self) -> Any:
        """It lives as long as its arrays: C copies them at once."""
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


def _must(answer: int, asked: str) -> None:
    """LocalError for a negative errno."""
    if answer < 0:
        raise LocalError(f"{asked}: refused", -answer)
