/* SPDX-License-Identifier: BSD-3-Clause
 * The responder executes the requests to our QPs, in order, and answers them.  It alone refuses
 * requests; a requester that acts by itself (mover.c) only does what this file would.
 *
 * While responses of a READ are on their way its requester sends nothing behind it that could
 * change the memory being read (requester.c), so requests never overtake each other here. */
#include "engine/transport/responder.h"

#include "engine/channel/apart.h"
#include "engine/transport/backlog.h"

/* --- one-sided requests -------------------------------------------------------------- */

/* With the last byte last; false: memory is not there. */
static bool copy(void *to, const void *from, size_t bytes, bool on_demand)
{
	if (unlikely(on_demand))
		return nupa_memory_copy(to, from, bytes);
	return nupa_copy_in_order(to, from, bytes) == NUPA_REACH_DONE;
}

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
		return refuse(qp, msg, NUPA_NAK_REMOTE_ACCESS);
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
	if (msg->length_bytes &&
	    !copy(target, payload ? payload : msg->write_data, msg->length_bytes, on_demand))
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

static bool add_job(struct nupa_qp *qp, const struct nupa_job *job)
{
	if (qp->jobs_tail - qp->jobs_head == NUPA_RD_ATOMIC_MAX) {
		if (!nupa_responder_job(qp, qp->jobs_head)->again) {
			nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
			return false;
		}
		qp->jobs_head++; /* a requester that asks for more has that answer */
	}
	*nupa_responder_job(qp, qp->jobs_tail++) = *job;
	if (nupa_list_empty(&qp->job_link))
		nupa_list_add(&qp->engine->reading, &qp->job_link);
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
						IBV_ACCESS_REMOTE_READ, &on_demand))) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_REMOTE_ACCESS);
		return false;
	}
	return add_job(qp, &job);
}

/* The access rights that a flush of this placement needs. */
static int flush_access(uint64_t placement)
{
	return (placement & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
	       (placement & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT : 0);
}

/* All that came before is in its place, since requests are executed in order: what is left is to
 * say so to other processors, and to check the key. */
static bool handle_flush(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_job job = { .psn = msg->psn, .is_atomic = true };
	const struct nupa_mr *mr = nupa_mr_find(qp->engine, msg->atomic.rkey);
	int access = flush_access(msg->atomic.swap);
	bool whole = msg->atomic.swap >> 8 == IBV_FLUSH_MR;
	uint64_t raddr = whole && mr ? mr->iova : msg->atomic.raddr;
	bool on_demand;

	if (!access || ((int)qp->attr.qp_access_flags & access) != access ||
	    !nupa_mr_remote(qp, msg->atomic.rkey, raddr, whole ? 0 : msg->atomic.compare_add,
			    access, &on_demand)) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_REMOTE_ACCESS);
		return false;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	nupa_responder_remember(qp, &job);
	return add_job(qp, &job);
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
	struct nupa_job job = { .psn = msg->psn, .is_atomic = true };
	int access = msg->atomic.kind == NUPA_ATOMIC_WRITE ? IBV_ACCESS_REMOTE_WRITE
							   : IBV_ACCESS_REMOTE_ATOMIC;
	uint64_t *word;
	bool on_demand = false;

	if (msg->atomic.raddr & 7) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	word = (uint64_t *)(void *)nupa_mr_remote(qp, msg->atomic.rkey, msg->atomic.raddr, 8,
						  access, &on_demand);
	if (!word || (uintptr_t)word & 7 || !((int)qp->attr.qp_access_flags & access)) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_REMOTE_ACCESS);
		return false;
	}
	if ((on_demand && !nupa_memory_present(word, sizeof(*word), true)) ||
	    !execute_atomic(msg, word, &job.raddr)) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_REMOTE_OPERATION);
		return false;
	}
	nupa_responder_remember(qp, &job);
	return add_job(qp, &job);
}

/* The oldest cannot be answered, so none behind it is. */
static void drop_jobs(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	qp->expected_psn = nupa_responder_job(qp, qp->jobs_head)->psn;
	qp->jobs_head = qp->jobs_tail;
	nupa_list_del(&qp->job_link);
	nupa_responder_nak_fatal(qp, syndrome);
}

/* The region is gone.  The answer is a repeated one, which the requester most likely does not
 * need. */
static bool drop_again(struct nupa_qp *qp, const struct nupa_job *job)
{
	if (!job->again)
		return false;
	qp->jobs_head++;
	return true;
}

