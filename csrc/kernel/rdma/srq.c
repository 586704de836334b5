// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Shared receive queues.
 */
#include "kernel/rdma/user/user.h"

static_assert((int)IB_SRQ_MAX_WR == (int)IBV_SRQ_MAX_WR);
static_assert((int)IB_SRQ_LIMIT == (int)IBV_SRQ_LIMIT);

int rdma_create_srq_op(struct ib_srq *ib, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct rdma_srq *srq = srq_of(ib);
	struct ibv_srq_init_attr own = {
		.srq_context = ib,
		.attr = { .max_wr = udata ? 1 : init->attr.max_wr, .max_sge = init->attr.max_sge },
	};
	int error;

	if (rdma_is_halted())
		return -EIO;
	if (init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > NUPA_SRQ_WR_MAX)
		return -EINVAL;
	srq->own = nupa_create_srq(container_of(ib->pd, struct rdma_pd, ib)->own, &own);
	if (!srq->own)
		return why();
	error = udata ? user_srq_init(srq, &init->attr, udata) : 0;
	if (error)
		rdma_destroy_srq_op(ib, udata);
	return error;
}

int rdma_modify_srq_op(struct ib_srq *ib, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		       struct ib_udata *udata)
{
	struct ibv_srq_attr own = { .max_wr = attr->max_wr, .srq_limit = attr->srq_limit };

	if (rdma_is_halted())
		return -EIO;
	if (srq_of(ib)->user)
		return user_srq_modify(srq_of(ib), attr, mask, udata);
	return -nupa_modify_srq(srq_of(ib)->own, &own, mask);
}

int rdma_query_srq_op(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	struct ibv_srq_attr own;
	int error;

	if (srq_of(ib)->user) {
		user_srq_query(srq_of(ib), attr);
		return 0;
	}
	error = nupa_query_srq(srq_of(ib)->own, &own);
	if (error)
		return -error;
	*attr = (struct ib_srq_attr){ own.max_wr, own.max_sge, own.srq_limit };
	return 0;
}

int rdma_destroy_srq_op(struct ib_srq *ib, struct ib_udata *udata)
{
	int error = rdma_is_halted() ? 0 : -nupa_destroy_srq(srq_of(ib)->own);

	if (!error)
		user_srq_free(srq_of(ib));
	return error;
}

int rdma_post_srq_recv_op(struct ib_srq *ib, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad)
{
	if (rdma_is_halted()) {
		*bad = wr;
		return -EIO;
	}
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr own = rdma_recv_wr(wr), *refused;
		int error = -nupa_post_srq_recv(srq_of(ib)->own, &own, &refused);

		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}
