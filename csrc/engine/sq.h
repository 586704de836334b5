/* SPDX-License-Identifier: BSD-3-Clause
 * What the requester's files share of a send queue. */
#ifndef NUPA_SQ_H
#define NUPA_SQ_H

#include "engine.h"

/* Operations that end with an answer of their own. */
static inline bool nupa_is_response_op(uint8_t opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Operations on our own keys: nothing of them leaves the device. */
static inline bool nupa_is_local_op(uint8_t opcode)
{
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

void nupa_sq_complete_done(struct nupa_qp *qp);
bool nupa_sq_wait(struct nupa_qp *qp, enum nupa_wait why, uint64_t now_ns, uint64_t delay_ns);
bool nupa_sq_wait_for_peer(struct nupa_qp *qp);
void nupa_sq_wait_for_contact(struct nupa_qp *qp);
bool nupa_sq_wait_over(struct nupa_qp *qp);
void nupa_sq_made_progress(struct nupa_qp *qp);
bool nupa_sq_local_spans(struct nupa_qp *qp, struct nupa_wqe *wqe, struct nupa_span *spans,
			 uint32_t *n_spans);
bool nupa_sq_fail_in_turn(struct nupa_qp *qp, uint64_t index, enum ibv_wc_status status);

#endif
