/* SPDX-License-Identifier: BSD-3-Clause
 * The responder: executes what other requesters ask of our QPs, in order, and answers.  It alone
 * decides what is refused; a requester that acts by itself (mover.c) only does what this file
 * would.
 *
 * While responses of a READ are on their way its requester sends nothing behind it that could
 * change the memory being read (requester.c), so requests never overtake each other here. */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>

/* --- answers ------------------------------------------------------------------------- */

static void answer_later(struct nupa_qp *qp)
{
	if (nupa_list_empty(&qp->ack_link))
		nupa_list_add(&qp->engine->ack_pending, &qp->ack_link);
}

static void ack(struct nupa_qp *qp)
{
	qp->ack_pending = true;
	answer_later(qp);
}

static void nak(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	qp->nak_sent = true;
	qp->nak_pending = true;
	qp->nak_syndrome = (uint8_t)syndrome;
	qp->recv_active = false;
	answer_later(qp);
}

/* An error that ends the connection: IBTA 9.7.5.2.4, responder class C. */
static void nak_fatal(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	nak(qp, syndrome);
	nupa_responder_send_ack(
	    qp); /* before the QP is flushed; if there is no room it stays pending */
	nupa_qp_error(qp);
	nupa_event_raise_qp(qp, syndrome == NUPA_NAK_REMOTE_ACCESS ? IBV_EVENT_QP_ACCESS_ERR
								   : IBV_EVENT_QP_REQ_ERR);
}

static struct nupa_msg *reserve(struct nupa_engine *engine, struct nupa_channel *channel,
				uint32_t dma_bytes, uint8_t **payload)
{
	if (unlikely(dma_bytes && !channel->dma_backed) && nupa_channel_back_dma(engine, channel))
		return NULL;
	return nupa_tx_reserve(&channel->tx, dma_bytes, payload);
}

static void publish(struct nupa_channel *channel, struct nupa_msg *msg, uint32_t dma_bytes)
{
	nupa_flow_xmit(channel, msg->length_bytes);
	nupa_tx_publish(&channel->tx, msg, dma_bytes);
	nupa_channel_bell(channel);
}

/* Sends what is owed; false: no room, still owed. */
bool nupa_responder_send_ack(struct nupa_qp *qp)
{
	struct nupa_msg *msg;

	if (!qp->channel || qp->channel->broken) {
		qp->ack_pending = qp->nak_pending = false;
		nupa_list_del(&qp->ack_link);
		return true;
	}
	if (qp->nak_pending && qp->jobs_head != qp->jobs_tail)
		return false; /* responses of earlier requests first */
	msg = reserve(qp->engine, qp->channel, 0, NULL);
	if (!msg)
		return false;
	msg->op = qp->nak_pending ? NUPA_OP_NAK : NUPA_OP_ACK;
	msg->flags = NUPA_F_ACK;
	msg->syndrome = qp->nak_syndrome;
	msg->timer = qp->attr.min_rnr_timer;
	msg->dest_qpn = qp->dest_qpn;
	msg->src_qpn = qp->ibv.qp_num;
	msg->psn = nupa_psn_of(qp->peer_incarnation, qp->expected_psn);
	msg->ack_psn = nupa_psn_of(qp->peer_incarnation, nupa_psn_add(qp->expected_psn, 0xffffff));
	msg->length_bytes = 0;
	publish(qp->channel, msg, 0);
	qp->ack_pending = qp->nak_pending = false;
	nupa_list_del(&qp->ack_link);
	return true;
}

/* A refusal says that all before it is answered: what a QP still owes goes first. */
static bool owes_nothing(struct nupa_engine *engine, const struct nupa_refusal *refusal)
{
	struct nupa_qp *qp = nupa_qp_find(engine, refusal->dest_qpn);

	if (!qp || qp->type == IBV_QPT_UD || qp->dest_qpn != refusal->src_qpn)
		return true;
	return qp->jobs_head == qp->jobs_tail &&
	       (nupa_list_empty(&qp->ack_link) || nupa_responder_send_ack(qp));
}

