/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
 * nupa_rdma: an ib_device, whose objects have the engine's inside.  Enumerations of both have the
 * same values (IBTA's), but where a function here translates. */
#ifndef NUPA_KERNEL_RDMA_H
#define NUPA_KERNEL_RDMA_H

#include "kernel/core/core.h"

#include <linux/version.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#define GSI_QPN 1 /* as a number; IB_QP1 is in network order */

/* Of a process that makes a CQ; NULL: the kernel does. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define rdma_call ib_udata
static inline struct ib_udata *rdma_udata_of(struct rdma_call *call)
{
	return call;
}
#else
#define rdma_call uverbs_attr_bundle
static inline struct ib_udata *rdma_udata_of(struct rdma_call *call)
{
	return call ? &call->driver_udata : NULL;
}
#endif

struct rdma_device {
	struct ib_device ib;
	struct ibv_context *context;
	struct net_device *netdev;
	struct xarray handles; /* struct rdma_ah of processes, by number */
};

struct rdma_pd {
	struct ib_pd ib;
	struct ibv_pd *own;
};

struct rdma_ah {
	struct ib_ah ib;
	struct ibv_ah *own; /* NULL: no host of the fabric has the address */
	uint32_t host;
	uint32_t number; /* 0: of the kernel */
	uint32_t gid_index;
};

struct rdma_cq {
	struct ib_cq ib;
	struct ibv_cq *own;
	struct user_cq *user; /* user/user.h; NULL: of the kernel */
};

struct rdma_srq {
	struct ib_srq ib;
	struct ibv_srq *own;
	struct user_rq *user;
};

struct rdma_qp {
	struct ib_qp ib;
	struct ibv_qp *own;
	struct ibv_pd *pd; /* GSI: its own, for address handles are of another one */
	struct user_qp *user;
};

struct rdma_mr {
	struct ib_mr ib;
	struct ibv_mr *own;
	struct nupa_pages pages; /* of a process, or a fast registration; max 0: none */
	struct ib_umem *umem;    /* of a process */
};

static inline struct rdma_device *device_of(struct ib_device *ib)
{
	return container_of(ib, struct rdma_device, ib);
}

static inline struct rdma_qp *qp_of(struct ib_qp *ib)
{
	return container_of(ib, struct rdma_qp, ib);
}

static inline struct rdma_cq *cq_of(struct ib_cq *ib)
{
	return container_of(ib, struct rdma_cq, ib);
}

static inline struct rdma_srq *srq_of(struct ib_srq *ib)
{
	return container_of(ib, struct rdma_srq, ib);
}

static inline struct rdma_mr *mr_of(struct ib_mr *ib)
{
	return container_of(ib, struct rdma_mr, ib);
}

/* Why a function of the engine returned NULL. */
static inline int why(void)
{
	return nupa_errno > 0 ? -nupa_errno : -ENOMEM;
}

/* Nothing of the engine may be called any more.  Objects are given up as they are. */
static inline bool rdma_is_halted(void)
{
	return nupa_load_acquire(&nupa_kernel_halted);
}

/* A receive of the kernel as one of the engine's. */
static inline struct ibv_recv_wr rdma_recv_wr(const struct ib_recv_wr *wr)
{
	return (struct ibv_recv_wr){
		.wr_id = wr->wr_id,
		.sg_list = (struct ibv_sge *)wr->sg_list,
		.num_sge = wr->num_sge,
	};
}

/* The host that a GID leads to, and in *attr the engine's address vector of it: 0 or -EHOSTUNREACH.
 */
int rdma_address(struct rdma_device *device, const struct rdma_ah_attr *from,
		 struct ibv_ah_attr *attr, uint32_t *host);

/* qp.c */
int rdma_create_qp_op(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata);
int rdma_modify_qp_op(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int rdma_query_qp_op(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init);
int rdma_destroy_qp_op(struct ib_qp *ib, struct ib_udata *udata);
/* post.c */
int rdma_post_send_op(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int rdma_post_recv_op(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);
/* srq.c */
int rdma_create_srq_op(struct ib_srq *ib, struct ib_srq_init_attr *init, struct ib_udata *udata);
int rdma_modify_srq_op(struct ib_srq *ib, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		       struct ib_udata *udata);
int rdma_query_srq_op(struct ib_srq *ib, struct ib_srq_attr *attr);
int rdma_destroy_srq_op(struct ib_srq *ib, struct ib_udata *udata);
int rdma_post_srq_recv_op(struct ib_srq *ib, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad);
/* cq.c */
int rdma_create_cq_op(struct ib_cq *ib, const struct ib_cq_init_attr *attr, struct rdma_call *call);
int rdma_destroy_cq_op(struct ib_cq *ib, struct ib_udata *udata);
int rdma_poll_cq_op(struct ib_cq *ib, int n, struct ib_wc *wc);
int rdma_req_notify_op(struct ib_cq *ib, enum ib_cq_notify_flags flags);
/* memory.c */
int rdma_alloc_pd_op(struct ib_pd *ib, struct ib_udata *udata);
int rdma_dealloc_pd_op(struct ib_pd *ib, struct ib_udata *udata);
struct ib_mr *rdma_dma_mr_op(struct ib_pd *ib, int access);
struct ib_mr *rdma_alloc_mr_op(struct ib_pd *ib, enum ib_mr_type type, u32 max);
int rdma_map_mr_op(struct ib_mr *ib, struct scatterlist *list, int n, unsigned int *offset);
int rdma_dereg_mr_op(struct ib_mr *ib, struct ib_udata *udata);
int rdma_create_ah_op(struct ib_ah *ib, struct rdma_ah_init_attr *init, struct ib_udata *udata);
int rdma_destroy_ah_op(struct ib_ah *ib, u32 flags);
/* counters.c */
struct rdma_hw_stats *rdma_alloc_stats_op(struct ib_device *ib, u32 port);
int rdma_get_stats_op(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index);

#endif
