# SPDX-License-Identifier: BSD-3-Clause
"""Events of a switch for its fabric manager: which changes become records, and in which log
(7.6.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nupa.cxl.fm.event_records import (
    PortChange,
    capacity_changed,
    mld_error,
    port_changed,
    vppb_changed,
)
from nupa.cxl.fm.server.physical import port_info
from nupa.cxl.fm.server.virtual import vppb_info
from nupa.cxl.media.dcd import DynamicCapacity
from nupa.cxl.media.events import DcEventType, EventRecord, Log
from nupa.cxl.media.extents import Extent
from nupa.cxl.switch.physical_port import ErrorMessage, PhysicalPort
from nupa.cxl.switch.switch import Switch
from nupa.cxl.switch.vppb import VppbChange

_LINK_CONTROL, _SLOT_CONTROL, _SLOT_STATUS = 0x10, 0x18, 0x1A  # PCIe 6.0 7.5.3
_ERROR_LOGS = {
    ErrorMessage.CORRECTABLE: Log.WARNING,
    ErrorMessage.NON_FATAL: Log.FAILURE,
    ErrorMessage.FATAL: Log.FAILURE,
}

#: happened(log, event)
Happened = Callable[[Log, EventRecord], None]


def watch_switch(switch: Switch, happened: Happened) -> None:
    """Reports links, slots, bindings, what hosts change at their bridges, and errors of devices."""

    def vppb(vcs: int, number: int, change: VppbChange, failed: bool) -> None:
        virtual = switch.vcs(vcs)
        pcie = virtual.vppb(number).config["pcie"]
        event = vppb_changed(
            vcs,
            number,
            change,
            vppb_info(virtual, number)[:3],
            pcie.peek(_LINK_CONTROL, 2),
            pcie.peek(_SLOT_CONTROL, 2),
        )
        happened(Log.WARNING if failed else Log.INFORMATIONAL, event)

    def error(port: PhysicalPort, kind: ErrorMessage, message: bytes) -> None:
        happened(_ERROR_LOGS[kind], mld_error(port.number, kind, message))

    switch.watchers.append(vppb)
    for port in switch.ports:
        _PortWatch(port, happened)
        port.error_watchers.append(error)


class _PortWatch:
    """The last state of a port."""

    def __init__(self, port: PhysicalPort, happened: Happened) -> None:
        self._seen = (port.present, port.up)
        self._happened = happened
        port.watchers.append(self._look)

    def _look(self, port: PhysicalPort) -> None:
        (present, up), self._seen = self._seen, (port.present, port.up)
        if port.present != present:
            self._tell(port, PortChange.SLOT)
        if port.up != up:
            self._tell(port, PortChange.LINK)

    def _tell(self, port: PhysicalPort, change: PortChange) -> None:
        status = port.ppb.config["pcie"].peek(_SLOT_STATUS, 2)
        self._happened(Log.INFORMATIONAL, port_changed(change, port_info(port), status))


def watch_capacity(capacity: DynamicCapacity, happened: Happened) -> None:
    """Reports what hosts accept and release."""

    def changed(change: DcEventType, host: int, extents: Sequence[Extent]) -> None:
        left = (capacity.extents_left, capacity.tags_left)
        parts = list(extents) or [Extent(0, 0)]
        for number, extent in enumerate(parts, 1):
            more = number < len(parts)
            event = capacity_changed(change, host, extent, left=left, more=more)
            happened(Log.DYNAMIC_CAPACITY, event)

    capacity.watchers.append(changed)
