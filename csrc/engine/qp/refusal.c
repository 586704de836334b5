/* SPDX-License-Identifier: BSD-3-Clause
 * The words for a work request that its QP does not take: posting it is EINVAL, as much else is. */
#include "base/hint.h"
#include "engine/qp/verbs.h"

#include <errno.h>

static const char *const opcodes[] = {
	[IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
	[IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE_WITH_IMM",
	[IBV_WR_SEND] = "SEND",
	[IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
	[IBV_WR_RDMA_READ] = "RDMA_READ",
	[IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
	[IBV_WR_LOCAL_INV] = "LOCAL_INV",
	[IBV_WR_BIND_MW] = "BIND_MW",
	[IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
	[IBV_WR_TSO] = "TSO",
	[IBV_WR_DRIVER1] = "DRIVER1",
	[IBV_WR_FLUSH] = "FLUSH",
	[IBV_WR_ATOMIC_WRITE] = "ATOMIC_WRITE",
};

static const char *const types[] = {
	[IBV_QPT_RC] = "RC",
	[IBV_QPT_UC] = "UC",
	[IBV_QPT_UD] = "UD",
};

int nupa_refuse_opcode(const struct nupa_qp *qp, uint32_t opcode)
{
	const char *name = opcode < sizeof(opcodes) / sizeof(opcodes[0]) ? opcodes[opcode] : NULL;

	nupa_hint("QP %u, of type %s, takes no work request with opcode %u%s%s (EINVAL); see "
		  "docs/verbs.md",
		  qp->ibv.qp_num, qp->xrc ? "XRC" : types[qp->type], opcode,
		  name ? ", IBV_WR_" : "", name ? name : "");
	return EINVAL;
}
