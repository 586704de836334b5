// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Queue pairs.  QP 1 is one of the engine's UD; its number stands in the slot, where others find
 * it.
 */
#include "base/reserve.h"
#include "engine/transport/transport.h"
#include "kernel/rdma/user/user.h"

#include <linux/log2.h>

static int type_of(const struct ib_qp_init_attr *init, enum ibv_qp_type *type)
{
	switch (init->qp_type) {
	case IB_QPT_RC:
		*type = IBV_QPT_RC;
		return 0;
	case IB_QPT_UC:
		*type = IBV_QPT_UC;
		return 0;
	case IB_QPT_UD:
	case IB_QPT_GSI:
		*type = IBV_QPT_UD;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static void publish_gsi(struct ib_qp *ib, uint32_t number)
{
	struct nupa_engine *engine = nupa_engine_of(device_of(ib->device)->context);

	nupa_store_release(&engine->slot->gsi_qpn, number);
}

int rdma_create_qp_op(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct rdma_qp *qp = qp_of(ib);
	struct ibv_qp_init_attr own = {
		.qp_context = ib,
		.send_cq = init->send_cq ? cq_of(init->send_cq)->own : NULL,
		.recv_cq = init->recv_cq ? cq_of(init->recv_cq)->own : NULL,
		.srq = init->srq ? srq_of(init->srq)->own : NULL,
		.cap = {
			.max_send_wr = init->cap.max_send_wr,
			.max_recv_wr = init->cap.max_recv_wr,
			.max_send_sge = init->cap.max_send_sge,
			.max_recv_sge = init->cap.max_recv_sge,
			.max_inline_data = init->cap.max_inline_data,
		},
		.sq_sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR,
	};
	int error = type_of(init, &own.qp_type);

	if (rdma_is_halted())
		return -EIO;
	if (error || init->create_flags)
		return -EOPNOTSUPP;
	if (max(init->cap.max_send_wr, init->cap.max_recv_wr) > ib->device->attrs.max_qp_wr)
		return -EINVAL;
	/* rdma_rw and others count on room for a request besides. */
	own.cap.max_send_wr += 1;
	if (udata) { /* as many as its queue has; receives are taken one by one */
		own.cap.max_send_wr = roundup_pow_of_two(own.cap.max_send_wr);
		own.cap.max_recv_wr = 1;
	}
	qp->own = nupa_create_qp(container_of(ib->pd, struct rdma_pd, ib)->own, &own);
	if (!qp->own)
		return why();
	if (!nupa_qp_has_faults(container_of(qp->own, struct nupa_qp, ibv))) {
		nupa_destroy_qp(qp->own);
		return -ENOMEM;
	}
	init->cap.max_inline_data = own.cap.max_inline_data;
	error = udata ? user_qp_init(qp, init, udata) : 0;
	if (error) {
		nupa_destroy_qp(qp->own);
		user_qp_free(qp);
		return error;
	}
	ib->qp_num = init->qp_type == IB_QPT_GSI ? GSI_QPN : qp->own->qp_num;
	if (init->qp_type == IB_QPT_GSI)
		publish_gsi(ib, qp->own->qp_num);
	return 0;
}

/* The attributes of both, whose masks have the same bits. */
static void translate_attributes(const struct ib_qp_attr *from, struct ibv_qp_attr *to)
{
	*to = (struct ibv_qp_attr){
		.qp_state = (enum ibv_qp_state)from->qp_state,
		.cur_qp_state = (enum ibv_qp_state)from->cur_qp_state,
		.path_mtu = (enum ibv_mtu)from->path_mtu,
		.path_mig_state = (enum ibv_mig_state)from->path_mig_state,
		.qkey = from->qkey,
		.rq_psn = from->rq_psn,
		.sq_psn = from->sq_psn,
		.dest_qp_num = from->dest_qp_num,
		.qp_access_flags = from->qp_access_flags & 0xf,
		.pkey_index = from->pkey_index,
		.max_rd_atomic = from->max_rd_atomic,
		.max_dest_rd_atomic = from->max_dest_rd_atomic,
		.min_rnr_timer = from->min_rnr_timer,
		.port_num = from->port_num,
		.timeout = from->timeout,
		.retry_cnt = from->retry_cnt,
		.rnr_retry = from->rnr_retry,
	};
}

int rdma_modify_qp_op(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct rdma_qp *qp = qp_of(ib);
	struct ibv_qp_attr own;
	uint32_t host;
	int error;

	/* It is there: who drains it goes on. */
	if (rdma_is_halted())
		return mask & IB_QP_STATE && attr->qp_state == IB_QPS_ERR ? 0 : -EIO;
	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	/* A path of its own to fall back to is none of RoCE's. */
	mask &= ~(IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE);
	translate_attributes(attr, &own);
	if (mask & IB_QP_AV) {
		error = rdma_address(device_of(ib->device), &attr->ah_attr, &own.ah_attr, &host);
		if (error)
			return error;
	}
	if (ib->qp_type == IB_QPT_GSI && mask & IB_QP_STATE && attr->qp_state == IB_QPS_INIT) {
		mask |= IB_QP_PORT;
		own.port_num = 1;
	}
	nupa_reserve_pledge();
	error = -nupa_modify_qp(qp->own, &own, mask);
	nupa_reserve_redeem();
	if (!error && qp->user && mask & IB_QP_STATE && attr->qp_state == IB_QPS_RESET)
		user_qp_reset(qp);
	return error;
}

int rdma_query_qp_op(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init)
{
	struct ibv_qp_init_attr own_init;
	struct ibv_qp_attr own;
	int error = nupa_query_qp(qp_of(ib)->own, &own, mask & IB_QP_ATTR_STANDARD_BITS, &own_init);

	if (error)
		return -error;
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	attr->qp_state = (enum ib_qp_state)own.qp_state;
	attr->cur_qp_state = (enum ib_qp_state)own.cur_qp_state;
	attr->path_mtu = (enum ib_mtu)own.path_mtu;
	attr->qkey = own.qkey;
	attr->rq_psn = own.rq_psn;
	attr->sq_psn = own.sq_psn;
	attr->dest_qp_num = own.dest_qp_num;
	attr->qp_access_flags = own.qp_access_flags;
	attr->pkey_index = own.pkey_index;
	attr->max_rd_atomic = own.max_rd_atomic;
	attr->max_dest_rd_atomic = own.max_dest_rd_atomic;
	attr->min_rnr_timer = own.min_rnr_timer;
	attr->port_num = 1;
	attr->timeout = own.timeout;
	attr->retry_cnt = own.retry_cnt;
	attr->rnr_retry = own.rnr_retry;
	attr->cap.max_send_wr = own_init.cap.max_send_wr;
	attr->cap.max_recv_wr = own_init.cap.max_recv_wr;
	attr->cap.max_send_sge = own_init.cap.max_send_sge;
	attr->cap.max_recv_sge = own_init.cap.max_recv_sge;
	attr->cap.max_inline_data = own_init.cap.max_inline_data;
	if (qp_of(ib)->user)
		attr->cap = qp_of(ib)->user->cap;
	init->cap = attr->cap;
	init->qp_type = ib->qp_type;
	init->send_cq = ib->send_cq;
	init->recv_cq = ib->recv_cq;
	init->srq = ib->srq;
	return 0;
}

int rdma_destroy_qp_op(struct ib_qp *ib, struct ib_udata *udata)
{
	int error = 0;

	if (rdma_is_halted()) {
		nupa_halted_forget_qp(qp_of(ib)->own);
	} else {
		if (ib->qp_type == IB_QPT_GSI)
			publish_gsi(ib, NUPA_GSI_NONE);
		nupa_reserve_pledge();
		error = -nupa_destroy_qp(qp_of(ib)->own);
		nupa_reserve_redeem();
	}
	if (!error)
		user_qp_free(qp_of(ib));
	return error;
}
