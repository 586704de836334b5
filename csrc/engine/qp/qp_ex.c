/* SPDX-License-Identifier: BSD-3-Clause
 * Extended queue pairs (man ibv_wr_post): requests are built in place, in the send queue itself,
 * between wr_start and wr_complete, which posts all or none.  Entries behind `posted`
 * belong to the builder alone, so the engine's lock is not held in between. */
#include "engine/qp/verbs.h"
#include "engine/transport/express.h"

#include <errno.h>
#include <stdlib.h>

static struct nupa_qp *qp_of(struct ibv_qp_ex *ibv)
{
	return container_of(ibv, struct nupa_qp, ibv_ex);
}

/* One thread at a time builds; the others wait here, with the lock again when it is their turn. */
static void wait_for_builder(struct nupa_qp *qp)
{
	while (qp->builder->building) {
		nupa_engine_unlock(qp->engine);
		sched_yield();
		nupa_engine_lock(qp->engine);
	}
}

static void wr_start(struct ibv_qp_ex *ibv)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_builder *builder = qp->builder;

	nupa_prefetch_write(qp->hot);
	nupa_engine_lock(qp->engine);
	if (unlikely(builder->building))
		wait_for_builder(qp);
	*builder = (struct nupa_builder){
		.building = true,
		.error = qp->state < IBV_QPS_RTS ? EINVAL : 0,
		.first = qp->sq.posted,
		.end = qp->sq.acked + qp->sq.capacity,
		.next = qp->sq.posted,
	};
	nupa_engine_unlock(qp->engine);
}

static void wr_abort(struct ibv_qp_ex *ibv)
{
	struct nupa_qp *qp = qp_of(ibv);

	nupa_engine_lock(qp->engine);
	qp->builder->building = false;
	nupa_engine_unlock(qp->engine);
}

/* Checks that need the whole request: 0 or an errno. */
static int check_built(const struct nupa_qp *qp)
{
	const struct nupa_wqe *wqe = qp->builder->wqe;

	if (!wqe)
		return 0;
	if ((wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	     wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wqe->opcode == IBV_WR_ATOMIC_WRITE) &&
	    wqe->length_bytes != 8)
		return EINVAL;
	if (wqe->opcode == IBV_WR_FLUSH && wqe->length_bytes)
		return EINVAL;
	return qp->type == IBV_QPT_UD && wqe->ah_host == NUPA_AH_NONE ? EINVAL : 0;
}

/* The only request that was built is done on the spot, without being posted; false: it is not. */
static inline bool express_built(struct nupa_qp *qp)
{
	const struct nupa_builder *builder = qp->builder;
	struct nupa_wqe *wqe = builder->wqe;
	struct nupa_express request = { 0 };

	if (builder->next != builder->first + 1 || !qp->steady_tx)
		return false;
	if (wqe->flags & IBV_SEND_INLINE)
		request.local = nupa_wqe_inline(wqe);
	else if (wqe->n_sge == 1)
		request.sge = wqe->sge;
	else
		return false;
	request.wr_id = wqe->wr_id;
	request.opcode = wqe->opcode;
	request.flags = wqe->flags;
	request.bytes = wqe->length_bytes;
	request.raddr = wqe->raddr;
	request.rkey = wqe->rkey;
	request.compare_add = wqe->compare_add;
	request.swap = wqe->swap;
	return nupa_express(qp, &request, NULL);
}

static int wr_complete(struct ibv_qp_ex *ibv)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_builder *builder = qp->builder;
	int error = builder->error ? builder->error : check_built(qp);
	uint64_t begun_ticks = 0;

	nupa_engine_lock(qp->engine);
	if (unlikely(qp->engine->recorder))
		begun_ticks = nupa_record_posting(qp, UINT32_MAX);
	if (!error && qp->sq.posted != builder->first)
		error = EBUSY; /* another thread posted meanwhile, by ibv_post_send or a reset */
	if (likely(!error) && !express_built(qp)) {
		qp->sq.posted = builder->next;
		if (unlikely(qp->engine->trace & NUPA_TRACE_ENTRIES))
			nupa_trace_post(qp, builder->first);
		if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
			nupa_requester_flush(qp);
		else
			nupa_requester_run(qp);
	}
	if (unlikely(qp->engine->recorder))
		nupa_record_built(qp, begun_ticks, builder->first,
				  error ? builder->first : builder->next);
	builder->building = false;
	if (unlikely(qp->engine->wire_dirty))
		qp->engine->ops->wires_posted(qp->engine, qp);
	nupa_engine_unlock(qp->engine);
	return error;
}