void nupa_responder_send_refusals(struct nupa_engine *engine, struct nupa_channel *channel)
{
	while (!nupa_list_empty(&channel->refusals)) {
		struct nupa_refusal *refusal =
		    container_of(channel->refusals.next, struct nupa_refusal, link);
		struct nupa_msg *msg =
		    owes_nothing(engine, refusal) ? reserve(engine, channel, 0, NULL) : NULL;

		if (!msg)
			return;
		msg->op = NUPA_OP_NAK;
		msg->flags = refusal->acknowledges ? NUPA_F_ACK : 0;
		msg->syndrome = NUPA_NAK_NOT_READY;
		msg->timer = 0;
		msg->dest_qpn = refusal->src_qpn;
		msg->src_qpn = refusal->dest_qpn;
		msg->psn = nupa_psn_of(refusal->incarnation, refusal->psn);
		msg->ack_psn = nupa_psn_of(refusal->incarnation, refusal->ack_psn);
		msg->length_bytes = 0;
		publish(channel, msg, 0);
		nupa_list_del(&refusal->link);
		free(refusal);
	}
}

static struct nupa_refusal *refusal_of(struct nupa_channel *channel, uint32_t src_qpn)
{
	struct nupa_refusal *refusal;

	for (struct nupa_list *at = channel->refusals.next; at != &channel->refusals;
	     at = at->next) {
		refusal = container_of(at, struct nupa_refusal, link);
		if (refusal->src_qpn == src_qpn)
			return refusal;
	}
	refusal = calloc(1, sizeof(*refusal));
	if (!refusal)
		abort(); /* a lost refusal would be a hung peer */
	refusal->src_qpn = src_qpn;
	nupa_list_add(&channel->refusals, &refusal->link);
	return refusal;
}

/* The first request refused is enough: those behind it come again with it. */
static void refuse(struct nupa_engine *engine, struct nupa_channel *channel,
		   const struct nupa_msg *msg, uint32_t incarnation)
{
	struct nupa_refusal *refusal;

	if (msg->src_qpn >> NUPA_QP_INDEX_BITS != channel->peer)
		return; /* I5: nobody who waits for an answer */
	refusal = refusal_of(channel, msg->src_qpn);
	/* New, or the requester has gone elsewhere? */
	if (refusal->dest_qpn != msg->dest_qpn || refusal->incarnation != incarnation) {
		refusal->dest_qpn = msg->dest_qpn;
		refusal->incarnation = incarnation;
		refusal->psn = msg->psn;
		refusal->acknowledges = false;
	}
	if (!refusal->acknowledges)
		refusal->ack_psn = msg->psn;
	nupa_responder_send_refusals(engine, channel);
}

/* Whoever waits for an answer that this QP will no longer give may ask again. */
static void refuse_what_is_owed(struct nupa_qp *qp)
{
	bool reading = qp->jobs_head != qp->jobs_tail;
	struct nupa_refusal *refusal;

	if (!qp->channel || qp->channel->broken || (nupa_list_empty(&qp->ack_link) && !reading))
		return;
	refusal = refusal_of(qp->channel, qp->dest_qpn);
	refusal->dest_qpn = qp->ibv.qp_num;
	refusal->incarnation = qp->peer_incarnation;
	refusal->psn =
	    reading ? qp->jobs[qp->jobs_head % NUPA_RD_ATOMIC_MAX].psn : qp->expected_psn;
	refusal->ack_psn = nupa_psn_add(refusal->psn, 0xffffff);
	refusal->acknowledges = true;
}

void nupa_responder_reset(struct nupa_qp *qp)
{
	refuse_what_is_owed(qp);
	qp->nak_sent = qp->ack_pending = qp->nak_pending = false;
	qp->recv_active = qp->recv_kept = qp->drop_message = false;
	qp->jobs_head = qp->jobs_tail = 0;
	nupa_list_del(&qp->ack_link);
	nupa_list_del(&qp->job_link);
	qp->peer_incarnation = NUPA_PEER_UNKNOWN;
}

/* --- receives ------------------------------------------------------------------------ */

static void took_receive(struct nupa_qp *qp)
{
	struct nupa_srq *srq = qp->srq;
	struct ibv_async_event event;

	if (!srq) {
		qp->rq.head++;
		return;
	}
	srq->rq.head++;
	if (srq->limit && srq->rq.tail - srq->rq.head < srq->limit) {
		srq->limit = 0;
		event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
		event.element.srq = &srq->ibv;
		nupa_event_raise(container_of(srq->ibv.context, struct nupa_context, ibv.context),
				 &event);
	}
}

