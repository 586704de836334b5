# SPDX-License-Identifier: BSD-3-Clause
"""Completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nupa._engine import ffi
from nupa.verbs.base import PyverbsObject
from nupa.verbs.base.errors import completion_error
from nupa.verbs.base.fields import Field, table
from nupa.verbs.enums import IBV_WC_SUCCESS, ibv_wc_opcode, ibv_wc_status
from nupa.verbs.utils import cqe_flags_to_str, cqe_opcode_to_str, cqe_status_to_str

_WC = ffi.typeof("struct ibv_wc *")
STATUS: Mapping[int, Any] = dict(ibv_wc_status._value2member_map_)
_OPCODE: Mapping[int, Any] = dict(ibv_wc_opcode._value2member_map_)


class WC(PyverbsObject):
    """A completion (man 3 ibv_poll_cq).  imm_data is big endian, as on the wire."""

    __slots__ = ("_c", "_owner")
    _owner: Any

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
    status = Field("status", STATUS)
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
        """Returns itself if it succeeded.  CompletionError: says what failed, with a remedy."""
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


class WcTmInfo(PyverbsObject):
    """Tag and private data of a tag matching completion."""

    def __init__(self) -> None:
        self._c = ffi.new("struct ibv_wc_tm_info *")

    tag = Field("tag")
    priv = Field("priv")


def wc_of(wcs: Any, i: int, new: Callable[[type[WC]], WC] = WC.__new__) -> WC:
    """Returns the completion in wcs[i], which keeps the array alive."""
    wc = new(WC)
    wc._c = wcs + i
    wc._owner = wcs
    return wc
