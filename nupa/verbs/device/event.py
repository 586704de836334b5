# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous events of a device (man 3 ibv_get_async_event)."""

from __future__ import annotations

import errno
import select
import time
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsObject, address_of
from nupa.verbs.base.errors import refuse
from nupa.verbs.base.fields import ReadOnly, table
from nupa.verbs.enums import ibv_event_type as kind
from nupa.verbs.utils import translate_event_type

if TYPE_CHECKING:
    from nupa.verbs.device import Context

# The member of the C union that an event fills; other events are of the port or the device.
_ELEMENT = {
    kind.IBV_EVENT_CQ_ERR: "cq",
    kind.IBV_EVENT_QP_FATAL: "qp",
    kind.IBV_EVENT_QP_REQ_ERR: "qp",
    kind.IBV_EVENT_QP_ACCESS_ERR: "qp",
    kind.IBV_EVENT_COMM_EST: "qp",
    kind.IBV_EVENT_SQ_DRAINED: "qp",
    kind.IBV_EVENT_PATH_MIG: "qp",
    kind.IBV_EVENT_PATH_MIG_ERR: "qp",
    kind.IBV_EVENT_QP_LAST_WQE_REACHED: "qp",
    kind.IBV_EVENT_SRQ_ERR: "srq",
    kind.IBV_EVENT_SRQ_LIMIT_REACHED: "srq",
}


class AsyncEvent(PyverbsObject):
    """An asynchronous event: event_type, and the element that it is about.

    An object with unacknowledged events cannot be destroyed.  Leaving the event's `with`
    acknowledges it, as does closing the object or dropping the event.
    """

    #: The QP, CQ or SRQ; else the port's number.  None: Python does not know the object.
    element: Any = None
    _context: Context | None = None

    def __init__(self, event_type: int = 0) -> None:
        self._c = ffi.new("struct ibv_async_event *")
        self._c.event_type = event_type
        self._acked = True

    event_type = ReadOnly("event_type", dict(kind._value2member_map_))

    def ack(self) -> None:
        """Acknowledges the event; a second time does nothing."""
        if not self._acked:
            self._acked = True
            lib.nupa_ack_async_event(self._c)

    def __enter__(self) -> AsyncEvent:
        return self

    def __exit__(self, *exc: object) -> None:
        self.ack()

    def __del__(self) -> None:
        if self._c is not None:
            self.ack()

    def __repr__(self) -> str:
        name = translate_event_type(self.event_type)
        return f"<AsyncEvent {name} of {self.element!r}>"

    def __str__(self) -> str:
        return table({"Event Type": translate_event_type(self.event_type)}, 24)


def _delivered(context: Context, c: Any) -> AsyncEvent:
    """Returns the event *c* of *context*, to be acknowledged."""
    event = AsyncEvent()
    event._c = c
    event._acked = False
    event._context = context
    event.element = c.element.port_num
    member = _ELEMENT.get(kind(c.event_type))
    if member is not None:
        event.element = context._by_address.get(address_of(getattr(c.element, member)))
        if event.element is not None:
            event.element._hold(event)
    return event


def wait_readable(fd: int, timeout: float | None, what: str, deadline: float | None = None) -> None:
    """Waits until *fd* can be read.  timeout: seconds, None for ever; then TimeoutError.

    deadline: the end of *timeout* by time.monotonic(), where a part of it may have passed.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    left = timeout if deadline is None else max(0.0, deadline - time.monotonic())
    if not poll.poll(None if left is None else left * 1000):
        raise TimeoutError(f"No {what} within {timeout or 0:.3g} s")


def get_async_event(context: Context, c: Any, timeout: float | None) -> AsyncEvent:
    """Returns the next event of *context*, whose C object is *c*.  See Context.get_async_event."""
    event = ffi.new("struct ibv_async_event *")
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        if deadline is not None:
            wait_readable(c.async_fd, timeout, "asynchronous event", deadline)
        if lib.nupa_get_async_event(c, event) == 0:
            return _delivered(context, event)
        # After a signal, Python's handlers have run: wait again.
        if ffi.errno != errno.EINTR:
            refuse("Failed to get an asynchronous event")
