# SPDX-License-Identifier: BSD-3-Clause
"""Extended completion queues, read field by field (man 3 ibv_create_cq_ex)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from nupa._engine import ffi, lib
from nupa.verbs.base import PyverbsObject, closed, expect
from nupa.verbs.base.errors import PyverbsRDMAError, refuse
from nupa.verbs.base.fields import Attribute, Field, link, table
from nupa.verbs.completion.channel import CompChannel, Completions
from nupa.verbs.completion.wc import STATUS, WcTmInfo
from nupa.verbs.device import Context
from nupa.verbs.pd import PD
from nupa.verbs.utils import create_wc_flags_to_str


class CqInitAttrEx(PyverbsObject):
    """Attributes of a new extended CQ (ibv_cq_init_attr_ex)."""

    def __init__(
        self,
        cqe: int = 100,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
        wc_flags: int = 0,
        comp_mask: int = 0,
        flags: int = 0,
        parent_domain: PD | None = None,
    ) -> None:
        values = (cqe, ffi.NULL, ffi.NULL, comp_vector, wc_flags, comp_mask, flags)
        self._c = ffi.new("struct ibv_cq_init_attr_ex *", values)
        self.parent_domain = parent_domain
        self.cq_context = None
        self.comp_channel = channel

    cq_context: object
    cqe = Field("cqe")
    comp_vector = Field("comp_vector")
    wc_flags = Field("wc_flags")
    comp_mask = Field("comp_mask")
    flags = Field("flags")
    comp_channel: Attribute[CompChannel | None, CompChannel | None] = link("channel")
    parent_domain: Attribute[PD | None, PD | None] = link("parent_domain")

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


def _reader(read: Callable[[Any], int]) -> Callable[[CQEX], int]:
    """Makes the method that reads one field of the completion."""
    return lambda self: int(read(self._c or closed(self)))


class CQEX(Completions):
    """A CQ read field by field: start_poll(), read_...(), poll_next(), end_poll()."""

    def __init__(self, context: Context, init_attr: CqInitAttrEx | None = None) -> None:
        expect(context, Context, "context")
        attr = init_attr or CqInitAttrEx()
        c = lib.nupa_create_cq_ex(context._c or closed(context), attr._c)
        if not c:
            refuse(f"Failed to create extended CQ of {attr.cqe} entries")
        self._open(context, c, attr.comp_channel)
        self.parent_domain = attr.parent_domain
        if self.parent_domain is not None:
            self.parent_domain._adopt(self)

    def _forget(self) -> None:
        super()._forget()
        self.parent_domain = None

    def _cq_of(self, c: Any) -> Any:
        return lib.ibv_cq_ex_to_cq(c)

    def start_poll(self, attr: PollCqAttr | None = None) -> int:
        """Begins to read completions: 0, or ENOENT: there is none."""
        return int(lib.ibv_start_poll(self._c or closed(self), (attr or PollCqAttr())._c))

    def poll_next(self) -> int:
        """Goes to the next completion: 0, or ENOENT: there is none."""
        return int(lib.ibv_next_poll(self._c or closed(self)))

    def end_poll(self) -> None:
        """Ends what start_poll() began with 0."""
        lib.ibv_end_poll(self._c or closed(self))

    read_opcode = _reader(lib.ibv_wc_read_opcode)
    read_vendor_err = _reader(lib.ibv_wc_read_vendor_err)
    read_byte_len = _reader(lib.ibv_wc_read_byte_len)
    read_imm_data = _reader(lib.ibv_wc_read_imm_data)
    read_qp_num = _reader(lib.ibv_wc_read_qp_num)
    read_src_qp = _reader(lib.ibv_wc_read_src_qp)
    read_wc_flags = _reader(lib.ibv_wc_read_wc_flags)
    read_slid = _reader(lib.ibv_wc_read_slid)
    read_sl = _reader(lib.ibv_wc_read_sl)
    read_dlid_path_bits = _reader(lib.ibv_wc_read_dlid_path_bits)
    read_timestamp = _reader(lib.ibv_wc_read_completion_ts)
    read_completion_wallclock_ns = _reader(lib.ibv_wc_read_completion_wallclock_ns)

    def read_cvlan(self) -> int:
        """Raises PyverbsRDMAError, EOPNOTSUPP, as the next two: completions lack the field here."""
        raise PyverbsRDMAError("Failed to read VLAN tag", errno.EOPNOTSUPP)

    def read_flow_tag(self) -> int:
        raise PyverbsRDMAError("Failed to read flow tag", errno.EOPNOTSUPP)

    def read_tm_info(self) -> WcTmInfo:
        raise PyverbsRDMAError("Failed to read tag", errno.EOPNOTSUPP)

    status = Field("status", STATUS)
    wr_id = Field("wr_id")

    def __str__(self) -> str:
        c = self._c or closed(self)
        return "Extended CQ:\n" + table({"Handle": c.handle, "CQEs": c.cqe})
