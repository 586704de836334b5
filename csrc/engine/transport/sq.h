/* SPDX-License-Identifier: BSD-3-Clause
 * Send queues, for the requester's files. */
#ifndef NUPA_SQ_H
#define NUPA_SQ_H

#include "engine/channel/mover.h"
#include "engine/transport/xrc.h"

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
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW || opcode == NUPA_WR_FAST_REG;
}

/* IBTA 9.7.6.1.3: the timer may run up to four times the value.  On a wire it does: the other end
 * may be emulated or busy, and what is repeated too early makes that worse. */
static inline uint64_t nupa_retry_times(const struct nupa_qp *qp)
{
	return qp->channel && qp->channel->wired ? 4 : 1;
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
		msg->ack_psn = nupa_ack_psn(qp);
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

/* completion.c */
void nupa_sq_complete_done(struct nupa_qp *qp);

/* sq.c */
bool nupa_sq_wait(struct nupa_qp *qp, enum nupa_wait why, uint64_t now_ns, uint64_t delay_ns);
bool nupa_sq_wait_for_peer(struct nupa_qp *qp);
void nupa_sq_wait_for_contact(struct nupa_qp *qp);
bool nupa_sq_wait_over(struct nupa_qp *qp);
void nupa_sq_made_progress(struct nupa_qp *qp);
bool nupa_sq_local_spans(struct nupa_qp *qp, struct nupa_wqe *wqe, struct nupa_span *spans,
			 uint32_t *n_spans);
/* retry.c: the timer starts; the oldest request that waits for an answer; `issued`: none does. */
void nupa_retry_start(struct nupa_qp *qp);
uint64_t nupa_retry_oldest(struct nupa_qp *qp);
/* The READ or atomic with this PSN, if it is the one that is answered next. */
struct nupa_wqe *nupa_requester_awaited(struct nupa_qp *qp, uint32_t psn);
/* By a wire: asks for the next pieces of a READ, as far as it is time to. */
void nupa_requester_read_more(struct nupa_qp *qp, struct nupa_wqe *wqe);
/* The one that is answered next, whatever its PSN; NULL: none. */
struct nupa_wqe *nupa_requester_response_awaited(struct nupa_qp *qp);
bool nupa_sq_fail_in_turn(struct nupa_qp *qp, uint64_t index, enum ibv_wc_status status);

/* pace.c: moves a request with a rate directly, piece by piece, as far as it may go now. */
enum nupa_direct nupa_pace_direct(struct nupa_qp *qp, struct nupa_wqe *wqe,
				  const struct nupa_span *spans, uint32_t n_spans);

/* A peer that takes nothing, as its senders see it: */
/* UC, UD: what is sent to this QP now would find it without a receive (backlog.c). */
static inline bool nupa_stall_backlogged(const struct nupa_channel *channel, uint32_t qpn)
{
	uint32_t index = nupa_qpn_index(&channel->engine->fabric->geometry, qpn);

	if (likely(!nupa_load_relaxed(&channel->peer_slot->backlogs)))
		return false;
	/* I5: an index from the program.  Where stores are not seen, no process waits for them. */
	return !channel->distant && index < nupa_load_acquire(&channel->peer_slot->qp_limit) &&
	       index < channel->engine->fabric->geometry.qp_entries &&
	       nupa_load_acquire(&channel->peer_qps[index].backlog);
}

/* UC, UD: a message found no room in the ring, or a backlog.  True: the QP waits.  False: it has
 * waited for long enough, the message is lost and counted. */
bool nupa_stall_waits(struct nupa_qp *qp, struct nupa_channel *channel, bool backlogged);

/* RC, where a fault of kind TIMEOUT is: the ring has been full for as long as the QP waits for an
 * answer. */
bool nupa_stall_times_out(struct nupa_qp *qp);

/* The message has been sent, or is lost: the next one may wait anew. */
static inline void nupa_stall_over(struct nupa_qp *qp)
{
	if (unlikely(qp->wait_deadline_ns))
		qp->wait_deadline_ns = 0;
}

#endif
