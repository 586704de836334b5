/* SPDX-License-Identifier: BSD-3-Clause
 * Send queues, for the requester's files. */
#ifndef NUPA_SQ_H
#define NUPA_SQ_H

#include "engine/channel/mover.h"
#include "engine/transport/xrc.h"

extern const uint32_t nupa_opcodes_of_type[16];

/* A WQE anew: 0, or EINVAL for an opcode that the QP does not take. */
static inline int nupa_wqe_begin(struct nupa_qp *qp, struct nupa_wqe *wqe, uint32_t opcode,
				 uint64_t wr_id, uint32_t flags, uint32_t imm)
{
	if (unlikely(opcode > 31 || !(nupa_opcodes_of_type[qp->type] >> opcode & 1)))
		return EINVAL;
	wqe->wr_id = wr_id;
	wqe->opcode = (uint8_t)opcode;
	wqe->flags = (uint8_t)(flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u));
	wqe->state = NUPA_WQE_POSTED;
	wqe->imm = imm;
	wqe->moved_bytes = 0;
	wqe->data_placed = wqe->by_message = wqe->pulled = 0;
	return 0;
}

/* Operations that end with an answer of their own. */
static inline bool nupa_is_response_op(uint8_t opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_WRITE ||
	       opcode == IBV_WR_FLUSH;
}

/* Of those, the ones whose answer goes into local memory. */
static inline bool nupa_is_fetching_op(uint8_t opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Operations on our own keys: nothing of them leaves the device. */
static inline bool nupa_is_local_op(uint8_t opcode)
{
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

/* A request's line, but for what its operation says; and out it goes. */
static inline void nupa_request_fill(struct nupa_qp *qp, struct nupa_msg *msg, uint8_t op,
				     uint8_t flags, uint32_t bytes)
{
	msg->op = op;
	msg->flags = flags;
	msg->dest_qpn = qp->dest_qpn;
	msg->src_qpn = qp->ibv.qp_num;
	msg->psn = nupa_psn_of(qp->incarnation, qp->next_psn);
	msg->length_bytes = bytes;
	if (qp->ack_pending && !qp->nak_pending) { /* piggyback */
		msg->flags |= NUPA_F_ACK;
		msg->ack_psn =
		    nupa_psn_of(qp->peer_incarnation, nupa_psn_add(qp->expected_psn, 0xffffff));
		qp->ack_pending = false;
		nupa_list_del(&qp->ack_link);
	} else if (unlikely(qp->xrc)) {
		nupa_xrc_mark(qp, msg);
	}
}

static inline void nupa_request_publish(struct nupa_qp *qp, struct nupa_msg *msg,
					uint32_t dma_bytes)
{
	nupa_channel_publish(qp->channel, msg, dma_bytes);
	qp->next_psn = nupa_psn_add(qp->next_psn, 1);
}

extern const uint8_t nupa_wc_opcode_of[32]; /* by opcode of the request */

/* A request has succeeded, and was to be signalled. */
static inline void nupa_sq_complete(struct nupa_qp *qp, uint64_t wr_id, uint32_t opcode,
				    uint32_t bytes)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->send_cq, qp);

	if (unlikely(!cqe))
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wr_id,
		.qp = qp,
		.opcode = nupa_wc_opcode_of[opcode & 31],
		.byte_len = bytes,
		.qp_num = qp->ibv.qp_num,
	};
	nupa_cq_commit(qp->send_cq, false);
}

void nupa_sq_complete_done(struct nupa_qp *qp);
bool nupa_sq_wait(struct nupa_qp *qp, enum nupa_wait why, uint64_t now_ns, uint64_t delay_ns);
bool nupa_sq_wait_for_peer(struct nupa_qp *qp);
void nupa_sq_wait_for_contact(struct nupa_qp *qp);
bool nupa_sq_wait_over(struct nupa_qp *qp);
void nupa_sq_made_progress(struct nupa_qp *qp);
bool nupa_sq_local_spans(struct nupa_qp *qp, struct nupa_wqe *wqe, struct nupa_span *spans,
			 uint32_t *n_spans);
/* The READ or atomic with this PSN, if it is the one that is answered next. */
struct nupa_wqe *nupa_requester_awaited(struct nupa_qp *qp, uint32_t psn);
bool nupa_sq_fail_in_turn(struct nupa_qp *qp, uint64_t index, enum ibv_wc_status status);

#endif
