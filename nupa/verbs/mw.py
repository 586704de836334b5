# SPDX-License-Identifier: BSD-3-Clause
"""Memory windows of verbs: work requests open parts of a region to peers, and close them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsValue, closed, expect
from nupa.verbs.base.errors import refuse
from nupa.verbs.base.fields import ReadOnly, WhileOpen, table
from nupa.verbs.pd import PD
from nupa.verbs.utils import mwtype2str

if TYPE_CHECKING:
    from nupa.verbs.mr import MR

_TYPES = {1, 2}


class MWBindInfo(PyverbsValue):
    """The range of a window: *length* bytes at *addr* of *mr*, which needs IBV_ACCESS_MW_BIND."""

    __slots__ = ("_c", "mr")

    def __init__(self, mr: MR, addr: int, length: int, mw_access_flags: int) -> None:
        self.mr = mr
        values = (mr._c or closed(mr), addr, length, int(mw_access_flags))
        self._c = ffi.new("struct ibv_mw_bind_info *", values)

    mw_access_flags = ReadOnly("mw_access_flags")
    #: in bytes
    length = ReadOnly("length")
    addr = ReadOnly("addr")

    def __str__(self) -> str:
        return "MWBindInfo:\n" + table(
            {"Addr": self.addr, "Length": self.length, "MW access flags": self.mw_access_flags}
        )


class MWBind(PyverbsValue):
    """The request to bind a type 1 window, for QP.bind_mw()."""

    __slots__ = ("_c", "info")

    def __init__(self, info: MWBindInfo, send_flags: int, wr_id: int = 0) -> None:
        self.info = info
        self._c = ffi.new("struct ibv_mw_bind *", (wr_id, int(send_flags), info._c[0]))

    wr_id = ReadOnly("wr_id")
    send_flags = ReadOnly("send_flags")

    def __str__(self) -> str:
        return "MWBind:\n" + table({"WR id": self.wr_id, "Send flags": self.send_flags})


class MW(PyverbsCM):
    """A memory window of *pd*: QP.bind_mw() binds type 1, a work request binds type 2.

    Closing it ends the access that it gave.  PyverbsRDMAError with EINVAL for another type.
    """

    _rank = PyverbsCM.RANK_MW

    def __init__(self, pd: PD, mw_type: int) -> None:
        expect(pd, PD, "pd")
        parent = pd._c or closed(pd)
        c = lib.nupa_alloc_mw(parent, int(mw_type))
        if not c:
            remedy = "" if int(mw_type) in _TYPES else "a window is of type 1 or 2"
            refuse(f"Failed to allocate MW of type {mw_type}", remedy=remedy)
        self._c = c
        self.pd: PD | None = pd
        pd._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_dealloc_mw(c))

    def _forget(self) -> None:
        self.pd = None

    handle = WhileOpen("handle")
    #: the key for peers.  Type 1: of the last bind; type 2: the one to derive new ones from
    rkey = WhileOpen("rkey")
    type = WhileOpen("type")

    def __str__(self) -> str:
        rows = {"Rkey": self.rkey, "Handle": self.handle, "MW Type": mwtype2str(self.type)}
        return "MW:\n" + table(rows)
