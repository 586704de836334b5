/* SPDX-License-Identifier: BSD-3-Clause
 * The partner of a connected QP: each tells the other when it is destroyed, and publishes an entry
 * that the other reads. */
#include "engine/transport/responder.h"

#include "engine/channel/apart.h"
#include "segment/control/pkey.h"
#include "segment/gid.h"

#include <stdio.h>

bool nupa_partner_left(const struct nupa_qp *qp)
{
	return qp->partner_gone ||
	       (qp->channel && (qp->channel->left || nupa_channel_left(qp->channel)));
}

void nupa_partner_leave(struct nupa_qp *qp)
{
	struct nupa_channel *channel = qp->channel;
	struct nupa_msg *msg;

	if (qp->type != IBV_QPT_RC || qp->state < IBV_QPS_RTR || !channel || channel->broken ||
	    channel->wired)
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
	     (qp->peer_incarnation & ~NUPA_PEER_UNPROVEN) == nupa_psn_incarnation(msg->psn)))
		qp->partner_gone = true;
}

/* --- as it is published -------------------------------------------------------------- */

/* The partner as its process publishes it; NULL: it does not. */
static const struct nupa_qp_entry *partner_of(const struct nupa_qp *qp,
					      const struct nupa_channel *channel)
{
	uint32_t index = nupa_qpn_index(&qp->engine->fabric->geometry, qp->dest_qpn);

	nupa_channel_fetch_slot(channel);
	/* I5: an index from outside. */
	if (index >= qp->engine->fabric->geometry.qp_entries ||
	    index >= nupa_load_acquire(&channel->peer_slot->qp_limit))
		return NULL;
	nupa_channel_fetch_qp(channel, &channel->peer_qps[index]);
	return &channel->peer_qps[index];
}

/* IBTA 9.6.1.1.1.  A process that has not yet seen that its host left a partition still publishes
 * that one's P_Key. */
static bool of_own_partition(const struct nupa_qp *qp, const struct nupa_channel *channel,
			     const struct nupa_qp_entry *partner)
{
	const uint16_t pkey = nupa_load_relaxed(&partner->pkey);

	return nupa_pkeys_match(pkey, qp->pkey) &&
	       nupa_pkey_held(qp->engine->fabric, channel->peer_host, pkey);
}

enum nupa_meeting nupa_responder_meet_incarnation(struct nupa_qp *qp,
						  const struct nupa_channel *channel,
						  uint32_t incarnation)
{
	const struct nupa_qp_entry *partner = partner_of(qp, channel);

	if (!partner ||
	    (nupa_load_relaxed(&partner->type) == IBV_QPT_XRC_SEND) !=
		(qp->xrc == NUPA_XRC_TARGET) ||
	    nupa_load_relaxed(&partner->incarnation) != incarnation)
		return NUPA_MET_STALE;
	if (!of_own_partition(qp, channel, partner))
		return NUPA_MET_STRANGER;
	if (qp->peer_incarnation == (incarnation | NUPA_PEER_UNPROVEN)) {
		qp->peer_incarnation = incarnation;
		return NUPA_MET;
	}
	if (qp->peer_incarnation != NUPA_PEER_UNKNOWN) { /* requests of the former one are void */
		qp->nak_sent = qp->ack_pending = qp->nak_pending = false;
		qp->jobs_head = qp->jobs_tail;
		qp->n_answers = 0;
		nupa_list_del(&qp->ack_link);
		nupa_list_del(&qp->job_link);
	}
	if (qp->xrc == NUPA_XRC_TARGET)
		qp->xrc_part->is_new = true;
	qp->peer_incarnation = incarnation;
	return NUPA_MET;
}

void nupa_partner_prove(struct nupa_qp *qp)
{
	nupa_qp_unsettle(qp);
	qp->peer = NULL;
	if (qp->peer_incarnation != NUPA_PEER_UNKNOWN)
		qp->peer_incarnation |= NUPA_PEER_UNPROVEN;
}

/* A program that means the host of a wire and takes another GID than the wire's is answered by a
 * host here, of all likely ones by its own. */
static void explain_missing(const struct nupa_qp *qp, const struct nupa_channel *channel)
{
	const struct nupa_fabric *fabric = qp->engine->fabric;
	char advice[128] = "";

	if (qp->engine->has_wires)
		snprintf(advice, sizeof(advice),
			 "; to the host of a wire, take the GID of the wire's address here, from "
			 "index %d on (perftest: -x %d)",
			 NUPA_GID_WIRE, NUPA_GID_WIRE);
	nupa_hint("QP %u gives up (IBV_WC_RETRY_EXC_ERR), as host %s has no QP %u%s",
		  qp->ibv.qp_num, fabric->hosts[channel->peer_host].name, qp->dest_qpn, advice);
}

void nupa_partner_explain(const struct nupa_qp *qp)
{
	const struct nupa_channel *channel = qp->channel;
	const struct nupa_fabric *fabric = qp->engine->fabric;
	char own[NUPA_PKEYS_TEXT_BYTES], others[NUPA_PKEYS_TEXT_BYTES];
	const struct nupa_qp_entry *partner;

	if (!channel || channel->broken || channel->wired)
		return;
	partner = partner_of(qp, channel);
	if (!channel->parted) {
		if (!partner || nupa_load_relaxed(&partner->qpn) != qp->dest_qpn) {
			explain_missing(qp, channel);
			return;
		}
		if (nupa_load_relaxed(&partner->state) == IBV_QPS_RESET ||
		    of_own_partition(qp, channel, partner))
			return;
	}
	nupa_hint("QP %u (P_Key 0x%04x) and QP %u are not of one partition "
		  "(IBV_WC_RETRY_EXC_ERR): the P_Keys of host %s are %s, those of host %s %s; see "
		  "`nupa partition`",
		  qp->ibv.qp_num, qp->pkey, qp->dest_qpn, fabric->hosts[qp->engine->host].name,
		  nupa_pkeys_named(fabric, qp->engine->host, own),
		  fabric->hosts[channel->peer_host].name,
		  nupa_pkeys_named(fabric, channel->peer_host, others));
}

bool nupa_responder_awaited(const struct nupa_qp *qp)
{
	const struct nupa_qp_entry *partner;

	if (qp->channel->wired) /* its buffers are not here */
		return true;
	partner = partner_of(qp, qp->channel);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return partner && nupa_load_relaxed(&partner->qpn) == qp->dest_qpn &&
	       nupa_load_relaxed(&partner->incarnation) == qp->peer_incarnation &&
	       nupa_load_relaxed(&partner->state) != IBV_QPS_ERR;
}

void nupa_responder_meet(struct nupa_qp *qp)
{
	const struct nupa_channel *channel = qp->channel;
	const struct nupa_qp_entry *partner;

	if (qp->peer_incarnation != NUPA_PEER_UNKNOWN || !channel || channel->broken)
		return;
	if (channel->wired) { /* packets have no incarnation */
		qp->peer_incarnation = 0;
		return;
	}
	partner = partner_of(qp, channel);
	if (partner)
		nupa_responder_meet_incarnation(qp, channel,
						nupa_load_relaxed(&partner->incarnation) & 0xff);
}
