/* SPDX-License-Identifier: BSD-3-Clause
 * P_Keys of QPs: chosen by index, and followed when the host's table changes. */
#ifndef NUPA_QP_PKEY_H
#define NUPA_QP_PKEY_H

#include "engine/core/qp.h"

/* Requests from now on are of another incarnation. */
static inline void nupa_qp_renew(struct nupa_qp *qp)
{
	qp->incarnation = (uint16_t)((qp->incarnation + 1) & 0xff);
}

/* ibv_modify_qp to state *to*: 0, or EINVAL after a hint. */
int nupa_qp_check_pkey(const struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask,
		       enum ibv_qp_state to);
/* The P_Key of its index, once qp->attr has that. */
void nupa_qp_take_pkey(struct nupa_qp *qp, int mask, enum ibv_qp_state to);

/* Looks at the P_Key tables after a change (port_epoch).  QPs whose own P_Key is gone fail, with
 * IBV_EVENT_QP_FATAL; those whose partner's host has another table check their partner anew.  The
 * table of a host that leaves the fabric is empty, so all of its QPs fail here.  Any thread that
 * runs the engine calls it, within 2 ms of the change. */
void nupa_qp_follow_pkeys(struct nupa_engine *engine);

#endif
