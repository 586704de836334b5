# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of registers: writes of software, resets, and sizes of accesses."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.registers.block import (
    COMPONENT_BYTES,
    CONFIG_BYTES,
    HWINIT,
    RO,
    ROS,
    RW,
    RW1C,
    RW1CS,
    RWL,
    RWO,
    RWS,
    WO,
    AccessError,
    BitField,
    RegisterAttribute,
    Registers,
    placed,
)

SIZE = 32
ROWS = (
    BitField("id", 0, "15:0", HWINIT, 0xC0DE),
    BitField("enable", 2, "0", RW),
    BitField("mode", 2, "6:4", RW, 5),
    BitField("lock", 3, "0", RWO),
    BitField("base", 4, "31:12", RWL, 0xFFFFF, lock="lock"),
    BitField("error", 8, "31:0", RW1C),
    BitField("header", 12, "31:0", ROS, 7),
    BitField("mask", 16, "63:0", RWS, 0x1234),
    BitField("sticky", 24, "7:0", RW1CS),
    BitField("count", 25, "3:0", RO, 3),
    BitField("go", 25, "7", WO),
)
WRITES = st.lists(
    st.sampled_from([1, 2, 4, 8]).flatmap(
        lambda size: st.tuples(
            st.integers(0, SIZE // size - 1).map(lambda index: index * size),
            st.just(size),
            st.integers(0, 2 ** (8 * size) - 1),
        )
    ),
    max_size=20,
)


@given(WRITES)
def test_each_bit_obeys_its_access_under_any_writes(writes: list[tuple[int, int, int]]) -> None:
    registers = Registers(ROWS, SIZE)
    registers["error"] = registers["sticky"] = 0xA5
    for offset, size, value in writes:
        old = registers.dump()
        registers.write(offset, size, value)
        written = int.from_bytes(
            value.to_bytes(size, "little").rjust(offset + size, b"\0"), "little"
        )
        there = ((1 << size * 8) - 1) << offset * 8
        for field in ROWS:
            asked = written >> field.low & field.largest
            bits = there >> field.low & field.largest
            was, now = old[field.name], registers[field.name]
            locked = (field.access is RWO and was) or (field.access is RWL and old["lock"])
            if not field.access.stored or locked:
                assert now == was
            elif field.access in (RW1C, RW1CS):
                assert now == was & ~asked
            else:
                assert now == was & ~bits | asked
    reserved = int.from_bytes(bytes(registers), "little")
    for field in ROWS:
        reserved &= ~(field.largest << field.low)
    assert reserved == 0


@given(WRITES)
def test_a_hot_reset_keeps_what_is_sticky_and_a_cold_one_nothing(
    writes: list[tuple[int, int, int]],
) -> None:
    registers = Registers(ROWS, SIZE)
    registers["header"] = 9
    for write in writes:
        registers.write(*write)
    before = registers.dump()
    registers.reset(hot=True)
    for field in ROWS:
        kept = field.access in (ROS, RWS, RW1CS, HWINIT)
        assert registers[field.name] == (before[field.name] if kept else field.reset)
    registers.reset()
    assert registers.dump() == {field.name: field.reset for field in ROWS}


@given(WRITES)
def test_a_cxl_reset_keeps_what_is_sticky_and_what_is_locked(
    writes: list[tuple[int, int, int]],
) -> None:
    """CXL 3.1, table 8-1."""
    registers = Registers(ROWS, SIZE)
    for write in writes:
        registers.write(*write)
    before = registers.dump()
    registers.reset(cxl=True)
    for field in ROWS:
        kept = field.access in (ROS, RWS, RW1CS, HWINIT, RWO)
        kept = kept or (field.access is RWL and before["lock"] != 0)
        assert registers[field.name] == (before[field.name] if kept else field.reset)


def test_reads_of_each_size_see_the_same_little_endian_bytes() -> None:
    registers = Registers(ROWS, SIZE)
    whole = bytes(registers)
    assert whole[:2] == b"\xde\xc0"
    for size in (1, 2, 4, 8):
        read = [registers.read(at, size).to_bytes(size, "little") for at in range(0, SIZE, size)]
        assert b"".join(read) == whole


@pytest.mark.parametrize(
    ("widths", "offset", "size"),
    [
        (CONFIG_BYTES, 0, 8),
        (CONFIG_BYTES, 1, 2),
        (CONFIG_BYTES, 2, 4),
        (CONFIG_BYTES, SIZE, 1),
        (CONFIG_BYTES, -4, 4),
        (COMPONENT_BYTES, 0, 2),
        (COMPONENT_BYTES, 4, 8),
        (COMPONENT_BYTES, SIZE, 4),
        (COMPONENT_BYTES, 0, 0),
    ],
)
def test_an_access_outside_unaligned_or_of_another_size_is_refused(
    widths: tuple[int, ...], offset: int, size: int
) -> None:
    registers = Registers(ROWS, SIZE, widths)
    with pytest.raises(AccessError, match="take aligned accesses"):
        registers.read(offset, size)
    with pytest.raises(AccessError):
        registers.write(offset, size, 0)
    assert bytes(registers) == bytes(Registers(ROWS, SIZE))


def test_a_handler_gets_what_was_written_and_what_was_there() -> None:
    registers = Registers(ROWS, SIZE)
    calls: list[tuple[str, int, int]] = []
    for name in ("base", "mode", "error", "id"):
        registers.on_write(name, lambda written, old, name=name: calls.append((name, written, old)))
    registers["error"] = 0xF00
    registers.write(0, 8, 0x12345_000_0031_FFFF)
    registers.write(9, 1, 0xFF)
    assert calls == [
        ("id", 0xFFFF, 0xC0DE),
        ("mode", 3, 5),
        ("base", 0x12345, 0xFFFFF),
        ("error", 0xFF00, 0xF00),
    ]


def test_a_handler_sees_all_of_its_write_and_may_change_the_field() -> None:
    registers = Registers(ROWS, SIZE)
    seen = []

    def go(written: int, old: int) -> None:
        seen.append((written, old, registers["mode"]))
        registers["enable"] = 0

    registers.on_write("enable", go)
    registers.write(2, 1, 0x21)
    assert seen == [(1, 0, 2)]
    assert registers["enable"] == 0


def test_a_lock_may_be_anything_that_can_be_asked() -> None:
    held = True
    registers = Registers([BitField("base", 0, "31:0", RWL, lock="commit")], 4)
    registers.write(0, 4, 1)
    registers.locks["commit"] = lambda: held
    registers.write(0, 4, 2)
    assert registers["base"] == 1
    held = False
    registers.write(0, 4, 2)
    assert registers["base"] == 2


def test_rows_that_overlap_or_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="overlaps a"):
        Registers([BitField("a", 0, "7:0", RO), BitField("b", 0, "7", RO)], 4)
    with pytest.raises(ValueError, match="outside"):
        Registers([BitField("a", 3, "8", RO)], 4)
    with pytest.raises(ValueError, match="one name"):
        Registers([BitField("a", 0, "0", RO), BitField("a", 1, "0", RO)], 4)
    with pytest.raises(ValueError, match="cannot hold"):
        BitField("a", 0, "3:0", RO, 16)
    with pytest.raises(ValueError, match="lock"):
        BitField("a", 0, "3:0", RWL)
    with pytest.raises(ValueError, match="does not fit"):
        Registers(ROWS, SIZE)["mode"] = 8


def test_rows_move_with_their_locks() -> None:
    rows = [BitField("lock", 0, "0", RWO), BitField("base", 4, "31:0", RWL, lock="lock")]
    two = Registers([*placed(rows, 0, "0."), *placed(rows, 8, "1.")], 16)
    two.write(8, 4, 1)
    two.write(4, 4, 5)
    two.write(12, 4, 5)
    assert two.dump() == {"0.lock": 0, "0.base": 5, "1.lock": 1, "1.base": 0}


def test_each_access_is_named_as_the_specifications_do() -> None:
    assert [str(access) for access in RegisterAttribute] == (
        ["RO", "ROS", "HwInit", "RW", "RWS", "RW1C", "RW1CS", "RWO", "RWL", "WO"]
    )
