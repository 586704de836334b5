/* SPDX-License-Identifier: BSD-3-Clause
 * P_Keys of QPs (IBTA 10.9, 9.6.1.1.1).
 *
 *   K1  qp->pkey is the entry that the host's table had at attr.pkey_index when a program set it,
 *       INIT or RTR being the last occasion.  From RTR on the entry stays so, or the QP fails.
 *   K2  A peer's P_Key is looked at once, when both meet: by the responder with the first request
 *       (partner.c), by the requester before its first direct access (mover.c).  Each change that
 *       could end the match has both look again: another P_Key of our own, another table of the
 *       peer's host, or another incarnation of the peer.
 *   K3  Hosts that share no partition send each other nothing at all (nupa_channel_look). */
#include "engine/qp/pkey.h"

#include "engine/transport/transport.h"
#include "segment/control/pkey.h"

#include <errno.h>

/* --- chosen -------------------------------------------------------------------------- */

static int check_index(const struct nupa_qp *qp, const char *what, uint32_t index)
{
	const struct nupa_engine *engine = qp->engine;
	char text[NUPA_PKEYS_TEXT_BYTES];

	if (NUPA_PKEY_PARTITION(nupa_pkey_at(engine->fabric, engine->host, index)))
		return 0;
	nupa_hint_of(what,
		     "ibv_modify_qp: QP %u asks for %s %u, where the P_Key table of host %s has "
		     "nothing (EINVAL): its P_Keys are %s; see ibv_query_pkey",
		     qp->ibv.qp_num, what, index, engine->fabric->hosts[engine->host].name,
		     nupa_pkeys_named(engine->fabric, engine->host, text));
	return EINVAL;
}

int nupa_qp_check_pkey(const struct nupa_qp *qp, const struct ibv_qp_attr *attr, int mask,
		       enum ibv_qp_state to)
{
	const bool chosen = mask & IBV_QP_PKEY_INDEX;
	int error = 0;

	/* IBTA 10.3.1: in SQD attributes change when the send queue is drained. */
	if (chosen && qp->state == IBV_QPS_SQD && attr->pkey_index != qp->attr.pkey_index &&
	    qp->sq.acked != qp->sq.issued)
		return EINVAL;
	if (chosen || (qp->state == IBV_QPS_INIT && to == IBV_QPS_RTR))
		error =
		    check_index(qp, "pkey_index", chosen ? attr->pkey_index : qp->attr.pkey_index);
	if (!error && mask & IBV_QP_ALT_PATH)
		error = check_index(qp, "alt_pkey_index", attr->alt_pkey_index);
	return error;
}

void nupa_qp_take_pkey(struct nupa_qp *qp, int mask, enum ibv_qp_state to)
{
	const struct nupa_engine *engine = qp->engine;
	uint16_t pkey;

	if (!(mask & (IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE)) &&
	    (qp->state != IBV_QPS_INIT || to != IBV_QPS_RTR))
		return;
	pkey = nupa_pkey_at(engine->fabric, engine->host, qp->attr.pkey_index);
	if (pkey == qp->pkey)
		return;
	qp->pkey = pkey;
	if (qp->state < IBV_QPS_RTR)
		return;
	nupa_partner_prove(qp);
	if (qp->sq.acked == qp->sq.issued) /* no answer is awaited: the partner looks again, too */
		nupa_qp_renew(qp);
}

/* --- followed ------------------------------------------------------------------------ */

/* Whether the host's own table has changed since. */
static bool own_changed(struct nupa_engine *engine)
{
	bool changed = false;

	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++) {
		const uint16_t pkey = nupa_pkey_at(engine->fabric, engine->host, i);

		changed |= pkey != engine->pkeys_seen[i];
		engine->pkeys_seen[i] = pkey;
	}
	return changed;
}

/* The same of the hosts at the other ends of channels. */
static bool others_changed(const struct nupa_engine *engine)
{
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		const struct nupa_channel *channel = engine->channels[peer];

		if (channel &&
		    nupa_pkey_sum(engine->fabric, channel->peer_host) != channel->pkeys_seen)
			return true;
	}
	return false;
}

static void others_seen(struct nupa_engine *engine)
{
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		struct nupa_channel *channel = engine->channels[peer];

		if (channel)
			channel->pkeys_seen = nupa_pkey_sum(engine->fabric, channel->peer_host);
	}
}

static void follow(struct nupa_qp *qp)
{
	const struct nupa_engine *engine = qp->engine;

	if (qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE)
		return;
	if (nupa_pkey_at(engine->fabric, engine->host, qp->attr.pkey_index) != qp->pkey) {
		nupa_qp_error(qp);
		nupa_event_raise_qp(qp, IBV_EVENT_QP_FATAL);
	} else if (qp->type != IBV_QPT_UD) {
		nupa_partner_prove(qp);
	}
}

void nupa_qp_follow_pkeys(struct nupa_engine *engine)
{
	const bool own = own_changed(engine);

	if (!own && !others_changed(engine))
		return;
	others_seen(engine);
	for (uint32_t i = 0; i < engine->qp_limit; i++)
		if (engine->qps[i])
			follow(engine->qps[i]);
	if (own)
		nupa_event_raise_port(engine, IBV_EVENT_PKEY_CHANGE);
}
