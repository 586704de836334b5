/* SPDX-License-Identifier: BSD-3-Clause
 * The verbs that the rdma_ functions call: those of libibverbs.so.1 or, linked into one object with
 * the engine, the engine's own.  The others are inline functions of verbs_abi.h. */
#ifndef NUPA_RDMACM_VERBS_CALLS_H
#define NUPA_RDMACM_VERBS_CALLS_H

#include "abi/verbs_abi.h"

#ifdef NUPA_RDMACM_STATIC
#include "engine/core/nupa.h"
#define ibv_get_device_list nupa_get_device_list
#define ibv_free_device_list nupa_free_device_list
#define ibv_open_device nupa_open_device
#define ibv_alloc_pd nupa_alloc_pd
#define ibv_dealloc_pd nupa_dealloc_pd
#define ibv_create_comp_channel nupa_create_comp_channel
#define ibv_destroy_comp_channel nupa_destroy_comp_channel
#define ibv_create_cq nupa_create_cq
#define ibv_destroy_cq nupa_destroy_cq
#define ibv_destroy_qp nupa_destroy_qp
#define ibv_modify_qp nupa_modify_qp
#define ibv_query_pkey nupa_query_pkey
#define ibv_destroy_srq nupa_destroy_srq
#define ibv_attach_mcast nupa_attach_mcast
#define ibv_detach_mcast nupa_detach_mcast
#else
struct ibv_device **ibv_get_device_list(int *num_devices);
void ibv_free_device_list(struct ibv_device **list);
struct ibv_context *ibv_open_device(struct ibv_device *device);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context);
int ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context);
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector);
int ibv_destroy_cq(struct ibv_cq *cq);
int ibv_destroy_qp(struct ibv_qp *qp);
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, uint16_t *pkey_be);
int ibv_destroy_srq(struct ibv_srq *srq);
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
#endif

static inline int ibv_query_device_ex(struct ibv_context *context,
				      const struct ibv_query_device_ex_input *input,
				      struct ibv_device_attr_ex *attr)
{
	const struct verbs_context *verbs = verbs_get_ctx(context);

	return verbs->query_device_ex(context, input, attr, sizeof(*attr));
}

static inline struct ibv_qp *ibv_create_qp_ex(struct ibv_context *context,
					      struct ibv_qp_init_attr_ex *attr)
{
	return verbs_get_ctx(context)->create_qp_ex(context, attr);
}

static inline struct ibv_srq *ibv_create_srq_ex(struct ibv_context *context,
						struct ibv_srq_init_attr_ex *attr)
{
	return verbs_get_ctx(context)->create_srq_ex(context, attr);
}

static inline struct ibv_xrcd *ibv_open_xrcd(struct ibv_context *context,
					     struct ibv_xrcd_init_attr *attr)
{
	const struct verbs_context *verbs = verbs_get_ctx(context);

	if (verbs->open_xrcd)
		return verbs->open_xrcd(context, attr);
	errno = EOPNOTSUPP;
	return NULL;
}

static inline int ibv_close_xrcd(struct ibv_xrcd *xrcd)
{
	return verbs_get_ctx(xrcd->context)->close_xrcd(xrcd);
}

#endif
