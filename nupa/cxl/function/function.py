# SPDX-License-Identifier: BSD-3-Clause
"""A PCI function: configuration space, the memory behind its BARs, and the bus below a bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nupa.cxl.registers.config import ConfigSpace
from nupa.cxl.registers.pci_tables import Bar
from nupa.cxl.registers.space import Space

_WINDOW_BITS = 20  # of a bridge's memory windows: PCIe 6.0 7.5.1.3.8


class RegisterPlace(NamedTuple):
    """A byte behind a BAR, or of another range that decodes addresses."""

    space: Space
    offset: int


class Function:
    """A function; *bars* maps each BAR to the space behind it.  A BAR decodes once memory space is
    enabled."""

    def __init__(self, name: str, config: ConfigSpace, bars: Mapping[Bar, Space]) -> None:
        for bar, space in bars.items():
            if space.size > bar.size_bytes:
                raise ValueError(f"{name}: BAR {bar.number} is smaller than what is behind it")
        self.name = name
        self.config = config
        self.bars = dict(bars)

    def place(self, address: int) -> RegisterPlace | None:
        """Returns the byte that *address* of the host reaches here; None: not behind a BAR."""
        if not self.config.header["command.memory_space"]:
            return None
        for bar, space in self.bars.items():
            base = self.config.header[f"bar{bar.number}.base"] << bar.shift
            if base and base <= address < base + space.size:
                return RegisterPlace(space, address - base)
        return None

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        """Resets all blocks: `Registers.reset`."""
        for space in (self.config, *self.bars.values()):
            space.reset(hot=hot, cxl=cxl)


class Bridge(Function):
    """A function with a bus below: `below` by device and function number (5 and 3 bits).

    Setting Secondary Bus Reset resets all functions below (PCIe 6.0 7.5.1.3.13)."""

    def __init__(self, name: str, config: ConfigSpace, bars: Mapping[Bar, Space]) -> None:
        super().__init__(name, config, bars)
        self.below: dict[int, Function] = {}
        config.header.on_write("bridge_control.secondary_bus_reset", self._secondary_bus_reset)

    @property
    def may_reset_below(self) -> bool:
        """Whether Secondary Bus Reset has an effect."""
        return True

    def _secondary_bus_reset(self, written: int, old: int) -> None:
        if written and not old and self.may_reset_below:
            for function in self.below.values():
                function.reset(hot=True)

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        super().reset(hot=hot, cxl=cxl)
        for function in self.below.values():
            function.reset(hot=hot, cxl=cxl)

    @property
    def buses(self) -> range:
        """The buses that it forwards to; none before software has numbered them."""
        header = self.config.header
        first = header["secondary_bus"]
        return range(first, header["subordinate_bus"] + 1) if first else range(0)

    def forwards(self, address: int) -> bool:
        """Tells whether one of its memory windows has *address*."""
        return any(address in window for window in self.windows())

    def windows(self) -> Iterator[range]:
        """Yields its memory windows (PCIe 6.0 7.5.1.3.8, 7.5.1.3.9); the limit of an empty one is
        below its base."""
        header = self.config.header
        if not header["command.memory_space"]:
            return
        yield _window(header["memory_base"], header["memory_limit"])
        base = header["prefetchable_base_upper"] << 12 | header["prefetchable_base"]
        limit = header["prefetchable_limit_upper"] << 12 | header["prefetchable_limit"]
        yield _window(base, limit)


def _window(base: int, limit: int) -> range:
    return range(base << _WINDOW_BITS, (limit + 1) << _WINDOW_BITS)


def find_function(
    devices: Mapping[int, Function], here: int, bus: int, devfn: int
) -> Function | None:
    """Returns the function that answers a request to *bus* and *devfn*, from bus *here* with these
    *devices* on."""
    if bus == here:
        return devices.get(devfn)
    for function in devices.values():
        if isinstance(function, Bridge) and bus in function.buses:
            return find_function(function.below, function.buses.start, bus, devfn)
    return None


def find_place(devices: Mapping[int, Function], address: int) -> RegisterPlace | None:
    """Returns the byte that a memory request to *address* reaches, from the bus with these
    *devices* on."""
    for function in devices.values():
        place = function.place(address)
        if place is None and isinstance(function, Bridge) and function.forwards(address):
            place = find_place(function.below, address)
        if place is not None:
            return place
    return None
