# SPDX-License-Identifier: BSD-3-Clause
"""Completion queues; completions, channels and extended queues under pyverbs' module name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import address_of, closed, expect
from nupa.verbs.base.errors import check, refuse
from nupa.verbs.base.fields import table
from nupa.verbs.completion.channel import CompChannel, Completions
from nupa.verbs.completion.wc import WC, WcTmInfo, wc_of
from nupa.verbs.cq_ex import CQEX, CqInitAttrEx, PollCqAttr
from nupa.verbs.device import Context
from nupa.verbs.utils import (
    cqe_flags_to_str,
    cqe_opcode_to_str,
    cqe_status_to_str,
    create_wc_flags_to_str,
    flags_to_str,
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
    "WcTmInfo",
    "cqe_flags_to_str",
    "cqe_opcode_to_str",
    "cqe_status_to_str",
    "create_wc_flags_to_str",
    "flags_to_str",
]

_poll_cq = lib.nupa_poll_cq
_WCS = ffi.typeof("struct ibv_wc[]")
# The time that C waits before Python looks for signals, such as Ctrl-C.
_SLICE_NS = 50_000_000


class CQ(Completions):
    """A completion queue for at least *cqe* completions.

    cq_context: any object, kept as cq_context.  channel: the channel of its events.
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

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Polls at most *num_entries* completions; returns their number and a list of them."""
        cq = self._c or closed(self)
        # An array without a completion is used again; list.pop() and append() are atomic.
        try:
            wcs = self._spare.pop()
            if len(wcs) < num_entries:
                wcs = ffi.new(_WCS, num_entries)
        except IndexError:
            wcs = ffi.new(_WCS, num_entries)
        n = _poll_cq(cq, num_entries, wcs)
        if n == 1:
            return 1, [wc_of(wcs, 0)]
        if n > 0:
            return n, [wc_of(wcs, i) for i in range(n)]
        self._spare.append(wcs)
        if n < 0:
            refuse("Failed to poll CQ", -n if n < -1 else n)
        return 0, []

    def wait(self, num_entries: int = 1, timeout: float | None = None) -> list[WC]:
        """Polls until there are *num_entries* completions and returns them.

        timeout: seconds, None for ever.  TimeoutError then: its `completions` has those that came.
        """
        wcs = ffi.new(_WCS, num_entries)
        n = self._poll_until(wcs, num_entries, num_entries, timeout)
        found = [wc_of(wcs, i) for i in range(n)]
        if n < num_entries:
            error = TimeoutError(f"{n} of {num_entries} completions came within {timeout} s")
            error.completions = found  # type: ignore[attr-defined]
            raise error
        return found

    def poll_batch(self, wcs: WCBatch, at_least: int = 0, timeout: float | None = None) -> int:
        """Fills *wcs* from its start and returns the number of completions.  Makes no objects.

        Waits until there are *at_least* so many, or for *timeout* seconds (None: for ever).
        """
        if at_least:
            return self._poll_until(wcs._c, at_least, wcs._n, timeout)
        n: int = _poll_cq(self._c or closed(self), wcs._n, wcs._c)
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
        check(rc, f"Failed to resize CQ to {cqe} entries")

    @property
    def cq(self) -> int:
        """The address of its `struct ibv_cq`, for ctypes and other bindings."""
        return address_of(self._c or closed(self))

    def __str__(self) -> str:
        c = self._c or closed(self)
        return "CQ\n" + table({"Handle": c.handle, "CQEs": c.cqe})
