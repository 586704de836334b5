# SPDX-License-Identifier: BSD-3-Clause
"""XRC domains: the SRQs that one receiving QP reaches, in all processes of a host."""

from __future__ import annotations

from typing import Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsCM, PyverbsObject, closed, expect
from nupa.verbs.base.errors import made
from nupa.verbs.base.fields import Field
from nupa.verbs.device import Context

__all__ = ["XRCD", "XRCDInitAttr"]


class XRCDInitAttr(PyverbsObject):
    """Attributes of XRCD(context, ...), which the file *fd* identifies; -1: no file.

    oflags: os.O_CREAT, os.O_EXCL or 0.  comp_mask: both bits of ibv_xrcd_init_attr_mask.
    """

    def __init__(self, comp_mask: int, oflags: int, fd: int) -> None:
        self._c = ffi.new("struct ibv_xrcd_init_attr *", (comp_mask, fd, oflags))

    comp_mask = Field("comp_mask")
    fd = Field("fd")
    oflags = Field("oflags")


class XRCD(PyverbsCM):
    """An XRC domain (man 3 ibv_open_xrcd).  Closing it closes its SRQs and QPs.

    PyverbsRDMAError: EAGAIN if no process of the host has that domain and O_CREAT is missing,
    EINVAL if one has it and O_EXCL is given.
    """

    _rank = PyverbsCM.RANK_PD

    def __init__(self, context: Context, init_attr: XRCDInitAttr) -> None:
        expect(context, Context, "context")
        expect(init_attr, XRCDInitAttr, "init_attr")
        c = lib.nupa_open_xrcd(context._c or closed(context), init_attr._c)
        self._c = made(c, "Failed to allocate XRC domain")
        self.context: Context | None = context
        context._adopt(self)

    def _destroy(self, c: Any) -> int:
        return int(lib.nupa_close_xrcd(c))

    def _forget(self) -> None:
        self.context = None
