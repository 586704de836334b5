# SPDX-License-Identifier: BSD-3-Clause
"""The commands behind the mailbox of a memory device, and the state that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from nupa.cxl.commands.dcd_commands import DcdCommands
from nupa.cxl.commands.event_commands import EventCommands
from nupa.cxl.commands.features import Features, patrol_scrub
from nupa.cxl.commands.firmware import Firmware
from nupa.cxl.commands.health import Health
from nupa.cxl.commands.logs import DeviceLogs, Timestamp
from nupa.cxl.commands.media_commands import MediaCommands
from nupa.cxl.commands.memory import Capacity, MemoryCommands
from nupa.cxl.function.mailbox import Mailbox
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.events import EventLogs, Log, Transaction, general_media
from nupa.cxl.media.media import Media
from nupa.cxl.media.poison import PoisonList, PoisonSource
from nupa.cxl.registers.device_tables import DeviceRegisters

EVENT_LIMITS = (64, 64, 64, 64, 64)
_EVENT_MESSAGE, _MAILBOX_MESSAGE = 1, 2
_MEDIA_READY, _MEDIA_DISABLED = 1, 3
_HOT_RESET = 3


class MailboxCci:
    """The commands behind the mailbox registers of *device*: `mailbox`, `events`, `poison`,
    `firmware`, `features`, `health`, `memory`, `logs`.  With *dynamic* it is also a host's view of
    dynamic capacity.

    *interrupt*(message) is called for each interrupt; without it they are bits in `pending`.
    *clock_ns* counts nanoseconds."""

    def __init__(
        self,
        device: DeviceRegisters,
        media: Media,
        *,
        capacity: Capacity | None = None,
        interrupt: Callable[[int], None] | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        event_limits: Iterable[int] = EVENT_LIMITS,
        poison_limit: int = 256,
        inject_limit: int = 16,
        dynamic: tuple[DynamicCapacity, int] | None = None,
    ) -> None:
        payload_bytes = 1 << device["mailbox"]["capability.payload_shift"]
        limits = tuple(event_limits)
        self.pending = 0
        self._device = device
        self._interrupt = interrupt or self._pend
        self.timestamp = Timestamp(clock_ns)
        now_ns = self.timestamp.now_ns
        self.events = EventLogs(limits, now_ns=now_ns, changed=self._events_changed)
        self.poison = PoisonList(media.size, limit=poison_limit, inject_limit=inject_limit)
        self.firmware = Firmware("NUPA 1", now_ns=clock_ns)
        self.features = Features([patrol_scrub()], payload_bytes)
        self.health = Health(self.events.add)
        self.logs = DeviceLogs(payload_bytes)
        self.memory = MemoryCommands(
            capacity or Capacity(media.size, media.size),
            revision=lambda: self.firmware.revision,
            event_limits=limits,
            poison_limits=(poison_limit, inject_limit),
            payload_bytes=payload_bytes,
        )
        self._event_commands = EventCommands(
            self.events,
            payload_bytes=payload_bytes,
            interrupt=self._interrupt,
            message=_EVENT_MESSAGE,
        )
        media_commands = MediaCommands(
            media,
            self.poison,
            payload_bytes=payload_bytes,
            now_ns=now_ns,
            log=self.events.add,
            media_disabled=self._disable_media,
        )
        parts = (
            self._event_commands,
            self.firmware,
            self.timestamp,
            self.logs,
            self.features,
            self.memory,
            self.health,
            media_commands,
        )
        rows = [row for part in parts for row in part.commands()]
        self._dynamic: DcdCommands | None = None
        if dynamic is not None:
            capacity_of_all, number = dynamic
            self._dynamic = DcdCommands(capacity_of_all, number, payload_bytes=payload_bytes)
            capacity_of_all.host(number).attach(self.events)
            rows += self._dynamic.commands()
        self.mailbox = Mailbox(
            device["mailbox"],
            rows,
            interrupt=self._interrupt,
            message=_MAILBOX_MESSAGE,
        )
        self.logs.describe(self.mailbox.commands.values())
        device["mailbox"].on_reset(self._reset)
        device["status"].on_reset(self._show_events)

    def _pend(self, message: int) -> None:
        self.pending |= 1 << message

    def _events_changed(self, log: Log, is_new: bool) -> None:
        self._device["status"][f"events.{log.name.lower()}"] = len(self.events[log]) > 0
        if is_new and len(self.events[log]) == 1:  # 8.2.9.2.4: the first record
            self._event_commands.notify(log)

    def _disable_media(self, is_disabled: bool) -> None:
        """Shows whether media is disabled (8.2.8.5.1.1)."""
        self.mailbox.is_media_disabled = is_disabled
        state = _MEDIA_DISABLED if is_disabled else _MEDIA_READY
        self._device["memory"]["status.media"] = state

    def _reset(self) -> None:
        """Resets the state behind the mailbox, after its registers."""
        self.timestamp.reset()
        self.features.reset()
        if self._dynamic is not None:
            self._dynamic.reset()
        self._event_commands.modes[:] = [0] * len(Log)

    def _show_events(self) -> None:
        """Shows the logs in the status register again: they keep their records over a reset."""
        for log in Log:
            self._events_changed(log, False)

    def is_heard(self, log: Log) -> bool:
        """Tells whether a driver is interrupted for records in *log*."""
        return self._event_commands.modes[log] != 0

    def poison_read(self, dpa: int) -> None:
        """Records that a host has read a poisoned line, in the poison list and in the log of
        failures."""
        if dpa not in self.poison:
            self.poison.add(dpa, PoisonSource.EXTERNAL, self.timestamp.now_ns())
        self.events.add(Log.FAILURE, general_media(dpa, transaction=Transaction.HOST_READ))

    def fail(self) -> None:
        """Records an uncorrected error of the device, in the status register (8.2.8.5.1.1) and the
        log of fatal events."""
        self._device["memory"]["status.fatal"] = 1
        self._device["memory"]["status.reset_needed"] = _HOT_RESET
        self.health.fail()

    def cold_reset(self) -> None:
        """Applies what was staged for a cold reset; the owner of the registers resets those."""
        self.firmware.cold_reset()
        self.memory.capacity.cold_reset()
