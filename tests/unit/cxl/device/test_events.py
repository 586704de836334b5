# SPDX-License-Identifier: BSD-3-Clause
"""Event logs: order, handles, overflow, clearing, and notification."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from nupa.cxl.function.cci import Code, CommandError
from nupa.cxl.media.events import (
    DRAM,
    GENERAL_MEDIA,
    RECORD_BYTES,
    DramEventType,
    EventLog,
    EventRecord,
    Log,
    dram,
    general_media,
)
from tests.unit.cxl.driver import Driver

HEAD = struct.Struct("<BxHQQH10x")


def get(driver: Driver, log: Log) -> tuple[int, int, int, int, list[bytes]]:
    answer = driver.ok(0x0100, bytes([log]))
    flags, overflow, first, last, count = HEAD.unpack_from(answer)
    records = [answer[i : i + RECORD_BYTES] for i in range(HEAD.size, len(answer), RECORD_BYTES)]
    assert len(records) == count
    return flags, overflow, first, last, records


def clear(log: Log, *handles: int, flags: int = 0) -> bytes:
    return struct.pack(f"<BBB3x{len(handles)}H", log, flags, len(handles), *handles)


def handle(record: bytes) -> int:
    return int.from_bytes(record[0x14:0x16], "little")


def test_a_record_is_laid_out_as_the_specification_has_it() -> None:
    driver = Driver()
    driver.ok(0x0301, struct.pack("<Q", 1 << 40))
    driver.memory.events.add(Log.FAILURE, general_media(0x1240, channel=3, device=0x010203))
    assert driver.device["status"].dump()["events.failure"] == 1
    record = get(driver, Log.FAILURE)[4][0]
    assert record[:0x10] == GENERAL_MEDIA.bytes
    assert (record[0x10], record[0x11]) == (128, 2)
    assert struct.unpack_from("<Q", record, 0x18) == (1 << 40,)
    assert struct.unpack_from("<QBBBHBB", record, 0x30) == (0x1240, 1, 0, 0, 0b101, 3, 0)
    assert record[0x3F:0x42] == bytes([3, 2, 1])


def test_a_dram_record_says_which_of_its_fields_are_valid() -> None:
    packed = dram(64, nibbles=0xABC, row=0x10203, column=0x405, bank=6).packed(Log.WARNING)
    assert packed[:0x10] == DRAM.bytes
    assert struct.unpack_from("<H", packed, 0x3B) == (0b1110100,)
    assert packed[0x3F:0x49] == bytes([0xBC, 0x0A, 0, 0, 6, 3, 2, 1, 5, 4])
    assert len(packed) == RECORD_BYTES
    assert dram(0, media=DramEventType.DATA_PATH).packed(Log.WARNING)[0x39] == 3


def test_an_event_with_more_data_than_a_record_holds_is_none() -> None:
    assert len(EventRecord(DRAM, bytes(80)).packed(Log.FATAL)) == RECORD_BYTES
    with pytest.raises(ValueError, match="81 bytes"):
        EventRecord(DRAM, bytes(81))


def test_records_come_in_parts_that_fit_and_are_cleared_in_their_order() -> None:
    driver = Driver()
    for i in range(16):
        driver.memory.events.add(Log.WARNING, general_media(64 * i))
    flags, _, _, _, records = get(driver, Log.WARNING)
    assert (flags, len(records)) == (2, 15)
    handles = [handle(record) for record in records]
    assert driver.send(0x0101, clear(Log.WARNING, *handles[1:]))[0] is Code.INVALID_HANDLE
    assert driver.send(0x0101, clear(Log.WARNING, 0))[0] is Code.INVALID_HANDLE
    assert driver.send(0x0101, clear(Log.WARNING))[0] is Code.INVALID_INPUT
    assert get(driver, Log.WARNING)[4] == records
    driver.ok(0x0101, clear(Log.WARNING, *handles))
    flags, _, _, _, records = get(driver, Log.WARNING)
    assert (flags, len(records)) == (0, 1)
    driver.ok(0x0101, clear(Log.WARNING, handle(records[0])))
    assert driver.device["status"]["events.warning"] == 0


def test_one_event_more_than_the_limit_overflows() -> None:
    driver = Driver(event_limits=(2, 2, 2, 2, 2))
    driver.ok(0x0301, struct.pack("<Q", 100))
    for i in range(2):
        assert driver.memory.events.add(Log.FATAL, general_media(64 * i))
    assert get(driver, Log.FATAL)[:2] == (0, 0)
    assert driver.send(0x0101, clear(Log.FATAL, flags=1))[0] is Code.INVALID_INPUT
    for _ in range(2):
        driver.time_ns += 1
        assert driver.memory.events.add(Log.FATAL, general_media(0)) == 0
    assert get(driver, Log.FATAL)[:4] == (1, 2, 101, 102)
    driver.ok(0x0101, clear(Log.FATAL, flags=1))
    assert get(driver, Log.FATAL) == (0, 0, 0, 0, [])


def test_there_are_five_logs_and_handles_are_as_many_as_counted() -> None:
    driver = Driver()
    assert driver.send(0x0100, b"\x05")[0] is Code.INVALID_INPUT
    assert driver.send(0x0101, struct.pack("<BBB3xH", 0, 0, 2, 1))[0] is Code.INVALID_PAYLOAD_LENGTH
    assert driver.send(0x0101, clear(Log.WARNING, 1, flags=2))[0] is Code.INVALID_INPUT


def test_an_event_interrupts_only_where_the_policy_says_so() -> None:
    driver = Driver()
    driver.memory.events.add(Log.WARNING, general_media(0))
    driver.ok(0x0103, bytes([0, 1, 0, 0]))
    assert driver.ok(0x0102) == bytes([0, 1 | 1 << 4, 0, 0, 0])
    driver.memory.events.add(Log.FAILURE, general_media(0))
    driver.memory.events.add(Log.WARNING, general_media(0))
    assert driver.interrupts == []  # it was not empty before
    driver.memory.events.clear(Log.WARNING, [1, 2])
    for _ in range(2):
        driver.memory.events.add(Log.WARNING, general_media(0))
    assert driver.interrupts == [1]
    assert driver.send(0x0103, bytes([2, 0, 0, 0]))[0] is Code.INVALID_INPUT
    assert driver.ok(0x0102) == bytes([0, 1 | 1 << 4, 0, 0, 0])


def test_records_outlive_a_reset() -> None:
    driver = Driver()
    driver.memory.events.add(Log.FATAL, general_media(0))
    driver.device.reset(hot=True)
    assert driver.device["status"]["events.fatal"] == 1


@given(st.integers(1, 5), st.lists(st.integers(0, 3), max_size=40))
def test_a_log_is_a_queue_that_drops_what_does_not_fit(limit: int, steps: list[int]) -> None:
    log, model, dropped = EventLog(limit), [], 0
    for now, step in enumerate(steps):
        if step < 2:
            given_handle = log.add(general_media(64 * now), now)
            assert bool(given_handle) == (len(model) < limit)
            if given_handle:
                model.append(given_handle)
            else:
                dropped += 1
        elif step == 2 and model:
            log.clear(model[:2])
            model, dropped = model[2:], 0
        elif dropped:
            log.clear_all()
            model, dropped = [], 0
        else:
            with pytest.raises(CommandError):
                log.clear_all()
        answer = log.get(limit)
        assert [event.handle for event in answer.records] == model
        assert (answer.overflow_count, answer.overflow, answer.more) == (
            dropped,
            dropped > 0,
            False,
        )
