# SPDX-License-Identifier: BSD-3-Clause
"""Health: alerts, events at thresholds, and the shutdown state."""

from __future__ import annotations

import struct

import pytest

from nupa.cxl.function.cci import Code
from nupa.cxl.media.events import MEMORY_MODULE, Log
from tests.unit.cxl.driver import Driver

SET = struct.Struct("<BBBxhhHH")


def test_health_is_what_was_measured() -> None:
    driver = Driver()
    driver.memory.health.update(life_percent=10, celsius=-3, volatile_errors=7)
    assert struct.unpack("<BBBBhIII", driver.ok(0x4200)) == (0, 0, 0, 10, -3, 0, 7, 0)
    with pytest.raises(TypeError):
        driver.memory.health.update(weight=1)


def test_a_threshold_that_is_crossed_makes_one_event() -> None:
    driver = Driver()
    driver.ok(0x4202, SET.pack(1, 1, 80, 0, 0, 0, 0))
    events = driver.memory.events
    driver.memory.health.update(life_percent=79)
    assert len(events[Log.WARNING]) == 0
    driver.memory.health.update(life_percent=80)
    driver.memory.health.update(life_percent=81)
    (event,) = events[Log.WARNING].get(9).records
    assert (event.kind, event.data[0]) == (MEMORY_MODULE, 2)
    driver.memory.health.update(life_percent=95)
    assert len(events[Log.FAILURE]) == 1
    driver.memory.health.update(celsius=95, media=1, status=1)
    assert [len(events[log]) for log in (Log.WARNING, Log.FAILURE)] == [2, 3]


def test_a_warning_behind_its_critical_threshold_is_refused() -> None:
    driver = Driver()
    before = driver.ok(0x4201)
    assert len(before) == 16
    for valid, life, over, under in ((1, 95, 0, 0), (2, 0, 95, 0), (4, 0, 0, -10), (32, 0, 0, 0)):
        code, _ = driver.send(0x4202, SET.pack(valid, valid, life, over, under, 0, 0))
        assert code is Code.INVALID_INPUT
    assert driver.ok(0x4201) == before
    driver.ok(0x4202, SET.pack(7, 7, 94, 94, -9, 0, 0))
    assert driver.ok(0x4201)[0] == 7
    driver.ok(0x4202, SET.pack(7, 0, 0, 0, 0, 0, 0))
    assert driver.ok(0x4201) == before


def test_the_shutdown_state_is_clean_or_dirty() -> None:
    driver = Driver()
    assert driver.ok(0x4203) == b"\0"
    driver.ok(0x4204, b"\1")
    assert driver.send(0x4204, b"\2")[0] is Code.INVALID_INPUT
    assert driver.ok(0x4203) == b"\1"
