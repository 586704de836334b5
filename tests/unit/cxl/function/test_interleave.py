# SPDX-License-Identifier: BSD-3-Clause
"""Interleaving beside a model of another form: blocks in their order, dealt out like cards."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.cxl.function.interleave import GRANULARITIES, WAYS, Interleave, xor_map_count

STEP = 256 << 20
every_ways = st.sampled_from(sorted(WAYS.values()))
every_granularity = st.sampled_from(GRANULARITIES)


@st.composite
def xor_maps(draw: st.DrawFn, ways: int, granularity: int) -> tuple[int, ...]:
    """Draw maps: map i has bit i of the selecting bits, and any bits above all of these."""
    count, low = xor_map_count(ways), granularity.bit_length() - 1
    above = st.integers(0, (1 << 40) - 1).map(lambda bits: bits << low + count & (1 << 48) - 1)
    return tuple(1 << low + i | draw(above) for i in range(count))


@st.composite
def interleaves(draw: st.DrawFn) -> Interleave:
    ways, granularity = draw(every_ways), draw(every_granularity)
    maps = draw(xor_maps(ways, granularity)) if draw(st.booleans()) else ()
    return Interleave(ways, granularity, maps)


def parity(number: int) -> int:
    odd = 0
    while number:
        odd, number = 1 - odd, number & number - 1
    return odd


def whose(each: Interleave, block: int) -> int:
    """Return the target of block number *block*, counted from address 0, by the tables of CXL 3.1
    9.18.1.3."""
    if not each.xor_maps:
        return block % each.ways
    address = block * each.granularity_bytes
    target = sum(1 << i for i, one in enumerate(each.xor_maps) if parity(address & one))
    powers = 1 << len(each.xor_maps)
    return target + powers * (block // powers % 3) if each.ways % 3 == 0 else target


def deal(each: Interleave, base: int, blocks: int) -> Iterator[tuple[int, int, int]]:
    """Yield (address, target, its own address) of each block; each target counts its blocks."""
    dealt = dict.fromkeys(range(each.ways), 0)
    for i in range(blocks):
        address = base + i * each.granularity_bytes
        target = whose(each, address // each.granularity_bytes)
        yield address, target, dealt[target] * each.granularity_bytes
        dealt[target] += 1


@settings(derandomize=True)
@given(interleaves(), st.integers(0, 1 << 20), st.integers(1, 8), st.data())
def test_blocks_are_dealt_as_the_model_deals_them(
    each: Interleave, steps: int, turns: int, data: st.DataObject
) -> None:
    base = steps * STEP
    for address, target, own in deal(each, base, turns * each.ways):
        inside = data.draw(st.integers(0, each.granularity_bytes - 1))
        assert each.target(address + inside) == target
        assert each.dpa_offset(address - base + inside) == own + inside
        assert each.hpa(base, target, own + inside) == address + inside


@settings(derandomize=True)
@given(interleaves(), st.integers(0, 1 << 20), st.integers(0, (1 << 44) - 1))
def test_an_address_far_away_comes_back(each: Interleave, steps: int, offset: int) -> None:
    base = steps * STEP
    target, own = each.target(base + offset), each.dpa_offset(offset)
    assert 0 <= target < each.ways
    assert each.hpa(base, target, own) == base + offset
    assert own <= offset < (own + each.granularity_bytes) * each.ways


@pytest.mark.parametrize("ways", sorted(WAYS.values()))
@pytest.mark.parametrize("xor", [False, True])
def test_a_region_is_byte_for_byte_in_its_devices(ways: int, xor: bool) -> None:
    """Each byte of a region, written by address, is where the model of dealt blocks has it."""
    low, count = 8, xor_map_count(ways)
    maps = tuple(1 << low + i | 0x2121 << low + count + i for i in range(count)) if xor else ()
    each, base, turns = Interleave(ways, 256, maps), 7 * STEP, 12
    size = turns * ways * 256
    region = bytes((at * 31 + at // 251) & 0xFF for at in range(size))
    devices = [bytearray(turns * 256) for _ in range(ways)]
    for at, byte in enumerate(region):
        devices[each.target(base + at)][each.dpa_offset(at)] = byte
    dealt = [b""] * ways
    for address, target, _ in deal(each, base, turns * ways):
        dealt[target] += region[address - base : address - base + 256]
    assert [bytes(device) for device in devices] == dealt
    back = bytearray(size)
    for target, device in enumerate(devices):
        for own, byte in enumerate(device):
            back[each.hpa(base, target, own) - base] = byte
    assert bytes(back) == region


@pytest.mark.parametrize(
    ("address", "target"),
    [(0x0, 0), (0x100, 1), (0x200, 2), (0x300, 3), (0x800, 1), (0x1000, 2), (0x2_0800, 0)],
)
def test_maps_of_a_platform_choose_as_by_hand(address: int, target: int) -> None:
    """Bit 0 is the parity of address bits 8, 11, 17 and 25; bit 1 that of 9, 12, 18 and 26."""
    assert Interleave(4, 256, (0x2020900, 0x4041200)).target(address) == target


@pytest.mark.parametrize(
    ("ways", "granularity", "maps", "why"),
    [
        (5, 256, (), "no encoding"),
        (0, 256, (), "no encoding"),
        (2, 128, (), "no encoding"),
        (2, 32768, (), "no encoding"),
        (2, 768, (), "no encoding"),
        (4, 256, (0x100,), "take 2 XOR maps, not 1"),
        (3, 256, (0x100,), "take 0 XOR maps, not 1"),
        (2, 256, (0x200,), "to one target"),
        (4, 256, (0x300, 0x10300), "to one target"),
    ],
)
def test_an_interleave_without_encoding_or_inverse_is_refused(
    ways: int, granularity: int, maps: tuple[int, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Interleave(ways, granularity, maps)
