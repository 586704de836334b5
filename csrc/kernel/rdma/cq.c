// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Completion queues.
 */
#include "kernel/rdma/user/user.h"

int rdma_create_cq_op(struct ib_cq *ib, const struct ib_cq_init_attr *attr, struct rdma_call *call)
{
	struct ibv_context *context = device_of(ib->device)->context;
	struct ib_udata *udata = rdma_udata_of(call);
	struct rdma_cq *cq = cq_of(ib);
	int error;

	if (rdma_is_halted())
		return -EIO;
	if (attr->flags || !attr->cqe || attr->cqe > ib->device->attrs.max_cqe)
		return attr->flags ? -EOPNOTSUPP : -EINVAL;
	cq->own =
	    nupa_create_cq(context, udata ? 1 : attr->cqe, ib, nupa_kernel_channel(context), 0);
	if (!cq->own)
		return why();
	ib->cqe = attr->cqe;
	error = udata ? user_cq_init(cq, attr->cqe, udata) : 0;
	if (error)
		rdma_destroy_cq_op(ib, udata);
	return error;
}

int rdma_destroy_cq_op(struct ib_cq *ib, struct ib_udata *udata)
{
	struct rdma_cq *cq = cq_of(ib);
	int error;

	nupa_kernel_cq_forget(cq->own);
	error = rdma_is_halted() ? 0 : -nupa_destroy_cq(cq->own);
	if (!error)
		user_cq_free(cq);
	return error;
}

static enum ib_wc_opcode opcode_of(const struct ibv_wc *wc)
{
	if ((uint32_t)wc->opcode == NUPA_WC_FAST_REG)
		return IB_WC_REG_MR;
	return (enum ib_wc_opcode)wc->opcode; /* ib_verbs.h takes the values of uverbs */
}

static void translate_wc(struct nupa_engine *engine, const struct ibv_wc *from, struct ib_wc *wc)
{
	const struct nupa_qp *qp = nupa_qp_find(engine, from->qp_num);

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = from->wr_id;
	wc->status = (enum ib_wc_status)from->status;
	wc->opcode = opcode_of(from);
	wc->vendor_err = from->vendor_err;
	wc->byte_len = from->byte_len;
	wc->qp = qp ? qp->ibv.qp_context : NULL;
	wc->src_qp = from->src_qp;
	wc->port_num = 1;
	wc->pkey_index = from->pkey_index;
	if (from->wc_flags & IBV_WC_WITH_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = (__force __be32)from->imm_data;
	}
	if (from->wc_flags & IBV_WC_WITH_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = from->invalidated_rkey;
	}
	if (from->wc_flags & IBV_WC_GRH) {
		/* The engine writes IBA's GRH; RoCE v2's header of an IPv6 packet is the same. */
		wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
		wc->network_hdr_type = RDMA_NETWORK_IPV6;
	}
	if (wc->qp && wc->qp->qp_type == IB_QPT_GSI)
		wc->src_qp = GSI_QPN;
}

int rdma_poll_cq_op(struct ib_cq *ib, int n, struct ib_wc *wc)
{
	struct nupa_engine *engine = nupa_engine_of(device_of(ib->device)->context);
	struct ibv_wc found[16];
	int got = 0;

	while (got < n) {
		const int room = min_t(int, n - got, ARRAY_SIZE(found));
		const int more = nupa_kernel_poll_cq(cq_of(ib)->own, room, found);

		if (more < 0)
			return got ? got : -EIO;
		/* A queue pair that is destroyed takes its completions along, with this lock. */
		nupa_engine_lock(engine);
		for (int i = 0; i < more; i++)
			translate_wc(engine, &found[i], &wc[got++]);
		nupa_engine_unlock(engine);
		if (more < room)
			break;
	}
	return got;
}

int rdma_req_notify_op(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct ibv_cq *own = cq_of(ib)->own;
	const struct nupa_cq *cq = container_of(own, struct nupa_cq, ibv);

	nupa_kernel_arm_cq(own, (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED);
	return flags & IB_CQ_REPORT_MISSED_EVENTS &&
	       nupa_load_relaxed(&cq->head) != nupa_load_relaxed(&cq->tail);
}
