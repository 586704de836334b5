/* SPDX-License-Identifier: BSD-3-Clause
 * Records of queue entries: work requests, doorbells, completions. */
#include "engine/trace/trace_internal.h"

static void put_wqe(struct nupa_qp *qp, uint64_t index, uint64_t now_ns)
{
	const struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, index);
	bool is_inline = wqe->flags & IBV_SEND_INLINE;
	bool ud = qp->type == IBV_QPT_UD, binds = wqe->opcode == IBV_WR_BIND_MW;
	uint32_t data_bytes =
	    is_inline ? wqe->length_bytes : wqe->n_sge * (uint32_t)sizeof(struct ibv_sge);
	struct nupa_trace_record *record =
	    nupa_trace_begin(qp->engine, NUPA_TRACE_WQE,
			     (uint32_t)sizeof(struct nupa_trace_wqe) + data_bytes, now_ns);
	struct nupa_trace_wqe *body = (struct nupa_trace_wqe *)(void *)(record + 1);

	*body = (struct nupa_trace_wqe){
		.qpn = qp->ibv.qp_num,
		.dest_qpn = ud ? wqe->dest_qpn : qp->dest_qpn,
		.dest_host = ud && wqe->ah_host != NUPA_AH_NONE ? wqe->ah_host : qp->dest_host,
		.index = (uint32_t)index,
		.opcode = wqe->opcode,
		.flags = wqe->flags,
		.n_sge = is_inline ? 0 : wqe->n_sge,
		.qp_type = qp->type,
		.length_bytes = wqe->length_bytes,
		.imm = wqe->imm,
		.rkey = ud ? 0 : wqe->rkey,
		.wr_id = wqe->wr_id,
		.raddr = ud ? 0 : wqe->raddr,
		.compare_add = ud ? 0 : wqe->compare_add,
		.swap = ud      ? 0
			: binds ? (uint64_t)wqe->bind_access << 32 | wqe->bind_lkey
				: wqe->swap,
		.qkey = ud ? wqe->qkey : 0,
		.srqn = qp->xrc ? wqe->dest_qpn : 0,
	};
	memcpy(body + 1, nupa_wqe_inline(wqe), data_bytes);
	record->data_bytes = data_bytes;
	record->transfer = NUPA_TRANSFER(qp->ibv.qp_num, index);
	nupa_trace_end(qp->engine);
}

static void put_doorbell(struct nupa_engine *engine, uint64_t now_ns,
			 const struct nupa_trace_doorbell *bell)
{
	struct nupa_trace_record *record =
	    nupa_trace_begin(engine, NUPA_TRACE_DOORBELL, sizeof(*bell), now_ns);

	*(struct nupa_trace_doorbell *)(void *)(record + 1) = *bell;
	if (bell->queue == NUPA_QUEUE_SQ) /* of the last request that it tells of */
		record->transfer = NUPA_TRANSFER(bell->number, bell->index - 1);
	nupa_trace_end(engine);
}

static void put_sq_doorbell(struct nupa_qp *qp, uint64_t posted, uint64_t now_ns)
{
	struct nupa_trace_doorbell bell = { .number = qp->ibv.qp_num, .index = posted };

	put_doorbell(qp->engine, now_ns, &bell);
}

void nupa_trace_doorbell(struct nupa_engine *engine, enum nupa_trace_queue queue, uint32_t number,
			 uint64_t index, uint16_t flags)
{
	struct nupa_trace_doorbell bell = { number, (uint16_t)queue, flags, index };

	put_doorbell(engine, engine->now_ns(), &bell);
}

void nupa_trace_post(struct nupa_qp *qp, uint64_t first)
{
	uint64_t now_ns = qp->engine->now_ns();

	if (first == qp->sq.posted)
		return;
	for (uint64_t index = first; index != qp->sq.posted; index++)
		put_wqe(qp, index, now_ns);
	put_sq_doorbell(qp, qp->sq.posted, now_ns);
}

