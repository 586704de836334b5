# SPDX-License-Identifier: BSD-3-Clause
"""Completion queues, their channels, and completions."""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsObject, address_of, closed, expect
from nupa.verbs.device import Context
from nupa.verbs.enums import IBV_WC_SUCCESS, ibv_wc_opcode, ibv_wc_status
from nupa.verbs.errors import PyverbsRDMAError, completion_error, refuse
from nupa.verbs.event import AsyncEvent, wait_readable
from nupa.verbs.field import Field, table
from nupa.verbs.utils import (
    cqe_flags_to_str,
    cqe_opcode_to_str,
    cqe_status_to_str,
    create_wc_flags_to_str,
)

if TYPE_CHECKING:
    from nupa.verbs.batch import WCBatch

__all__ = [
    "CQ",
    "CQEX",
    "WC",
    "CompChannel",
    "CqInitAttrEx",
    "PollCqAttr",
    "cqe_flags_to_str",
    "cqe_opcode_to_str",
    "cqe_status_to_str",
    "create_wc_flags_to_str",
]

_WCS = ffi.typeof("struct ibv_wc[]")
_WC = ffi.typeof("struct ibv_wc *")
_STATUS: Mapping[int, Any] = dict(ibv_wc_status._value2member_map_)
_OPCODE: Mapping[int, Any] = dict(ibv_wc_opcode._value2member_map_)
# How long C waits before Python looks for signals, such as Ctrl-C.
_SLICE_NS = 50_000_000


class CompChannel(PyverbsCM):
    """A completion channel: CQs made with it tell through it that completions came."""

    _rank = PyverbsCM.RANK_CHANNEL

    def __init__(self, context: Context) -> None:
        expect(context, Context, "context")
        c = lib.nupa_create_comp_channel(context._c or closed(context))
        if not c:
            refuse("Failed to create a completion channel")
        self._c = c
        self._cqs: WeakValueDictionary[int, CQ | CQEX] = WeakValueDictionary()
        self.context: Context | None = context
        context._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_destroy_comp_channel(c))

    def _forget(self) -> None:
        self.context = None

    def fileno(self) -> int:
        """Readable when get_cq_event() would not wait: for select, poll, asyncio."""
        return int((self._c or closed(self)).fd)

    def get_cq_event(
        self, expected_cq: CQ | CQEX | None = None, timeout: float | None = None
    ) -> CQ | CQEX:
        """Waits for the next event and returns its CQ.

        timeout: seconds, None for ever; then TimeoutError.  PyverbsRDMAError if the event is of
        another CQ than *expected_cq*.  The event is counted: closing the CQ acknowledges it.
        """
        cq = ffi.new("struct ibv_cq **")
        context = ffi.new("void **")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            c = self._c or closed(self)
            if deadline is not None:
                wait_readable(c.fd, max(0.0, deadline - time.monotonic()), "completion event")
            if lib.nupa_get_cq_event(c, cq, context) == 0:
                break
            # A signal: Python's handlers run, then the wait goes on.
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


class _Completions(PyverbsCM):
    """What CQ and CQEX share."""

    _rank = PyverbsCM.RANK_CQ

    def _open(self, context: Context, c: Any, channel: CompChannel | None) -> None:
        self._c = c
        self.context: Context | None = context
        self.channel = channel
        self.num_events = 0
        self._events: WeakSet[AsyncEvent] = WeakSet()
        context._adopt(self)
        context._register(self)

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
        """Asks for one event at the next completion (that is solicited, or an error)."""
        rc = lib.nupa_req_notify_cq(self._cq_of(self._c or closed(self)), int(solicited_only))
        if rc:
            refuse("Request notify CQ failed", rc)

    def ack_events(self, num_events: int) -> None:
        """Acknowledges events; those left are acknowledged when the CQ is closed."""
        if num_events:
            lib.nupa_ack_cq_events(self._cq_of(self._c or closed(self)), num_events)
            self.num_events -= num_events

    @property
    def comp_channel(self) -> CompChannel | None:
        return self.channel

    @property
    def cqe(self) -> int:
        """How many completions it holds."""
        return int((self._c or closed(self)).cqe)