/* Sends responses as far as the channel has room. */
void nupa_responder_run_jobs(struct nupa_qp *qp)
{
	if (!qp->channel || qp->channel->broken)
		qp->jobs_head = qp->jobs_tail; /* no requester waits */
	while (qp->jobs_head != qp->jobs_tail) {
		struct nupa_job *job = nupa_responder_job(qp, qp->jobs_head);
		struct nupa_channel *channel = qp->channel;
		uint32_t left = job->total_bytes - job->sent_bytes;
		uint32_t chunk_max = nupa_part_bytes(qp);
		uint32_t chunk = left < chunk_max ? left : chunk_max;
		struct nupa_msg *msg;
		uint8_t *payload = NULL, *source = NULL;
		bool on_demand = false;

		/* Looked up for each part: the region may go away in between. */
		if (chunk &&
		    !(source = nupa_mr_remote(qp, job->rkey, job->raddr + job->sent_bytes, chunk,
					      IBV_ACCESS_REMOTE_READ, &on_demand))) {
			if (drop_again(qp, job))
				continue;
			drop_jobs(qp, NUPA_NAK_REMOTE_ACCESS);
			return;
		}
		if (unlikely(chunk && !channel->dma_backed) &&
		    nupa_channel_back_dma(qp->engine, channel)) {
			drop_jobs(qp, NUPA_NAK_REMOTE_OPERATION);
			return;
		}
		msg = nupa_responder_reserve(qp->engine, channel, chunk, &payload);
		if (!msg)
			return;
		msg->op = job->is_atomic ? NUPA_OP_ATOMIC_RESP : NUPA_OP_READ_RESP;
		msg->flags = chunk ? NUPA_F_DMA : 0;
		msg->dest_qpn = qp->dest_qpn;
		msg->src_qpn = qp->ibv.qp_num;
		msg->psn = nupa_psn_of(qp->peer_incarnation, job->psn);
		msg->length_bytes = chunk;
		msg->original = job->raddr;
		msg->total_bytes = job->total_bytes;
		msg->offset_bytes = job->sent_bytes;
		if (chunk && !copy(payload, source, chunk, on_demand)) {
			if (drop_again(qp, job))
				continue;
			drop_jobs(qp, NUPA_NAK_REMOTE_OPERATION);
			return;
		}
		nupa_channel_publish(channel, msg, chunk);
		job->sent_bytes += chunk;
		if (job->sent_bytes == job->total_bytes)
			qp->jobs_head++;
	}
	nupa_list_del(&qp->job_link);
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

/* The partner as its process publishes it; NULL: it does not. */
static const struct nupa_qp_entry *partner_of(const struct nupa_qp *qp,
					      const struct nupa_channel *channel)
{
	uint32_t index = qp->dest_qpn & (NUPA_QP_MAX - 1);

	nupa_channel_fetch_slot(channel);
	/* I5: an index from outside. */
	if (index >= qp->engine->fabric->geometry.qp_entries ||
	    index >= nupa_load_acquire(&channel->peer_slot->qp_limit))
		return NULL;
	nupa_channel_fetch_qp(channel, &channel->peer_qps[index]);
	return &channel->peer_qps[index];
}

/* Whether the requester is in this incarnation now: then it is the one that we answer. */
static bool meet_incarnation(struct nupa_qp *qp, const struct nupa_channel *channel,
			     uint32_t incarnation)
{
	const struct nupa_qp_entry *partner = partner_of(qp, channel);

	if (!partner ||
	    (nupa_load_relaxed(&partner->type) == IBV_QPT_XRC_SEND) !=
		(qp->xrc == NUPA_XRC_TARGET) ||
	    nupa_load_relaxed(&partner->incarnation) != incarnation)
		return false;
	if (qp->peer_incarnation != NUPA_PEER_UNKNOWN) { /* what the one before asked for is void */
		qp->nak_sent = qp->ack_pending = qp->nak_pending = false;
		qp->jobs_head = qp->jobs_tail;
		qp->n_answers = 0;
		nupa_list_del(&qp->ack_link);
		nupa_list_del(&qp->job_link);
	}
	if (qp->xrc == NUPA_XRC_TARGET)
		qp->xrc_part->is_new = true;
	qp->peer_incarnation = incarnation;
	return true;
}

bool nupa_responder_awaited(const struct nupa_qp *qp)
{
	const struct nupa_qp_entry *partner = partner_of(qp, qp->channel);

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return partner && nupa_load_relaxed(&partner->qpn) == qp->dest_qpn &&
	       nupa_load_relaxed(&partner->incarnation) == qp->peer_incarnation &&
	       nupa_load_relaxed(&partner->state) != IBV_QPS_ERR;
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

void nupa_responder_meet(struct nupa_qp *qp)
{
	const struct nupa_channel *channel = qp->channel;
	const struct nupa_qp_entry *partner;

	if (qp->peer_incarnation != NUPA_PEER_UNKNOWN || !channel || channel->broken)
		return;
	partner = partner_of(qp, channel);
	if (partner)
		meet_incarnation(qp, channel, nupa_load_relaxed(&partner->incarnation) & 0xff);
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
			qp->expected_psn = nupa_psn_add(qp->expected_psn, 1);
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
		     msg->src_qpn >> NUPA_QP_INDEX_BITS != channel->peer)) {
		nupa_count(&engine->hw->rx_invalid, 1);
		nupa_responder_refuse(engine, channel, msg, incarnation);
		return;
	}
	if (unlikely(incarnation != qp->peer_incarnation) &&
	    !meet_incarnation(qp, channel, incarnation)) {
		nupa_count(&engine->hw->rx_invalid, 1);
		return; /* sent before a reset: not awaited */
	}
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
