# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic of interleaving: from a host's address to a target and its own memory.

CXL 3.1 8.2.4.20.13 (device decode logic), 9.18.1.3 (CFMWS: targets), 9.18.1.4 (CXIMS: XOR maps).
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Encoded ways (8.2.4.20.7, Interleave Ways) -> ways.
WAYS = {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 8: 3, 9: 6, 10: 12}
CODE_OF_WAYS = {ways: code for code, ways in WAYS.items()}
#: Encoded granularity (8.2.4.20.7, Interleave Granularity): 256 << code bytes.
GRANULARITIES = tuple(256 << code for code in range(7))


def xor_map_count(ways: int) -> int:
    """Returns the number of XOR maps for *ways*: one for each power of two in it (9.18.1.4)."""
    return (ways & -ways).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Interleave:
    """An interleave of *ways* targets by *granularity_bytes*.

    Bit i of the target is a bit of the address, or with *xor_maps* the parity of the address masked
    by map i.

    ValueError: ways, granularity or maps without an encoding, or maps that give two blocks of a
    round to one target.

    >>> from nupa.cxl.function.interleave import Interleave
    >>> pair = Interleave(2, 4096)
    >>> pair.target(0x11_0000_1040), hex(pair.dpa_offset(0x1040))
    (1, '0x40')
    >>> hex(pair.hpa(0x11_0000_0000, 1, 0x40))
    '0x1100001040'
    """

    ways: int = 1
    granularity_bytes: int = 256
    xor_maps: tuple[int, ...] = ()
    #: Entry x is the target of block x of a round, by the maps alone.
    _turns: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.ways not in CODE_OF_WAYS or self.granularity_bytes not in GRANULARITIES:
            raise ValueError(
                f"no encoding of {self.ways} ways of {self.granularity_bytes} bytes: "
                f"{', '.join(map(str, sorted(CODE_OF_WAYS)))} ways, 256 to 16384 bytes"
            )
        bits = xor_map_count(self.ways)
        if self.xor_maps and len(self.xor_maps) != bits:
            raise ValueError(f"{self.ways} ways take {bits} XOR maps, not {len(self.xor_maps)}")
        turns = tuple(self._low_bits(x << self.shift) for x in range(1 << bits))
        if len(set(turns)) < len(turns):
            raise ValueError("these XOR maps give two blocks of a turn to one target")
        object.__setattr__(self, "_turns", turns)

    @property
    def shift(self) -> int:
        """The lowest bit of an address that selects a target."""
        return self.granularity_bytes.bit_length() - 1

    @property
    def bits(self) -> int:
        """The number of bits that select; 3, 6 and 12 ways have a remainder by 3 above them."""
        return xor_map_count(self.ways)

    def _low_bits(self, hpa: int) -> int:
        if not self.xor_maps:
            return hpa >> self.shift & (1 << xor_map_count(self.ways)) - 1
        return sum(((hpa & each).bit_count() & 1) << i for i, each in enumerate(self.xor_maps))

    def target(self, hpa: int) -> int:
        """Returns the target of the byte at *hpa*: an index into the list of targets."""
        low = self._low_bits(hpa)
        if self.ways % 3:
            return low
        return low | (hpa >> self.shift + self.bits) % 3 << self.bits

    def dpa_offset(self, hpa_offset: int) -> int:
        """Returns the offset in the decoder's own memory of the byte at *hpa_offset* from the
        decoder's base."""
        turn = (hpa_offset >> self.shift) // self.ways
        return turn << self.shift | hpa_offset & self.granularity_bytes - 1

    def hpa(self, base: int, target: int, dpa_offset: int) -> int:
        """Returns the address of the byte at *dpa_offset* of *target*; *base* is the decoder's."""
        offset = dpa_offset >> self.shift
        rest = dpa_offset & self.granularity_bytes - 1
        above = offset * (self.ways >> self.bits)  # in rounds of the low bits
        if not self.ways % 3:
            above += ((target >> self.bits) - (base >> self.shift + self.bits)) % 3
        hpa = base + (above << self.shift + self.bits)
        # The bits above are known; the block is the one whose parities give the rest.
        wanted = (target & (1 << self.bits) - 1) ^ self._low_bits(hpa)
        return hpa + (self._turns.index(wanted) << self.shift) + rest
