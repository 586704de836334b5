/* SPDX-License-Identifier: BSD-3-Clause
 * Posting: a work request becomes a WQE, and the requester runs.  Requests that are refused at once
 * return an errno; all other errors are completions. */
#include "engine/qp/verbs.h"
#include "engine/transport/express.h"

#include <errno.h>

/* Opcodes that a QP type takes: man ibv_post_send. */
const uint32_t nupa_opcodes_of_type[16] = {
	[IBV_QPT_RC] = 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
		       1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_RDMA_READ |
		       1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD |
		       1u << IBV_WR_LOCAL_INV | 1u << IBV_WR_SEND_WITH_INV | 1u << IBV_WR_BIND_MW |
		       1u << IBV_WR_ATOMIC_WRITE | 1u << IBV_WR_FLUSH | 1u << NUPA_WR_FAST_REG,
	[IBV_QPT_UC] = 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
		       1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_LOCAL_INV |
		       1u << IBV_WR_SEND_WITH_INV | 1u << IBV_WR_BIND_MW,
	[IBV_QPT_UD] = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM,
};

#define INLINE_OPCODES                                                                             \
	(1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_SEND |          \
	 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_SEND_WITH_INV | 1u << IBV_WR_ATOMIC_WRITE)

static int fill_local(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct ibv_send_wr *wr)
{
	uint64_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	wqe->n_sge = (uint8_t)wr->num_sge;
	wqe->length_bytes = (uint32_t)bytes;
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (bytes > NUPA_MSG_MAX_BYTES)
			return EMSGSIZE;
		for (int i = 0; i < wr->num_sge; i++)
			wqe->sge[i] = wr->sg_list[i];
		return 0;
	}
	if (!(INLINE_OPCODES >> wr->opcode & 1))
		return EINVAL;
	if (bytes > qp->sq.max_inline_bytes)
		return ENOMEM;
	bytes = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		/* man ibv_post_send: inline data may be gone when the call returns, and lkeys do
		 * not count. */
		if (nupa_copy(nupa_wqe_inline(wqe) + bytes, (void *)(uintptr_t)wr->sg_list[i].addr,
			      wr->sg_list[i].length))
			return EFAULT;
		bytes += wr->sg_list[i].length;
	}
	return 0;
}

int nupa_wqe_set_ud(struct nupa_qp *qp, struct nupa_wqe *wqe, struct ibv_ah *ah, uint32_t qpn,
		    uint32_t qkey)
{
	const struct nupa_ah *from;

	if (!ah || ah->pd->handle != qp->ibv.pd->handle)
		return EINVAL;
	from = container_of(ah, struct nupa_ah, ibv);
	wqe->ah_host = from->host;
	wqe->deth = from->deth;
	if (unlikely(from->host == NUPA_AH_GROUP))
		memcpy(wqe->mgid, from->attr.grh.dgid.raw, sizeof(wqe->mgid));
	wqe->dest_qpn = qpn & 0xffffff;
	/* IBTA 10.2.5: the high bit stands for the QP's own Q_Key. */
	wqe->qkey = qkey & 0x80000000 ? qp->attr.qkey : qkey;
	return 0;
}