/* --- operations: each begins a request ----------------------------------------------- */

static struct nupa_wqe *begin(struct ibv_qp_ex *ibv, uint32_t opcode, uint32_t imm)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_builder *builder = qp->builder;
	struct nupa_wqe *wqe = nupa_sq_wqe(&qp->sq, builder->next);
	int error = check_built(qp);

	if (!error && builder->next == builder->end)
		error = ENOMEM;
	if (!error)
		error = nupa_wqe_begin(qp, wqe, opcode, ibv->wr_id,
				       ibv->wr_flags & ~(uint32_t)IBV_SEND_INLINE, imm);
	if (error) {
		builder->error = builder->error ? builder->error : error;
		builder->wqe = NULL;
		return NULL;
	}
	wqe->n_sge = 0;
	wqe->length_bytes = 0;
	wqe->ah_host = NUPA_AH_NONE;
	wqe->dest_qpn = 0;
	builder->wqe = wqe;
	builder->next++;
	return wqe;
}

static void wr_send(struct ibv_qp_ex *ibv)
{
	begin(ibv, IBV_WR_SEND, 0);
}

static void wr_send_imm(struct ibv_qp_ex *ibv, uint32_t imm_data)
{
	begin(ibv, IBV_WR_SEND_WITH_IMM, imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *ibv, uint32_t invalidate_rkey)
{
	begin(ibv, IBV_WR_SEND_WITH_INV, invalidate_rkey);
}

static void wr_local_inv(struct ibv_qp_ex *ibv, uint32_t invalidate_rkey)
{
	begin(ibv, IBV_WR_LOCAL_INV, invalidate_rkey);
}

static void fail(struct nupa_qp *qp, int error)
{
	struct nupa_builder *builder = qp->builder;

	builder->error = builder->error ? builder->error : error;
}

static void wr_bind_mw(struct ibv_qp_ex *ibv, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *bind_info)
{
	struct nupa_wqe *wqe = begin(ibv, IBV_WR_BIND_MW, 0);
	int error = wqe ? nupa_mw_fill_wqe(qp_of(ibv), wqe, mw, rkey, bind_info) : 0;

	if (error)
		fail(qp_of(ibv), error);
}

static struct nupa_wqe *begin_remote(struct ibv_qp_ex *ibv, uint32_t opcode, uint32_t imm,
				     uint32_t rkey, uint64_t remote_addr)
{
	struct nupa_wqe *wqe = begin(ibv, opcode, imm);

	if (wqe) {
		wqe->rkey = rkey;
		wqe->raddr = remote_addr;
	}
	return wqe;
}

static void wr_rdma_read(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ibv, IBV_WR_RDMA_READ, 0, rkey, remote_addr);
}

