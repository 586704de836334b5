# SPDX-License-Identifier: BSD-3-Clause
"""Health and alerts, 42xx (CXL 3.1 8.2.9.9.3): life, temperature, errors, shutdown state."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from nupa.cxl.function.cci import Command, Effect, exactly, require
from nupa.cxl.media.events import EventRecord, Log, memory_module

_INFO = struct.Struct("<BBBBhIII")
_ALERTS = struct.Struct("<BBBBhhhhHH")
_SET_ALERTS = struct.Struct("<BBBxhhHH")
_LIFE, _OVER, _UNDER = 1 << 0, 1 << 1, 1 << 2
_ALL = 0b11111
_NAMES = ("life_percent", "over_celsius", "under_celsius", "volatile_errors", "persistent_errors")
#: Device event types of a memory module event (8.2.9.2.1.3).
_HEALTH, _MEDIA, _LIFE_USED, _TEMPERATURE = range(4)
_REPLACE = 1 << 2  # 8.2.9.9.3.1, Health Status: hardware replacement needed


@dataclass(frozen=True, slots=True)
class HealthInfo:
    """Health information (8.2.9.9.3.1).  *status*: maintenance needed, performance degraded,
    replacement needed; *media* is 0 while it is normal."""

    status: int = 0
    media: int = 0
    additional: int = 0
    life_percent: int = 0
    celsius: int = 25
    dirty_shutdowns: int = 0
    volatile_errors: int = 0
    persistent_errors: int = 0

    def packed(self) -> bytes:
        return _INFO.pack(
            self.status,
            self.media,
            self.additional,
            self.life_percent,
            self.celsius,
            self.dirty_shutdowns,
            self.volatile_errors,
            self.persistent_errors,
        )


@dataclass(slots=True)
class Health:
    """The health of a device; *log* takes the events that `update` makes."""

    log: Callable[[Log, EventRecord], object]
    info: HealthInfo = HealthInfo()
    life_critical_percent: int = 95
    over_critical_celsius: int = 95
    under_critical_celsius: int = -10
    #: Warning thresholds of software; the others are not valid.
    warnings: dict[str, int] = field(default_factory=dict)
    is_dirty: bool = False

    def commands(self) -> Iterator[Command]:
        yield Command(0x4200, "get health info", exactly(0), lambda _: self.info.packed())
        yield Command(0x4201, "get alert configuration", exactly(0), self._alerts)
        size = exactly(_SET_ALERTS.size)
        yield Command(0x4202, "set alert configuration", size, self._set_alerts, Effect.POLICY)
        yield Command(0x4203, "get shutdown state", exactly(0), lambda _: bytes([self.is_dirty]))
        yield Command(0x4204, "set shutdown state", exactly(1), self._set_shutdown, Effect.POLICY)

    def update(self, **changes: int) -> None:
        """Sets measured values: one event for each status that changes, and for each threshold that
        is crossed.  TypeError: no such value."""
        old, self.info = self.info, replace(self.info, **changes)
        new = self.info
        if new.status != old.status:
            self._event(Log.WARNING, _HEALTH)
        if new.media != old.media:
            self._event(Log.FAILURE, _MEDIA)
        was, now = self._life_alert(old), self._life_alert(new)
        if now is not None and now != was:
            self._event(now, _LIFE_USED)
        was, now = self._temperature_alert(old), self._temperature_alert(new)
        if now is not None and now != was:
            self._event(now, _TEMPERATURE)

    def fail(self) -> None:
        """Records an error that the device does not recover from: one fatal event."""
        self.info = replace(self.info, status=self.info.status | _REPLACE)
        self._event(Log.FATAL, _HEALTH)

    def _event(self, log: Log, kind: int) -> None:
        self.log(log, memory_module(kind, self.info.packed()))

    def _life_alert(self, info: HealthInfo) -> Log | None:
        if info.life_percent >= self.life_critical_percent:
            return Log.FAILURE
        warning = self.warnings.get("life_percent")
        return Log.WARNING if warning is not None and info.life_percent >= warning else None

    def _temperature_alert(self, info: HealthInfo) -> Log | None:
        if not self.under_critical_celsius < info.celsius < self.over_critical_celsius:
            return Log.FAILURE
        over, under = self.warnings.get("over_celsius"), self.warnings.get("under_celsius")
        hot = over is not None and info.celsius >= over
        cold = under is not None and info.celsius <= under
        return Log.WARNING if hot or cold else None

    def _alerts(self, _payload: bytes) -> bytes:
        valid = sum((name in self.warnings) << bit for bit, name in enumerate(_NAMES))
        life, *rest = (self.warnings.get(name, 0) for name in _NAMES)
        critical = (self.over_critical_celsius, self.under_critical_celsius)
        return _ALERTS.pack(valid, _ALL, self.life_critical_percent, life, *critical, *rest)

    def _set_alerts(self, payload: bytes) -> bytes:
        valid, enable, life, over, under, *errors = _SET_ALERTS.unpack(payload)
        require(not (valid | enable) & ~_ALL, why=f"alerts {valid:#x} {enable:#x}")
        sets = valid & enable
        require(not sets & _LIFE or life < self.life_critical_percent, why=f"{life} percent")
        require(not sets & _OVER or over < self.over_critical_celsius, why=f"over {over}")
        require(not sets & _UNDER or under > self.under_critical_celsius, why=f"under {under}")
        for bit, (name, value) in enumerate(zip(_NAMES, (life, over, under, *errors), strict=True)):
            if sets >> bit & 1:
                self.warnings[name] = value
            elif valid >> bit & 1:
                self.warnings.pop(name, None)
        return b""

    def _set_shutdown(self, payload: bytes) -> bytes:
        require(payload[0] <= 1, why=f"state {payload[0]}")
        self.is_dirty = bool(payload[0])
        return b""
