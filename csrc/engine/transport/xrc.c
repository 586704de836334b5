/* SPDX-License-Identifier: BSD-3-Clause
 * The way of XRC messages.  A request names its SRQ and goes to the SRQ's process.  This is the
 * process of the receiving QP, or another of the same host, where a *shadow* of that QP answers.
 * The receiving QP's own process takes no part in that.
 *
 * A sender goes from one responder to the next only when all that it sent is answered.  It
 * announces the change by NUPA_XRC_RESYNC: the PSNs start there from that message. */
#include "engine/transport/responder.h"
#include "engine/transport/sq.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <stdlib.h>

/* --- requester ----------------------------------------------------------------------- */

/* The process that a request is for; the receiving QP's own where there is none such: it refuses.
 */
static uint32_t slot_for(struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	const struct nupa_superblock *sb = &qp->engine->fabric->geometry;
	uint32_t home = nupa_qpn_slot(sb, qp->dest_qpn);
	uint32_t slot = nupa_qpn_slot(sb, wqe->dest_qpn);
	const struct nupa_channel *channel;

	if (slot == home)
		return home;
	channel = nupa_channel_get(qp->engine, slot);
	return channel && !channel->broken && channel->peer_host == qp->dest_host ? slot : home;
}

bool nupa_xrc_route(struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	uint32_t slot;

	if (nupa_is_local_op(wqe->opcode))
		return true;
	qp->xrc_part->srqn = wqe->dest_qpn;
	if (wqe->moved_bytes) /* goes on where it began */
		return true;
	slot = slot_for(qp, wqe);
	if (qp->channel && qp->channel->peer == slot && !qp->channel->broken)
		return true;
	if (qp->sq.acked != qp->sq.issued)
		return false; /* the answers come on the other channel */
	if (slot != nupa_qpn_slot(&qp->engine->fabric->geometry, qp->dest_qpn)) {
		qp->channel = nupa_channel_get(qp->engine, slot);
		qp->xrc_part->away = true;
	} else {
		qp->channel = NULL; /* as any QP's, found by its number */
	}
	qp->xrc_part->resync = qp->xrc_part->away;
	return true;
}

void nupa_xrc_mark(struct nupa_qp *qp, struct nupa_msg *msg)
{
	msg->ack_psn = qp->xrc_part->srqn;
	msg->syndrome = qp->xrc_part->resync ? NUPA_XRC_RESYNC : 0;
	qp->xrc_part->resync = false;
}

/* --- responder ----------------------------------------------------------------------- */

static struct nupa_srq *find_srq(const struct nupa_engine *engine, uint32_t srqn)
{
	if (!engine->xrc || nupa_qpn_slot(&engine->fabric->geometry, srqn) != engine->slot_index)
		return NULL;
	return engine->xrc->srqs[srqn % NUPA_SRQ_MAX];
}

/* IBTA A14: the SRQ has to be there, and in the domain of the QP; its PD says what memory may be
 * touched. */
bool nupa_xrc_bind(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_srq *srq = find_srq(qp->engine, msg->ack_psn);

	if (qp->xrc != NUPA_XRC_TARGET) { /* I5: a QP that only sends receives nothing */
		nupa_count(&qp->engine->hw->rx_invalid, 1);
		return false;
	}
	if (!srq || !nupa_xrcd_same(&srq->xrcd->id, &qp->xrc_part->xrcd->id) ||
	    (qp->recv_active && qp->srq != srq)) {
		nupa_responder_nak_fatal(qp, NUPA_NAK_INVALID_REQUEST);
		return false;
	}
	qp->srq = srq;
	qp->recv_cq = srq->cq;
	qp->ibv.pd = srq->ibv.pd;
	return true;
}

bool nupa_xrc_bind_again(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	struct nupa_srq *srq = find_srq(qp->engine, msg->ack_psn);

	if (qp->xrc != NUPA_XRC_TARGET || !srq ||
	    !nupa_xrcd_same(&srq->xrcd->id, &qp->xrc_part->xrcd->id))
		return false;
	qp->srq = srq;
	qp->recv_cq = srq->cq;
	qp->ibv.pd = srq->ibv.pd;
	return true;
}

void nupa_xrc_resync(struct nupa_qp *qp, const struct nupa_msg *msg)
{
	if (msg->syndrome != NUPA_XRC_RESYNC || !(msg->flags & NUPA_F_FIRST))
		return;
	/* PSNs go on wherever the sender was meanwhile: one from before has come twice. */
	if (qp->channel->suspect && !qp->xrc_part->is_new &&
	    nupa_psn_diff(msg->psn, qp->expected_psn) < 0)
		return;
	qp->xrc_part->is_new = false;
	qp->expected_psn = msg->psn;
	qp->nak_sent = qp->recv_active = false;
}

static void unbind(struct nupa_qp *qp, const struct nupa_srq *srq)
{
	if (qp->srq != srq)
		return;
	qp->srq = NULL;
	qp->recv_cq = NULL;
	qp->ibv.pd = NULL;
	qp->recv_active = false;
}

