# SPDX-License-Identifier: BSD-3-Clause
"""Event records for the fabric manager: encoded and decoded (CXL 3.1 7.6.8, 8.2.9.2.1.6)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from nupa.cxl.fm.messages import PhysicalPortInfo, RecordLayout
from nupa.cxl.media.events import DYNAMIC_CAPACITY, DcEventType, EventRecord
from nupa.cxl.media.extents import Extent
from nupa.cxl.switch.physical_port import BindingStatus, ErrorMessage, PortState
from nupa.cxl.switch.vppb import VppbChange

PHYSICAL_SWITCH = UUID("77cf9271-9c02-470b-9fe4-bc7b75f2da97")  # 7.6.8.1
VIRTUAL_SWITCH = UUID("40d26425-3396-4c4d-a5da-3d47263af425")  # 7.6.8.2
MLD_PORT = UUID("8dc44363-0c96-4710-b7bf-04bb99534c3f")  # 7.6.8.3
_COUNTS_VALID = 1 << 0
_MORE = 1 << 0


class PortChange(IntEnum):
    """7.6.8.1"""

    LINK = 0
    SLOT = 1


class _PortRecord(NamedTuple):
    port: int
    change: int
    slot_status: int
    state: int
    mode: int
    device: int
    modes: int
    max_width: int
    width: int
    speeds: int
    max_speed: int
    speed: int
    ltssm: int
    first_lane: int
    flags: int


class _Vppb(NamedTuple):
    vcs: int
    vppb: int
    change: int
    status: int
    port: int
    ld: int
    link_control: int
    slot_control: int


class _Mld(NamedTuple):
    error: int
    port: int
    message: bytes


class _Capacity(NamedTuple):
    change: int
    valid: int
    host: int
    region: int
    flags: int
    dpa: int
    size: int
    tag: bytes
    sequence: int
    extents_left: int
    tags_left: int


_PORT = RecordLayout("BBHxBBxBBBBBBBBBH", _PortRecord)
_VPPB = RecordLayout("BBBBBBHH", _Vppb)
_MLD = RecordLayout("BBxx8s", _Mld)
_CAPACITY = RecordLayout("BBHBBxxQQ16sH6x24xII", _Capacity)


def port_changed(change: PortChange, info: PhysicalPortInfo, slot_status: int) -> EventRecord:
    """Makes a record of a port; *info* is the answer of Get Physical Port State."""
    row = _PortRecord(info.port, change, slot_status, *info[1:13])  # state to flags
    return EventRecord(PHYSICAL_SWITCH, _PORT.pack(row))


def vppb_changed(
    vcs: int,
    vppb: int,
    change: VppbChange,
    bound: tuple[int, int, int],
    link_control: int,
    slot_control: int,
) -> EventRecord:
    """Makes a record of a vPPB; *bound* is its status, port and LD, as Get Virtual CXL Switch Info
    answers."""
    row = _Vppb(vcs, vppb, change, *bound, link_control, slot_control)
    return EventRecord(VIRTUAL_SWITCH, _VPPB.pack(row))


def mld_error(port: int, error: ErrorMessage, message: bytes) -> EventRecord:
    """Makes a record of an error message; its first 8 bytes are kept."""
    return EventRecord(MLD_PORT, _MLD.pack(_Mld(error, port, message[:8])))


def capacity_changed(
    change: DcEventType, host: int, extent: Extent, *, left: tuple[int, int], more: bool
) -> EventRecord:
    """Makes a record of capacity that a host accepts or releases; *left*: extents and tags that are
    left."""
    dpa, size, tag, sequence = extent
    flags = more * _MORE
    row = _Capacity(change, _COUNTS_VALID, host, 0, flags, dpa, size, tag.bytes, sequence, *left)
    return EventRecord(DYNAMIC_CAPACITY, _CAPACITY.pack(row))


def text_of(event: EventRecord) -> str:
    """Describes a record in words.

    >>> text_of(mld_error(4, ErrorMessage.NON_FATAL, b""))
    'port 4: its device has sent a non-fatal error'
    """
    reader = _READERS.get(event.kind)
    return reader(event.data.ljust(80, b"\0")) if reader else f"a record of {event.kind}"


def _port_text(data: bytes) -> str:
    row = _PORT.unpack(data)
    if row.change == PortChange.SLOT:
        return f"port {row.port}: {'something is' if row.flags & 1 << 2 else 'nothing is'} there"
    state = PortState(row.state).name.lower()
    return f"port {row.port} ({state}): its link is {'up' if row.speed else 'down'}"


def _vppb_text(data: bytes) -> str:
    row = _VPPB.unpack(data)
    where = f"virtual switch {row.vcs}, vPPB {row.vppb}"
    if row.change != VppbChange.BINDING:
        return f"{where}: its host has used {VppbChange(row.change).name.lower().replace('_', ' ')}"
    if row.status == BindingStatus.UNBOUND:
        return f"{where}: unbound"
    ld = f", LD {row.ld}" if row.status == BindingStatus.LD else ""
    return f"{where}: bound to port {row.port}{ld}"


def _mld_text(data: bytes) -> str:
    row = _MLD.unpack(data)
    kind = ErrorMessage(row.error).name.lower().replace("_", "-")
    return f"port {row.port}: its device has sent a {kind} error"


def _capacity_text(data: bytes) -> str:
    row = _CAPACITY.unpack(data)
    does = "accepts" if row.change == DcEventType.ANSWERED else "gives back"
    what = f"{row.size:#x} bytes at {row.dpa:#x}" if row.size else "nothing"
    return f"host {row.host} {does} {what}"


_READERS: dict[UUID, Callable[[bytes], str]] = {
    PHYSICAL_SWITCH: _port_text,
    VIRTUAL_SWITCH: _vppb_text,
    MLD_PORT: _mld_text,
    DYNAMIC_CAPACITY: _capacity_text,
}
