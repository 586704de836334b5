# SPDX-License-Identifier: BSD-3-Clause
"""Posting work requests: one, a chain by next_wr, or a sequence in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nupa._engine import ffi
from nupa.verbs.base.errors import PyverbsRDMAError
from nupa.verbs.wr import RecvWR, SendWR

WR = TypeVar("WR", SendWR, RecvWR)


class PostError(PyverbsRDMAError):
    """A work request was refused.  posted: how many before it were accepted."""

    posted: int


def refused(what: str, rc: int, posted: int, n: int, remedy: str = "") -> PostError:
    where = f" at {posted} of {n}" if n > 1 else ""
    error = PostError(f"Failed to {what}{where}", rc, remedy)
    error.posted = posted
    return error


def post_one(
    call: Callable[[Any, Any, Any], int], queue: Any, wr: WR, bad_wr: WR | None, what: str
) -> None:
    """Posts *wr* and its next_wr chain; fills *bad_wr* with the refused one."""
    if wr._next is None:
        # A single request can only be the refused one itself.
        rc = call(queue, wr._c, _UNREAD[type(wr)])
        if rc:
            if bad_wr is not None:
                bad_wr._c[0] = wr._c[0]
            raise refused(what, rc, 0, 1)
        return
    bad = ffi.new(_POINTER[type(wr)])
    rc = call(queue, wr._c, bad)
    if rc:
        posted, link = 0, wr._c
        while link and link != bad[0]:
            posted, link = posted + 1, link.next
        if bad_wr is not None:
            bad_wr._c[0] = bad[0][0]
        raise refused(what, rc, posted, posted + 1)


def post_many(
    call: Callable[[Any, Any, int, Any], int], queue: Any, wrs: Sequence[WR], what: str
) -> None:
    """Posts *wrs* in their order, ignoring their next_wr, in one call."""
    if not wrs:
        return
    array = ffi.new(_ARRAY[type(wrs[0])], [wr._c[0] for wr in wrs])
    posted = ffi.new("uint32_t *")
    rc = call(queue, array, len(wrs), posted)
    if rc:
        raise refused(what, rc, int(posted[0]), len(wrs))


_POINTER: dict[type, Any] = {
    SendWR: ffi.typeof("struct ibv_send_wr **"),
    RecvWR: ffi.typeof("struct ibv_recv_wr **"),
}
# C writes the refused request there, unread; threads may share it.
_UNREAD = {kind: ffi.new(pointer) for kind, pointer in _POINTER.items()}
_ARRAY: dict[type, Any] = {
    SendWR: ffi.typeof("struct ibv_send_wr[]"),
    RecvWR: ffi.typeof("struct ibv_recv_wr[]"),
}