void nupa_xrc_forget_srq(struct nupa_srq *srq)
{
	struct nupa_engine *engine = nupa_engine_of(srq->ibv.context);

	for (uint32_t i = 0; i < engine->qp_limit; i++)
		if (engine->qps[i] && engine->qps[i]->xrc)
			unbind(engine->qps[i], srq);
	for (uint32_t i = 0; i < NUPA_XRC_SHADOW_LISTS; i++)
		for (struct nupa_list *at = engine->xrc->shadows[i].next;
		     at != &engine->xrc->shadows[i]; at = at->next)
			unbind(&container_of(at, struct nupa_xrc_shadow, link)->qp, srq);
}

/* --- shadows ------------------------------------------------------------------------- */

const struct nupa_qp_entry *nupa_xrc_target(struct nupa_engine *engine, uint32_t qpn,
					    const struct nupa_xrcd_id *id)
{
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	uint32_t peer = nupa_qpn_slot(sb, qpn), index = nupa_qpn_index(sb, qpn);
	const struct nupa_qp_entry *entry;
	const struct nupa_slot *slot;
	uint8_t *arena;

	if (peer == 0 || peer >= sb->n_slots)
		return NULL;
	slot = &engine->fabric->slots[peer];
	if (NUPA_CLAIM_STATE(nupa_slot_claim(slot)) != NUPA_SLOT_LIVE ||
	    nupa_load_relaxed(&slot->host) != engine->host || index >= sb->qp_entries ||
	    index >= nupa_load_acquire(&slot->qp_limit))
		return NULL;
	arena = nupa_fabric_arena(engine->fabric, peer);
	if (!arena)
		return NULL;
	entry = (struct nupa_qp_entry *)(void *)(arena + nupa_arena_map(sb).qps_off) + index;
	if (nupa_load_acquire(&entry->qpn) != qpn ||
	    nupa_load_relaxed(&entry->type) != IBV_QPT_XRC_RECV ||
	    (id && (nupa_load_relaxed(&entry->xrcd_dev) != id->dev ||
		    nupa_load_relaxed(&entry->xrcd_ino) != id->ino)))
		return NULL;
	return entry;
}

static struct nupa_list *list_of(struct nupa_xrc *xrc, uint32_t qpn, uint32_t src_qpn)
{
	return &xrc->shadows[(qpn ^ src_qpn ^ src_qpn >> NUPA_QP_INDEX_BITS) &
			     (NUPA_XRC_SHADOW_LISTS - 1)];
}

static struct nupa_xrc_shadow *shadow_find(struct nupa_list *list, uint32_t qpn, uint32_t src_qpn)
{
	for (struct nupa_list *at = list->next; at != list; at = at->next) {
		struct nupa_xrc_shadow *shadow = container_of(at, struct nupa_xrc_shadow, link);

		if (shadow->qp.ibv.qp_num == qpn && shadow->qp.dest_qpn == src_qpn)
			return shadow;
	}
	return NULL;
}

static void shadow_free(struct nupa_xrc *xrc, struct nupa_xrc_shadow *shadow)
{
	nupa_list_del(&shadow->link);
	nupa_list_del(&shadow->qp.ack_link);
	nupa_list_del(&shadow->qp.job_link);
	free(shadow->qp.recv_wqe);
	free(shadow->qp.answers);
	free(shadow);
	xrc->n_shadows--;
}

void nupa_xrc_free_shadows(struct nupa_xrc *xrc)
{
	for (uint32_t i = 0; i < NUPA_XRC_SHADOW_LISTS; i++)
		while (!nupa_list_empty(&xrc->shadows[i]))
			shadow_free(
			    xrc, container_of(xrc->shadows[i].next, struct nupa_xrc_shadow, link));
}

/* Those of a process that is gone. */
void nupa_xrc_channel_failed(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	const struct nupa_superblock *sb = &engine->fabric->geometry;

	for (uint32_t i = 0; i < NUPA_XRC_SHADOW_LISTS; i++) {
		struct nupa_list *list = &engine->xrc->shadows[i], *next;

		for (struct nupa_list *at = list->next; at != list; at = next) {
			struct nupa_xrc_shadow *shadow =
			    container_of(at, struct nupa_xrc_shadow, link);

			next = at->next;
			if (nupa_qpn_slot(sb, shadow->qp.dest_qpn) == channel->peer ||
			    nupa_qpn_slot(sb, shadow->qp.ibv.qp_num) == channel->peer)
				shadow_free(engine->xrc, shadow);
		}
	}
}

/* The published QP, if it is connected to this sender. */
static const struct nupa_qp_entry *connected_target(struct nupa_engine *engine, uint32_t qpn,
						    uint32_t src_qpn)
{
	const struct nupa_qp_entry *entry = nupa_xrc_target(engine, qpn, NULL);
	uint8_t state = entry ? nupa_load_acquire(&entry->state) : 0;

	if (state < IBV_QPS_RTR || state > IBV_QPS_SQE ||
	    nupa_load_relaxed(&entry->dest_qpn) != src_qpn)
		return NULL;
	return entry;
}

