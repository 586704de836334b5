/* SPDX-License-Identifier: BSD-3-Clause
 * The partner of an RC QP: it is told when the QP is destroyed, and tells us. */
#include "engine/queue/queue.h"

bool nupa_partner_left(const struct nupa_qp *qp)
{
	return qp->partner_gone ||
	       (qp->channel && (qp->channel->left || nupa_channel_left(qp->channel)));
}

void nupa_partner_leave(struct nupa_qp *qp)
{
	struct nupa_channel *channel = qp->channel;
	struct nupa_msg *msg;

	if (qp->type != IBV_QPT_RC || qp->state < IBV_QPS_RTR || !channel || channel->broken)
		return;
	msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	if (!msg)
		return; /* a partner that does not listen learns of our end instead */
	msg->op = NUPA_OP_GONE;
	msg->flags = 0;
	msg->dest_qpn = qp->dest_qpn;
	msg->src_qpn = qp->ibv.qp_num;
	msg->psn = nupa_psn_of(qp->incarnation, 0);
	msg->length_bytes = 0;
	nupa_channel_publish(channel, msg, 0);
}

void nupa_partner_gone(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg)
{
	struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);

	/* I5: only the connected QP, by its own channel. */
	if (qp && qp->type == IBV_QPT_RC && qp->dest_qpn == msg->src_qpn &&
	    qp->channel == channel &&
	    (qp->peer_incarnation == NUPA_PEER_UNKNOWN ||
	     qp->peer_incarnation == nupa_psn_incarnation(msg->psn)))
		qp->partner_gone = true;
}
