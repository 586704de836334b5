# SPDX-License-Identifier: BSD-3-Clause
"""Commands of a multi-logical device: logical devices, memory, QoS (CXL 3.1 7.6.7.4, 54xxh)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nupa.cxl.device.mld import GRANULARITIES, Mld
from nupa.cxl.fm import messages
from nupa.cxl.fm.messages import (
    Allocation,
    AllocationHead,
    Cci,
    FmOpcode,
    LdInfo,
    LdRange,
    QosControl,
)
from nupa.cxl.fm.server.mld_port import tunnel
from nupa.cxl.function.cci import Code, Command, CommandError, Effect, at_least, exactly, require

_TELEMETRY = 0b11  # of both kinds
#: Settings are kept and reported.  A model without queues has no load to limit.
NO_EFFECT = Effect.NONE

#: allocate(first, steps): `Switch.allocate` of the device's port.
Allocate = Callable[[int, Sequence[int]], None]


class MldComponent:
    """The commands of *mld*; *allocate* gives out memory, and refuses to change a bound LD;
    *refused* is called with the reason for which a mailbox refuses a command."""

    def __init__(
        self, mld: Mld, allocate: Allocate, refused: Callable[[str], None] = lambda _why: None
    ) -> None:
        self._mld = mld
        self._allocate = allocate
        self._refused = refused

    def commands(self) -> Iterator[Command]:
        least = messages.TUNNEL.size + messages.HEADER.size
        yield Command(FmOpcode.TUNNEL, "tunnel to an LD", at_least(least), self._tunnel)
        config, part, qos = Effect.CONFIG, messages.LD_RANGE.size, messages.QOS.size
        given = at_least(4 + messages.ALLOCATION.size, messages.ALLOCATION.size)
        shares = at_least(part + 1)
        yield Command(FmOpcode.LD_INFO, "LD info", exactly(0), self._info)
        yield Command(FmOpcode.LD_ALLOCATIONS, "LD allocations", exactly(part), self._allocations)
        yield Command(
            FmOpcode.SET_LD_ALLOCATIONS, "set LD allocations", given, self._set_allocations, config
        )
        yield Command(FmOpcode.QOS_CONTROL, "QoS control", exactly(0), self._qos)
        yield Command(
            FmOpcode.SET_QOS_CONTROL, "set QoS control", exactly(qos), self._set_qos, NO_EFFECT
        )
        yield Command(FmOpcode.QOS_STATUS, "QoS status", exactly(0), self._status)
        for opcode, limit in ((FmOpcode.QOS_BANDWIDTH, False), (FmOpcode.QOS_LIMIT, True)):
            get, put = self._shares(limit)
            name = "QoS bandwidth limit" if limit else "QoS bandwidth"
            yield Command(opcode, name, exactly(part), get)
            yield Command(opcode + 1, f"set {name}", shares, put, NO_EFFECT)

    def _tunnel(self, payload: bytes) -> bytes:
        """Executes a command of a logical device's mailbox (7.6.7.3.1)."""
        return tunnel(payload, self._ask)

    def _ask(self, ld: int, request: Cci) -> Cci:
        mailbox = self._mld.logical[self._mld.check(ld)].memory.mailbox
        try:
            answer = mailbox.execute(request.opcode, request.payload)
        except CommandError as error:
            self._refused(error.reason)
            return request.answer(error.code)
        if isinstance(answer, bytes):
            return request.answer(Code.SUCCESS, answer)
        return request.answer(Code.BACKGROUND_STARTED)

    def _info(self, _payload: bytes) -> bytes:
        mld = self._mld
        return messages.LD_INFO.pack(LdInfo(mld.memory_bytes, len(mld.lds), _TELEMETRY))

    def _allocations(self, payload: bytes) -> bytes:
        first, limit = payload
        require(limit, why="name at least one LD")
        steps = self._mld.allocated[self._mld.check(first) :][:limit]
        head = AllocationHead(
            len(self._mld.lds), GRANULARITIES[self._mld.granularity_bytes], first, len(steps)
        )
        return messages.ALLOCATION_HEAD.pack(head) + _packed(steps)

    def _set_allocations(self, payload: bytes) -> bytes:
        count, first = payload[:2]
        rows = messages.ALLOCATION.unpack_all(payload, 4)
        whole = count == len(rows)
        require(whole, Code.INVALID_PAYLOAD_LENGTH, f"{count} LDs announced, {len(rows)} given")
        second = any(row.second for row in rows)
        require(not second, why="LDs of this device have one range of memory, not two")
        self._allocate(first, [row.steps for row in rows])
        now = self._mld.allocated[first : first + count]
        return bytes([count, first, 0, 0]) + _packed(now)

    def _qos(self, _payload: bytes) -> bytes:
        qos = self._mld.qos
        return messages.QOS.pack(QosControl(*(getattr(qos, name) for name in QosControl._fields)))

    def _set_qos(self, payload: bytes) -> bytes:
        self._mld.set_qos(**messages.QOS.unpack(payload)._asdict())
        return self._qos(b"")

    def _status(self, _payload: bytes) -> bytes:
        return bytes(1)  # a model without queues has no backpressure

    def _shares(self, limit: bool) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
        def get(payload: bytes) -> bytes:
            request = messages.LD_RANGE.unpack(payload)
            require(request.listed, why="name at least one LD")
            first = self._mld.check(request.first)
            now = self._mld.bandwidth_limit if limit else self._mld.bandwidth
            found = bytes(now[first : first + request.listed])
            return messages.LD_RANGE.pack(LdRange(len(found), first)) + found

        def put(payload: bytes) -> bytes:
            request = messages.LD_RANGE.unpack(payload)
            parts = payload[messages.LD_RANGE.size :]
            whole = request.listed == len(parts)
            why = f"{request.listed} LDs announced, {len(parts)} given"
            require(whole, Code.INVALID_PAYLOAD_LENGTH, why)
            self._mld.set_bandwidth(request.first, parts, limit=limit)
            return payload

        return get, put


def _packed(steps: Sequence[int]) -> bytes:
    return b"".join(messages.ALLOCATION.pack(Allocation(count, 0)) for count in steps)
