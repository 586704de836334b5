# SPDX-License-Identifier: BSD-3-Clause
"""Plays one request on the fresh fabric: prepares memory, posts the work request and its receive,
and compares the outcome."""

from __future__ import annotations

import socket
import sys
from typing import Protocol

from nupa.packet.tables.opcodes import Transport
from nupa.packet.tables.transport import ATOMIC_BYTES
from nupa.replay.memory import AddressRange, CapturedMemory, CapturedRegion, Refusal
from nupa.replay.outcome import RequestOutcome
from nupa.replay.requests import CapturedRequest, Content, RequestAnswer, RequestKind
from nupa.replay.stage import GRH_BYTES, NO_KEY, Connection, Stage
from nupa.verbs import SGE, WC, RecvWR, SendWR
from nupa.verbs import enums as e

WAIT_S = 10.0  # for a completion of RC
UNRELIABLE_WAIT_S = 3.0  # of UC and UD, whose messages may be lost
_SPINS = 2000  # empty polls before the first sleep
_INVERT = bytes(255 - n for n in range(256))

_STATUS = {
    RequestAnswer.DONE: e.IBV_WC_SUCCESS,
    RequestAnswer.NEVER: e.IBV_WC_SUCCESS,
    RequestAnswer.INVALID_REQUEST: e.IBV_WC_REM_INV_REQ_ERR,
    RequestAnswer.REMOTE_ACCESS: e.IBV_WC_REM_ACCESS_ERR,
    RequestAnswer.REMOTE_OPERATION: e.IBV_WC_REM_OP_ERR,
}
_WITH_IMM = {
    RequestKind.SEND: e.IBV_WR_SEND_WITH_IMM,
    RequestKind.WRITE: e.IBV_WR_RDMA_WRITE_WITH_IMM,
}
_OPCODES = {
    RequestKind.SEND: e.IBV_WR_SEND,
    RequestKind.WRITE: e.IBV_WR_RDMA_WRITE,
    RequestKind.READ: e.IBV_WR_RDMA_READ,
    RequestKind.COMPARE_SWAP: e.IBV_WR_ATOMIC_CMP_AND_SWP,
    RequestKind.FETCH_ADD: e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}


