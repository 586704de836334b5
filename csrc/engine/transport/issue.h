/* SPDX-License-Identifier: BSD-3-Clause
 * Issuing a request: the line that it takes in the ring, and its place in the queue behind that.
 * For requester.c and datagram.c, inline, since each message passes here. */
#ifndef NUPA_ISSUE_H
#define NUPA_ISSUE_H

#include "engine/transport/sq.h"

/* datagram.c: sends a datagram; false: it waits, or the QP has failed. */
bool nupa_datagram_issue(struct nupa_qp *qp, struct nupa_wqe *wqe, uint64_t index);

/* NULL: the QP waits, or has failed; or it gave up, and the message is lost. */
static inline struct nupa_msg *nupa_issue_room(struct nupa_qp *qp, uint32_t dma_bytes,
					       uint8_t **payload)
{
	bool backlogged =
	    qp->type != IBV_QPT_RC && nupa_stall_backlogged(qp->channel, qp->dest_qpn);
	struct nupa_msg *msg;

	if (unlikely(!qp->channel->rx_open && qp->type == IBV_QPT_RC)) {
		nupa_sq_wait_for_contact(qp);
		return NULL;
	}
	if (unlikely(qp->channel->wired) && qp->type == IBV_QPT_RC && !nupa_flight_open(qp))
		return NULL;
	if (unlikely(dma_bytes && !qp->channel->dma_backed) &&
	    nupa_channel_back_dma(qp->engine, qp->channel)) {
		if (qp->type == IBV_QPT_RC)
			nupa_sq_wait_for_peer(qp);
		else
			nupa_sq_fail_in_turn(qp, qp->sq.issued, IBV_WC_LOC_QP_OP_ERR);
		return NULL;
	}
	msg = unlikely(backlogged) ? NULL : nupa_tx_reserve(&qp->channel->tx, dma_bytes, payload);
	if (qp->type == IBV_QPT_RC) {
		if (likely(msg))
			return msg;
		if (unlikely(qp->channel->timed) && nupa_stall_times_out(qp))
			nupa_sq_fail_in_turn(qp, qp->sq.issued, IBV_WC_RETRY_EXC_ERR);
		else
			nupa_sq_wait(qp, NUPA_WAIT_RING, 0, 0);
		return NULL;
	}
	if (unlikely(!msg) && nupa_stall_waits(qp, qp->channel, backlogged))
		return NULL;
	qp->gave_up = !msg;
	nupa_stall_over(qp);
	return msg;
}

/* The same; *bytes* are those that move by this message, for the rate of the QP. */
static inline struct nupa_msg *nupa_issue_reserve(struct nupa_qp *qp, uint64_t bytes,
						  uint32_t dma_bytes, uint8_t **payload)
{
	struct nupa_msg *msg = nupa_issue_room(qp, dma_bytes, payload);

	return unlikely(qp->rated) && msg && !nupa_pace_request(qp, bytes) ? NULL : msg;
}

static inline uint8_t nupa_issue_flags(const struct nupa_wqe *wqe)
{
	uint8_t flags = 0;

	if (wqe->flags & IBV_SEND_SOLICITED)
		flags |= NUPA_F_SOLICITED;
	if (wqe->opcode == IBV_WR_SEND_WITH_IMM || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= NUPA_F_IMM;
	if (wqe->opcode == IBV_WR_SEND_WITH_INV)
		flags |= NUPA_F_INV;
	return flags;
}

static inline void nupa_issued(struct nupa_qp *qp, struct nupa_wqe *wqe, uint8_t state)
{
	wqe->state = state;
	qp->sq.issued++;
	if (unlikely(state == NUPA_WQE_SENT && qp->channel->faulty && qp->type == IBV_QPT_RC))
		nupa_retry_sent(qp);
}

#endif
