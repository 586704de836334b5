/* SPDX-License-Identifier: BSD-3-Clause
 * Send queues: how their requests complete, fail, and wait for what they need. */
#include "engine/transport/sq.h"

/* How soon a peer QP that was not ready is asked again: doubled each time. */
#define PEER_RETRY_MIN_NS 20000u
#define PEER_RETRY_MAX_NS 2000000u

/* How often a peer that has not opened its direction is asked again, and for how long at least. */
#define CONTACT_RETRY_NS 1000000u
#define CONTACT_MIN_NS UINT64_C(500000000)

const uint8_t nupa_wc_opcode_of[32] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
	[IBV_WR_FLUSH] = IBV_WC_FLUSH,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
};

/* --- completion ---------------------------------------------------------------------- */

static void complete_failed(struct nupa_qp *qp, const struct nupa_wqe *wqe,
			    enum ibv_wc_status status)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->send_cq, qp);

	if (!cqe)
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wqe->wr_id,
		.qp = qp,
		.status = (uint8_t)status,
		.opcode = nupa_wc_opcode_of[wqe->opcode],
		.byte_len = wqe->length_bytes,
		.qp_num = qp->ibv.qp_num,
	};
	nupa_cq_commit(qp->send_cq, true);
}

/* Completes what is done, from the oldest on (I3). */
void nupa_sq_complete_done(struct nupa_qp *qp)
{
	if (unlikely(qp->stuck))
		return;
	while (qp->sq.acked != qp->sq.issued) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, qp->sq.acked);

		if (wqe->state != NUPA_WQE_DONE)
			break;
		qp->sq.acked++;
		if (wqe->flags & IBV_SEND_SIGNALED)
			nupa_sq_complete(qp, wqe->wr_id, wqe->opcode, wqe->length_bytes);
	}
	if (unlikely(qp->state == IBV_QPS_SQD && qp->sqd_notify && nupa_sq_drained(&qp->sq))) {
		qp->sqd_notify = false;
		nupa_event_raise_qp(qp, IBV_EVENT_SQ_DRAINED);
	}
}

void nupa_requester_flush(struct nupa_qp *qp)
{
	if (unlikely(qp->stuck))
		nupa_fault_unstick(qp); /* what is done is done */
	nupa_retry_stop(qp);
	while (qp->sq.acked != qp->sq.posted) {
		struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, qp->sq.acked++);

		/* As on hardware, where the first request after the death finds out. */
		complete_failed(qp, wqe,
				qp->partner_lost ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
		qp->partner_lost = false;
	}
	qp->sq.issued = qp->sq.posted;
	qp->reads_outstanding = 0;
	nupa_requester_stop_waiting(qp);
}

/* The oldest request fails.  RC: the QP is in error; UC and UD: only its send queue (IBTA 10.3.1).
 */
void nupa_requester_fail(struct nupa_qp *qp, enum ibv_wc_status status)
{
	if (unlikely(qp->stuck))
		nupa_fault_unstick(qp);
	if (qp->sq.acked == qp->sq.posted)
		return;
	if (status == IBV_WC_LOC_PROT_ERR && nupa_engine_disowned(qp->engine))
		status = IBV_WC_RETRY_EXC_ERR; /* no fault of the program's */
	complete_failed(qp, nupa_sq_wqe(&qp->sq, qp->sq.acked++), status);
	if (qp->type == IBV_QPT_RC) {
		nupa_qp_error(qp);
	} else {
		nupa_qp_set_state(qp, IBV_QPS_SQE);
		nupa_requester_flush(qp);
	}
}

/* --- waiting ------------------------------------------------------------------------- */

void nupa_requester_stop_waiting(struct nupa_qp *qp)
{
	qp->wait = NUPA_WAIT_NONE;
	qp->wait_deadline_ns = 0;
	qp->wait_until_ns = 0;
	nupa_list_del(&qp->wait_link);
}

bool nupa_sq_wait(struct nupa_qp *qp, enum nupa_wait why, uint64_t now_ns, uint64_t delay_ns)
{
	nupa_qp_unsettle(qp);
	if (qp->wait == NUPA_WAIT_NONE)
		nupa_list_add(&qp->engine->waiting, &qp->wait_link);
	if ((why == NUPA_WAIT_PEER || why == NUPA_WAIT_PATH) && !qp->wait_deadline_ns &&
	    qp->timeout_ns)
		qp->wait_deadline_ns = now_ns + qp->timeout_ns;
	qp->wait = why;
	qp->wait_until_ns = now_ns + delay_ns;
	/* A port thread that sleeps did so by the timers of before (under the lock: port_sleep). */
	if (unlikely(nupa_load_relaxed(qp->engine->bell)))
		nupa_port_wake(qp->engine);
	return false;
}

