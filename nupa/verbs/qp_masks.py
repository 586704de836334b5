# SPDX-License-Identifier: BSD-3-Clause
"""Attributes that each transition of a QP needs, by its type (IBTA 11.2.5.2, ibv_modify_qp(3))."""

from __future__ import annotations

from nupa.verbs import enums as e

_TO_INIT = e.IBV_QP_PKEY_INDEX | e.IBV_QP_PORT
_TO_RTR = e.IBV_QP_AV | e.IBV_QP_PATH_MTU | e.IBV_QP_DEST_QPN | e.IBV_QP_RQ_PSN

MASKS: dict[int, dict[int, int]] = {
    e.IBV_QPT_RC: {
        e.IBV_QPS_INIT: _TO_INIT | e.IBV_QP_ACCESS_FLAGS,
        e.IBV_QPS_RTR: _TO_RTR | e.IBV_QP_MAX_DEST_RD_ATOMIC | e.IBV_QP_MIN_RNR_TIMER,
        e.IBV_QPS_RTS: e.IBV_QP_SQ_PSN
        | e.IBV_QP_TIMEOUT
        | e.IBV_QP_RETRY_CNT
        | e.IBV_QP_RNR_RETRY
        | e.IBV_QP_MAX_QP_RD_ATOMIC,
    },
    e.IBV_QPT_UC: {
        e.IBV_QPS_INIT: _TO_INIT | e.IBV_QP_ACCESS_FLAGS,
        e.IBV_QPS_RTR: _TO_RTR,
        e.IBV_QPS_RTS: e.IBV_QP_SQ_PSN,
    },
    e.IBV_QPT_UD: {
        e.IBV_QPS_INIT: _TO_INIT | e.IBV_QP_QKEY,
        e.IBV_QPS_RTR: 0,
        e.IBV_QPS_RTS: e.IBV_QP_SQ_PSN,
    },
}
MASKS[e.IBV_QPT_XRC_SEND] = {
    e.IBV_QPS_INIT: _TO_INIT | e.IBV_QP_ACCESS_FLAGS,
    e.IBV_QPS_RTR: _TO_RTR,
    e.IBV_QPS_RTS: MASKS[e.IBV_QPT_RC][e.IBV_QPS_RTS],
}
MASKS[e.IBV_QPT_XRC_RECV] = {
    e.IBV_QPS_INIT: _TO_INIT | e.IBV_QP_ACCESS_FLAGS,
    e.IBV_QPS_RTR: MASKS[e.IBV_QPT_RC][e.IBV_QPS_RTR],
    e.IBV_QPS_RTS: e.IBV_QP_SQ_PSN | e.IBV_QP_TIMEOUT,
}
