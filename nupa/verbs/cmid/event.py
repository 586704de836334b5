# SPDX-License-Identifier: BSD-3-Clause
"""Events of connection management, and their parameters."""

from __future__ import annotations

import errno
from typing import Any
from weakref import WeakSet

from nupa._engine import ffi, lib
from nupa.verbs.addr import AHAttr
from nupa.verbs.base import PyverbsCM, PyverbsObject, closed, expect
from nupa.verbs.base.errors import PyverbsUserError, check, made, refuse
from nupa.verbs.base.fields import Field
from nupa.verbs.cm_enums import rdma_cm_event_type
from nupa.verbs.device.event import wait_readable


class CMEventChannel(PyverbsCM):
    """The channel of asynchronous CMIDs' events; closing it closes the CMIDs."""

    _rank = PyverbsCM.RANK_CHANNEL

    def __init__(self) -> None:
        self._c = made(lib.rdma_channel_open(), "Failed to create CM event channel")
        self._events: WeakSet[CMEvent] = WeakSet()

    def _destroy(self, c: Any) -> int:
        lib.rdma_destroy_event_channel(c)
        return 0

    def _acknowledge(self, cm_id: Any) -> None:
        """Acknowledges the events of an id, whose destruction would wait for that."""
        for event in list(self._events):
            if event._c is not None and cm_id in (event._c.id, event._c.listen_id):
                event.ack_cm_event()

    def fileno(self) -> int:
        """Returns a file, readable when CMEvent(channel) would not wait."""
        return int((self._c or closed(self)).fd)


class CMEvent(PyverbsObject):
    """The next event of *channel*; waits at most *timeout* seconds (None: for ever).

    TimeoutError: there is none in time.  ack_cm_event() acknowledges it, as does closing the object
    or its CMID.
    """

    _c: Any = None
    event_type: rdma_cm_event_type
    status: int

    def __init__(self, channel: CMEventChannel, timeout: float | None = None) -> None:
        expect(channel, CMEventChannel, "channel")
        event = ffi.new("struct rdma_cm_event **")
        while True:
            wait_readable(channel.fileno(), timeout, "connection event")
            if lib.rdma_get_cm_event(channel._c, event) == 0:
                break
            if ffi.errno not in (errno.EINTR, errno.EAGAIN):
                refuse("Failed to get CM event")
        self._c = event[0]
        self._channel = channel
        channel._events.add(self)
        self.event_type = rdma_cm_event_type(self._c.event)
        self.status = int(self._c.status)

    def _event(self) -> Any:
        if self._c is None:
            raise PyverbsUserError("This CMEvent was acknowledged")
        return self._c

    def ack_cm_event(self) -> None:
        """Acknowledges the event; a second time does nothing."""
        if self._c is not None:
            c, self._c = self._c, None
            check(lib.rdma_ack_cm_event(c), "Failed to acknowledge CM event")

    def close(self) -> None:
        self.ack_cm_event()

    def __del__(self) -> None:
        self.ack_cm_event()

    def event_str(self) -> str:
        return bytes(ffi.string(lib.rdma_event_str(int(self.event_type)))).decode()

    @property
    def private_data(self) -> bytes | None:
        """The peer's private data, perhaps padded with zeros; None: there is none."""
        conn = self._event().param.conn
        return bytes(ffi.buffer(conn.private_data, conn.private_data_len)) or None


_PARAM_FIELDS = {
    "responder resources": "responder_resources",
    "initiator depth": "initiator_depth",
    "flow control": "flow_control",
    "retry count": "retry_count",
    "rnr retry count": "rnr_retry_count",
    "srq": "srq",
    "qp number": "qp_num",
}


class ConnParam(PyverbsObject):
    """Parameters of a connection.

    resources, depth: outstanding RDMA reads and atomics, as responder and as initiator.
    """

    def __init__(
        self,
        resources: int = 1,
        depth: int = 1,
        flow_control: int = 0,
        retry: int = 5,
        rnr_retry: int = 5,
        srq: int = 0,
        qp_num: int = 0,
        data_len: int = 0,
    ) -> None:
        self._data = ffi.new("char[]", max(data_len, 1))
        values = (resources, depth, flow_control, retry, rnr_retry, srq, qp_num)
        self._c = ffi.new("struct rdma_conn_param *", (self._data, data_len, *values))

    qpn = Field("qp_num")

    @property
    def private_data(self) -> bytes | None:
        return bytes(ffi.buffer(self._data, self._c.private_data_len)) or None

    def set_private_data(self, data: bytes) -> None:
        """Sets private data, at most 255 bytes; the limit depends on the message, see
        rdma_connect(3)."""
        if len(data) > 255:
            raise PyverbsUserError(f"Private data is at most 255 bytes, not {len(data)}")
        self._data = ffi.new("char[]", data)
        self._c.private_data = self._data
        self._c.private_data_len = len(data)

    def __str__(self) -> str:
        rows = {label: getattr(self._c, name) for label, name in _PARAM_FIELDS.items()}
        return "Connection parameters: \n" + "".join(f"{k:<4}: {v:<4}\n" for k, v in rows.items())


class UDParam(PyverbsObject):
    """Parameters of a datagram service's peer, from ESTABLISHED or MULTICAST_JOIN."""

    qp_num: int
    qkey: int
    ah_attr: AHAttr

    def __init__(self, cm_event: CMEvent) -> None:
        ud = expect(cm_event, CMEvent, "cm_event")._event().param.ud
        self.qp_num = int(ud.qp_num)
        self.qkey = int(ud.qkey)
        self.ah_attr = AHAttr()
        self.ah_attr._c[0] = ud.ah_attr
