# SPDX-License-Identifier: BSD-3-Clause
"""HDM decoders as software drives them: commits, their refusals, locks, decommits and resets."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nupa.cxl.device.endpoint import Type3
from nupa.cxl.function.hdm import DecoderSet
from nupa.cxl.function.interleave import CODE_OF_WAYS
from nupa.cxl.registers import component_tables as tables
from nupa.cxl.registers.block import Registers
from tests.unit.cxl.tree import Tree

STEP = 256 << 20
LOCK, COMMIT, COMMITTED, ERROR, HOST_ONLY = 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12


def switch(targets: int = 8) -> DecoderSet:
    capability = tables.hdm(4, targets=targets)
    return DecoderSet(Registers(capability.rows, capability.bytes))


def device(steps: int = 16) -> DecoderSet:
    capability = tables.hdm(4, targets=0)
    return DecoderSet(Registers(capability.rows, capability.bytes), steps * STEP)


def control(ways: int = 1, granularity: int = 0, *, lock: bool = False) -> int:
    return granularity | CODE_OF_WAYS[ways] << 4 | LOCK * lock | HOST_ONLY


def program(
    decoders: DecoderSet, n: int, base: int, size: int, word: int, last: int | bytes = 0
) -> int:
    """Program decoder *n* as a driver does: all fields (base and size in steps), then its commit.
    Return its control register."""
    at, registers = 0x10 + 0x20 * n, decoders.registers
    registers.write(at, 8, base * STEP)
    registers.write(at + 8, 8, size * STEP)
    if isinstance(last, bytes):
        last = int.from_bytes(last.ljust(8, b"\0"), "little")
    registers.write(at + 0x14, 4, last & 0xFFFFFFFF)
    registers.write(at + 0x18, 4, last >> 32)
    registers.write(at + 0x10, 4, word)
    registers.write(at + 0x10, 4, word | COMMIT)
    return registers.read(at + 0x10, 4)


def decommit(decoders: DecoderSet, n: int) -> int:
    at = 0x20 + 0x20 * n
    decoders.registers.write(at, 4, decoders.registers.read(at, 4) & ~COMMIT)
    return decoders.registers.read(at, 4)


def answer(word: int) -> int:
    return word & (COMMITTED | ERROR)


def test_a_commit_is_answered_and_the_decoder_decodes() -> None:
    decoders = switch()
    word = program(decoders, 0, 16, 4, control(4, 2), bytes([7, 5, 3, 1]))
    assert word == control(4, 2) | COMMIT | COMMITTED
    there = decoders.find(16 * STEP)
    assert there
    assert (there.base, there.size) == (16 * STEP, 4 * STEP)
    assert there.targets == (7, 5, 3, 1)
    assert (there.interleave.ways, there.interleave.granularity_bytes) == (4, 1024)
    assert decoders.find(20 * STEP - 1) is there
    assert decoders.find(20 * STEP) is None
    assert decoders.find(16 * STEP - 1) is None


def test_a_device_decodes_once_decoding_is_enabled() -> None:
    decoders = device()
    changes: list[bool] = []
    decoders.on_change(lambda: changes.append(decoders.find(STEP) is not None))
    assert answer(program(decoders, 0, 1, 1, control())) == COMMITTED
    assert decoders.find(STEP) is None
    decoders.registers.write(4, 4, 2)
    assert decoders.find(STEP) is not None
    decoders.registers.write(4, 4, 2)
    assert changes == [False, True]


def test_memory_of_decoders_follows_that_of_the_one_before_after_its_skip() -> None:
    """CXL 3.1 8.2.4.20.9: half of the size of a two-way decoder is the device's."""
    decoders = device(16)
    assert answer(program(decoders, 0, 0, 4, control(2))) == COMMITTED
    assert answer(program(decoders, 1, 8, 3, control(3), 5 * STEP)) == COMMITTED
    assert answer(program(decoders, 2, 32, 8, control())) == COMMITTED
    assert [each and (each.dpa, each.dpa_end) for each in decoders.decoders] == [
        (0, 2 * STEP),
        (7 * STEP, 8 * STEP),
        (8 * STEP, 16 * STEP),
        None,
    ]
    assert answer(program(decoders, 3, 64, 1, control())) == ERROR
    assert "its memory ends at" in decoders.errors[3]