/* Those whose connection has ended, which is not announced. */
static void sweep(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < NUPA_XRC_SHADOW_LISTS; i++) {
		struct nupa_list *list = &engine->xrc->shadows[i], *next;

		for (struct nupa_list *at = list->next; at != list; at = next) {
			struct nupa_xrc_shadow *shadow =
			    container_of(at, struct nupa_xrc_shadow, link);

			next = at->next;
			if (!connected_target(engine, shadow->qp.ibv.qp_num, shadow->qp.dest_qpn))
				shadow_free(engine->xrc, shadow);
		}
	}
}

static struct nupa_xrc_shadow *shadow_new(struct nupa_engine *engine, uint32_t qpn,
					  uint32_t src_qpn)
{
	struct nupa_xrc_shadow *shadow;

	/* I5: a peer that invents receiving QPs gets so many and no more. */
	if (engine->xrc->n_shadows == NUPA_XRC_SHADOWS_MAX)
		sweep(engine);
	if (engine->xrc->n_shadows == NUPA_XRC_SHADOWS_MAX)
		return NULL;
	shadow = aligned_alloc(_Alignof(struct nupa_xrc_shadow), sizeof(*shadow));
	if (!shadow)
		return NULL;
	memset(shadow, 0, sizeof(*shadow));
	shadow->qp.recv_wqe = calloc(1, NUPA_RECV_COPY_BYTES);
	if (!shadow->qp.recv_wqe) {
		free(shadow);
		return NULL;
	}
	shadow->part.xrcd = &shadow->xrcd;
	shadow->qp.xrc_part = &shadow->part;
	shadow->qp.engine = engine;
	shadow->qp.entry = &shadow->entry;
	shadow->qp.type = IBV_QPT_RC;
	shadow->qp.xrc = NUPA_XRC_TARGET;
	shadow->qp.ibv.qp_num = qpn;
	shadow->qp.ibv.qp_type = IBV_QPT_XRC_RECV;
	shadow->qp.dest_qpn = src_qpn;
	shadow->qp.comm_est = true;
	nupa_list_init(&shadow->qp.wait_link);
	nupa_list_init(&shadow->qp.ack_link);
	nupa_list_init(&shadow->qp.job_link);
	nupa_list_add(list_of(engine->xrc, qpn, src_qpn), &shadow->link);
	engine->xrc->n_shadows++;
	return shadow;
}

/* As if the QP had just been connected. */
static void shadow_begin(struct nupa_xrc_shadow *shadow)
{
	shadow->qp.state = IBV_QPS_RTS;
	shadow->qp.peer_incarnation = NUPA_PEER_UNKNOWN;
	shadow->qp.recv_active = shadow->qp.nak_sent = false;
	shadow->qp.ack_pending = shadow->qp.nak_pending = false;
	shadow->qp.jobs_head = shadow->qp.jobs_tail = shadow->qp.n_answers = 0;
	nupa_list_del(&shadow->qp.ack_link);
	nupa_list_del(&shadow->qp.job_link);
}

struct nupa_qp *nupa_xrc_shadow(struct nupa_engine *engine, const struct nupa_channel *channel,
				const struct nupa_msg *msg)
{
	bool resync = msg->syndrome == NUPA_XRC_RESYNC && msg->flags & NUPA_F_FIRST;
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	const struct nupa_qp_entry *entry;
	struct nupa_xrc_shadow *shadow;

	if (!engine->xrc || nupa_qpn_slot(sb, msg->dest_qpn) == engine->slot_index ||
	    nupa_qpn_slot(sb, msg->src_qpn) != channel->peer)
		return NULL;
	entry = connected_target(engine, msg->dest_qpn, msg->src_qpn);
	if (!entry)
		return NULL;
	shadow = shadow_find(list_of(engine->xrc, msg->dest_qpn, msg->src_qpn), msg->dest_qpn,
			     msg->src_qpn);
	if (!shadow && resync) {
		shadow = shadow_new(engine, msg->dest_qpn, msg->src_qpn);
		if (shadow)
			shadow_begin(shadow);
	} else if (shadow && shadow->qp.state == IBV_QPS_ERR && resync &&
		   nupa_psn_incarnation(msg->psn) != shadow->qp.peer_incarnation) {
		shadow_begin(shadow);
	}
	if (!shadow)
		return NULL;
	shadow->xrcd.id.dev = nupa_load_relaxed(&entry->xrcd_dev);
	shadow->xrcd.id.ino = nupa_load_relaxed(&entry->xrcd_ino);
	shadow->qp.attr.qp_access_flags = nupa_load_relaxed(&entry->access);
	shadow->qp.attr.min_rnr_timer = nupa_load_relaxed(&entry->min_rnr_timer);
	if (unlikely(shadow->qp.pkey != nupa_load_relaxed(&entry->pkey))) {
		shadow->qp.pkey = nupa_load_relaxed(&entry->pkey);
		nupa_partner_prove(&shadow->qp);
	}
	return &shadow->qp;
}