static int fill_wqe(struct nupa_qp *qp, struct nupa_wqe *wqe, const struct ibv_send_wr *wr)
{
	int error;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return EINVAL;
	/* imm_data shares its place with invalidate_rkey. */
	error = nupa_wqe_begin(qp, wqe, wr->opcode, wr->wr_id, wr->send_flags, wr->imm_data);
	if (error)
		return error;
	error = fill_local(qp, wqe, wr);
	if (error)
		return error;
	if (unlikely(qp->xrc))
		wqe->dest_qpn = wr->qp_type.xrc.remote_srqn;
	switch ((uint32_t)wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->raddr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->compare_add = wr->wr.atomic.compare_add;
		wqe->swap = wr->wr.atomic.swap;
		return wqe->length_bytes == 8 ? 0 : EINVAL;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		wqe->raddr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		return 0;
	case IBV_WR_ATOMIC_WRITE:
		wqe->raddr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		return wqe->length_bytes == 8 ? 0 : EINVAL;
	case IBV_WR_FLUSH: /* by ibv_wr_flush alone: a struct ibv_send_wr has no room for it */
		return EINVAL;
	case IBV_WR_BIND_MW:
		return nupa_mw_fill_wqe(qp, wqe, wr->bind_mw.mw, wr->bind_mw.rkey,
					&wr->bind_mw.bind_info);
	case NUPA_WR_FAST_REG:
		return nupa_mr_fast_fill_wqe(qp, wqe, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	default:
		if (qp->type != IBV_QPT_UD)
			return 0;
	}
	return nupa_wqe_set_ud(qp, wqe, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
}

/* Done on the spot; false: it takes a WQE. */
static inline bool post_express(struct nupa_qp *qp, const struct ibv_send_wr *wr,
				struct nupa_lane *lane)
{
	const struct ibv_sge *sge = wr->sg_list;
	struct nupa_express request = { 0 };

	if (!qp->steady_tx || wr->num_sge != 1 || sge->length > NUPA_MSG_MAX_BYTES)
		return false;
	request.wr_id = wr->wr_id;
	request.opcode = wr->opcode;
	request.flags = wr->send_flags;
	request.bytes = sge->length;
	request.raddr = wr->wr.rdma.remote_addr;
	request.rkey = wr->wr.rdma.rkey;
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.rkey = wr->wr.atomic.rkey;
		request.compare_add = wr->wr.atomic.compare_add;
		request.swap = wr->wr.atomic.swap;
		if (sge->length != 8)
			return false;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		if ((wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_RDMA_WRITE) ||
		    sge->length > qp->sq.max_inline_bytes)
			return false;
		request.local = (uint8_t *)(uintptr_t)sge->addr;
	} else {
		request.sge = sge;
	}
	return nupa_express(qp, &request, lane);
}

/* Takes what a lane may execute off the list, until something is not. */
static struct ibv_send_wr *post_in_lane(struct nupa_qp *qp, struct ibv_send_wr *wr)
{
	struct nupa_engine *engine = qp->engine;
	struct nupa_lane *lane = nupa_load_relaxed(&qp->lane);

	if (!wr || !nupa_lane_enter(engine, lane))
		return wr;
	if (likely(qp->lane == lane && qp->send_cq->lane == lane && !engine->recorder))
		while (wr && nupa_cq_is_quiet(qp->send_cq) && post_express(qp, wr, lane))
			wr = wr->next;
	nupa_lock_leave();
	return wr;
}

int nupa_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct nupa_qp *qp = nupa_qp_of(ibv);
	struct nupa_engine *engine = qp->engine;
	const struct ibv_send_wr *list = wr;
	uint64_t first, begun_ticks = 0;
	int error = 0;

	nupa_prefetch_write(qp->hot);
	if (unlikely(!nupa_lock_acquire_unless_shared(&engine->lock))) {
		wr = post_in_lane(qp, wr);
		if (!wr && list)
			return 0;
		list = wr;
		nupa_engine_lock(engine);
	}
	if (unlikely(engine->recorder))
		begun_ticks = nupa_record_posting(
		    qp, wr && !wr->next && wr->num_sge == 1 ? wr->sg_list->length : UINT32_MAX);
	first = qp->sq.posted;
	/* IBTA 10.8.2.1: no sends before RTS; in SQE and ERR they are flushed. */
	if (unlikely(qp->state < IBV_QPS_RTS))
		error = EINVAL;
	for (; wr && !error; wr = wr->next) {
		struct nupa_sq *sq = &qp->sq;

		if (post_express(qp, wr, NULL))
			continue;
		if (unlikely(sq->posted - sq->acked >= sq->capacity))
			error = ENOMEM;
		else
			error = fill_wqe(qp, nupa_sq_wqe(sq, sq->posted), wr);
		if (unlikely(error))
			break;
		sq->posted++;
	}
	if (unlikely(error))
		*bad = wr;
	if (qp->sq.issued != qp->sq.posted) {
		if (unlikely(engine->trace & NUPA_TRACE_ENTRIES))
			nupa_trace_post(qp, first);
		if (unlikely(qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE))
			nupa_requester_flush(qp);
		else
			nupa_requester_run(qp);
	}
	if (unlikely(engine->recorder))
		nupa_record_posted(qp, begun_ticks, list, wr);
	if (unlikely(engine->wire_dirty))
		engine->ops->wires_posted(engine, qp);
	if (unlikely(!engine->lock.biased) && qp->sq.posted == first && qp->steady_tx && list &&
	    !error && nupa_lane_vote(qp))
		return 0;
	nupa_engine_unlock(engine);
	return error;
}

int nupa_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct nupa_qp *qp = nupa_qp_of(ibv);
	struct nupa_engine *engine = qp->engine;
	int error = 0;

	nupa_engine_lock(engine);
	if (unlikely(qp->state == IBV_QPS_RESET || qp->srq))
		error = EINVAL;
	for (; wr && !error; wr = wr->next) {
		error = nupa_rq_post(&qp->rq, wr);
		if (error)
			break;
	}
	if (unlikely(error))
		*bad = wr;
	if (unlikely(engine->trace & NUPA_TRACE_QUEUE))
		nupa_trace_doorbell(engine, NUPA_QUEUE_RQ, qp->ibv.qp_num, qp->rq.tail, 0);
	if (unlikely(qp->state == IBV_QPS_ERR))
		nupa_qp_flush_rq(qp);
	nupa_engine_unlock(engine);
	return error;
}

int nupa_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
	};
	struct ibv_send_wr *bad;
	int error;

	if (mw->type != IBV_MW_TYPE_1)
		return EINVAL;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	error = nupa_post_send(qp, &wr, &bad);
	/* man ibv_bind_mw: the new key is known now; that it works is known by the completion. */
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}
