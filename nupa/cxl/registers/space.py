# SPDX-License-Identifier: BSD-3-Clause
"""A space of blocks: the contents of a BAR or of configuration space.

Bytes between blocks are reserved: they read as 0 and take no write.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from nupa.cxl.registers.block import DEVICE_BYTES, Registers, check_access

_STEP_BYTES = 4


class Space:
    """*size* bytes with blocks, which are found by name: `space["hdm"]`.

    >>> from nupa.cxl.registers.block import RW, Field, Registers
    >>> from nupa.cxl.registers.space import Space
    >>> space = Space(4096)
    >>> space.add("scratch", 0x100, Registers([Field("word", 0, "31:0", RW)], 4))
    >>> space.write(0x100, 4, 7)
    >>> space["scratch"]["word"], space.read(0x100, 8), space.read(0x200, 4)
    (7, 7, 0)
    """

    def __init__(self, size: int, widths: tuple[int, ...] = DEVICE_BYTES) -> None:
        self.size = size
        self.widths = widths
        self._blocks: dict[str, tuple[int, Registers]] = {}
        self._starts: list[int] = []
        self._at: list[Registers] = []

    def add(self, name: str, offset: int, block: Registers) -> None:
        """Adds a block.  ValueError: the name or a byte is taken, or the bytes are not DWs of the
        space."""
        if name in self._blocks:
            raise ValueError(f"two blocks are called {name}")
        end = offset + block.size
        if offset % _STEP_BYTES or block.size % _STEP_BYTES or offset < 0 or end > self.size:
            raise ValueError(
                f"{name}: {offset:#x} to {end:#x} are not whole DWs of {self.size:#x} bytes"
            )
        for other, (start, there) in self._blocks.items():
            if start < end and offset < start + there.size:
                raise ValueError(f"{name}: {offset:#x} to {end:#x} overlap {other} at {start:#x}")
        index = bisect_right(self._starts, offset)
        self._starts.insert(index, offset)
        self._at.insert(index, block)
        self._blocks[name] = (offset, block)

    def __getitem__(self, name: str) -> Registers:
        return self._blocks[name][1]

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names, in the order in which they were added."""
        return iter(self._blocks)

    def offset_of(self, name: str) -> int:
        return self._blocks[name][0]

    def read(self, offset: int, size: int) -> int:
        """Reads bytes.  AccessError as for `Registers.read`."""
        check_access(offset, size, self.size, self.widths)
        value = 0
        for at, part, block, start in self._parts(offset, size):
            value |= block.peek(at - start, part) << (at - offset) * 8
        return value

    def write(self, offset: int, size: int, value: int) -> None:
        """Writes bytes.  AccessError as for `Registers.read`."""
        check_access(offset, size, self.size, self.widths)
        for at, part, block, start in self._parts(offset, size):
            block.poke(at - start, part, value >> (at - offset) * 8)

    def _parts(self, offset: int, size: int) -> Iterator[tuple[int, int, Registers, int]]:
        """Yields the parts of these bytes in blocks: offset, size, block and its start."""
        at, end = offset, offset + size
        while at < end:
            index = bisect_right(self._starts, at) - 1
            if index >= 0 and at < self._starts[index] + self._at[index].size:
                start, block = self._starts[index], self._at[index]
                part = min(end, start + block.size) - at
                yield at, part, block, start
            else:
                part = min(end - at, _STEP_BYTES - at % _STEP_BYTES)
            at += part

    def reset(self, *, hot: bool = False, cxl: bool = False) -> None:
        """Resets each block: `Registers.reset`."""
        for _, block in self._blocks.values():
            block.reset(hot=hot, cxl=cxl)

    def dump(self) -> dict[str, int]:
        """Returns the value of each field by "block.field"."""
        return {
            f"{name}.{field}": value
            for name, (_, block) in self._blocks.items()
            for field, value in block.dump().items()
        }

    def __bytes__(self) -> bytes:
        image = bytearray(self.size)
        for start, block in self._blocks.values():
            image[start : start + block.size] = bytes(block)
        return bytes(image)
