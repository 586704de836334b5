# SPDX-License-Identifier: BSD-3-Clause
"""Formats packets as lines, as `nupa capture` prints them, and as objects for --json."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nupa.capture.fields import FIELDS
from nupa.capture.filter import columns_in
from nupa.capture.view import View
from nupa.packet.decode.fast import BthFlag, Header, Layer, address_text
from nupa.packet.tables import cm as cm_tables
from nupa.packet.tables import queue as queue_tables
from nupa.packet.tables import record
from nupa.packet.tables.cxl_cache import LINES, STATES, name_of
from nupa.packet.tables.cxl_mem import MemChannel
from nupa.packet.tables.ip import PROTOCOLS, Ethertype
from nupa.packet.tables.opcodes import NAMES
from nupa.packet.tables.record import Kind
from nupa.packet.tables.transport import syndrome_text

_DIRECTIONS: dict[int, str] = {record.Direction.INBOUND: "In ", record.Direction.OUTBOUND: "Out"}
_TLP_NAMES = {code: name for name, code in FIELDS["tlp_type"].values.items()}
_CXL_NAMES = {code: name for name, code in FIELDS["cxl_opcode"].values.items()}


def lines(view: View, which: Iterable[int] | None = None) -> Iterator[str]:
    """Formats each packet, or those at the places *which*: time, port, direction, contents."""
    blocks, records = view.blocks, view.records
    comments = list(view.commented_flags())
    for i in range(len(view)) if which is None else which:
        seconds, ns = divmod(blocks.ts_ns[i], 10**9)
        clock = time.strftime("%H:%M:%S", time.localtime(seconds))
        direction = _DIRECTIONS.get(blocks.flags[i] & 3, "-  ")
        told = _MAKERS.get(records.kind[i], _ethernet)(view, i)
        flags = records.flags[i] or comments[i]
        notes = [f.name.lower() for f in record.Flag if f.name and f & flags and f not in _QUIET]
        noted = f" [{', '.join(notes)}]" if notes else ""
        transfer = blocks.packet_id[i] or records.transfer[i]
        tied = f" transfer {transfer:#x}" if transfer else ""
        port = view.interface(i).name or "-"
        yield f"{clock}.{ns:09} {port} {direction} {told}{noted}{tied}"


_QUIET = (record.Flag.FIRST, record.Flag.LAST)


def _ethernet(view: View, i: int) -> str:
    headers = view.headers
    layer = headers.layer[i]
    size = view.blocks.original_bytes[i]
    if layer == Layer.TRANSPORT:
        return _transport(view, i)
    if layer < Layer.NETWORK:
        if headers.ethertype[i] == Ethertype.ARP:
            return _arp(view.data(i)[headers.payload_offset[i] :])
        return f"Ethernet, type {headers.ethertype[i]:#06x}, {size} bytes"
    source, destination = (address_text(a(i)) for a in (headers.source, headers.destination))
    protocol = headers.protocol[i]
    name = PROTOCOLS.get(protocol, f"protocol {protocol}")
    if layer == Layer.PORTS:
        source += f":{headers.source_port[i]}"
        destination += f":{headers.destination_port[i]}"
    return f"{source} > {destination} {name}, {size} bytes"


def _arp(data: bytes) -> str:
    """Formats an ARP packet of IPv4 (RFC 826)."""
    arp = data[:28]
    if len(arp) < 28 or arp[:6] != b"\0\1\x08\0\6\4":
        return "ARP"
    sender, target = (".".join(map(str, arp[at : at + 4])) for at in (14, 24))
    if arp[7] == 1:
        return f"ARP who has {target}? tell {sender}"
    return f"ARP {sender} is at {arp[8:14].hex(':')}"


def _transport(view: View, i: int) -> str:
    h = view.headers
    has, flags = h.headers[i], h.bth_flags[i]
    source, destination = address_text(h.source(i)), address_text(h.destination(i))
    name = NAMES.get(h.opcode[i], f"opcode {h.opcode[i]:#04x}")
    parts = [f"{source} > {destination} {name} qp {h.dqpn[i]:#x} psn {h.psn[i]}"]
    if flags & BthFlag.ACKREQ:
        parts.append("ackreq")
    if flags & BthFlag.SOLICITED:
        parts.append("solicited")
    if has & Header.DETH:
        parts.append(f"from qp {h.source_qpn[i]:#x} qkey {h.qkey[i]:#x}")
    if has & Header.XRCETH:
        parts.append(f"srq {h.xrc_srqn[i]:#x}")
    if has & (Header.RETH | Header.AtomicETH):
        parts.append(f"va {h.va[i]:#x} rkey {h.rkey[i]:#x}")
    if has & Header.RETH:
        parts.append(f"length {h.dma_bytes[i]}")
    if has & Header.AtomicETH:
        parts.append(f"swap {h.swap[i]:#x} compare {h.compare[i]:#x}")
    if has & Header.AETH:
        parts.append(f"{syndrome_text(h.syndrome[i])} msn {h.msn[i]}")
    if has & Header.AtomicAckETH:
        parts.append(f"original {h.original[i]:#x}")
    if has & Header.ImmDt:
        parts.append(f"imm {h.imm[i]:#x}")
    if has & Header.IETH:
        parts.append(f"invalidates {h.rkey[i]:#x}")
    if h.mad_class[i] == cm_tables.COMM_MGT and h.dqpn[i] == 1:
        parts.append(f"CM {cm_tables.ATTRIBUTES.get(h.mad_attribute[i], '?')}")
    if h.payload_bytes[i]:
        parts.append(f"{h.payload_bytes[i]} bytes")
    return " ".join(parts)


def _tlp(view: View, i: int) -> str:
    r = view.records
    name = _TLP_NAMES.get(r.code[i], f"TLP {r.code[i]:#04x}")
    if name.startswith("Cpl"):
        return f"{name} tag {r.number[i]:#x} status {r.status[i]} {r.length[i]} bytes"
    return f"{name} {r.address[i]:#x} tag {r.number[i]:#x} {r.length[i]} bytes"


def _cxl(view: View, i: int) -> str:
    r = view.records
    name = _CXL_NAMES.get(r.code[i], f"CXL.mem {r.code[i]:#04x}")
    answer = r.code[i] >> 4 in (MemChannel.S2M_NDR, MemChannel.S2M_DRS, MemChannel.M2S_BIRSP)
    place = "" if answer else f" {r.address[i]:#x}"
    return f"{name}{place} tag {r.number[i]:#x}"


def _cache(view: View, i: int) -> str:
    """Formats a CXL.cache message; states are those of the cache at this port, then its peer's."""
    r = view.records
    states = [STATES.get(r.states[i] >> at & 15, "?") for at in (12, 8, 4, 0)]
    line = LINES.get(r.queue[i], f"line {r.queue[i]}")
    return (
        f"{name_of(r.code[i] >> 5, r.code[i] & 31)} {line} {r.address[i]:#x} id {r.number[i]:#x} "
        f"{states[0]}>{states[1]}, host {r.index[i]} {states[2]}>{states[3]}"
    )


