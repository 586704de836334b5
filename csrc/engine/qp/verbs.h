/* SPDX-License-Identifier: BSD-3-Clause
 * The verbs of QPs and of what belongs to them, among themselves. */
#ifndef NUPA_QP_VERBS_H
#define NUPA_QP_VERBS_H

#include "engine/transport/xrc.h"

/* qp_state.c */
int nupa_qp_own_mask(enum ibv_qp_type type, int mask);
int nupa_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask);

/* qp.c */
void nupa_qp_settle(struct nupa_qp *qp); /* sends what is owed */
void nupa_qp_reset(struct nupa_qp *qp);

/* post.c */
int nupa_wqe_set_ud(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_ah *ah, uint32_t qpn,
		    uint32_t qkey);
extern const uint32_t nupa_opcodes_of_type[16];

/* refusal.c: EINVAL, and says once that this QP takes no such request. */
int nupa_refuse_opcode(const struct nupa_qp *qp, uint32_t opcode);

/* A WQE anew: 0, or EINVAL for an opcode that the QP does not take. */
static inline int nupa_wqe_begin(struct nupa_qp *qp, struct nupa_wqe *wqe, uint32_t opcode,
				 uint64_t wr_id, uint32_t flags, uint32_t imm)
{
	if (unlikely(opcode > 31 || !(nupa_opcodes_of_type[qp->type] >> opcode & 1)))
		return nupa_refuse_opcode(qp, opcode);
	wqe->wr_id = wr_id;
	wqe->opcode = (uint8_t)opcode;
	wqe->flags = (uint8_t)(flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u));
	wqe->state = NUPA_WQE_POSTED;
	wqe->imm = imm;
	wqe->moved_bytes = 0;
	wqe->data_placed = wqe->by_message = wqe->pulled = 0;
	return 0;
}

/* qp_ex.c: gives a QP the wr_ calls; EOPNOTSUPP for an operation of send_ops_flags that we lack. */
int nupa_qp_ex_init(struct nupa_qp *qp, uint64_t send_ops_flags);

/* ah.c */
int nupa_host_of_ah(struct nupa_engine *engine, const struct ibv_ah_attr *attr, uint32_t *host);

/* qp_open.c */
/* Aligned, and all zeros; NULL: no memory. */
struct nupa_qp *nupa_qp_blank(void);
struct nupa_qp *nupa_xrc_close_handle(struct nupa_qp *handle);
void nupa_xrc_query_handle(const struct nupa_qp *handle, struct ibv_qp_attr *attr,
			   struct ibv_qp_init_attr *init);

/* xrcd.c */
int nupa_xrc_srq_add(struct nupa_srq *srq, struct ibv_xrcd *xrcd, struct ibv_cq *cq);
void nupa_xrc_srq_remove(struct nupa_srq *srq);
void nupa_xrc_qp_users(struct nupa_qp *qp, int delta);
void nupa_xrc_free(struct nupa_engine *engine);

#endif
