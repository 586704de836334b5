/* SPDX-License-Identifier: BSD-3-Clause
 * The table of resources in an arena: what `rdma res` shows of a process and no peer needs.  MRs
 * are in the MR table alone.
 *
 *   header | rows, nupa_resource_rows() of them
 *
 * Writer: the owner of the arena.  Readers: resource/resource.h. */
#ifndef NUPA_RESOURCE_LAYOUT_H
#define NUPA_RESOURCE_LAYOUT_H

#include "segment/layout/layout.h"

/* cffi: begin */
enum nupa_resource_kind {
	NUPA_RESOURCE_NONE,
	NUPA_RESOURCE_PD,
	NUPA_RESOURCE_CQ,
	NUPA_RESOURCE_QP,
	NUPA_RESOURCE_CM_ID,
	NUPA_RESOURCE_MR,
	NUPA_RESOURCE_CTX,
	NUPA_RESOURCE_SRQ,
	NUPA_RESOURCE_KINDS,
};
/* cffi: end */

struct nupa_resource_header {
	uint32_t limit; /* rows that are backed; grows only */
	uint32_t pad0;
	/* By kind, MRs left out: those that exist, also those that found no row. */
	uint32_t counts[NUPA_RESOURCE_KINDS];
	uint32_t pad[6];
};
NUPA_ASSERT_SIZE(struct nupa_resource_header, 64);

struct nupa_resource_row {
	uint32_t kind;    /* 0: none.  Stored last, cleared first */
	uint32_t number;  /* a PD's handle, a QP's number; others: slot << 22 | row + 1 */
	uint32_t context; /* number of its context; 0: none */
	uint32_t pd;      /* its PD's handle; 0: none */
	union {
		struct {
			uint32_t send_cq, recv_cq, srq; /* numbers; 0: none */
			uint32_t rq_psn, sq_psn;        /* as the program set them */
			uint32_t dest_host;             /* + 1; 0: not connected */
			uint32_t path_mig_state;
		} qp;
		struct {
			uint32_t cqe;
		} cq;
		struct {
			uint32_t type; /* enum ibv_srq_type */
			uint32_t cq;   /* XRC; else 0 */
			uint32_t max_wr;
		} srq;
		struct {
			uint8_t src[16], dst[16]; /* IPv4 in the first four bytes */
			uint16_t src_port, dst_port;
			uint16_t ps;     /* enum rdma_port_space */
			uint8_t family;  /* AF_INET, AF_INET6 */
			uint8_t state;   /* enum rdma_cm_state of the kernel's rdma_cm.h */
			uint32_t qpn;    /* 0: none yet */
			uint8_t qp_type; /* enum ibv_qp_type */
			uint8_t pad[3];
		} cm;
		uint32_t words[12];
	};
};
NUPA_ASSERT_SIZE(struct nupa_resource_row, 64);
NUPA_ASSERT_AT(struct nupa_resource_row, words, 16);

/* In nupa_mr_entry.access: a bound window. */
#define NUPA_MR_ENTRY_WINDOW (1u << 31)
/* And there: memory that only its own process reaches.  Between processes, the owner moves it. */
#define NUPA_MR_ENTRY_RELAYED (1u << 30)

#define NUPA_RESOURCE_ROW_BITS 22u

static inline uint32_t nupa_resource_rows(const struct nupa_superblock *sb)
{
	return 4 * sb->qp_entries;
}
_Static_assert(4 * NUPA_QP_MAX < 1u << NUPA_RESOURCE_ROW_BITS, "a row is a number");

#endif
