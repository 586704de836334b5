/* SPDX-License-Identifier: BSD-3-Clause
 * The QP state machine: each transition that a program may ask for, with its required and optional
 * attributes (IBTA 11.2.5.2 table 91, man ibv_modify_qp).  Nothing else decides. */
#include "engine/qp/verbs.h"

#include <errno.h>

enum { RC, UC, UD, INI, TGT, N_TYPES };

struct transition {
	uint8_t from, to;
	int must[N_TYPES];
	int may[N_TYPES];
};

#define INIT_CONNECTED (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define INIT_DATAGRAM (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define RTR_UC (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RTR_RC (RTR_UC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTR_MAY (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define RTS_RC                                                                                     \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define RTS_MAY_UC                                                                                 \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)
#define RTS_MAY_RC (RTS_MAY_UC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MAY_UD (IBV_QP_CUR_STATE | IBV_QP_QKEY)
/* XRC's initiator has no receives, its target no sends of its own. */
#define RTR_INI RTR_UC
#define RTS_TGT (IBV_QP_TIMEOUT | IBV_QP_SQ_PSN)
#define SQD_MAY_UC                                                                                 \
	(IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |                   \
	 IBV_QP_PATH_MIG_STATE)
#define SQD_MAY_RC                                                                                 \
	(SQD_MAY_UC | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |         \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define SQD_MAY_INI                                                                                \
	(SQD_MAY_UC | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |         \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define SQD_MAY_TGT                                                                                \
	(SQD_MAY_UC | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC |                   \
	 IBV_QP_MIN_RNR_TIMER)
#define NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY

/* RC, UC, UD, XRC_SEND, XRC_RECV.  To RESET and to ERR leads from everywhere, with nothing more. */
static const struct transition transitions[] = {
	{ IBV_QPS_RESET,
	  IBV_QPS_INIT,
	  { INIT_CONNECTED, INIT_CONNECTED, INIT_DATAGRAM, INIT_CONNECTED, INIT_CONNECTED },
	  { 0 } },
	{ IBV_QPS_INIT,
	  IBV_QPS_INIT,
	  { 0 },
	  { INIT_CONNECTED, INIT_CONNECTED, INIT_DATAGRAM, INIT_CONNECTED, INIT_CONNECTED } },
	{ IBV_QPS_INIT,
	  IBV_QPS_RTR,
	  { RTR_RC, RTR_UC, 0, RTR_INI, RTR_RC },
	  { RTR_MAY, RTR_MAY, IBV_QP_PKEY_INDEX | IBV_QP_QKEY, RTR_MAY, RTR_MAY } },
	{ IBV_QPS_RTR,
	  IBV_QPS_RTS,
	  { RTS_RC, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, RTS_RC, RTS_TGT },
	  { RTS_MAY_RC, RTS_MAY_UC, RTS_MAY_UD, RTS_MAY_UC, RTS_MAY_RC } },
	{ IBV_QPS_RTS,
	  IBV_QPS_RTS,
	  { 0 },
	  { RTS_MAY_RC, RTS_MAY_UC, RTS_MAY_UD, RTS_MAY_UC, RTS_MAY_RC } },
	{ IBV_QPS_RTS, IBV_QPS_SQD, { 0 }, { NOTIFY, NOTIFY, NOTIFY, NOTIFY, NOTIFY } },
	{ IBV_QPS_SQD,
	  IBV_QPS_RTS,
	  { 0 },
	  { RTS_MAY_RC, RTS_MAY_UC, RTS_MAY_UD, RTS_MAY_UC, RTS_MAY_RC } },
	{ IBV_QPS_SQD,
	  IBV_QPS_SQD,
	  { 0 },
	  { SQD_MAY_RC, SQD_MAY_UC, IBV_QP_PKEY_INDEX | IBV_QP_QKEY, SQD_MAY_INI, SQD_MAY_TGT } },
	{ IBV_QPS_SQE,
	  IBV_QPS_RTS,
	  { -1, 0, 0, -1, -1 }, /* a QP of a reliable service is never in SQE */
	  { 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, RTS_MAY_UD } },
};

/* As the kernel: a program treats both sides of XRC as it treats RC; what one has not is ignored.
 */
int nupa_qp_own_mask(enum ibv_qp_type type, int mask)
{
	if (type == IBV_QPT_XRC_SEND)
		return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

int nupa_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask)
{
	int column = type == IBV_QPT_RC         ? RC
		     : type == IBV_QPT_UC       ? UC
		     : type == IBV_QPT_XRC_SEND ? INI
		     : type == IBV_QPT_XRC_RECV ? TGT
						: UD;

	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask ? EINVAL : 0;
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->from != from || t->to != to)
			continue;
		if (t->must[column] == -1 || (mask & t->must[column]) != t->must[column] ||
		    mask & ~(t->must[column] | t->may[column]))
			return EINVAL;
		return 0;
	}
	return EINVAL;
}
