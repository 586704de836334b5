/* SPDX-License-Identifier: BSD-3-Clause
 * The tables that a context carries: what inline verbs of a compiled program
 * call.  A verb that is not offered and makes an object is refused; all that
 * need such an object stay NULL, which inline verbs answer with EOPNOTSUPP. */
#include "engine/device/device.h"

static void fill_context_ops(struct ibv_context_ops *ops)
{
	ops->poll_cq = nupa_poll_cq;
	ops->req_notify_cq = nupa_req_notify_cq;
	ops->post_send = nupa_post_send;
	ops->post_recv = nupa_post_recv;
	ops->post_srq_recv = nupa_post_srq_recv;
	ops->alloc_mw = nupa_alloc_mw;
	ops->bind_mw = nupa_bind_mw;
	ops->dealloc_mw = nupa_dealloc_mw;
}

/* --- refused, by name ---------------------------------------------------------------- */

#define NUPA_REFUSED(made, verb, of, how)                                                          \
	static struct made *verb(struct of *from, struct how *attr)                                \
	{                                                                                          \
		(void)from;                                                                        \
		(void)attr;                                                                        \
		nupa_unsupported("ibv_" #verb);                                                    \
		return NULL;                                                                       \
	}

NUPA_REFUSED(ibv_flow, create_flow, ibv_qp, ibv_flow_attr)
NUPA_REFUSED(ibv_wq, create_wq, ibv_context, ibv_wq_init_attr)
NUPA_REFUSED(ibv_rwq_ind_table, create_rwq_ind_table, ibv_context, ibv_rwq_ind_table_init_attr)
NUPA_REFUSED(ibv_counters, create_counters, ibv_context, ibv_counters_init_attr)

static void fill_refused(struct verbs_context *context)
{
	context->ibv_create_flow = create_flow;
	context->create_wq = create_wq;
	context->create_rwq_ind_table = create_rwq_ind_table;
	context->create_counters = create_counters;
}

void nupa_fill_ops(struct verbs_context *context)
{
	context->sz = sizeof(*context);
	fill_refused(context);
	context->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	fill_context_ops(&context->context.ops);

	context->query_port = nupa_query_port;
	context->query_device_ex = nupa_query_device_ex;
	context->query_rt_values = nupa_query_rt_values_ex;
	context->create_cq_ex = nupa_create_cq_ex;
	context->create_qp_ex = nupa_create_qp_ex;
	context->create_srq_ex = nupa_create_srq_ex;
	context->advise_mr = nupa_advise_mr;
	context->alloc_null_mr = nupa_alloc_null_mr;
	context->alloc_dm = nupa_alloc_dm;
	context->free_dm = nupa_free_dm;
	context->reg_dm_mr = nupa_reg_dm_mr;
	context->get_srq_num = nupa_get_srq_num;
	context->open_xrcd = nupa_open_xrcd;
	context->close_xrcd = nupa_close_xrcd;
	context->open_qp = nupa_open_qp;
	context->alloc_td = nupa_alloc_td;
	context->dealloc_td = nupa_dealloc_td;
	context->alloc_parent_domain = nupa_alloc_parent_domain;
	context->modify_cq = nupa_modify_cq;
}
