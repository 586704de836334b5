/* SPDX-License-Identifier: BSD-3-Clause
 * QPs as all folders see them: by number, PSNs, MTU, requests. */
#ifndef NUPA_CORE_QP_H
#define NUPA_CORE_QP_H

#include "engine/core/engine.h"

static inline struct nupa_qp *nupa_qp_find(const struct nupa_engine *engine, uint32_t qpn)
{
	uint32_t index = qpn ^ engine->qpn_base;

	if (unlikely(index >= engine->fabric->geometry.qp_entries))
		return NULL;
	return engine->qps[index];
}

static inline struct nupa_qp *nupa_qp_of(struct ibv_qp *ibv)
{
	return container_of(ibv, struct nupa_qp, ibv);
}

/* The path's: what a packet carries. */
static inline uint32_t nupa_qp_mtu_bytes(const struct nupa_qp *qp)
{
	if (qp->type == IBV_QPT_UD || qp->attr.path_mtu < IBV_MTU_256 ||
	    qp->attr.path_mtu > IBV_MTU_4096)
		return NUPA_MTU_BYTES;
	return 128u << qp->attr.path_mtu;
}

/* How many packets it takes: one at least. */
static inline uint32_t nupa_packets(uint32_t bytes, uint32_t mtu_bytes)
{
	return bytes ? (bytes - 1) / mtu_bytes + 1 : 1;
}

static inline struct nupa_wqe *nupa_sq_wqe(struct nupa_sq *sq, uint64_t index)
{
	return (struct nupa_wqe *)(sq->ring + (size_t)(index & sq->mask) * sq->stride);
}

static inline uint32_t nupa_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & 0xffffff;
}

/* A PSN is valid in one incarnation of a connection only.  A message sent before a QP was reset may
 * arrive, or be answered, when the QP is connected again. */
#define NUPA_PEER_UNKNOWN 0x100u
/* With a known one: P_Keys have changed, so its next request is checked as its first one was. */
#define NUPA_PEER_UNPROVEN 0x200u

static inline uint32_t nupa_psn_of(uint32_t incarnation, uint32_t psn)
{
	return incarnation << 24 | psn;
}

static inline uint32_t nupa_psn_incarnation(uint32_t psn)
{
	return psn >> 24;
}

/* a - b of 24-bit PSNs, IBTA 9.7.1 */
static inline int32_t nupa_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

#endif