static void complete_receive(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			     const struct nupa_msg *msg, uint64_t bytes, uint32_t opcode)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->recv_cq, qp);

	if (!cqe)
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wr_id,
		.qp = qp,
		.status = status,
		.opcode = opcode,
		.byte_len = (uint32_t)bytes,
		.qp_num = qp->ibv.qp_num,
		.src_qp = msg->src_qpn,
	};

	if (msg->flags & NUPA_F_IMM) {
		cqe->wc_flags |= IBV_WC_WITH_IMM;
		cqe->imm = msg->imm;
	}
	if (msg->flags & NUPA_F_INV && status == IBV_WC_SUCCESS) {
		cqe->wc_flags |= IBV_WC_WITH_INV;
		cqe->imm = msg->imm;
	}
	if (qp->type == IBV_QPT_UD) {
		if (msg->deth.is_global)
			cqe->wc_flags |= IBV_WC_GRH;
		cqe->slid = msg->deth.slid;
	}
	nupa_cq_commit(qp->recv_cq,
		       status != IBV_WC_SUCCESS || (msg->flags & NUPA_F_SOLICITED) != 0);
}

/* A receive came to a bad end on our side: RC tells the requester and ends. */
static void receive_failed(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			   const struct nupa_msg *msg)
{
	complete_receive(qp, wr_id, status, msg, 0, IBV_WC_RECV);
	if (qp->type == IBV_QPT_RC) {
		nak(qp, status == IBV_WC_LOC_LEN_ERR ? NUPA_NAK_INVALID_REQUEST
						     : NUPA_NAK_REMOTE_OPERATION);
		nupa_responder_send_ack(qp);
	}
	nupa_qp_error(qp);
}

static uint64_t spans_bytes(const struct nupa_span *spans, uint32_t n_spans)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n_spans; i++)
		bytes += spans[i].bytes;
	return bytes;
}

/* A SEND that the sender keeps and we fetch. */
static enum ibv_wc_status place_pulled(struct nupa_qp *qp, const struct nupa_span *spans,
				       uint32_t n_spans, const struct nupa_msg *msg,
				       const uint8_t *payload)
{
	struct nupa_pull pulls[NUPA_SGE_MAX];
	uint64_t pull_bytes = 0;
	uint32_t n_pulls;
	int error;

	if (!(msg->flags & NUPA_F_DMA) || msg->length_bytes % sizeof(pulls[0]) ||
	    msg->length_bytes > sizeof(pulls))
		return IBV_WC_REM_INV_REQ_ERR;
	memcpy(pulls, payload, msg->length_bytes);
	n_pulls = msg->length_bytes / (uint32_t)sizeof(pulls[0]);
	for (uint32_t i = 0; i < n_pulls; i++) {
		if (pulls[i].bytes == 0 || pulls[i].bytes > NUPA_MSG_MAX_BYTES)
			return IBV_WC_REM_INV_REQ_ERR;
		pull_bytes += pulls[i].bytes;
	}
	if (pull_bytes != msg->total_bytes)
		return IBV_WC_REM_INV_REQ_ERR;
	if (pull_bytes > spans_bytes(spans, n_spans))
		return IBV_WC_LOC_LEN_ERR;
	error = nupa_mover_pull(qp->channel, spans, n_spans, pulls, n_pulls, pull_bytes);
	if (error)
		return error == -ESRCH ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR;
	qp->recv_bytes += pull_bytes - msg->length_bytes; /* the caller adds length_bytes */
	return IBV_WC_SUCCESS;
}