class Clock(Protocol):
    """The part of the module `time` that is used."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class Step:
    """One work request and, if it takes one, its receive."""

    def __init__(
        self,
        stage: Stage,
        memory: CapturedMemory,
        clock: Clock,
        request: CapturedRequest,
        outcome: RequestOutcome,
    ) -> None:
        self._stage = stage
        self._memory = memory
        self._clock = clock
        self._request = request
        self._outcome = outcome
        self._connection: Connection = stage.connection(request)
        self._requester, self._responder = self._connection.ends(request)
        self._wait_s = WAIT_S if request.transport == Transport.RC else UNRELIABLE_WAIT_S
        self._head = GRH_BYTES if request.transport == Transport.UD else 0
        self._payload = request.payload.whole()
        self._place: tuple[CapturedRegion, AddressRange] | None = None
        self._extent: AddressRange | None = None
        self._target: memoryview | None = None

    def run(self, probe: bool = False) -> None:
        request = self._request
        works = request.answer.works and not probe
        wr = self._work_request()
        if works:
            self._prepare()
        receive = 0 if probe or not request.takes_receive else self._post_receive()
        self._requester.qp.post_send(wr)
        takes = receive if request.takes_receive and works else 0
        sent, received = self._wait(wr.wr_id, takes)
        expected = e.IBV_WC_RNR_RETRY_EXC_ERR if probe else _STATUS.get(request.answer)
        if sent is None:
            self._outcome.compare("status", _status(expected), self._late())
        elif (
            expected is not None
            and self._outcome.compare("status", _status(expected), _status(sent.status))
            and works
        ):
            self._compare(received)
        if sent is None or sent.status != e.IBV_WC_SUCCESS or self._outcome.differences:
            self._end()
        if works:
            self._settle()
        elif request.kind is RequestKind.WRITE and self._extent is not None:
            # Parts of it may have been written before it was refused.
            self._extent.mark(request.va, request.length, written=False)

    def _end(self) -> None:
        """Marks the connection as broken: it is connected again."""
        if self._request.transport == Transport.UD:
            self._stage.end_datagrams(self._request)
        self._connection.broken = True

    def _work_request(self) -> SendWR:
        request, host = self._request, self._requester.host
        opcode = _OPCODES[request.kind]
        if request.imm >= 0:
            opcode = _WITH_IMM[request.kind]
        elif request.invalidates >= 0:
            opcode = e.IBV_WR_SEND_WITH_INV
        mr = host.out if self._payload and not request.kind.atomic else host.landing
        if mr is host.out:
            mr.write(self._payload)
        sg = [mr.sge(0, request.length)] if request.length else []
        wr = SendWR(wr_id=self._stage.next_id(), opcode=opcode, sg=sg)
        if request.imm >= 0:
            wr.imm_data = socket.htonl(request.imm)
        elif request.invalidates >= 0:
            wr.invalidate_rkey = self._invalidated()
        if request.transport == Transport.UD:
            ah = host.path(self._responder.host)
            wr.set_wr_ud(ah, self._responder.qp.qp_num, request.qkey)
        elif request.kind.atomic:
            operands = (request.compare, request.swap)
            if request.kind is RequestKind.FETCH_ADD:
                operands = (request.swap, 0)
            wr.set_wr_atomic(self._key(), request.va, *operands)
        elif request.kind is not RequestKind.SEND:
            wr.set_wr_rdma(self._key(), request.va)
        return wr

    def _key(self) -> int:
        """Returns the request's rkey on the fresh fabric."""
        request = self._request
        if not request.answer.refused:
            self._place = self._memory.find(request)
            if self._place is None:  # no bytes: its key is not checked
                return NO_KEY
            self._extent = self._place[1]
            return self._stage.key(*self._place, self._responder)
        refusal, region, extent = self._memory.refusal(request)
        self._extent = extent
        if region is None or extent is None:
            return NO_KEY
        if refusal is Refusal.KEY:  # of a window: its key now, if it is invalidated
            window = self._responder.windows.get(region.key)
            return window.rkey if window is not None and not window.open else NO_KEY
        return self._stage.key(region, extent, self._responder)

    def _invalidated(self) -> int:
        request = self._request
        region = self._memory.regions.get((request.flow.destination, request.invalidates))
        if region is None or not region.window or request.answer.refused:
            return NO_KEY
        return self._stage.key(region, region.extents[0], self._responder)

    def _post_receive(self) -> int:
        """Posts a receive that takes or refuses the message as captured; returns its wr_id."""
        request, host = self._request, self._responder.host
        wr_id = self._stage.next_id()
        size = self._head + (request.length if request.kind is RequestKind.SEND else 0)
        sg = [host.landing.sge(0, size)] if size else []
        if request.answer is RequestAnswer.INVALID_REQUEST and request.kind is RequestKind.SEND:
            sg = [host.landing.sge(0, size - 1)] if size > 1 else []
        elif request.answer is RequestAnswer.REMOTE_OPERATION:
            sg = [SGE(host.landing.buf, size, NO_KEY)]
        self._responder.qp.post_recv(RecvWR(wr_id=wr_id, sg=sg))
        return wr_id

    def _prepare(self) -> None:
        """Inverts the bytes that will be compared; memory gets the contents of the capture."""
        request = self._request
        if request.kind is RequestKind.SEND:
            inverted = self._payload.translate(_INVERT)
            self._responder.host.landing.write(inverted, None, self._head)
        if self._place is None:
            return
        region, extent = self._place
        at = request.va - extent.start
        self._target = self._stage.region(region, extent).view[at : at + request.length]
        if request.kind is RequestKind.WRITE:
            self._target[:] = self._payload.translate(_INVERT)
            return
        found = self._found()
        whole, known = found.whole(), found.known()
        self._requester.host.landing.write(whole.translate(_INVERT))
        for start, end in extent.open_spans(request.va, request.length):
            for at, until in known:
                first, last = max(at, start), min(until, end)
                if first < last:
                    self._target[first:last] = whole[first:last]

    def _found(self) -> Content:
        """Returns the bytes that a READ or an atomic found in the capture."""
        request = self._request
        if request.kind is RequestKind.READ:
            return request.data or Content(request.length)
        pieces = []
        if request.original is not None:
            pieces = [(0, request.original.to_bytes(ATOMIC_BYTES, sys.byteorder))]
        return Content(ATOMIC_BYTES, pieces)

    def _wait(self, sent_id: int, received_id: int) -> tuple[WC | None, WC | None]:
        """Waits for the completions of the request and of its receive (0: it has none)."""
        sends, receives = self._requester.host.sends, self._responder.host.receives
        sent: WC | None = None
        received: WC | None = None
        deadline = self._clock.monotonic() + self._wait_s
        spins = 0
        while True:
            for wc in sends.poll(8)[1]:
                sent = wc if wc.wr_id == sent_id else sent
            for wc in receives.poll(8)[1]:
                received = wc if wc.wr_id == received_id else received
            if sent is not None:
                failed = sent.status != e.IBV_WC_SUCCESS
                if failed or not received_id or received is not None:
                    return sent, received
            spins += 1
            if spins > _SPINS:
                self._clock.sleep(0.0005)
                if self._clock.monotonic() > deadline:
                    return sent, received

    def _late(self) -> str:
        return f"no completion within {self._wait_s:g} s"

    def _compare(self, received: WC | None) -> None:
        request, outcome = self._request, self._outcome
        if request.takes_receive:
            if received is None:
                outcome.compare("receive", "completed", self._late())
                return
            if not outcome.compare("receive's status", _status(0), _status(received.status)):
                return
            outcome.compare("received bytes", request.length, received.byte_len - self._head)
            if request.imm >= 0:
                imm = socket.ntohl(received.imm_data)
                outcome.compare("immediate data", f"{request.imm:#x}", f"{imm:#x}")
        if request.kind is RequestKind.SEND:
            came = self._responder.host.landing.read(request.length, self._head)
            outcome.compare_bytes("received payload", request.payload, came)
        elif request.kind is RequestKind.WRITE and self._target is not None:
            self._await_write()
            outcome.compare_bytes("written payload", request.payload, bytes(self._target))
        elif request.kind is RequestKind.READ:
            came = self._requester.host.landing.read(request.length)
            outcome.compare_bytes("read data", self._found(), came, request.raced)
        elif request.kind.atomic and request.original is not None and not request.raced:
            came = self._requester.host.landing.read(ATOMIC_BYTES)
            value = int.from_bytes(came, sys.byteorder)
            outcome.compare("original value", f"{request.original:#x}", f"{value:#x}")

    def _await_write(self) -> None:
        """Waits for an unacknowledged write, which may arrive after its completion."""
        if self._request.transport != Transport.UC:
            return
        deadline = self._clock.monotonic() + self._wait_s
        while bytes(self._target or b"") != self._payload and self._clock.monotonic() < deadline:
            self._responder.host.receives.poll()

    def _settle(self) -> None:
        """Sets the memory of the fresh fabric to the contents of the capture."""
        request = self._request
        if request.invalidates >= 0:
            window = self._responder.windows.get((request.flow.destination, request.invalidates))
            if window is not None:
                window.open = False
        if self._place is None or self._target is None:
            return
        _, extent = self._place
        if request.kind is RequestKind.WRITE:
            self._target[:] = self._payload
            extent.mark(request.va, request.length, written=False)
            # The capture does not show whether an unacknowledged write arrived.
            known = request.payload.known() if request.answer is RequestAnswer.DONE else []
            for start, end in known:
                extent.mark(request.va + start, end - start, written=True)
        elif request.kind.atomic:
            extent.mark(request.va, ATOMIC_BYTES, written=request.original is not None)
        if request.kind is not RequestKind.READ:
            for start, end in request.raced:
                extent.mark(request.va + start, end - start, written=False)


def _status(status: int | None) -> str:
    if status is None:
        return "any"
    known = status in e.ibv_wc_status._value2member_map_
    return e.ibv_wc_status(status).name.removeprefix("IBV_WC_") if known else str(int(status))
