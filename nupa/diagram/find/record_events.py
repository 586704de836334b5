# SPDX-License-Identifier: BSD-3-Clause
"""Describes NUPA's own records for a diagram: TLPs, CXL messages and queue entries."""

from __future__ import annotations

from nupa.base.quantity import say_bytes
from nupa.diagram.find import labels
from nupa.diagram.find.event import Event, Way
from nupa.diagram.find.frame_events import describe_frame
from nupa.diagram.find.frames import Frames
from nupa.diagram.find.operations import WORK
from nupa.packet.decode.columns import Columns
from nupa.packet.decode.records import RecordFault
from nupa.packet.pcapng.reader import Batch
from nupa.packet.tables import cxl_cache as cache_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables.record import LEVEL_NAMES, Kind

_RECEIVE = 0x80
_WQE_FLAGS = (4, 6)  # bytes of a WQE


def describe_record(event: Event, batch: Batch, blocks: Columns, found: Columns, i: int) -> None:
    """Fills in the event of a record of NUPA's link type."""
    kind, fault = found.kind[i], found.fault[i]
    event.level = LEVEL_NAMES.get(found.level[i], "?")
    event.flags = found.flags[i]
    event.host = found.host[i]
    event.direction = found.direction[i] or event.direction
    start = blocks.offset[i] + found.payload_offset[i]
    data = bytes(batch.data[start : blocks.offset[i] + blocks.captured_bytes[i]])
    event.identity = (kind, data)
    if kind == Kind.ETHERNET:
        frames = Frames(batch, blocks, [i], [found.payload_offset[i]])
        describe_frame(event, frames, 0)
        event.level = LEVEL_NAMES.get(found.level[i], event.level)
    elif kind == Kind.WQE and found.number[i]:
        _describe_wqe(event, found, i, data)
    elif fault != RecordFault.NONE:
        event.name = f"record {kind}, {RecordFault(fault).name.lower()}"
    elif kind == Kind.PCIE_TLP:
        _describe_tlp(event, found, i)
    elif kind == Kind.CXL_MEM:
        _describe_cxl(event, found, i)
    elif kind == Kind.CXL_CACHE:
        _describe_cache(event, found, i)
    elif kind == Kind.DOORBELL:
        queue = queue_tables.QUEUES.get(found.queue[i], f"queue {found.queue[i]}")
        event.name, event.way = f"doorbell {queue} {found.index[i]}", Way.POST
        event.is_target = found.queue[i] in (1, 2)
    else:
        _describe_cqe(event, found, i)


def _describe_tlp(event: Event, found: Columns, i: int) -> None:
    code, status = found.code[i], found.status[i]
    event.way = Way.AT_PORT
    completes = labels.is_completion(code)
    event.name = labels.tlp_name(code, status if completes else 0)
    event.is_error = bool(completes and status)
    if found.length[i]:
        event.size_bytes = found.length[i]
    if completes:
        event.extra = [f"tag {found.number[i]}"]
    elif found.address[i]:  # 0: the address of a receive is not recorded
        event.address = found.address[i]
    event.fold = None if event.is_error else ("tlp", code)


def _describe_cxl(event: Event, found: Columns, i: int) -> None:
    code = found.code[i]
    event.name = labels.cxl_name(code)
    event.way = Way.TO_POOL if labels.is_from_host(code) else Way.FROM_POOL
    if labels.cxl_has_data(code):
        event.size_bytes = found.length[i]
    if event.way == Way.TO_POOL:
        event.address = found.address[i]
    event.fold = ("cxl", code)


def _describe_cache(event: Event, found: Columns, i: int) -> None:
    """Describes a CXL.cache message; the states are those of the cache at this port."""
    code, states = found.code[i], found.states[i]
    event.name = labels.cache_name(code)
    event.way = Way.TO_POOL if labels.is_d2h(code) else Way.FROM_POOL
    if labels.cache_has_data(code):
        event.size_bytes = found.length[i]
    event.address = found.address[i]
    line = cache_tables.LINES.get(found.queue[i], f"line {found.queue[i]}")
    before, after = (cache_tables.STATES.get(states >> at & 15, "?") for at in (12, 8))
    event.extra = [line, before if before == after else f"{before} to {after}"]
    event.fold = ("cache", code, line)


def _describe_wqe(event: Event, found: Columns, i: int, data: bytes) -> None:
    receives = bool(found.queue[i])
    event.way, event.is_target = Way.POST, receives
    work = "RECV" if receives else WORK.get(found.code[i], f"opcode {found.code[i]}")
    event.name = f"WQE {work}"
    event.size_bytes = found.length[i]
    event.extra = [f"wr_id {_wr_id(found.wr_id[i])}"]
    if found.address[i]:
        event.address = found.address[i]
    if not receives:
        flags = int.from_bytes(data[slice(*_WQE_FLAGS)], "big")
        names = [name for bit, name in queue_tables.SEND_FLAGS.items() if flags >> bit & 1]
        event.extra += [name for name in names if name != "signaled"]


def _wr_id(value: int) -> str:
    """Prints a wr_id: small ones are counters, large ones pointers."""
    return str(value) if value < 1_000_000 else f"{value:#x}"


def _describe_cqe(event: Event, found: Columns, i: int) -> None:
    status, code = found.status[i], found.code[i]
    event.way, event.is_target = Way.COMPLETE, bool(code & _RECEIVE)
    event.name = f"CQE {queue_tables.WC_STATUSES.get(status, f'status {status}')}"
    event.is_error = bool(status)
    what = queue_tables.WC_OPCODES.get(code, f"opcode {code}").replace("_", " ")
    if code & _RECEIVE and not status:
        what += f" {say_bytes(found.length[i], ' ')}"
    # A completion with an error has only wr_id, status and QP (ibv_poll_cq(3)).
    event.extra = [*([] if status else [what]), f"wr_id {_wr_id(found.wr_id[i])}"]