bool nupa_sq_wait_for_peer(struct nupa_qp *qp)
{
	uint64_t now_ns = qp->engine->now_ns();
	uint64_t started_ns = qp->wait_deadline_ns ? qp->wait_deadline_ns - qp->timeout_ns : now_ns;
	uint64_t delay_ns = now_ns - started_ns; /* so far: the next pause doubles it */

	if (delay_ns < PEER_RETRY_MIN_NS)
		delay_ns = PEER_RETRY_MIN_NS;
	if (delay_ns > PEER_RETRY_MAX_NS)
		delay_ns = PEER_RETRY_MAX_NS;
	return nupa_sq_wait(qp, NUPA_WAIT_PEER, now_ns, delay_ns);
}

/* Without its direction of the channel the peer cannot answer: its process has not looked yet, or
 * has no memory for it.  An adapter would have been there: short timeouts do not count. */
void nupa_sq_wait_for_contact(struct nupa_qp *qp)
{
	uint64_t now_ns = qp->engine->now_ns();

	if (!qp->wait_deadline_ns && qp->timeout_ns)
		qp->wait_deadline_ns =
		    now_ns + (qp->timeout_ns > CONTACT_MIN_NS ? qp->timeout_ns : CONTACT_MIN_NS);
	nupa_sq_wait(qp, NUPA_WAIT_CONTACT, now_ns, CONTACT_RETRY_NS);
}

/* True when the wait is over, by its event or by its deadline (then the QP has failed). */
bool nupa_sq_wait_over(struct nupa_qp *qp)
{
	uint64_t now_ns;

	if (qp->wait == NUPA_WAIT_RING) {
		/* A peer that was not ready before may still not be: its deadline stays. */
		qp->wait = NUPA_WAIT_NONE;
		nupa_list_del(&qp->wait_link);
		return true;
	}
	now_ns = qp->engine->now_ns();
	if (qp->wait_deadline_ns && now_ns >= qp->wait_deadline_ns) {
		if (qp->wait == NUPA_WAIT_PATH && qp->channel)
			qp->channel->flow->xmit_discards++;
		nupa_requester_stop_waiting(qp);
		/* Requests issued before have been acknowledged or never will be. */
		nupa_requester_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	if (qp->wait == NUPA_WAIT_PATH) {
		if (!nupa_channel_path_up(qp->engine, qp->channel))
			return false;
		nupa_requester_stop_waiting(qp);
		return true;
	}
	if (qp->wait == NUPA_WAIT_CONTACT && qp->channel->rx_open) {
		nupa_requester_stop_waiting(qp);
		return true;
	}
	if (now_ns < qp->wait_until_ns)
		return false;
	if (qp->wait == NUPA_WAIT_CONTACT) {
		nupa_channel_knock(qp->engine, qp->channel);
		nupa_sq_wait_for_contact(qp);
		return false;
	}
	/* RNR, PEER: asked again, and the deadline stays for the next wait, until something
	 * succeeds. */
	qp->wait = NUPA_WAIT_NONE;
	nupa_list_del(&qp->wait_link);
	return true;
}

/* Something of this QP got through: retry counters start anew (IBTA 9.7.5.1.4). */
void nupa_sq_made_progress(struct nupa_qp *qp)
{
	qp->rnr_left = qp->attr.rnr_retry;
	qp->psn_retries_left = qp->attr.retry_cnt;
	qp->steady_tx = qp->type == IBV_QPT_RC && !qp->xrc && qp->state == IBV_QPS_RTS &&
			qp->channel && qp->channel->rx_open && !qp->channel->broken &&
			!qp->channel->faulty;
	qp->went_back = false;
	if (unlikely(qp->retrying))
		nupa_retry_progress(qp);
	if (unlikely(qp->wait != NUPA_WAIT_NONE || qp->wait_deadline_ns))
		nupa_requester_stop_waiting(qp);
}

/* --- local memory -------------------------------------------------------------------- */

bool nupa_sq_local_spans(struct nupa_qp *qp, struct nupa_wqe *wqe, struct nupa_span *spans,
			 uint32_t *n_spans)
{
	int access = nupa_is_fetching_op(wqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (wqe->flags & IBV_SEND_INLINE) {
		spans[0] = (struct nupa_span){ wqe->inline_data, wqe->length_bytes };
		*n_spans = 1;
		return true;
	}
	return nupa_mr_resolve(qp->engine, qp->ibv.pd, wqe->sge, wqe->n_sge, access, spans,
			       n_spans) == IBV_WC_SUCCESS;
}

/* An error that is ours completes in its turn: when all before it has. */
bool nupa_sq_fail_in_turn(struct nupa_qp *qp, uint64_t index, enum ibv_wc_status status)
{
	if (qp->sq.acked == index)
		nupa_requester_fail(qp, status);
	return false;
}

void nupa_fault_unstick(struct nupa_qp *qp)
{
	qp->stuck = false;
	nupa_list_del(&qp->faults->stuck_link);
	nupa_sq_complete_done(qp);
}