/* A SEND of the express lane: posted, told, sent, at one time. */
void nupa_trace_express(struct nupa_qp *qp, const struct nupa_express *request,
			const struct nupa_msg *msg)
{
	struct nupa_engine *engine = qp->engine;
	uint64_t now_ns = engine->now_ns();
	uint32_t data_bytes = request->sge ? (uint32_t)sizeof(struct ibv_sge) : request->bytes;
	uint64_t transfer = NUPA_TRANSFER(qp->ibv.qp_num, qp->sq.posted);
	struct nupa_trace_record *record;

	if (engine->trace & NUPA_TRACE_ENTRIES) {
		struct nupa_trace_wqe *body;

		record = nupa_trace_begin(engine, NUPA_TRACE_WQE,
					  (uint32_t)sizeof(*body) + data_bytes, now_ns);
		body = (struct nupa_trace_wqe *)(void *)(record + 1);
		*body = (struct nupa_trace_wqe){
			.qpn = qp->ibv.qp_num,
			.dest_qpn = qp->dest_qpn,
			.dest_host = qp->dest_host,
			.index = (uint32_t)qp->sq.posted,
			.opcode = IBV_WR_SEND,
			.flags =
			    (uint8_t)(request->flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0u)),
			.n_sge = request->sge != NULL,
			.qp_type = qp->type,
			.length_bytes = request->bytes,
			.wr_id = request->wr_id,
		};
		memcpy(body + 1, request->sge ? (const void *)request->sge : request->local,
		       data_bytes);
		record->data_bytes = data_bytes;
		record->transfer = transfer;
		nupa_trace_end(engine);
		put_sq_doorbell(qp, qp->sq.posted + 1, now_ns);
	}
	if (engine->trace & NUPA_TRACE_MOVES) {
		record = nupa_trace_put_message(engine, msg, qp, qp->channel->peer_host, msg->data,
						request->bytes, now_ns);
		nupa_trace_put_place(record, &qp->channel->tx);
		record->peer = (uint16_t)qp->channel->peer;
		record->transfer = transfer;
		nupa_trace_end(engine);
	}
}

void nupa_trace_completion(struct nupa_engine *engine, const struct nupa_cq *cq)
{
	const struct nupa_cqe *cqe = &cq->ring[(cq->tail - 1) & cq->mask];
	const struct nupa_qp *qp = nupa_qp_find(engine, cqe->qp_num);
	bool is_receive = cqe->opcode & IBV_WC_RECV;
	struct nupa_trace_record *record = nupa_trace_begin(
	    engine, NUPA_TRACE_CQE, sizeof(struct nupa_trace_cqe), engine->now_ns());
	struct nupa_trace_cqe *body = (struct nupa_trace_cqe *)(void *)(record + 1);

	*body = (struct nupa_trace_cqe){
		.wr_id = cqe->wr_id,
		.cq = cq->ibv.handle,
		.qpn = cqe->qp_num,
		.src_qpn = cqe->src_qp,
		.psn = UINT32_MAX,
		.byte_len = cqe->byte_len,
		.imm = cqe->imm,
		.status = cqe->status,
		.opcode = cqe->opcode,
		.wc_flags = cqe->wc_flags,
		.is_receive = is_receive,
		.vendor_err = cqe->vendor_err,
		.index = (uint32_t)(cq->tail - 1),
	};
	/* The QP takes the PSN over after the completion. */
	if (is_receive && qp && qp->type != IBV_QPT_UD && !qp->xrc && cqe->status == IBV_WC_SUCCESS)
		body->psn = nupa_psn_of(qp->peer_incarnation & 0xff, qp->expected_psn);
	if (!is_receive && qp) /* requests complete in order, and this one just did */
		record->transfer = NUPA_TRANSFER(cqe->qp_num, qp->sq.acked - 1);
	nupa_trace_end(engine);
}
