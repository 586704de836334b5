/* SPDX-License-Identifier: BSD-3-Clause
 * Resources of all processes of a fabric, as `rdma res` shows them.
 *
 *	uint64_t at = 0;
 *	while ((n = nupa_fabric_resources(fabric, NUPA_RESOURCE_QP, host, &at, infos, 64)) > 0)
 *		... infos[0] to infos[n - 1] ...
 *
 * The list is not a snapshot: what comes or goes meanwhile may be in it or not.  Nothing is kept
 * between two calls but *at*, and nothing is locked. */
#ifndef NUPA_RESOURCE_H
#define NUPA_RESOURCE_H

#include "segment/layout/resource_layout.h"
#include "segment/segment.h"

/* cffi: begin */
enum nupa_mr_place {
	NUPA_MR_IN_PRIVATE = 1, /* the process' own memory: peers' data comes by cma or relay */
	NUPA_MR_IN_POOL,        /* mapped by peers: mover pool */
	NUPA_MR_IN_SHARED,      /* promoted, mapped by peers: mover shared */
};

struct nupa_resource_info {
	uint32_t kind; /* enum nupa_resource_kind */
	uint32_t slot, host;
	uint32_t pid;  /* 0: of another kernel or pid namespace */
	char comm[16]; /* ends with 0 */
	/* PD: its handle.  QP: its number.  MR: slot << 20 | place.  Others: their own.  Unique
	 * among resources of a kind of the fabric. */
	uint32_t number;
	uint32_t context, pd; /* numbers; 0: none */
	uint32_t users;       /* PD, CQ: the objects that use it, AHs left out */
	/* QP */
	uint32_t type, state; /* enum ibv_qp_type, ibv_qp_state; SRQ: type, enum ibv_srq_type */
	uint32_t dest_qpn;    /* 0: not connected */
	int32_t dest_host;    /* -1: not connected */
	int32_t dest_slot;    /* of the partner's process; -1: it is not there */
	uint32_t mover;       /* enum nupa_mover, to the partner; 0: no channel is open */
	uint32_t send_cq, recv_cq, srq; /* numbers; 0: none */
	uint32_t rq_psn, sq_psn;        /* as the program set them */
	uint32_t path_mig_state;        /* enum ibv_mig_state */
	/* MR */
	uint32_t key; /* lkey and rkey */
	uint32_t access;
	uint32_t place;  /* enum nupa_mr_place */
	uint32_t window; /* it is a bound window */
	uint64_t iova, length;
	/* CQ: cqe; SRQ: max_wr.  SRQ of XRC: its CQ is recv_cq. */
	uint32_t entries;
	/* CM_ID */
	uint32_t ps, cm_state; /* enum rdma_port_space; rdma_cm_state of the kernel's rdma_cm.h */
	uint32_t family;       /* AF_INET, AF_INET6; 0: it has no address yet */
	uint32_t src_port, dst_port;
	uint32_t qpn; /* 0: none yet */
	uint8_t src[16], dst[16];
};

/* The next resources of a kind from *at* on, 0 at first, of *host*, or of all (-1): up to *max* of
 * them in *out* and how many; 0 at the end, or a negative errno.  -EINVAL: no such kind or host. */
int nupa_fabric_resources(struct nupa_fabric *fabric, uint32_t kind, int32_t host, uint64_t *at,
			  struct nupa_resource_info *out, uint32_t max);
/* The one of that number: 0, or -ENOENT. */
int nupa_fabric_resource(struct nupa_fabric *fabric, uint32_t kind, int32_t host, uint32_t number,
			 struct nupa_resource_info *out);
/* How many there are, by kind, of *host* or of all (-1). */
int nupa_fabric_resource_counts(struct nupa_fabric *fabric, int32_t host, uint32_t counts[8]);
/* cffi: end */
_Static_assert(NUPA_RESOURCE_KINDS == 8, "counts[8]");

#endif
