// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Shared receive queues.
 */
#include "kernel/rdma/rdma.h"

int rdma_create_srq_op(struct ib_srq *ib, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct ibv_srq_init_attr own = {
		.srq_context = ib,
		.attr = { .max_wr = init->attr.max_wr, .max_sge = init->attr.max_sge },
	};
	struct rdma_srq *srq = srq_of(ib);

	if (init->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	srq->own = nupa_create_srq(container_of(ib->pd, struct rdma_pd, ib)->own, &own);
	return srq->own ? 0 : why();
}

int rdma_modify_srq_op(struct ib_srq *ib, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		       struct ib_udata *udata)
{
	struct ibv_srq_attr own = { .max_wr = attr->max_wr, .srq_limit = attr->srq_limit };

	return -nupa_modify_srq(srq_of(ib)->own, &own, mask); /* the same bits */
}

int rdma_query_srq_op(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	struct ibv_srq_attr own;
	int error = nupa_query_srq(srq_of(ib)->own, &own);

	if (error)
		return -error;
	attr->max_wr = own.max_wr;
	attr->max_sge = own.max_sge;
	attr->srq_limit = own.srq_limit;
	return 0;
}

int rdma_destroy_srq_op(struct ib_srq *ib, struct ib_udata *udata)
{
	return -nupa_destroy_srq(srq_of(ib)->own);
}

int rdma_post_srq_recv_op(struct ib_srq *ib, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad)
{
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