#: Refused commits of decoder 1 while decoder 0 has steps 4 to 8: kind, base, size, word, last, why.
REFUSED: list[tuple[str, int, int, int, Any, str]] = [
    ("switch", 7, 1, control(), b"", "is below"),
    ("switch", 0, 4, control(), b"", "is below"),
    ("switch", 8, 3, control(2), bytes([0, 1]), "not a multiple of 2"),
    ("switch", 8, 2, control(2), bytes([3, 3]), "not distinct"),
    ("switch", 8, 4, control(4), bytes([0, 1, 2, 1]), "not distinct"),
    ("switch", 8, 16, control(16), bytes(range(8)), "does not interleave 16 ways"),
    ("switch", 8, 3, control(3), bytes(range(8)), "does not interleave 3 ways"),
    ("switch", 8, 1, 0x50, b"", "reserved encodings"),
    ("switch", 8, 1, 0xB0, b"", "reserved encodings"),
    ("switch", 8, 1, 0x07, b"", "reserved encodings"),
    ("switch", 8, 8, control(8, 5), bytes(range(8)), "cannot select"),
    ("switch", (1 << 36) - 1, 2, control(), b"", "do not end"),
    ("device", 7, 1, control(), 0, "is below"),
    ("device", 8, 4, control(3), 0, "not a multiple of 3"),
    ("device", 8, 16, control(), 0, "its memory ends"),
    ("device", 8, 1, control(), 16 * STEP, "its memory ends"),
    ("device", 8, 16, control(16, 6), 0, "cannot select"),
]


@pytest.mark.parametrize(("kind", "base", "size", "word", "last", "why"), REFUSED)
def test_an_impossible_decoder_is_an_error_and_not_committed(
    kind: str, base: int, size: int, word: int, last: Any, why: str
) -> None:
    decoders = switch() if kind == "switch" else device()
    assert answer(program(decoders, 0, 4, 4, control())) == COMMITTED
    first = decoders.decoders[0]
    assert answer(program(decoders, 1, base, size, word, last)) == ERROR
    assert decoders.decoders == [first, None, None, None]
    assert why in decoders.errors[1]
    # Software takes its commit back: the error goes, and a right one is taken.
    assert answer(decommit(decoders, 1)) == 0
    assert not decoders.errors
    assert answer(program(decoders, 1, 8, 1, control())) == COMMITTED


def test_fewer_targets_allow_fewer_ways() -> None:
    decoders = switch(targets=2)
    assert answer(program(decoders, 0, 4, 4, control(4), bytes(2))) == ERROR
    decommit(decoders, 0)
    assert answer(program(decoders, 0, 4, 4, control(2), bytes([1, 0]))) == COMMITTED


@pytest.mark.parametrize(("ways", "granularity"), [(2, 6), (4, 5), (8, 4), (16, 3), (3, 6), (6, 6)])
def test_a_device_interleaves_with_the_bits_that_it_names(ways: int, granularity: int) -> None:
    """CXL 3.1 8.2.4.20.1: address bits 14:8; and without the capability of 14:12, only 11:8."""
    decoders = device()
    assert answer(program(decoders, 0, 0, ways, control(ways, granularity))) == COMMITTED
    decommit(decoders, 0)
    decoders.registers["capability.interleave_14_12"] = 0
    decoders.registers["capability.interleave_3_6_12"] = 0
    assert answer(program(decoders, 0, 0, ways, control(ways, granularity))) == ERROR


def test_decoders_are_committed_in_their_order() -> None:
    decoders = switch()
    assert answer(program(decoders, 1, 4, 4, control())) == ERROR
    assert "decoder 0 is not committed" in decoders.errors[1]
    assert answer(program(decoders, 0, 0, 4, control())) == COMMITTED
    # Writing Commit again is another try.
    registers = decoders.registers
    registers.write(0x40, 4, registers.read(0x40, 4))
    assert answer(registers.read(0x40, 4)) == COMMITTED


def test_a_place_that_a_decommit_left_takes_what_fits() -> None:
    decoders = device(8)
    for n in range(3):
        program(decoders, n, 4 * n, 2, control())
    assert answer(decommit(decoders, 1)) == 0
    assert [each is not None for each in decoders.decoders] == [True, False, True, False]
    assert answer(program(decoders, 1, 3, 6, control())) == ERROR
    assert "a later one begins" in decoders.errors[1]
    assert answer(program(decoders, 1, 3, 4, control())) == ERROR
    assert "a later decoder" in decoders.errors[1]
    assert answer(program(decoders, 1, 2, 2, control())) == COMMITTED


def test_a_decoder_of_no_size_is_committed_and_decodes_nothing() -> None:
    decoders = switch()
    assert answer(program(decoders, 0, 4, 0, control())) == COMMITTED
    assert decoders.find(4 * STEP) is None


