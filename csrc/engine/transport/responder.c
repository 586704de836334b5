/* SPDX-License-Identifier: BSD-3-Clause
 * The responder executes the requests to our QPs, in order, and answers them.  It alone refuses
 * requests; a requester that acts by itself (mover.c) only does what this file would.
 *
 * While responses of a READ are on their way its requester sends nothing behind it that could
 * change that memory (requester.c).  So requests never overtake each other here. */
#include "base/hint.h"
#include "engine/transport/responder.h"

#include <inttypes.h>

/* --- one-sided requests -------------------------------------------------------------- */

/* RC tells the requester; UC drops the message, with what is still to come of it. */
static bool refuse(struct nupa_qp *qp, const struct nupa_msg *msg, enum nupa_nak syndrome)
{
	if (qp->type == IBV_QPT_RC) {
		nupa_responder_nak_fatal(qp, syndrome);
	} else {
		nupa_count(&qp->engine->hw->rx_invalid, 1);
		qp->drop_message = !(msg->flags & NUPA_F_LAST);
	}
	return false;
}

static bool refuse_access(struct nupa_qp *qp, const struct nupa_msg *msg, uint64_t raddr,
			  uint64_t bytes, int access)
{
	bool one_sided = msg->op == NUPA_OP_WRITE || msg->op == NUPA_OP_READ;

	nupa_mr_explain_remote(qp, one_sided ? msg->reth.rkey : msg->atomic.rkey, raddr, bytes,
			       access);
	return refuse(qp, msg, NUPA_NAK_REMOTE_ACCESS);
}

static bool handle_write(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload)
{
	bool imm = (msg->flags & (NUPA_F_IMM | NUPA_F_LAST)) == (NUPA_F_IMM | NUPA_F_LAST);
	struct nupa_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	uint64_t bytes = msg->length_bytes;
	uint8_t *target = NULL;
	bool on_demand = false;

	/* The first part answers for all: a message that is refused changes no byte. */
	if (msg->flags & NUPA_F_FIRST && bytes && msg->reth.total_bytes > bytes)
		bytes = msg->reth.total_bytes;
	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) ||
	    (bytes && !(target = nupa_mr_remote(qp, msg->reth.rkey, msg->reth.raddr, bytes,
						IBV_ACCESS_REMOTE_WRITE, &on_demand))))
		return refuse_access(qp, msg, msg->reth.raddr, bytes, IBV_ACCESS_REMOTE_WRITE);
	if (imm && !nupa_rq_peek(rq)) {
		if (qp->type == IBV_QPT_RC)
			nupa_responder_nak(qp, NUPA_NAK_RNR);
		else
			nupa_count(&qp->engine->hw->rx_no_receive, 1);
		return false;
	}
	if (!payload && msg->length_bytes > NUPA_WRITE_INLINE_BYTES) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	if (msg->length_bytes && !nupa_responder_copy(target, payload ? payload : msg->write_data,
						      msg->length_bytes, on_demand))
		return refuse(qp, msg, NUPA_NAK_REMOTE_OPERATION);
	if (msg->flags & NUPA_F_DMA && !nupa_channel_intact(qp->channel)) {
		nupa_requester_lose_peer(qp);
		return false;
	}
	if (imm) {
		uint64_t wr_id = nupa_rq_peek(rq)->wr_id;

		nupa_receive_taken(qp);
		nupa_receive_complete(qp, wr_id, IBV_WC_SUCCESS, msg, msg->reth.total_bytes,
				      IBV_WC_RECV_RDMA_WITH_IMM);
	}
	return true;
}

static bool handle_read(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_job job = {
		.psn = msg->psn,
		.rkey = msg->reth.rkey,
		.raddr = msg->reth.raddr,
		.total_bytes = msg->reth.total_bytes,
	};
	bool on_demand;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
	    (job.total_bytes && !nupa_mr_remote(qp, job.rkey, job.raddr, job.total_bytes,
						IBV_ACCESS_REMOTE_READ, &on_demand)))
		return refuse_access(qp, msg, job.raddr, job.total_bytes, IBV_ACCESS_REMOTE_READ);
	return nupa_responder_add_job(qp, &job);
}

