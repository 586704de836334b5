# SPDX-License-Identifier: BSD-3-Clause
"""Attributes of a QP, to create it and of its state (man 3 ibv_create_qp, ibv_modify_qp)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nupa._engine import ffi
from nupa.verbs import utils
from nupa.verbs.addr import AHAttr
from nupa.verbs.base import PyverbsObject, PyverbsValue
from nupa.verbs.base.fields import Attribute, Field, link, table
from nupa.verbs.cq import CQ, CQEX
from nupa.verbs.enums import (
    IBV_MTU_1024,
    IBV_QPS_INIT,
    IBV_QPS_RESET,
    IBV_QPT_UD,
    ibv_mtu,
    ibv_qp_state,
    ibv_qp_type,
)
from nupa.verbs.pd import PD
from nupa.verbs.raw.wq import RwqIndTable, RxHashConf
from nupa.verbs.srq import SRQ, cq_pointer
from nupa.verbs.xrcd import XRCD

STATES: Mapping[int, Any] = dict(ibv_qp_state._value2member_map_)
TYPES: Mapping[int, Any] = dict(ibv_qp_type._value2member_map_)
_MTUS: Mapping[int, Any] = dict(ibv_mtu._value2member_map_)


_COMP_MASKS = {
    1: "PD", 2: "XRCD", 4: "Create Flags", 8: "Max TSO header", 16: "Indirection Table",
    32: "RX hash",
}  # fmt: skip
_CREATE_FLAGS = {
    1: "Block self mcast loopback", 2: "Scatter FCS", 4: "CVLAN stripping", 8: "Source QPN",
    16: "PCI write end padding",
}  # fmt: skip


class QPCap(PyverbsObject):
    """Sizes of a QP's queues: WRs, SGEs of a WR, bytes that can be posted inline."""

    def __init__(
        self,
        max_send_wr: int = 1,
        max_recv_wr: int = 10,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_data: int = 0,
    ) -> None:
        self._c = ffi.new(
            "struct ibv_qp_cap *",
            (max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data),
        )

    max_send_wr = Field("max_send_wr")
    max_recv_wr = Field("max_recv_wr")
    max_send_sge = Field("max_send_sge")
    max_recv_sge = Field("max_recv_sge")
    max_inline_data = Field("max_inline_data")

    def __str__(self) -> str:
        return table(_cap_rows(self._c, "wrs", "sges"), 20)


def _cap_rows(cap: Any, wr: str = "WR", sge: str = "SGE") -> dict[str, object]:
    return {
        f"max send {wr}": cap.max_send_wr,
        f"max recv {wr}": cap.max_recv_wr,
        f"max send {sge}": cap.max_send_sge,
        f"max recv {sge}": cap.max_recv_sge,
        "max inline data": cap.max_inline_data,
    }


class _Capable(PyverbsObject):
    """The base of attributes with a `cap`."""

    @property
    def cap(self) -> QPCap:
        cap = QPCap()
        cap._c[0] = self._c.cap
        return cap

    @cap.setter
    def cap(self, val: QPCap) -> None:
        self._c.cap = val._c[0]


class _InitAttr(_Capable):
    """The common base of QPInitAttr and QPInitAttrEx."""

    qp_context: object = None

    qp_type = Field("qp_type", TYPES)
    sq_sig_all = Field("sq_sig_all")
    max_send_wr = Field("cap.max_send_wr")
    max_recv_wr = Field("cap.max_recv_wr")
    max_send_sge = Field("cap.max_send_sge")
    max_recv_sge = Field("cap.max_recv_sge")
    max_inline_data = Field("cap.max_inline_data")
    send_cq = link("send_cq", cq_pointer)
    recv_cq = link("recv_cq", cq_pointer)
    srq: Attribute[SRQ | None, SRQ | None] = link("srq")

    def _fill(
        self,
        qp_type: int,
        qp_context: object,
        scq: CQ | CQEX | None,
        rcq: CQ | CQEX | None,
        srq: SRQ | None,
        cap: QPCap | None,
        sq_sig_all: int,
    ) -> None:
        if cap is not None:
            self.cap = cap
        self.qp_type = qp_type
        self.qp_context = qp_context
        self.sq_sig_all = sq_sig_all
        self.send_cq = scq
        self.recv_cq = rcq
        self.srq = srq

    def _text(self, indent: str, width: int) -> str:
        rows = {
            "QP type": utils.qp_type_to_str(self.qp_type),
            "SQ sig. all": self.sq_sig_all,
        }
        return f"{table(rows, 20)}QP caps:\n" + table(_cap_rows(self._c.cap), width, indent)


