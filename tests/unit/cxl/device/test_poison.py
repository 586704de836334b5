# SPDX-License-Identifier: BSD-3-Clause
"""Poison: the list, its limits, and the commands that read, inject, clear and scan."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.device.mailbox_cci import MailboxCci
from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.function.interleave import Interleave
from nupa.cxl.host.bus import MemoryAccessError
from nupa.cxl.host.decode import FixedWindow
from nupa.cxl.media.events import Log
from nupa.cxl.media.media import PlainMedia
from nupa.cxl.media.parts import LINE_BYTES
from nupa.cxl.media.poison import PoisonList, PoisonSource
from tests.unit.cxl.driver import MEMORY_BYTES, Driver
from tests.unit.cxl.host_model import BASE, STEP, Host

ALL = struct.pack("<QQ", 0, MEMORY_BYTES // LINE_BYTES)


def records(driver: Driver, asked: bytes = ALL) -> tuple[int, list[tuple[int, int]]]:
    answer = driver.ok(0x4300, asked)
    flags, count = answer[0], int.from_bytes(answer[10:12], "little")
    found = [tuple(struct.unpack_from("<QI4x", answer, 32 + 16 * i)) for i in range(count)]
    assert len(answer) == 32 + 16 * count
    return flags, found


def test_a_line_is_poisoned_until_it_is_cleared_with_data() -> None:
    driver = Driver()
    driver.ok(0x4301, struct.pack("<Q", 0x1000))
    driver.ok(0x4301, struct.pack("<Q", 0x1000))
    assert records(driver) == (0, [(0x1000 | PoisonSource.INJECTED, 1)])
    assert len(driver.memory.events[Log.INFORMATIONAL]) == 2
    assert 0x103F in driver.memory.poison
    assert 0x1040 not in driver.memory.poison
    driver.ok(0x4302, struct.pack("<Q", 0x1000) + b"x" * 64)
    assert records(driver) == (0, [])
    assert driver.media.read(0x1000, 64) == b"x" * 64


@pytest.mark.parametrize("opcode", [0x4301, 0x4302])
def test_the_line_behind_the_last_one_is_refused(opcode: int) -> None:
    driver = Driver()
    rest = b"" if opcode == 0x4301 else bytes(64)
    driver.ok(opcode, struct.pack("<Q", MEMORY_BYTES - 64) + rest)
    before = records(driver)
    beyond = driver.send(opcode, struct.pack("<Q", MEMORY_BYTES) + rest)
    assert beyond[0] is Code.INVALID_PHYSICAL_ADDRESS
    assert driver.send(opcode, struct.pack("<Q", 8) + rest)[0] is Code.INVALID_INPUT
    assert records(driver) == before


def test_one_injection_more_than_the_limit_is_refused() -> None:
    driver = Driver(inject_limit=2)
    for dpa in (0, 64):
        driver.ok(0x4301, struct.pack("<Q", dpa))
    assert driver.send(0x4301, struct.pack("<Q", 128))[0] is Code.INJECT_POISON_LIMIT
    driver.ok(0x4302, struct.pack("<Q", 0) + bytes(64))
    driver.ok(0x4301, struct.pack("<Q", 128))


def test_one_line_more_than_the_limit_sets_overflow_until_a_scan_finds_room() -> None:
    driver = Driver(poison_limit=2)
    driver.ok(0x0301, struct.pack("<Q", 500))
    poison = driver.memory.poison
    assert poison.add(0, PoisonSource.INTERNAL, 500)
    assert poison.add(64, PoisonSource.INTERNAL, 500)
    assert records(driver)[0] == 0
    assert not poison.add(128, PoisonSource.INTERNAL, 501)
    assert 128 in poison
    assert records(driver) == (2, [(0 | PoisonSource.INTERNAL, 2)])
    poison.remove(0)
    assert driver.send(0x4304, ALL + b"\0")[0] is Code.BACKGROUND_STARTED
    assert records(driver)[0] == 2 | 4
    assert driver.send(0x4305)[0] is Code.BUSY
    driver.mailbox.advance()
    assert records(driver) == (0, [(64 | PoisonSource.INTERNAL, 2)])
    results = driver.ok(0x4305)
    assert struct.unpack_from("<QI", results, 32) == (64 | PoisonSource.INTERNAL, 2)
    assert driver.send(0x4305)[0] is Code.UNSUPPORTED
    assert len(driver.memory.events[Log.WARNING]) == 1


def test_a_scan_that_is_aborted_says_where_to_go_on() -> None:
    driver = Driver()
    assert driver.send(0x4304, ALL + b"\2")[0] is Code.INVALID_INPUT
    assert driver.send(0x4304, ALL + b"\1")[0] is Code.BACKGROUND_STARTED
    driver.ok(0x0005)
    assert driver.device["mailbox"]["background.return_code"] == Code.ABORTED
    results = driver.ok(0x4305)
    assert struct.unpack_from("<QQB", results) == (0, MEMORY_BYTES // LINE_BYTES, 2)
    assert struct.unpack("<I", driver.ok(0x4303, ALL)) == (16,)


def test_a_long_list_comes_in_parts_with_the_same_input() -> None:
    driver = Driver(payload_shift=8)
    for i in range(15):
        driver.memory.poison.add(128 * i, PoisonSource.EXTERNAL)
    first, second = records(driver), records(driver)
    assert (first[0], len(first[1])) == (1, 14)
    assert second == (0, [(128 * 14 | PoisonSource.EXTERNAL, 1)])
    assert records(driver) == first
    driver.memory.poison.add(64, PoisonSource.EXTERNAL)
    assert records(driver)[1][0] == (0 | PoisonSource.EXTERNAL, 3)


def test_the_data_path_has_what_is_listed_and_what_it_overwrites_is_not() -> None:
    host = Host([FixedWindow(BASE, 8 * STEP, (10, 11), Interleave(2, 256))])
    host.interleave_all()
    with host.bus() as bus:
        device = host.devices[0]
        memory = MailboxCci(device.device, PlainMedia(memoryview(host.memory[device])))
        poison = memory.poison
        poison.add(128, PoisonSource.INTERNAL)
        poison.mirror(
            lambda dpa, is_poisoned: bus.set_poison(device, dpa, poisoned=is_poisoned),
            lambda dpa: bus.is_poisoned(device, dpa),
        )
        poison.add(0, PoisonSource.INJECTED)
        with pytest.raises(MemoryAccessError):
            bus.read(BASE, 64)
        bus.write(BASE, bytes(64))
        assert [record.dpa for record in poison.records(0, 4096)] == [128]
        assert bus.is_poisoned(device, 128)
        poison.remove(128)
        assert not bus.is_poisoned(device, 128)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 15)), max_size=40), st.integers(1, 6))
def test_the_list_is_a_set_of_lines(steps: list[tuple[bool, int]], limit: int) -> None:
    poison, model = PoisonList(1024, limit=limit), set()
    for add, line in steps:
        if add:
            poison.add(line * 64, PoisonSource.INTERNAL)
            model.add(line)
        else:
            assert poison.remove(line * 64) == (line in model)
            model.discard(line)
        assert {i for i in range(16) if i * 64 in poison} == model
        listed = [
            record.dpa // 64 + i for record in poison.records(0, 1024) for i in range(record.lines)
        ]
        assert listed == sorted(set(listed))
        assert set(listed) <= model
        assert len(listed) == len(poison) <= limit
        assert poison.overflow_ns is not None or set(listed) == model
    with pytest.raises(CommandError):
        poison.add(1024, PoisonSource.INTERNAL)