def _doorbell(view: View, i: int) -> str:
    r = view.records
    return f"doorbell {_queue(r.queue[i])} {r.number[i]:#x}, {r.index[i]} entries"


def _wqe(view: View, i: int) -> str:
    r = view.records
    name = _queue(r.queue[i])
    work = ""
    if r.queue[i] == queue_tables.Queue.SEND:
        work = f" {queue_tables.WR_OPCODES.get(r.code[i], f'opcode {r.code[i]}')}"
    remote = f" to {r.address[i]:#x}" if r.address[i] else ""
    return (
        f"WQE {name} {r.number[i]:#x} #{r.index[i]}{work} {r.length[i]} bytes{remote} "
        f"wr_id {r.wr_id[i]:#x}"
    )


def _cqe(view: View, i: int) -> str:
    r = view.records
    status = queue_tables.WC_STATUSES.get(r.status[i], f"status {r.status[i]}")
    work = queue_tables.WC_OPCODES.get(r.code[i], f"opcode {r.code[i]}")
    return (
        f"CQE qp {r.number[i]:#x} #{r.index[i]} {work} {status} {r.length[i]} bytes "
        f"wr_id {r.wr_id[i]:#x}"
    )


def _queue(number: int) -> str:
    return queue_tables.QUEUES.get(number, f"queue {number}")


_MAKERS: dict[int, Callable[[View, int], str]] = {
    Kind.PCIE_TLP: _tlp,
    Kind.CXL_MEM: _cxl,
    Kind.CXL_CACHE: _cache,
    Kind.DOORBELL: _doorbell,
    Kind.WQE: _wqe,
    Kind.CQE: _cqe,
}


def objects(view: View, which: Iterable[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the fields of each packet by name; named values as their names, flags as a list."""
    describe, columns = _describer()
    rows = zip(*(view.column(name) for name in columns), strict=True)
    chosen = None if which is None else set(which)
    for i, row in enumerate(rows):
        if chosen is None or i in chosen:
            yield _object(describe(*row))


def _object(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    flags = []
    for name, value in values:
        field = FIELDS[name]
        if field.type == "flag":
            flags += [name] if value else []
        elif field.type == "address":
            shown[name] = address_text(value)
        else:
            shown[name] = _VALUE_NAMES[name].get(value, value)
    if flags:
        shown["flags"] = flags
    return shown


_VALUE_NAMES = {
    field.name: {value: name for name, value in field.values.items()} for field in FIELDS.values()
}


def _describer() -> tuple[Callable[..., Iterable[tuple[str, Any]]], tuple[str, ...]]:
    """Makes a function from a row of columns to the fields that it has; returns these columns."""
    parts = [f"*([({f.name!r}, {f.code})] if {f.when or True} else [])" for f in FIELDS.values()]
    code = f"[{', '.join(parts)}]"
    columns = columns_in(code)
    space: dict[str, Any] = {"__builtins__": {}}
    return eval(f"lambda {', '.join(columns)}: {code}", space), columns