class CQ(_Completions):
    """A completion queue for at least *cqe* completions.

    cq_context: any object, kept as cq_context.  channel: where its events go.
    """

    def __init__(
        self,
        context: Context,
        cqe: int,
        cq_context: object = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
    ) -> None:
        expect(context, Context, "context")
        to = ffi.NULL if channel is None else channel._c or closed(channel)
        parent = context._c or closed(context)
        c = lib.nupa_create_cq(parent, int(cqe), ffi.NULL, to, comp_vector)
        if not c:
            refuse(f"Failed to create a CQ of {int(cqe)} entries, completion vector {comp_vector}")
        self.cq_context = cq_context
        self._spare: list[Any] = []
        self._open(context, c, channel)
        if channel is not None:
            channel._adopt(self)
            channel._cqs[address_of(c)] = self

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Takes at most *num_entries* completions: how many there were, and a list of them."""
        cq = self._c or closed(self)
        # An array that met no completion serves again; list.pop() and append() are atomic.
        try:
            wcs = self._spare.pop()
            if len(wcs) < num_entries:
                wcs = ffi.new(_WCS, num_entries)
        except IndexError:
            wcs = ffi.new(_WCS, num_entries)
        n = lib.nupa_poll_cq(cq, num_entries, wcs)
        if n > 0:
            return n, [_wc_of(wcs, i) for i in range(n)]
        self._spare.append(wcs)
        if n < 0:
            refuse("Failed to poll CQ", -n if n < -1 else n)
        return 0, []

    def wait(self, num_entries: int = 1, timeout: float | None = None) -> list[WC]:
        """Polls until there are *num_entries* completions and returns them.

        timeout: seconds, None for ever.  TimeoutError then: `completions` of it has what came.
        """
        wcs = ffi.new(_WCS, num_entries)
        n = self._poll_until(wcs, num_entries, num_entries, timeout)
        found = [_wc_of(wcs, i) for i in range(n)]
        if n < num_entries:
            error = TimeoutError(f"{n} of {num_entries} completions came within {timeout} s")
            error.completions = found  # type: ignore[attr-defined]
            raise error
        return found

    def poll_batch(self, wcs: WCBatch, at_least: int = 0, timeout: float | None = None) -> int:
        """Fills *wcs* from its start; how many there are.  Builds no objects.

        Waits until there are *at_least* so many, or *timeout* seconds (None: for ever) have passed.
        """
        if at_least:
            return self._poll_until(wcs._c, at_least, wcs._n, timeout)
        n: int = lib.nupa_poll_cq(self._c or closed(self), wcs._n, wcs._c)
        if n < 0:
            refuse("Failed to poll CQ", -n if n < -1 else n)
        return n

    def _poll_until(self, wcs: Any, at_least: int, room: int, timeout: float | None) -> int:
        if at_least > room:
            raise ValueError(f"Cannot wait for {at_least} completions with room for {room}")
        deadline = None if timeout is None else time.monotonic() + timeout
        found = 0
        while True:
            wait_ns = _SLICE_NS
            if deadline is not None:
                wait_ns = min(wait_ns, max(0, int((deadline - time.monotonic()) * 1e9)))
            cq = self._c or closed(self)
            n: int = lib.nupa_batch_poll(cq, at_least - found, room - found, wcs + found, wait_ns)
            if n < 0:
                refuse("Failed to poll CQ", -n if n < -1 else n)
            found += n
            if found >= at_least or (deadline is not None and time.monotonic() >= deadline):
                return found

    def resize(self, cqe: int) -> None:
        """Makes room for at least *cqe* completions."""
        rc = lib.nupa_resize_cq(self._c or closed(self), cqe)
        if rc:
            refuse(f"Failed to resize CQ to {cqe} entries", rc)

    def __str__(self) -> str:
        c = self._c or closed(self)
        return "CQ\n" + table({"Handle": c.handle, "CQEs": c.cqe})


class CqInitAttrEx(PyverbsObject):
    """What an extended CQ is to be (ibv_cq_init_attr_ex)."""

    def __init__(
        self,
        cqe: int = 100,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
        wc_flags: int = 0,
        comp_mask: int = 0,
        flags: int = 0,
    ) -> None:
        self._c = ffi.new("struct ibv_cq_init_attr_ex *")
        self.cqe = cqe
        self.comp_vector = comp_vector
        self.wc_flags = wc_flags
        self.comp_mask = comp_mask
        self.flags = flags
        self._channel: CompChannel | None = None
        self.cq_context: object = None
        if channel is not None:
            self.comp_channel = channel

    cqe = Field("cqe")
    comp_vector = Field("comp_vector")
    wc_flags = Field("wc_flags")
    comp_mask = Field("comp_mask")
    flags = Field("flags")

    @property
    def comp_channel(self) -> CompChannel | None:
        return self._channel

    @comp_channel.setter
    def comp_channel(self, val: CompChannel) -> None:
        self._c.channel = val._c or closed(val)
        self._channel = val

    def __str__(self) -> str:
        return table(
            {
                "Number of CQEs": self.cqe,
                "WC flags": create_wc_flags_to_str(self.wc_flags),
                "comp mask": self.comp_mask,
                "flags": self.flags,
            }
        )


class PollCqAttr(PyverbsObject):
    """Argument of CQEX.start_poll; comp_mask must be 0."""

    def __init__(self) -> None:
        self._c = ffi.new("struct ibv_poll_cq_attr *")

    comp_mask = Field("comp_mask")


class CQEX(_Completions):
    """A CQ read field by field: start_poll(), read_...(), poll_next(), end_poll()."""

    def __init__(self, context: Context, init_attr: CqInitAttrEx | None = None) -> None:
        expect(context, Context, "context")
        attr = init_attr or CqInitAttrEx()
        c = lib.nupa_create_cq_ex(context._c or closed(context), attr._c)
        if not c:
            refuse(f"Failed to create extended CQ of {attr.cqe} entries")
        self._open(context, c, attr.comp_channel)
        if attr.comp_channel is not None:
            attr.comp_channel._adopt(self)
            attr.comp_channel._cqs[address_of(c)] = self

    def _cq_of(self, c: Any) -> Any:
        return lib.ibv_cq_ex_to_cq(c)

    def start_poll(self, attr: PollCqAttr | None = None) -> int:
        """0 if there is a completion to read, ENOENT if not."""
        return int(lib.ibv_start_poll(self._c or closed(self), (attr or PollCqAttr())._c))

    def poll_next(self) -> int:
        """0 if there is another completion, ENOENT if not."""
        return int(lib.ibv_next_poll(self._c or closed(self)))

    def end_poll(self) -> None:
        """Ends what start_poll() began with 0."""
        lib.ibv_end_poll(self._c or closed(self))

    def read_opcode(self) -> int:
        return int(lib.ibv_wc_read_opcode(self._c or closed(self)))

    def read_vendor_err(self) -> int:
        return int(lib.ibv_wc_read_vendor_err(self._c or closed(self)))

    def read_byte_len(self) -> int:
        return int(lib.ibv_wc_read_byte_len(self._c or closed(self)))

    def read_imm_data(self) -> int:
        return int(lib.ibv_wc_read_imm_data(self._c or closed(self)))

    def read_qp_num(self) -> int:
        return int(lib.ibv_wc_read_qp_num(self._c or closed(self)))

    def read_src_qp(self) -> int:
        return int(lib.ibv_wc_read_src_qp(self._c or closed(self)))

    def read_wc_flags(self) -> int:
        return int(lib.ibv_wc_read_wc_flags(self._c or closed(self)))

    def read_slid(self) -> int:
        return int(lib.ibv_wc_read_slid(self._c or closed(self)))

    def read_sl(self) -> int:
        return int(lib.ibv_wc_read_sl(self._c or closed(self)))

    def read_dlid_path_bits(self) -> int:
        return int(lib.ibv_wc_read_dlid_path_bits(self._c or closed(self)))

    def read_timestamp(self) -> int:
        return int(lib.ibv_wc_read_completion_ts(self._c or closed(self)))

    def read_completion_wallclock_ns(self) -> int:
        return int(lib.ibv_wc_read_completion_wallclock_ns(self._c or closed(self)))

    status = Field("status", _STATUS)
    wr_id = Field("wr_id")

    def __str__(self) -> str:
        c = self._c or closed(self)
        return "Extended CQ:\n" + table({"Handle": c.handle, "CQEs": c.cqe})


class WC(PyverbsObject):
    """A completion (man 3 ibv_poll_cq).  imm_data is big endian, as it travelled."""

    _owner: Any = None

    def __init__(
        self,
        wr_id: int = 0,
        status: int = 0,
        opcode: int = 0,
        vendor_err: int = 0,
        byte_len: int = 0,
        qp_num: int = 0,
        src_qp: int = 0,
        imm_data: int = 0,
        wc_flags: int = 0,
        pkey_index: int = 0,
        slid: int = 0,
        sl: int = 0,
        dlid_path_bits: int = 0,
    ) -> None:
        c = self._c = ffi.new(_WC)
        c.wr_id = wr_id
        c.status = status
        c.opcode = opcode
        c.vendor_err = vendor_err
        c.byte_len = byte_len
        c.qp_num = qp_num
        c.src_qp = src_qp
        c.imm_data = imm_data
        c.wc_flags = wc_flags
        c.pkey_index = pkey_index
        c.slid = slid
        c.sl = sl
        c.dlid_path_bits = dlid_path_bits

    wr_id = Field("wr_id")
    status = Field("status", _STATUS)
    opcode = Field("opcode", _OPCODE)
    vendor_err = Field("vendor_err")
    byte_len = Field("byte_len")
    qp_num = Field("qp_num")
    src_qp = Field("src_qp")
    imm_data = Field("imm_data")
    invalidated_rkey = Field("invalidated_rkey")
    wc_flags = Field("wc_flags")
    pkey_index = Field("pkey_index")
    slid = Field("slid")
    sl = Field("sl")
    dlid_path_bits = Field("dlid_path_bits")

    def raise_for_status(self) -> WC:
        """Itself if it succeeded; else a CompletionError that says what to look at."""
        if self._c.status != IBV_WC_SUCCESS:
            raise completion_error(self._c.status, self._c.wr_id, self._c.qp_num)
        return self

    def __str__(self) -> str:
        return table(
            {
                "WR ID": self.wr_id,
                "status": cqe_status_to_str(self.status),
                "opcode": cqe_opcode_to_str(self.opcode),
                "vendor error": self.vendor_err,
                "byte length": self.byte_len,
                "QP num": self.qp_num,
                "source QP": self.src_qp,
                "WC flags": cqe_flags_to_str(self.wc_flags),
                "pkey index": self.pkey_index,
                "slid": self.slid,
                "sl": self.sl,
                "imm_data": self.imm_data,
                "dlid path bits": self.dlid_path_bits,
            }
        )

    def __repr__(self) -> str:
        return (
            f"<WC {self.wr_id:#x} {cqe_opcode_to_str(self.opcode)}: "
            f"{cqe_status_to_str(self.status)}, {self.byte_len} bytes>"
        )


def _wc_of(wcs: Any, i: int) -> WC:
    """The completion in wcs[i], which keeps the array alive."""
    wc: WC = WC.__new__(WC)
    wc._c = wcs[i]
    wc._owner = wcs
    return wc