class QPInitAttr(_InitAttr):
    """Attributes of QP(pd, ...).  Without a *cap* all queues have size 0."""

    def __init__(
        self,
        qp_type: int = IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 1,
    ) -> None:
        self._c = ffi.new("struct ibv_qp_init_attr *")
        self._fill(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all)

    def __str__(self) -> str:
        return self._text(indent="    ", width=20)


class QPInitAttrEx(_InitAttr):
    """Attributes of QP(context, ...) or QPEx; comp_mask says which of the later fields are set."""

    def __init__(
        self,
        qp_type: int = IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 0,
        comp_mask: int = 0,
        pd: PD | None = None,
        xrcd: XRCD | None = None,
        create_flags: int = 0,
        max_tso_header: int = 0,
        source_qpn: int = 0,
        hash_conf: RxHashConf | None = None,
        ind_table: RwqIndTable | None = None,
        send_ops_flags: int = 0,
    ) -> None:
        self._c = ffi.new("struct ibv_qp_init_attr_ex *")
        self._fill(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all)
        self.comp_mask = comp_mask
        self.create_flags = create_flags
        self.max_tso_header = max_tso_header
        self.source_qpn = source_qpn
        self.send_ops_flags = send_ops_flags
        self.pd = pd
        self.xrcd = xrcd
        self.ind_table = ind_table
        self._hash_conf = hash_conf
        if hash_conf is not None:
            self._c.rx_hash_conf = hash_conf._c[0]

    comp_mask = Field("comp_mask")
    create_flags = Field("create_flags")
    max_tso_header = Field("max_tso_header")
    source_qpn = Field("source_qpn")
    send_ops_flags = Field("send_ops_flags")
    pd: Attribute[PD | None, PD | None] = link("pd")
    xrcd: Attribute[XRCD | None, XRCD | None] = link("xrcd")
    ind_table: Attribute[RwqIndTable | None, RwqIndTable | None] = link("rwq_ind_tbl")

    def mask_to_str(self, mask: int) -> str:
        """Lists what the bits of a comp_mask say, with spaces between."""
        return utils.flags_to_str(mask, _COMP_MASKS)

    def flags_to_str(self, flags: int) -> str:
        """Lists what the bits of create_flags say, likewise."""
        return utils.flags_to_str(flags, _CREATE_FLAGS)

    def __str__(self) -> str:
        rows = {
            "comp mask": self.mask_to_str(self.comp_mask),
            "create flags": self.flags_to_str(self.create_flags),
            "max TSO header": self.max_tso_header,
            "Source QPN": self.source_qpn,
        }
        return self._text(indent="  ", width=18) + table(rows, 20)