/* The access rights that a flush of this placement needs. */
static int flush_access(uint64_t placement)
{
	return (placement & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
	       (placement & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
}

/* All earlier data is in its place, since requests are executed in order.  The fence for other
 * processors and the check of the key remain. */
static bool handle_flush(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_job job = { .psn = msg->psn, .is_atomic = true, .is_bare = true };
	const struct nupa_mr *mr = nupa_mr_find(qp->engine, msg->atomic.rkey);
	int access = flush_access(msg->atomic.swap);
	bool whole = msg->atomic.swap >> 8 == IBV_FLUSH_MR;
	uint64_t raddr = whole && mr ? mr->iova : msg->atomic.raddr;
	bool on_demand;

	if (!access || ((int)qp->attr.qp_access_flags & access) != access ||
	    !nupa_mr_remote(qp, msg->atomic.rkey, raddr, whole ? 0 : msg->atomic.compare_add,
			    access, &on_demand))
		return refuse_access(qp, msg, raddr, whole ? 0 : msg->atomic.compare_add, access);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	nupa_responder_remember(qp, &job);
	return nupa_responder_add_job(qp, &job);
}

/* False: it is not there, and nothing is executed. */
static bool execute_atomic(const struct nupa_msg *msg, uint64_t *word, uint64_t *original)
{
	switch (msg->atomic.kind) {
	case NUPA_ATOMIC_CAS:
		*original = msg->atomic.compare_add;
		return nupa_guard_cas(word, original, msg->atomic.swap);
	case NUPA_ATOMIC_WRITE:
		__atomic_thread_fence(__ATOMIC_RELEASE);
		return nupa_copy(word, &msg->atomic.compare_add, sizeof(*word)) == NUPA_REACH_DONE;
	default:
		return nupa_guard_add(word, msg->atomic.compare_add, original);
	}
}

static bool handle_atomic(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_job job = { .psn = msg->psn,
				.is_atomic = true,
				.is_bare = msg->atomic.kind == NUPA_ATOMIC_WRITE };
	int access = msg->atomic.kind == NUPA_ATOMIC_WRITE ? IBV_ACCESS_REMOTE_WRITE
							   : IBV_ACCESS_REMOTE_ATOMIC;
	uint64_t *word;
	bool on_demand = false;

	if (msg->atomic.raddr & 7) {
		nupa_hint("QP %u refuses an atomic of QP %u at 0x%" PRIx64 ", as its address is "
			  "not a multiple of 8 (IBV_WC_REM_INV_REQ_ERR there)",
			  qp->ibv.qp_num, qp->dest_qpn, msg->atomic.raddr);
		nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	word = (uint64_t *)(void *)nupa_mr_remote(qp, msg->atomic.rkey, msg->atomic.raddr, 8,
						  access, &on_demand);
	if (!word || (uintptr_t)word & 7 || !((int)qp->attr.qp_access_flags & access))
		return refuse_access(qp, msg, msg->atomic.raddr, 8, access);
	if ((on_demand && !nupa_memory_present(word, sizeof(*word), true)) ||
	    !execute_atomic(msg, word, &job.raddr)) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_REMOTE_OPERATION);
		return false;
	}
	nupa_responder_remember(qp, &job);
	return nupa_responder_add_job(qp, &job);
}

/* --- dispatch ------------------------------------------------------------------------ */

/* IBTA 9.7.4.1.2: is this the request whose turn it is? */
static bool check_psn(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	int32_t ahead = nupa_psn_diff(msg->psn, qp->expected_psn);
	struct nupa_hw_counters *hw = qp->engine->hw;

	if (qp->type ==
	    IBV_QPT_UC) { /* 9.8.2.2: a message starts anew, a gap drops the rest of it */
		if (unlikely(ahead < 0 && qp->uc_met && qp->channel->suspect)) {
			nupa_count(&hw->duplicate_request, 1); /* or it comes too late */
			return false;
		}
		qp->uc_met = true;
		if (msg->flags & NUPA_F_FIRST) {
			qp->drop_message = false;
			qp->recv_kept |= qp->recv_active;
			qp->recv_active = false;
		} else if (ahead) {
			nupa_count(&hw->rx_out_of_sequence, !qp->drop_message);
			qp->drop_message = true;
		}
		qp->expected_psn = msg->psn;
		return !qp->drop_message;
	}
	if (likely(ahead == 0)) {
		if (unlikely(qp->nak_sent)) /* one that is still owed has no meaning any more */
			qp->nak_sent = qp->nak_pending = false;
		return true;
	}
	if (ahead < 0) {
		nupa_count(&hw->duplicate_request, 1);
		if (msg->op == NUPA_OP_READ || msg->op == NUPA_OP_ATOMIC)
			nupa_responder_answer_again(qp, msg);
		else
			nupa_responder_ack(qp); /* it was executed before */
		return false;
	}
	/* Requests behind one that found no receive are not out of sequence. */
	nupa_count(&hw->rx_out_of_sequence, !qp->nak_sent || qp->nak_syndrome != NUPA_NAK_RNR);
	if (!qp->nak_sent)
		nupa_responder_nak(qp, NUPA_NAK_PSN);
	return false;
}

/* I5: the parts of a message belong together. */
static bool well_formed(const struct nupa_qp *qp, const struct nupa_msg *msg,
			const uint8_t *payload)
{
	if (msg->op == NUPA_OP_SEND) {
		bool first = (msg->flags & NUPA_F_FIRST) != 0;

		if (qp->recv_active == first ||
		    (msg->flags & NUPA_F_PULL && qp->type != IBV_QPT_RC))
			return false;
		return payload || msg->length_bytes <= NUPA_SEND_INLINE_BYTES;
	}
	return !qp->recv_active;
}

/* False: it was refused, or dropped. */
static bool execute(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload)
{
	if (msg->op == NUPA_OP_SEND)
		return nupa_receive_send(qp, msg, payload);
	if (msg->op == NUPA_OP_WRITE)
		return handle_write(qp, msg, payload);
	if (unlikely(qp->type != IBV_QPT_RC)) {
		nupa_count(&qp->engine->hw->rx_invalid, 1);
		return false;
	}
	if (!nupa_responder_may_answer(qp))
		return refuse(qp, msg, NUPA_NAK_REMOTE_OPERATION);
	if (msg->op == NUPA_OP_READ)
		return handle_read(qp, msg);
	return msg->atomic.kind == NUPA_ATOMIC_FLUSH ? handle_flush(qp, msg)
						     : handle_atomic(qp, msg);
}

#define ANSWERED_MAX 0x7fffffu /* half of all PSNs: an older one is none to a requester */

/* How many PSNs an executed request takes: by a wire a READ has those of its response. */
static uint32_t psns_of(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	uint32_t psns = 1;

	if (likely(!qp->channel || !qp->channel->wired))
		return psns;
	qp->msn += (msg->flags & NUPA_F_LAST) != 0;
	if (msg->op == NUPA_OP_READ)
		psns = nupa_packets(msg->reth.total_bytes, nupa_qp_mtu_bytes(qp));
	if (msg->op != NUPA_OP_READ && msg->op != NUPA_OP_ATOMIC)
		qp->answered_psns = 0;
	else if (psns < ANSWERED_MAX - qp->answered_psns)
		qp->answered_psns += psns;
	else
		qp->answered_psns = ANSWERED_MAX;
	return psns;
}

bool nupa_responder_take(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload)
{
	bool done = false;

	if (unlikely(!qp->comm_est)) {
		qp->comm_est = true;
		if (qp->state == IBV_QPS_RTR)
			nupa_event_raise_qp(qp, IBV_EVENT_COMM_EST);
	}
	if (unlikely(qp->xrc))
		nupa_xrc_resync(qp, msg);
	if (!check_psn(qp, msg))
		return false;
	if (unlikely(!well_formed(qp, msg, payload)))
		return refuse(qp, msg, NUPA_NAK_INVALID_REQUEST);
	if (unlikely(qp->engine->poisoned))
		return refuse(qp, msg, NUPA_NAK_REMOTE_OPERATION);
	if (unlikely(qp->xrc) && !nupa_xrc_bind(qp, msg))
		return false;
	done = execute(qp, msg, payload);
	if (qp->type == IBV_QPT_RC) {
		if (done) {
			qp->steady_rx = !qp->xrc && qp->channel && !qp->channel->faulty &&
					(qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS);
			qp->expected_psn = nupa_psn_add(qp->expected_psn, psns_of(qp, msg));
			if (msg->op == NUPA_OP_READ || msg->op == NUPA_OP_ATOMIC)
				nupa_responder_run_jobs(qp);
			else
				nupa_responder_ack(qp);
		}
		return done;
	}
	qp->expected_psn = nupa_psn_add(msg->psn, 1);
	return done;
}

/* The first request of a QP, or the first one since a P_Key has changed. */
static bool meets(struct nupa_qp *qp, struct nupa_channel *channel, const struct nupa_msg *msg,
		  uint32_t incarnation)
{
	struct nupa_engine *engine = qp->engine;

	switch (nupa_responder_meet_incarnation(qp, channel, incarnation)) {
	case NUPA_MET:
		return true;
	case NUPA_MET_STALE: /* sent before a reset: not awaited */
		nupa_count(&engine->hw->rx_invalid, 1);
		return false;
	case NUPA_MET_STRANGER: /* IBTA 9.6.1.1.1: silence, as where there is no QP */
		nupa_count(&engine->hw->pkey_violations, 1);
		nupa_responder_refuse(engine, channel, msg, incarnation);
		return false;
	}
	return false;
}

void nupa_responder_request(struct nupa_engine *engine, struct nupa_channel *channel,
			    struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);
	uint32_t incarnation = nupa_psn_incarnation(msg->psn);

	if (qp && qp->type == IBV_QPT_UD) {
		if (msg->op == NUPA_OP_SEND)
			nupa_receive_datagram(qp, channel, msg, payload);
		else
			nupa_count(&engine->hw->rx_invalid, 1);
		return;
	}
	if (unlikely(!qp))
		qp = nupa_xrc_shadow(engine, channel, msg);
	msg->psn = nupa_psn_add(msg->psn, 0);
	/* Only the QP that ours is connected to, and that from its own process (I5). */
	if (unlikely(!qp || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE ||
		     qp->dest_qpn != msg->src_qpn ||
		     nupa_qpn_slot(&engine->fabric->geometry, msg->src_qpn) != channel->peer)) {
		nupa_count(&engine->hw->rx_invalid, 1);
		nupa_responder_refuse(engine, channel, msg, incarnation);
		return;
	}
	if (unlikely(incarnation != qp->peer_incarnation) && !meets(qp, channel, msg, incarnation))
		return;
	if (unlikely(qp->channel != channel)) {
		if (qp->channel && !qp->channel->broken) {
			nupa_count(&engine->hw->rx_invalid, 1);
			return;
		}
		qp->channel = channel;
	}
	if (unlikely(qp->type == IBV_QPT_UC) && nupa_backlog_take(qp, channel, msg, payload, NULL))
		return;
	nupa_responder_take(qp, msg, payload);
}

/* --- messages of a backlog ---------------------------------------------------------- */

static void deliver(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload,
		    const uint8_t *grh)
{
	if (qp->type == IBV_QPT_UD)
		nupa_receive_deliver(qp, msg, payload, grh, NULL);
	else
		nupa_responder_take(qp, msg, payload);
}

void nupa_backlog_run(struct nupa_engine *engine, const struct nupa_cq *polled)
{
	uint32_t n = 0;

	for (struct nupa_list *at = engine->backlogs.next; at != &engine->backlogs; at = at->next)
		n++;
	/* Each goes to the end first: a QP that fails may take any other off the list. */
	while (n-- && !nupa_list_empty(&engine->backlogs)) {
		struct nupa_list *link = nupa_list_pop(&engine->backlogs);

		nupa_list_add(&engine->backlogs, link);
		nupa_backlog_offer(container_of(link, struct nupa_qp, backlog.link), polled,
				   deliver);
	}
}