/* Places one part of a SEND.  The caller has checked op, QP and PSN. */
static enum ibv_wc_status place(struct nupa_qp *qp, const struct nupa_rwqe *rwqe,
				const struct nupa_msg *msg, const uint8_t *payload)
{
	struct ibv_pd *pd = qp->srq ? qp->srq->ibv.pd : qp->ibv.pd;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint64_t room, offset = qp->recv_bytes;
	uint32_t n_spans;

	if (likely(
		rwqe->n_sge == 1 && !offset && msg->length_bytes <= NUPA_SEND_INLINE_BYTES &&
		!(msg->flags & NUPA_F_DMA))) { /* a line into a buffer: what most small sends are */
		uint8_t *va = nupa_mr_local(qp->engine, pd, rwqe->sge, IBV_ACCESS_LOCAL_WRITE);

		if (va && msg->length_bytes <= rwqe->sge[0].length) {
			nupa_copy_small(va, payload, msg->length_bytes);
			return IBV_WC_SUCCESS;
		}
	}
	if (nupa_mr_resolve(qp->engine, pd, rwqe->sge, rwqe->n_sge, IBV_ACCESS_LOCAL_WRITE, spans,
			    &n_spans) != IBV_WC_SUCCESS)
		return IBV_WC_LOC_PROT_ERR;
	if (msg->flags & NUPA_F_PULL)
		return place_pulled(qp, spans, n_spans, msg, payload);
	room = spans_bytes(spans, n_spans);
	if (msg->length_bytes > room - (offset < room ? offset : room))
		return IBV_WC_LOC_LEN_ERR;
	if (msg->length_bytes)
		nupa_spans_copy(spans, n_spans, offset, (void *)(uintptr_t)payload,
				msg->length_bytes, true);
	return IBV_WC_SUCCESS;
}

/* The receive for a message: taken now, kept over its parts.  NULL: there is none. */
static struct nupa_rwqe *receive_for(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	struct nupa_rwqe *rwqe;

	if (qp->recv_active)
		return qp->recv_wqe;
	qp->recv_bytes = 0;
	if (qp->recv_kept) {
		qp->recv_kept = false;
		qp->recv_active = !(msg->flags & NUPA_F_LAST);
		return qp->recv_wqe;
	}
	rwqe = nupa_rq_peek(rq);
	if (!rwqe)
		return NULL;
	if (!(msg->flags & NUPA_F_LAST)) {
		/* Others may take from the queue before our last part comes. */
		memcpy(qp->recv_wqe, rwqe, sizeof(*rwqe) + rwqe->n_sge * sizeof(rwqe->sge[0]));
		qp->recv_active = true;
		rwqe = qp->recv_wqe;
	}
	took_receive(qp);
	return rwqe;
}

static bool handle_send(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_rwqe *rwqe = receive_for(qp, msg);
	enum ibv_wc_status status;

	if (!rwqe) {
		if (qp->type == IBV_QPT_RC)
			nak(qp, NUPA_NAK_RNR);
		else
			qp->drop_message = !(msg->flags & NUPA_F_LAST);
		return false;
	}
	status = place(qp, rwqe, msg, payload ? payload : msg->data);
	qp->recv_bytes += msg->length_bytes;
	if (status == IBV_WC_SUCCESS && msg->flags & NUPA_F_INV && msg->flags & NUPA_F_LAST &&
	    nupa_mr_invalidate(qp, msg->imm))
		status = IBV_WC_REM_OP_ERR;
	if (unlikely(status != IBV_WC_SUCCESS)) {
		if (status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR) {
			/* The requester's fault: the receive is flushed with the queue. */
			complete_receive(qp, rwqe->wr_id, IBV_WC_WR_FLUSH_ERR, msg, 0, IBV_WC_RECV);
			nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		} else if (status == IBV_WC_RETRY_EXC_ERR) {
			/* It died while we fetched from it: nothing was received. */
			(qp->srq ? &qp->srq->rq : &qp->rq)->head--;
			nupa_requester_lose_peer(qp);
		} else {
			receive_failed(qp, rwqe->wr_id, status, msg);
		}
		return false;
	}
	if (msg->flags & NUPA_F_LAST) {
		complete_receive(qp, rwqe->wr_id, IBV_WC_SUCCESS, msg, qp->recv_bytes, IBV_WC_RECV);
		qp->recv_active = false;
	}
	return true;
}

/* --- one-sided requests -------------------------------------------------------------- */