def test_a_committed_decoder_decodes_what_was_committed() -> None:
    decoders = switch()
    program(decoders, 0, 4, 4, control(), bytes([2]))
    decoders.registers.write(0x10, 8, 9 * STEP)
    decoders.registers.write(0x24, 4, 3)
    there = decoders.find(4 * STEP)
    assert there
    assert there.targets == (2,)
    assert decoders.find(9 * STEP) is None


def test_a_decoder_that_is_locked_on_commit_takes_no_write() -> None:
    decoders = device()
    word = program(decoders, 0, 4, 4, control(2, 1, lock=True))
    assert answer(word) == COMMITTED
    before, there = bytes(decoders.registers), decoders.decoders[0]
    for at in range(0x10, 0x30, 4):
        decoders.registers.write(at, 4, 0)
        decoders.registers.write(at, 4, 0xFFFFFFFF)
    assert bytes(decoders.registers) == before
    assert decoders.decoders[0] is there
    # A refused commit locks nothing.
    assert answer(program(decoders, 1, 0, 4, control(lock=True))) == ERROR
    assert answer(decommit(decoders, 1)) == 0
    assert answer(program(decoders, 1, 8, 4, control())) == COMMITTED


def test_a_cxl_reset_keeps_what_is_locked_and_a_hot_one_keeps_nothing() -> None:
    """CXL 3.1 9.7, table 8-1."""
    decoders = device()
    program(decoders, 0, 4, 4, control(lock=True))
    program(decoders, 1, 8, 4, control())
    there = decoders.decoders[0]
    decoders.registers.reset(cxl=True)
    assert decoders.decoders == [there, None, None, None]
    assert decoders.registers["decoder0.committed"] == 1
    assert decoders.registers["decoder1.committed"] == decoders.registers["decoder1.size"] == 0
    decoders.registers.reset(hot=True)
    assert decoders.decoders == [None] * 4
    assert answer(program(decoders, 0, 1, 1, control())) == COMMITTED


def test_a_tree_has_decoders_in_bridge_switch_and_device() -> None:
    tree = Tree()
    assert tree.upstream.decoders
    assert not tree.upstream.decoders.is_device
    assert not tree.bridge.decoders.is_device
    assert tree.device.decoders.is_device
    assert [port.decoders for port in (*tree.roots, *tree.downs)] == [None] * 4
    registers = tree.device.component["hdm"]
    registers.write(0x18, 8, STEP)
    registers.write(0x20, 4, COMMIT)
    assert registers["decoder0.committed"] == 1
    tree.device.reset()
    assert Type3(STEP).decoders.decoders == tree.device.decoders.decoders == [None] * 4


steps = st.integers(0, 12)
action = st.one_of(
    st.tuples(
        st.just("commit"),
        st.integers(0, 3),
        steps,
        steps,
        st.sampled_from(sorted(CODE_OF_WAYS)),
        st.integers(0, 7),
        st.booleans(),
        st.integers(0, 3),
    ),
    st.tuples(st.just("decommit"), st.integers(0, 3)),
    st.tuples(st.just("garbage"), st.integers(0, 35), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("reset"), st.booleans(), st.booleans()),
)


@settings(derandomize=True)
@given(st.booleans(), st.lists(action, max_size=25))
def test_decoders_stay_in_order_and_apart_after_any_writes(
    is_device: bool, actions: list[tuple[Any, ...]]
) -> None:
    decoders = device(8) if is_device else switch()
    registers = decoders.registers
    for name, *how in actions:
        locked = {n: each for n, each in enumerate(decoders.decoders) if each and each.locked}
        if name == "commit":
            n, base, size, ways, granularity, lock, skip = how
            last = skip * STEP if is_device else bytes(range(skip, skip + 8))
            program(decoders, n, base, size, control(ways, granularity, lock=lock), last)
        elif name == "decommit":
            decommit(decoders, *how)
        elif name == "garbage":
            registers.write(4 * how[0], 4, how[1])
        else:
            registers.reset(hot=how[0], cxl=how[1])
        if name != "reset" or how == [False, True]:
            assert all(decoders.decoders[n] is each for n, each in locked.items())
        there = [each for each in decoders.decoders if each]
        for one, two in itertools.pairwise(there):
            assert one.end <= two.base
            assert not is_device or one.dpa_end <= two.dpa - two.skip
        assert all(each.dpa_end <= 8 * STEP for each in there if is_device)
        for n, each in enumerate(decoders.decoders):
            assert registers[f"decoder{n}.committed"] == (each is not None)
            assert not (each and registers[f"decoder{n}.error"])
            assert registers[f"decoder{n}.error"] == (n in decoders.errors)
            assert each is None or registers[f"decoder{n}.commit"]
