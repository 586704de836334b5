# SPDX-License-Identifier: BSD-3-Clause
"""Completion channels, and the part of both kinds of completion queues that concerns them."""

from __future__ import annotations

import errno
import time
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, address_of, closed, expect
from nupa.verbs.base.errors import PyverbsRDMAError, check, made, refuse
from nupa.verbs.base.fields import WhileOpen
from nupa.verbs.device import Context
from nupa.verbs.device.event import AsyncEvent, wait_readable
from nupa.verbs.enums import IBV_CQ_ATTR_MODERATE


class CompChannel(PyverbsCM):
    """A completion channel: delivers the completion events of CQs made with it."""

    _rank = PyverbsCM.RANK_CHANNEL

    def __init__(self, context: Context) -> None:
        expect(context, Context, "context")
        c = lib.nupa_create_comp_channel(context._c or closed(context))
        self._c = made(c, "Failed to create a completion channel")
        self._cqs: WeakValueDictionary[int, Completions] = WeakValueDictionary()
        self.context: Context | None = context
        context._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_destroy_comp_channel(c))

    def _forget(self) -> None:
        self.context = None

    #: a file, readable when get_cq_event() would not wait
    fd = WhileOpen("fd")

    def fileno(self) -> int:
        """Returns fd, for select, poll and asyncio."""
        return self.fd

    def get_cq_event(
        self, expected_cq: Completions | None = None, timeout: float | None = None
    ) -> Completions:
        """Waits for the next event and returns its CQ.

        timeout: seconds, None for ever; then TimeoutError.  PyverbsRDMAError: the event is of
        another CQ than *expected_cq*.  The event is counted; closing the CQ acknowledges it.
        """
        cq = ffi.new("struct ibv_cq **")
        context = ffi.new("void **")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            c = self._c or closed(self)
            if deadline is not None:
                wait_readable(c.fd, timeout, "completion event", deadline)
            if lib.nupa_get_cq_event(c, cq, context) == 0:
                break
            # After a signal, Python's handlers have run: wait again.
            if ffi.errno != errno.EINTR:
                refuse("Failed to get CQ event")
        found = self._cqs.get(address_of(cq[0]))
        if found is None:
            lib.nupa_ack_cq_events(cq[0], 1)
            raise PyverbsRDMAError("Received event on a CQ that Python does not know")
        found.num_events += 1
        if expected_cq is not None and found is not expected_cq:
            raise PyverbsRDMAError("Received event on an unexpected CQ")
        return found


class Completions(PyverbsCM):
    """The common base of CQ and CQEX."""

    _rank = PyverbsCM.RANK_CQ

    def _open(self, context: Context, c: Any, channel: CompChannel | None) -> None:
        self._c = c
        self.context: Context | None = context
        self.channel = channel
        self.num_events = 0
        self._events: WeakSet[AsyncEvent] = WeakSet()
        context._adopt(self)
        context._register(self)
        if channel is not None:
            channel._adopt(self)
            channel._cqs[address_of(c)] = self

    def _destroy(self, c: Any) -> int:
        self.ack_events(self.num_events)
        for event in self._events:
            event.ack()
        return int(lib.nupa_destroy_cq(self._cq_of(c)))

    def _cq_of(self, c: Any) -> Any:
        return c

    def _forget(self) -> None:
        self.context = None
        self.channel = None

    def _hold(self, event: AsyncEvent) -> None:
        self._events.add(event)

    def req_notify(self, solicited_only: bool = False) -> None:
        """Requests one event at the next completion; *solicited_only*: a solicited one or an
        error."""
        rc = lib.nupa_req_notify_cq(self._cq_of(self._c or closed(self)), int(solicited_only))
        check(rc, "Request notify CQ failed")

    def moderate(self, count: int, period_us: int) -> None:
        """Sets one event for *count* completions, or *period_us* after the first; 0: one for
        each."""
        attr = ffi.new("struct ibv_modify_cq_attr *", (IBV_CQ_ATTR_MODERATE, (count, period_us)))
        check(lib.nupa_modify_cq(self._cq_of(self._c or closed(self)), attr), "Failed to modify CQ")

    def ack_events(self, num_events: int) -> None:
        """Acknowledges events; closing the CQ acknowledges the rest."""
        if num_events:
            lib.nupa_ack_cq_events(self._cq_of(self._c or closed(self)), num_events)
            self.num_events -= num_events

    @property
    def comp_channel(self) -> CompChannel | None:
        return self.channel

    #: the number of completions that it holds
    cqe = WhileOpen("cqe")
