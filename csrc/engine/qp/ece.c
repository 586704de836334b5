/* SPDX-License-Identifier: BSD-3-Clause
 * Enhanced connection establishment (man ibv_set_ece, ibv_query_ece), and what a QP promises of the
 * order in which bytes arrive. */
#include "engine/qp/verbs.h"

#include <errno.h>

/* Both ends are always of one kind here: there are no options to agree on. */
int nupa_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	*ece = (struct ibv_ece){ 0 };
	return 0;
}

/* None of the options asked for is accepted, which is what is returned in *ece*. */
int nupa_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (ece->comp_mask)
		return EINVAL;
	return nupa_query_ece(qp, ece);
}

/* Nothing is in order: the copy routines of C library and kernel store the ends of a block in any
 * order.  The last byte may be there before the first. */
int nupa_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}
