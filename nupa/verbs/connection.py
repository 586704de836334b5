# SPDX-License-Identifier: BSD-3-Clause
"""Bringing QPs to RTS in one call."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nupa.verbs import enums as e
from nupa.verbs.addr import GID, AHAttr, GlobalRoute
from nupa.verbs.base import closed
from nupa.verbs.base.errors import PyverbsUserError
from nupa.verbs.qp import QP
from nupa.verbs.qp_attr import QPAttr
from nupa.verbs.utils import qp_type_to_str

_PORT = 1
_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)


@dataclass(frozen=True)
class Address:
    """The address of a QP for its peer; small, plain, and good for JSON: Address(**dict)."""

    qp_num: int
    psn: int
    lid: int
    gid: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def address(qp: QP, psn: int = 0, gid_index: int = 0) -> Address:
    """Returns the address of *qp*; *psn* is the number of the first packet that it will send."""
    context = qp.context or closed(qp)
    gid = context.query_gid(_PORT, gid_index).gid
    return Address(qp.qp_num, psn, context.query_port(_PORT).lid, gid)


def connect_to(
    qp: QP,
    peer: Address,
    *,
    psn: int = 0,
    gid_index: int = 0,
    pkey_index: int = 0,
    access: int = _ACCESS,
    mtu: int = e.IBV_MTU_4096,
    timeout: int = 14,
    retry_cnt: int = 7,
    rnr_retry: int = 7,
    min_rnr_timer: int = 12,
    max_rd_atomic: int = 16,
) -> None:
    """Brings *qp* (RC, UC or XRC) to RTS, connected to *peer*; *psn*: the one of address(qp, psn).

    timeout: 4.096 us << timeout, 0 for ever.  rnr_retry 7: for ever.  min_rnr_timer is coded
    (IBTA table 46: 12 is 0.64 ms).  mtu is an ibv_mtu.  pkey_index: of the port's P_Key table.
    """
    if qp.qp_type == e.IBV_QPT_UD:
        raise PyverbsUserError(
            f"A QP of type {qp_type_to_str(qp.qp_type)} has no peer: for UD use QP(..., QPAttr()), "
            "which brings it to RTS, and an AH for each destination"
        )
    attr = QPAttr(port_num=_PORT, path_mtu=mtu)
    attr.pkey_index = pkey_index
    attr.qp_access_flags = access
    attr.dest_qp_num = peer.qp_num
    attr.rq_psn = peer.psn
    attr.sq_psn = psn
    attr.timeout = timeout
    attr.retry_cnt = retry_cnt
    attr.rnr_retry = rnr_retry
    attr.min_rnr_timer = min_rnr_timer
    attr.max_rd_atomic = max_rd_atomic
    attr.max_dest_rd_atomic = max_rd_atomic
    route = GlobalRoute(dgid=GID(peer.gid), sgid_index=gid_index, hop_limit=64)
    attr.ah_attr = AHAttr(dlid=peer.lid, is_global=1, port_num=_PORT, gr=route)
    qp.to_rts(attr)


def connect(a: QP, b: QP, **options: int) -> None:
    """Brings two QPs to RTS, connected to each other; options as for connect_to."""
    gid_index = options.get("gid_index", 0)
    to_a, to_b = address(a, gid_index=gid_index), address(b, gid_index=gid_index)
    connect_to(a, to_b, **options)
    connect_to(b, to_a, **options)