static bool handle_write(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload)
{
	bool imm = (msg->flags & (NUPA_F_IMM | NUPA_F_LAST)) == (NUPA_F_IMM | NUPA_F_LAST);
	struct nupa_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	uint64_t bytes = msg->length_bytes;
	uint8_t *target = NULL;

	/* The first part answers for all: a message that is refused changes no byte. */
	if (msg->flags & NUPA_F_FIRST && bytes && msg->reth.total_bytes > bytes)
		bytes = msg->reth.total_bytes;
	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) ||
	    (bytes && !(target = nupa_mr_remote(qp, msg->reth.rkey, msg->reth.raddr, bytes,
						IBV_ACCESS_REMOTE_WRITE)))) {
		if (qp->type == IBV_QPT_RC)
			nak_fatal(qp, NUPA_NAK_REMOTE_ACCESS);
		return false;
	}
	if (imm && !nupa_rq_peek(rq)) {
		if (qp->type == IBV_QPT_RC)
			nak(qp, NUPA_NAK_RNR);
		return false;
	}
	if (!payload && msg->length_bytes > NUPA_WRITE_INLINE_BYTES) {
		nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	if (msg->length_bytes)
		memcpy(target, payload ? payload : msg->write_data, msg->length_bytes);
	if (imm) {
		uint64_t wr_id = nupa_rq_peek(rq)->wr_id;

		took_receive(qp);
		complete_receive(qp, wr_id, IBV_WC_SUCCESS, msg, msg->reth.total_bytes,
				 IBV_WC_RECV_RDMA_WITH_IMM);
	}
	return true;
}

static bool add_job(struct nupa_qp *qp, const struct nupa_job *job)
{
	if (qp->jobs_tail - qp->jobs_head == NUPA_RD_ATOMIC_MAX) {
		nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	qp->jobs[qp->jobs_tail++ % NUPA_RD_ATOMIC_MAX] = *job;
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

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
	    (job.total_bytes &&
	     !nupa_mr_remote(qp, job.rkey, job.raddr, job.total_bytes, IBV_ACCESS_REMOTE_READ))) {
		nak_fatal(qp, NUPA_NAK_REMOTE_ACCESS);
		return false;
	}
	return add_job(qp, &job);
}

