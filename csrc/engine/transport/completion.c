/* SPDX-License-Identifier: BSD-3-Clause
 * Completions of a QP: of what is done, of what fails, and of all that is flushed in the error
 * state.  A CQ that overflows ends the QP, which flushes both of its queues into such CQs. */
#include "engine/transport/sq.h"

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
	[NUPA_WR_FAST_REG] = NUPA_WC_FAST_REG,
};

/* --- send queue ---------------------------------------------------------------------- */

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

void nupa_fault_unstick(struct nupa_qp *qp)
{
	qp->stuck = false;
	nupa_list_del(&qp->faults->stuck_link);
	nupa_sq_complete_done(qp);
}

static void complete_failed(struct nupa_qp *qp, const struct nupa_wqe *wqe,
			    enum ibv_wc_status status)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->send_cq, qp);

	nupa_count(&qp->engine->hw->retry_exceeded_err, status == IBV_WC_RETRY_EXC_ERR);
	nupa_count(&qp->engine->hw->retry_rnr_exceeded_err, status == IBV_WC_RNR_RETRY_EXC_ERR);
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

void nupa_requester_flush(struct nupa_qp *qp)
{
	if (unlikely(qp->stuck))
		nupa_fault_unstick(qp); /* done requests are done */
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

/* --- receive queue ------------------------------------------------------------------- */

static void flush_receive(struct nupa_qp *qp, uint64_t wr_id)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->recv_cq, qp);

	if (!cqe)
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wr_id,
		.qp = qp,
		.status = IBV_WC_WR_FLUSH_ERR,
		.opcode = IBV_WC_RECV,
		.qp_num = qp->ibv.qp_num,
	};
	nupa_cq_commit(qp->recv_cq, true);
}

void nupa_qp_flush_rq(struct nupa_qp *qp)
{
	struct nupa_rwqe *rwqe;

	if (qp->recv_active || qp->recv_kept) {
		qp->recv_active = qp->recv_kept = false;
		flush_receive(qp, qp->recv_wqe->wr_id);
	}
	while (!qp->srq && (rwqe = nupa_rq_peek(&qp->rq))) {
		qp->rq.head++;
		flush_receive(qp, rwqe->wr_id);
	}
	if (qp->srq && !qp->xrc && !qp->last_wqe_event) {
		qp->last_wqe_event = true;
		nupa_event_raise_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

/* --- errors -------------------------------------------------------------------------- */

void nupa_qp_error(struct nupa_qp *qp)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	nupa_qp_set_state(qp, IBV_QPS_ERR);
	nupa_backlog_drop(qp);
	nupa_requester_flush(qp);
	nupa_qp_flush_rq(qp);
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

void nupa_cq_overrun(struct nupa_cq *cq, struct nupa_qp *qp)
{
	struct ibv_async_event event = { .element.cq = &cq->ibv, .event_type = IBV_EVENT_CQ_ERR };

	if (!cq->overrun) {
		cq->overrun = true;
		nupa_event_raise(container_of(cq->ibv.context, struct nupa_context, ibv.context),
				 &event);
	}
	/* IBTA 10.10.2.4: the QP can no longer report, so it ends. */
	if (qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET) {
		nupa_qp_error(qp);
		nupa_event_raise_qp(qp, IBV_EVENT_QP_FATAL);
	}
}