static void wr_rdma_write(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ibv, IBV_WR_RDMA_WRITE, 0, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr,
			      uint32_t imm_data)
{
	begin_remote(ibv, IBV_WR_RDMA_WRITE_WITH_IMM, imm_data, rkey, remote_addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	struct nupa_wqe *wqe = begin_remote(ibv, IBV_WR_ATOMIC_CMP_AND_SWP, 0, rkey, remote_addr);

	if (wqe) {
		wqe->compare_add = compare;
		wqe->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	struct nupa_wqe *wqe = begin_remote(ibv, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, rkey, remote_addr);

	if (wqe)
		wqe->compare_add = add;
}

static void wr_atomic_write(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr,
			    const void *atomic_wr)
{
	struct nupa_wqe *wqe = begin_remote(ibv, IBV_WR_ATOMIC_WRITE, 0, rkey, remote_addr);

	if (!wqe)
		return;
	memcpy(nupa_wqe_inline(wqe), atomic_wr, sizeof(uint64_t)); /* a WQE has room for an SGE */
	wqe->flags |= IBV_SEND_INLINE;
	wqe->length_bytes = sizeof(uint64_t);
}

static void wr_flush(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t remote_addr, size_t length,
		     uint8_t type, uint8_t level)
{
	struct nupa_wqe *wqe = begin_remote(ibv, IBV_WR_FLUSH, 0, rkey, remote_addr);

	if (!wqe)
		return;
	if (!type || type & ~(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT) || level > IBV_FLUSH_MR)
		fail(qp_of(ibv), EINVAL);
	wqe->compare_add = length;
	wqe->swap = (uint64_t)level << 8 | type;
}

/* --- setters: what the request carries, and where it goes ---------------------------- */

static void wr_set_sge_list(struct ibv_qp_ex *ibv, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_wqe *wqe = qp->builder->wqe;
	uint64_t bytes = 0;

	if (!wqe || num_sge > qp->sq.max_sge) {
		fail(qp, EINVAL);
		return;
	}
	for (size_t i = 0; i < num_sge; i++) {
		wqe->sge[i] = sg_list[i];
		bytes += sg_list[i].length;
	}
	if (bytes > NUPA_MSG_MAX_BYTES)
		fail(qp, EMSGSIZE);
	wqe->n_sge = (uint8_t)num_sge;
	wqe->length_bytes = (uint32_t)bytes;
}

static void wr_set_sge(struct ibv_qp_ex *ibv, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_wqe *wqe = qp->builder->wqe;

	if (unlikely(!wqe || qp->sq.max_sge == 0)) {
		fail(qp, EINVAL);
		return;
	}
	if (unlikely(length > NUPA_MSG_MAX_BYTES))
		fail(qp, EMSGSIZE);
	wqe->sge[0] = (struct ibv_sge){ .addr = addr, .length = length, .lkey = lkey };
	wqe->n_sge = 1;
	wqe->length_bytes = length;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ibv, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_wqe *wqe = qp->builder->wqe;
	size_t bytes = 0;

	if (!wqe) {
		fail(qp, EINVAL);
		return;
	}
	for (size_t i = 0; i < num_buf; i++) {
		if (buf_list[i].length > qp->sq.max_inline_bytes - bytes) {
			fail(qp, ENOMEM);
			return;
		}
		if (nupa_copy(nupa_wqe_inline(wqe) + bytes, buf_list[i].addr, buf_list[i].length)) {
			fail(qp, EFAULT);
			return;
		}
		bytes += buf_list[i].length;
	}
	wqe->flags |= IBV_SEND_INLINE;
	wqe->length_bytes = (uint32_t)bytes;
}

static void wr_set_inline_data(struct ibv_qp_ex *ibv, void *addr, size_t length)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_wqe *wqe = qp->builder->wqe;
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	if (unlikely(!wqe || length > NUPA_SEND_INLINE_BYTES)) {
		wr_set_inline_data_list(ibv, 1, &buf);
		return;
	}
	if (nupa_copy(nupa_wqe_inline(wqe), addr, length)) { /* fits: create_qp */
		fail(qp, EFAULT);
		return;
	}
	wqe->flags |= IBV_SEND_INLINE;
	wqe->length_bytes = (uint32_t)length;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ibv, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct nupa_qp *qp = qp_of(ibv);
	struct nupa_wqe *wqe = qp->builder->wqe;
	int error = wqe && qp->type == IBV_QPT_UD
			? nupa_wqe_set_ud(qp, wqe, ah, remote_qpn, remote_qkey)
			: EINVAL;

	if (error)
		fail(qp, error);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ibv, uint32_t remote_srqn)
{
	struct nupa_qp *qp = qp_of(ibv);

	if (qp->builder->wqe && qp->xrc)
		qp->builder->wqe->dest_qpn = remote_srqn;
	else
		fail(qp, EINVAL);
}

#define RC_OPS                                                                                     \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                                 \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |                 \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW |        \
	 IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE)
#define UC_OPS                                                                                     \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |    \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV |  \
	 IBV_QP_EX_WITH_BIND_MW)
#define UD_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)

int nupa_qp_ex_init(struct nupa_qp *qp, uint64_t send_ops_flags)
{
	uint64_t known = qp->type == IBV_QPT_RC ? RC_OPS : qp->type == IBV_QPT_UC ? UC_OPS : UD_OPS;
	struct ibv_qp_ex *ex = &qp->ibv_ex;

	if (send_ops_flags & ~known)
		return nupa_unsupported("ibv_create_qp_ex with send_ops_flags beyond the type's");
	qp->builder = calloc(1, sizeof(*qp->builder));
	if (!qp->builder)
		return ENOMEM;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_flush = wr_flush;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	return 0;
}