static bool handle_atomic(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_job job = { .psn = msg->psn, .is_atomic = true };
	uint64_t *word;

	if (msg->atomic.raddr & 7) {
		nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	word = (uint64_t *)(void *)nupa_mr_remote(qp, msg->atomic.rkey, msg->atomic.raddr, 8,
						  IBV_ACCESS_REMOTE_ATOMIC);
	if (!word || (uintptr_t)word & 7 ||
	    !(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC)) {
		nak_fatal(qp, NUPA_NAK_REMOTE_ACCESS);
		return false;
	}
	if (msg->atomic.is_cas) {
		job.raddr = msg->atomic.compare_add;
		nupa_cas_seq(word, &job.raddr, msg->atomic.swap);
	} else {
		job.raddr = nupa_fetch_add_seq(word, msg->atomic.compare_add);
	}
	return add_job(qp, &job);
}

/* The oldest cannot be answered, so none behind it is. */
static void drop_jobs(struct nupa_qp *qp, enum nupa_nak syndrome)
{
	qp->expected_psn = qp->jobs[qp->jobs_head % NUPA_RD_ATOMIC_MAX].psn;
	qp->jobs_head = qp->jobs_tail;
	nupa_list_del(&qp->job_link);
	nak_fatal(qp, syndrome);
}

/* Sends responses as far as the channel has room. */
void nupa_responder_run_jobs(struct nupa_qp *qp)
{
	if (!qp->channel || qp->channel->broken)
		qp->jobs_head = qp->jobs_tail; /* nobody waits for them */
	while (qp->jobs_head != qp->jobs_tail) {
		struct nupa_job *job = &qp->jobs[qp->jobs_head % NUPA_RD_ATOMIC_MAX];
		struct nupa_channel *channel = qp->channel;
		uint32_t left = job->total_bytes - job->sent_bytes;
		uint32_t chunk_max = nupa_dma_payload_max(channel->tx.dma_bytes);
		uint32_t chunk = left < chunk_max ? left : chunk_max;
		struct nupa_msg *msg;
		uint8_t *payload = NULL, *source = NULL;

		/* Looked up for each part: the region may go away in between. */
		if (chunk && !(source = nupa_mr_remote(qp, job->rkey, job->raddr + job->sent_bytes,
						       chunk, IBV_ACCESS_REMOTE_READ))) {
			drop_jobs(qp, NUPA_NAK_REMOTE_ACCESS);
			return;
		}
		if (unlikely(chunk && !channel->dma_backed) &&
		    nupa_channel_back_dma(qp->engine, channel)) {
			drop_jobs(qp, NUPA_NAK_REMOTE_OPERATION);
			return;
		}
		msg = reserve(qp->engine, channel, chunk, &payload);
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
		if (chunk)
			memcpy(payload, source, chunk);
		publish(channel, msg, chunk);
		job->sent_bytes += chunk;
		if (job->sent_bytes == job->total_bytes)
			qp->jobs_head++;
	}
	nupa_list_del(&qp->job_link);
}

/* --- dispatch ------------------------------------------------------------------------ */

/* GRH as the receiver of a datagram finds it before the payload (man ibv_create_ah_from_wc).  RoCE
 * v2 over IPv4 puts the IPv4 header into its last 20 bytes; we give the IPv6 form with mapped
 * addresses, from which the AH is made just the same. */
static void fill_grh(struct nupa_qp *qp, const struct nupa_channel *channel,
		     const struct nupa_msg *msg, uint8_t grh[NUPA_GRH_BYTES])
{
	const struct nupa_fabric *fabric = qp->engine->fabric;
	uint32_t version_tclass_flow = UINT32_C(6) << 28 | (uint32_t)msg->deth.traffic_class << 20 |
				       (msg->deth.flow_label & 0xfffff);
	uint32_t length = msg->length_bytes;
	union ibv_gid sgid, dgid;

	nupa_host_gid(fabric, channel->peer_host, msg->deth.sgid_index, &sgid);
	nupa_host_gid(fabric, qp->engine->host, msg->deth.sgid_index, &dgid);
	for (int i = 0; i < 4; i++)
		grh[i] = (uint8_t)(version_tclass_flow >> (24 - 8 * i));
	grh[4] = (uint8_t)(length >> 8);
	grh[5] = (uint8_t)length;
	grh[6] = 0x1b; /* IBTA 8.3.3: next header is BTH */
	grh[7] = msg->deth.hop_limit;
	memcpy(grh + 8, sgid.raw, 16);
	memcpy(grh + 24, dgid.raw, 16);
}

static void handle_datagram(struct nupa_qp *qp, struct nupa_channel *channel,
			    const struct nupa_msg *msg, const uint8_t *payload)
{
	uint8_t grh[NUPA_GRH_BYTES] = { 0 };
	struct nupa_rwqe *rwqe;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;

	if (qp->state < IBV_QPS_RTR || msg->deth.qkey != qp->attr.qkey ||
	    msg->length_bytes > NUPA_MTU_BYTES ||
	    (!payload && msg->length_bytes > NUPA_UD_INLINE_BYTES) || !(msg->flags & NUPA_F_LAST))
		return; /* IBTA 9.6.1: silently dropped */
	rwqe = receive_for(qp, msg);
	if (!rwqe)
		return;
	if (nupa_mr_resolve(qp->engine, qp->srq ? qp->srq->ibv.pd : qp->ibv.pd, rwqe->sge,
			    rwqe->n_sge, IBV_ACCESS_LOCAL_WRITE, spans,
			    &n_spans) != IBV_WC_SUCCESS) {
		receive_failed(qp, rwqe->wr_id, IBV_WC_LOC_PROT_ERR, msg);
		return;
	}
	if (spans_bytes(spans, n_spans) < msg->length_bytes + NUPA_GRH_BYTES) {
		receive_failed(qp, rwqe->wr_id, IBV_WC_LOC_LEN_ERR, msg);
		return;
	}
	if (msg->deth.is_global)
		fill_grh(qp, channel, msg, grh);
	nupa_spans_copy(spans, n_spans, 0, grh, sizeof(grh), true);
	nupa_spans_copy(spans, n_spans, NUPA_GRH_BYTES,
			(void *)(uintptr_t)(payload ? payload : msg->ud_data), msg->length_bytes,
			true);
	complete_receive(qp, rwqe->wr_id, IBV_WC_SUCCESS, msg, msg->length_bytes + NUPA_GRH_BYTES,
			 IBV_WC_RECV);
}

/* IBTA 9.7.4.1.2: is this the request whose turn it is? */
static bool check_psn(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	int32_t ahead = nupa_psn_diff(msg->psn, qp->expected_psn);

	if (qp->type ==
	    IBV_QPT_UC) { /* 9.8.2.2: a message starts anew, a gap drops the rest of it */
		if (msg->flags & NUPA_F_FIRST) {
			qp->drop_message = false;
			qp->recv_kept |= qp->recv_active;
			qp->recv_active = false;
		} else if (ahead) {
			qp->drop_message = true;
		}
		qp->expected_psn = msg->psn;
		return !qp->drop_message;
	}
	if (likely(ahead == 0)) {
		qp->nak_sent = false;
		return true;
	}
	if (ahead < 0)
		ack(qp); /* a duplicate was executed before */
	else if (!qp->nak_sent)
		nak(qp, NUPA_NAK_PSN);
	return false;
}

/* I5: the parts of a message belong together. */
static bool well_formed(const struct nupa_qp *qp, const struct nupa_msg *msg,
			const uint8_t *payload)
{
	if (msg->op == NUPA_OP_SEND) {
		bool first = (msg->flags & NUPA_F_FIRST) != 0;

		if (qp->recv_active == first)
			return false;
		return payload || msg->length_bytes <= NUPA_SEND_INLINE_BYTES;
	}
	return !qp->recv_active;
}

/* Whether the requester is in this incarnation now: then it is the one that we answer. */
static bool meet_incarnation(struct nupa_qp *qp, const struct nupa_channel *channel,
			     uint32_t incarnation)
{
	uint32_t index = qp->dest_qpn & (NUPA_QP_MAX - 1);

	/* I5: an index from outside. */
	if (index >= qp->engine->fabric->geometry.qp_entries ||
	    index >= nupa_load_acquire(&channel->peer_slot->qp_limit) ||
	    nupa_load_relaxed(&channel->peer_qps[index].incarnation) != incarnation)
		return false;
	if (qp->peer_incarnation != NUPA_PEER_UNKNOWN) { /* what the one before asked for is void */
		qp->nak_sent = qp->ack_pending = qp->nak_pending = false;
		qp->jobs_head = qp->jobs_tail;
		nupa_list_del(&qp->ack_link);
		nupa_list_del(&qp->job_link);
	}
	qp->peer_incarnation = incarnation;
	return true;
}

void nupa_responder_request(struct nupa_engine *engine, struct nupa_channel *channel,
			    struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);
	uint32_t incarnation = nupa_psn_incarnation(msg->psn);
	bool done;

	if (qp && qp->type == IBV_QPT_UD) {
		if (msg->op == NUPA_OP_SEND)
			handle_datagram(qp, channel, msg, payload);
		return;
	}
	msg->psn = nupa_psn_add(msg->psn, 0);
	/* Only the QP that ours is connected to, and that from its own process (I5). */
	if (unlikely(!qp || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE ||
		     qp->dest_qpn != msg->src_qpn ||
		     msg->src_qpn >> NUPA_QP_INDEX_BITS != channel->peer)) {
		refuse(engine, channel, msg, incarnation);
		return;
	}
	if (unlikely(incarnation != qp->peer_incarnation) &&
	    !meet_incarnation(qp, channel, incarnation))
		return; /* sent before a reset: nobody waits for it */
	if (unlikely(qp->channel != channel)) {
		if (qp->channel && !qp->channel->broken)
			return;
		qp->channel = channel;
	}
	if (unlikely(!qp->comm_est)) {
		qp->comm_est = true;
		if (qp->state == IBV_QPS_RTR)
			nupa_event_raise_qp(qp, IBV_EVENT_COMM_EST);
	}
	if (!check_psn(qp, msg))
		goto pulled;
	if (unlikely(!well_formed(qp, msg, payload))) {
		if (qp->type == IBV_QPT_RC)
			nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return;
	}
	switch (msg->op) {
	case NUPA_OP_SEND:
		done = handle_send(qp, msg, payload);
		break;
	case NUPA_OP_WRITE:
		done = handle_write(qp, msg, payload);
		break;
	case NUPA_OP_READ:
		done = qp->type == IBV_QPT_RC && handle_read(qp, msg);
		break;
	default:
		done = qp->type == IBV_QPT_RC && handle_atomic(qp, msg);
		break;
	}
	if (qp->type == IBV_QPT_RC) {
		if (done) {
			qp->expected_psn = nupa_psn_add(qp->expected_psn, 1);
			if (msg->op == NUPA_OP_READ || msg->op == NUPA_OP_ATOMIC)
				nupa_responder_run_jobs(qp);
			else
				ack(qp);
		}
		return;
	}
	qp->expected_psn = nupa_psn_add(msg->psn, 1);
pulled:
	/* UC: the sender of a pulled message waits to hear that its buffer is free. */
	if (qp->type == IBV_QPT_UC && msg->flags & NUPA_F_PULL) {
		qp->expected_psn = nupa_psn_add(msg->psn, 1);
		ack(qp);
	}
}
