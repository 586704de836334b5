/* SPDX-License-Identifier: BSD-3-Clause
 * Receives: a message finds the next one of its queue, fills it and completes it. */
#include "base/hint.h"
#include "engine/transport/responder.h"
#include "segment/control/pkey.h"

#include <errno.h>
#include <inttypes.h>

void nupa_receive_taken(struct nupa_qp *qp)
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

void nupa_receive_complete(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			   const struct nupa_msg *msg, uint64_t bytes, uint32_t opcode)
{
	struct nupa_cqe *cqe = nupa_cq_reserve(qp->recv_cq, qp);

	if (!cqe)
		return;
	*cqe = (struct nupa_cqe){
		.wr_id = wr_id,
		.qp = qp->xrc ? NULL : qp, /* the SRQ's, which stay */
		.status = (uint8_t)status,
		.opcode = (uint8_t)opcode,
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
		cqe->pkey_index = qp->attr.pkey_index;
	}
	nupa_cq_commit(qp->recv_cq,
		       status != IBV_WC_SUCCESS || (msg->flags & NUPA_F_SOLICITED) != 0);
}

/* A receive came to a bad end on our side: RC tells the requester and ends. */
static void receive_failed(struct nupa_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
			   const struct nupa_msg *msg)
{
	nupa_receive_complete(qp, wr_id, status, msg, 0, IBV_WC_RECV);
	if (qp->type == IBV_QPT_RC) {
		nupa_responder_nak(qp, status == IBV_WC_LOC_LEN_ERR ? NUPA_NAK_INVALID_REQUEST
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

static enum ibv_wc_status too_short(const struct nupa_qp *qp, uint64_t room, uint64_t bytes)
{
	nupa_hint("QP %u has a receive of %" PRIu64 " bytes posted for a message of %" PRIu64
		  "%s (IBV_WC_LOC_LEN_ERR%s): post longer receives",
		  qp->ibv.qp_num, room, bytes,
		  qp->type == IBV_QPT_UD ? ", 40 of them for the GRH" : "",
		  qp->type == IBV_QPT_RC ? ", IBV_WC_REM_INV_REQ_ERR at its sender" : "");
	return IBV_WC_LOC_LEN_ERR;
}

/* A SEND that the sender keeps and we fetch. */
static enum ibv_wc_status place_pulled(struct nupa_qp *qp, const struct nupa_span *spans,
				       uint32_t n_spans, const struct nupa_msg *msg,
				       const uint8_t *payload)
{
	struct nupa_pull pulls[NUPA_SGE_MAX] = { msg->pull };
	uint64_t pull_bytes = 0;
	uint32_t n_pulls = 1;
	int error;

	if (msg->length_bytes % sizeof(pulls[0]) || msg->length_bytes > sizeof(pulls))
		return IBV_WC_REM_INV_REQ_ERR;
	if (msg->flags & NUPA_F_DMA) {
		memcpy(pulls, payload, msg->length_bytes);
		n_pulls = msg->length_bytes / (uint32_t)sizeof(pulls[0]);
	} else if (msg->length_bytes != sizeof(pulls[0])) {
		return IBV_WC_REM_INV_REQ_ERR;
	}
	for (uint32_t i = 0; i < n_pulls; i++) {
		if (pulls[i].bytes == 0 || pulls[i].bytes > NUPA_MSG_MAX_BYTES)
			return IBV_WC_REM_INV_REQ_ERR;
		pull_bytes += pulls[i].bytes;
	}
	if (pull_bytes != msg->total_bytes)
		return IBV_WC_REM_INV_REQ_ERR;
	if (pull_bytes > spans_bytes(spans, n_spans))
		return too_short(qp, spans_bytes(spans, n_spans), pull_bytes);
	error =
	    nupa_mover_pull(qp->engine, qp->channel, spans, n_spans, pulls, n_pulls, pull_bytes);
	if (unlikely(!nupa_responder_awaited(qp)))
		return IBV_WC_RETRY_EXC_ERR;
	if (error)
		return error == -ESRCH    ? IBV_WC_RETRY_EXC_ERR
		       : error == -EACCES ? IBV_WC_LOC_PROT_ERR
					  : IBV_WC_REM_OP_ERR;
	qp->recv_bytes += pull_bytes - msg->length_bytes; /* the caller adds length_bytes */
	return IBV_WC_SUCCESS;
}

/* Places one part of a SEND.  The caller has checked op, QP and PSN. */
static enum ibv_wc_status place_send(struct nupa_qp *qp, const struct nupa_rwqe *rwqe,
				     const struct nupa_msg *msg, const uint8_t *payload)
{
	struct ibv_pd *pd = qp->srq ? qp->srq->ibv.pd : qp->ibv.pd;
	struct nupa_span spans[NUPA_SGE_MAX];
	uint64_t room, offset = qp->recv_bytes;
	uint32_t n_spans;

	if (likely(rwqe->n_sge == 1 && !offset && msg->length_bytes <= NUPA_SEND_INLINE_BYTES &&
		   !(msg->flags &
		     (NUPA_F_DMA |
		      NUPA_F_PULL)))) { /* a line into a buffer: what most small sends are */
		uint8_t *va = nupa_mr_local(qp->engine, pd, rwqe->sge, IBV_ACCESS_LOCAL_WRITE);

		if (va && msg->length_bytes <= rwqe->sge[0].length &&
		    likely(nupa_guard_copy_small(va, payload, msg->length_bytes)))
			return IBV_WC_SUCCESS;
	}
	if (nupa_mr_resolve(qp->engine, pd, rwqe->sge, rwqe->n_sge, IBV_ACCESS_LOCAL_WRITE, spans,
			    &n_spans) != IBV_WC_SUCCESS)
		return IBV_WC_LOC_PROT_ERR;
	if (msg->flags & NUPA_F_PULL)
		return place_pulled(qp, spans, n_spans, msg, payload);
	room = spans_bytes(spans, n_spans);
	if (msg->length_bytes > room - (offset < room ? offset : room))
		return too_short(qp, room,
				 msg->flags & NUPA_F_DMA ? msg->total_bytes : msg->length_bytes);
	if (msg->length_bytes && nupa_spans_copy(spans, n_spans, offset, (void *)(uintptr_t)payload,
						 msg->length_bytes, true) != NUPA_REACH_DONE)
		return IBV_WC_LOC_PROT_ERR;
	if (msg->flags & NUPA_F_DMA && !nupa_channel_intact(qp->channel))
		return IBV_WC_RETRY_EXC_ERR;
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
	nupa_receive_taken(qp);
	return rwqe;
}

bool nupa_receive_send(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload)
{
	bool taken_before = qp->recv_active || qp->recv_kept;
	struct nupa_rwqe *rwqe = receive_for(qp, msg);
	enum ibv_wc_status status;

	if (!rwqe) {
		if (qp->type == IBV_QPT_RC) {
			nupa_responder_nak(qp, NUPA_NAK_RNR);
		} else {
			nupa_count(&qp->engine->hw->rx_no_receive, 1);
			qp->drop_message = !(msg->flags & NUPA_F_LAST);
		}
		return false;
	}
	status = place_send(qp, rwqe, msg, payload ? payload : msg->data);
	if (unlikely(status == IBV_WC_LOC_PROT_ERR && nupa_engine_disowned(qp->engine)))
		status = IBV_WC_RETRY_EXC_ERR;
	qp->recv_bytes += msg->length_bytes;
	if (status == IBV_WC_SUCCESS && msg->flags & NUPA_F_INV && msg->flags & NUPA_F_LAST &&
	    nupa_mr_invalidate(qp, msg->imm))
		status = IBV_WC_REM_OP_ERR;
	if (unlikely(status != IBV_WC_SUCCESS)) {
		if (status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR) {
			/* The requester's fault: the receive is flushed with the queue. */
			nupa_receive_complete(qp, rwqe->wr_id, IBV_WC_WR_FLUSH_ERR, msg, 0,
					      IBV_WC_RECV);
			nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		} else if (status == IBV_WC_RETRY_EXC_ERR) {
			/* It ended while we fetched from it, or for it we have: nothing came. */
			if (taken_before)
				qp->recv_kept = !qp->recv_active;
			else if (!qp->recv_active)
				(qp->srq ? &qp->srq->rq : &qp->rq)->head--;
			if (nupa_responder_awaited(qp))
				nupa_requester_lose_peer(qp);
		} else {
			receive_failed(qp, rwqe->wr_id, status, msg);
		}
		return false;
	}
	if (msg->flags & NUPA_F_LAST) {
		nupa_receive_complete(qp, rwqe->wr_id, IBV_WC_SUCCESS, msg, qp->recv_bytes,
				      IBV_WC_RECV);
		qp->recv_active = false;
	}
	return true;
}

/* As man ibv_create_ah_from_wc has it.  RoCE v2 over IPv4 puts the IPv4 header into its last 20
 * bytes.  We use the IPv6 form with mapped addresses, from which the same AH is made. */
void nupa_grh_fill(uint8_t grh[NUPA_GRH_BYTES], uint32_t class_flow, uint32_t bytes,
		   uint8_t hop_limit, const uint8_t sgid[16], const uint8_t dgid[16])
{
	const uint32_t word = UINT32_C(6) << 28 | class_flow;

	for (int i = 0; i < 4; i++)
		grh[i] = (uint8_t)(word >> (24 - 8 * i));
	grh[4] = (uint8_t)(bytes >> 8);
	grh[5] = (uint8_t)bytes;
	grh[6] = NUPA_GRH_NEXT_HEADER;
	grh[7] = hop_limit;
	memcpy(grh + 8, sgid, 16);
	memcpy(grh + 24, dgid, 16);
}

static void fill_grh(struct nupa_qp *qp, const struct nupa_channel *channel,
		     const struct nupa_msg *msg, uint8_t grh[NUPA_GRH_BYTES])
{
	const struct nupa_fabric *fabric = qp->engine->fabric;
	union ibv_gid sgid, dgid;

	nupa_host_gid(fabric, channel->peer_host, msg->deth.sgid_index, &sgid);
	if (msg->deth.is_global == NUPA_DETH_MULTICAST)
		memcpy(dgid.raw, msg->ud_data, sizeof(dgid.raw));
	else
		nupa_host_gid(fabric, qp->engine->host, msg->deth.sgid_index, &dgid);
	nupa_grh_fill(grh,
		      (uint32_t)msg->deth.traffic_class << 20 | (msg->deth.flow_label & 0xfffff),
		      msg->length_bytes, msg->deth.hop_limit, sgid.raw, dgid.raw);
}

/* Where a datagram is counted that is silently dropped (IBTA 9.6.1); NULL: it is taken. */
static uint64_t *dropped_as(const struct nupa_qp *qp, const struct nupa_msg *msg,
			    const uint8_t *payload)
{
	struct nupa_hw_counters *hw = qp->engine->hw;

	if (qp->state < IBV_QPS_RTR || msg->length_bytes > NUPA_MTU_BYTES ||
	    (!payload && msg->length_bytes > NUPA_UD_INLINE_BYTES) || !(msg->flags & NUPA_F_LAST))
		return &hw->rx_invalid;
	if (!nupa_pkeys_match(msg->deth.pkey, qp->pkey))
		return &hw->pkey_violations;
	if (msg->deth.qkey != qp->attr.qkey)
		return &hw->qkey_violations;
	if (unlikely(msg->deth.is_global == NUPA_DETH_MULTICAST) &&
	    (!nupa_mcast_attached(qp, msg->ud_data) || (!payload && msg->length_bytes)))
		return &hw->rx_invalid;
	return NULL;
}

bool nupa_receive_deliver(struct nupa_qp *qp, const struct nupa_msg *msg, const uint8_t *payload,
			  const uint8_t grh[NUPA_GRH_BYTES], struct nupa_channel *from)
{
	const struct nupa_rq_source *source = (qp->srq ? &qp->srq->rq : &qp->rq)->source;
	struct nupa_rwqe *rwqe = receive_for(qp, msg);
	struct nupa_span spans[NUPA_SGE_MAX];
	uint8_t header[NUPA_GRH_BYTES];
	uint32_t n_spans;

	if (!rwqe) {
		nupa_count(&qp->engine->hw->rx_no_receive, 1);
		return false;
	}
	if (unlikely(source)) {
		memcpy(header, grh, sizeof(header));
		source->translate(header);
		grh = header;
	}
	if (nupa_mr_resolve(qp->engine, qp->srq ? qp->srq->ibv.pd : qp->ibv.pd, rwqe->sge,
			    rwqe->n_sge, IBV_ACCESS_LOCAL_WRITE, spans,
			    &n_spans) != IBV_WC_SUCCESS) {
		receive_failed(qp, rwqe->wr_id, IBV_WC_LOC_PROT_ERR, msg);
		return false;
	}
	if (spans_bytes(spans, n_spans) < msg->length_bytes + NUPA_GRH_BYTES) {
		receive_failed(
		    qp, rwqe->wr_id,
		    too_short(qp, spans_bytes(spans, n_spans), msg->length_bytes + NUPA_GRH_BYTES),
		    msg);
		return false;
	}
	if (nupa_spans_copy(spans, n_spans, 0, (void *)(uintptr_t)grh, NUPA_GRH_BYTES, true) ||
	    nupa_spans_copy(spans, n_spans, NUPA_GRH_BYTES,
			    (void *)(uintptr_t)(payload ? payload : msg->ud_data),
			    msg->length_bytes, true)) {
		receive_failed(qp, rwqe->wr_id, IBV_WC_LOC_PROT_ERR, msg);
		return false;
	}
	if (payload && from && !nupa_channel_intact(from)) { /* lost, with its sender */
		(qp->srq ? &qp->srq->rq : &qp->rq)->head--;
		return false;
	}
	nupa_receive_complete(qp, rwqe->wr_id, IBV_WC_SUCCESS, msg,
			      msg->length_bytes + NUPA_GRH_BYTES, IBV_WC_RECV);
	return true;
}

void nupa_receive_datagram(struct nupa_qp *qp, struct nupa_channel *channel,
			   const struct nupa_msg *msg, const uint8_t *payload)
{
	uint64_t *dropped = dropped_as(qp, msg, payload);
	uint8_t grh[NUPA_GRH_BYTES] = { 0 };

	if (unlikely(msg->deth.is_global == NUPA_DETH_MULTICAST))
		nupa_count(&qp->engine->hw->multicast_rcv_packets,
			   channel->peer_host != qp->engine->host);
	if (unlikely(dropped)) {
		nupa_count(dropped, 1);
		return;
	}
	if (msg->deth.is_global)
		fill_grh(qp, channel, msg, grh);
	if (unlikely(nupa_backlog_take(qp, channel, msg, payload, grh)))
		return;
	nupa_receive_deliver(qp, msg, payload, grh, channel);
}