class QPAttr(_Capable):
    """State and path of a QP (ibv_qp_attr).  The defaults bring it from RESET to INIT."""

    def __init__(
        self,
        qp_state: int = IBV_QPS_INIT,
        cur_qp_state: int = IBV_QPS_RESET,
        port_num: int = 1,
        path_mtu: int = IBV_MTU_1024,
    ) -> None:
        self._c = ffi.new("struct ibv_qp_attr *")
        self.qp_state = qp_state
        self.cur_qp_state = cur_qp_state
        self.port_num = port_num
        self.path_mtu = path_mtu

    qp_state = Field("qp_state", STATES)
    cur_qp_state = Field("cur_qp_state", STATES)
    path_mtu = Field("path_mtu", _MTUS)
    path_mig_state = Field("path_mig_state")
    qkey = Field("qkey")
    rq_psn = Field("rq_psn")
    sq_psn = Field("sq_psn")
    dest_qp_num = Field("dest_qp_num")
    qp_access_flags = Field("qp_access_flags")
    pkey_index = Field("pkey_index")
    alt_pkey_index = Field("alt_pkey_index")
    en_sqd_async_notify = Field("en_sqd_async_notify")
    sq_draining = Field("sq_draining")
    max_rd_atomic = Field("max_rd_atomic")
    max_dest_rd_atomic = Field("max_dest_rd_atomic")
    min_rnr_timer = Field("min_rnr_timer")
    port_num = Field("port_num")
    timeout = Field("timeout")
    retry_cnt = Field("retry_cnt")
    rnr_retry = Field("rnr_retry")
    alt_port_num = Field("alt_port_num")
    alt_timeout = Field("alt_timeout")
    rate_limit = Field("rate_limit")

    @property
    def ah_attr(self) -> AHAttr:
        """A copy; assign to change it."""
        return _copy(self._c.ah_attr)

    @ah_attr.setter
    def ah_attr(self, val: AHAttr | None) -> None:
        if val is not None:
            self._c.ah_attr = val._c[0]

    @property
    def alt_ah_attr(self) -> AHAttr:
        return _copy(self._c.alt_ah_attr)

    @alt_ah_attr.setter
    def alt_ah_attr(self, val: AHAttr | None) -> None:
        if val is not None:
            self._c.alt_ah_attr = val._c[0]

    def __str__(self) -> str:
        rows: dict[str, object] = {
            "QP state": utils.qp_state_to_str(self.qp_state),
            "QP current state": utils.qp_state_to_str(self.cur_qp_state),
            "Path MTU": utils.mtu_to_str(self.path_mtu),
            "Path mig. state": utils.mig_state_to_str(self.path_mig_state),
            "QKey": self.qkey,
            "RQ PSN": self.rq_psn,
            "SQ PSN": self.sq_psn,
            "Dest QP number": self.dest_qp_num,
            "QP access flags": utils.access_flags_to_str(self.qp_access_flags),
        }
        more = {
            "PKey index": self.pkey_index,
            "Alt. PKey index": self.alt_pkey_index,
            "En. SQD async notify": self.en_sqd_async_notify,
            "SQ draining": self.sq_draining,
            "Max RD atomic": self.max_rd_atomic,
            "Max dest. RD atomic": self.max_dest_rd_atomic,
            "Min RNR timer": self.min_rnr_timer,
            "Port number": self.port_num,
            "Timeout": self.timeout,
            "Retry counter": self.retry_cnt,
            "RNR retry": self.rnr_retry,
            "Alt. port number": self.alt_port_num,
            "Alt. timeout": self.alt_timeout,
            "Rate limit": self.rate_limit,
        }
        caps = table(_cap_rows(self._c.cap), indent="  ")
        paths = f"AH Attr:\n{_path(self.ah_attr)}Alt. AH Attr:\n{_path(self.alt_ah_attr)}"
        return f"{table(rows)}QP caps:\n{caps}{paths}{table(more)}"


def _path(attr: AHAttr) -> str:
    # pyverbs prints the port twice.
    rows = {
        "port num": attr.port_num,
        "sl": attr.sl,
        "source path bits": attr.src_path_bits,
        "dlid": attr.dlid,
    }
    more = {
        "port num": attr.port_num,
        "static rate": attr.static_rate,
        "is global": attr.is_global,
    }
    route = table(attr._route_rows(), indent="    ")
    return table(rows, indent="  ") + table(more, indent="  ") + route


def _copy(c: Any) -> AHAttr:
    attr = AHAttr()
    attr._c[0] = c
    return attr


class ECE(PyverbsValue):
    """Vendor extensions that two devices agree on while they connect."""

    def __init__(self, vendor_id: int = 0, options: int = 0, comp_mask: int = 0) -> None:
        self._c = ffi.new("struct ibv_ece *", (vendor_id, options, comp_mask))

    vendor_id = Field("vendor_id")
    options = Field("options")
    comp_mask = Field("comp_mask")

    def __str__(self) -> str:
        fields = {"Vendor ID": self.vendor_id, "Options": self.options, "Comp Mask": self.comp_mask}
        # Digits are padded, not the whole number, as in pyverbs.
        return "ECE:\n" + "".join(f"{name:22}: 0x{n:<20x}\n" for name, n in fields.items())
