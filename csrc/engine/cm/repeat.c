/* SPDX-License-Identifier: BSD-3-Clause
 * Repeated messages (IBTA 12.9.8): recognised and answered again, never executed twice (K4).
 *
 * A request is identified by its peer, the number there and the first PSN: numbers alone are
 * reused.  A program may destroy an id before the peer has its last message.  A remnant with the
 * id's number then repeats a DREQ, or a REJ for which an MRA of ours has told the peer to wait.  It
 * answers the request that made the id for as long as the peer may send that. */
#include "engine/cm/internal.h"

#include <stdlib.h>

#define LEFT_MAX 4096u

/* --- requests ------------------------------------------------------------------------ */

static struct nupa_list *bucket_of(const struct nupa_cm *cm, const struct nupa_channel *channel,
				   uint32_t remote)
{
	/* Different peers use the same numbers. */
	return (struct nupa_list *)&cm->remotes[(remote + channel->peer * 37) % CM_REMOTES];
}

void cm_remember(struct nupa_cm_id *id)
{
	nupa_list_add(bucket_of(id->engine->cm, id->peer, id->remote), &id->by_remote);
}

struct nupa_cm_id *cm_find_remote(const struct nupa_cm *cm, const struct nupa_channel *channel,
				  uint32_t remote, const uint32_t *psn)
{
	const struct nupa_list *bucket = bucket_of(cm, channel, remote);

	for (struct nupa_list *at = bucket->prev; at != bucket; at = at->prev) {
		struct nupa_cm_id *id = container_of(at, struct nupa_cm_id, by_remote);

		if (id->peer == channel && id->remote == remote &&
		    (psn ? id->remote_psn == *psn : !id->remnant))
			return id;
	}
	return NULL;
}

/* The peer's program takes long.  A peer whose ring is full is owed the last message only. */
static void acknowledge(struct nupa_cm_id *id, enum cm_mra which)
{
	id->sent.delays = true;
	if (!id->sent.owed)
		cm_send(id->engine, id->peer, CM_MRA, (uint8_t)which, id->remote, id->local, NULL);
}

void cm_request_again(struct nupa_cm_id *id, uint8_t message)
{
	if (message == CM_SIDR_REQ && id->sent.message == CM_SIDR_REP)
		cm_send_again(id);
	else if (message == CM_REQ && id->state == CM_REQ_RECEIVED)
		acknowledge(id, CM_MRA_REQ);
	else if (message == CM_REQ && (id->state == CM_REP_SENT || id->sent.message == CM_REJ))
		cm_send_again(id);
}

void cm_reply_again(struct nupa_cm_id *id)
{
	if (id->state == CM_REP_RECEIVED)
		acknowledge(id, CM_MRA_REP);
	else if (id->sent.message == CM_RTU || id->sent.message == CM_REJ)
		cm_send_again(id);
}

/* IBTA 12.9.8.1: for an id that does not exist, or no longer. */
void cm_answer_unknown(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg)
{
	if (msg->syndrome == CM_REP)
		cm_send(engine, channel, CM_REJ, CM_REJ_INVALID_ID, msg->src_qpn, 0, NULL);
	else if (msg->syndrome == CM_DREQ)
		cm_send(engine, channel, CM_DREP, 0, msg->src_qpn, 0, NULL);
}

/* --- remnants ------------------------------------------------------------------------ */

void cm_free_remnant(struct nupa_cm_id *remnant)
{
	remnant->engine->cm->n_left--;
	cm_unlink_id(remnant); /* cm->left, too */
	free(remnant);
}

void cm_leave_remnant(struct nupa_cm_id *id)
{
	struct nupa_cm *cm = id->engine->cm;
	const bool unfinished = id->state == CM_ESTABLISHED || id->state == CM_DREQ_SENT;
	const bool passive = !nupa_list_empty(&id->by_remote);
	struct nupa_cm_id *remnant;

	if (!id->peer || id->remnant || !(unfinished || passive))
		return;
	if (cm->n_left >= LEFT_MAX)
		cm_free_remnant(container_of(cm->left.next, struct nupa_cm_id, listener));
	remnant = malloc(sizeof(*remnant));
	if (!remnant)
		return; /* the peer's timer ends what it waits for */
	*remnant = *id;
	remnant->remnant = true;
	remnant->shown = false;
	remnant->events = NULL;
	remnant->context = NULL;
	remnant->user = NULL;
	remnant->port = NULL;
	remnant->unsent = false;
	nupa_list_init(&remnant->wait);
	nupa_list_init(&remnant->by_remote);
	nupa_list_init(&remnant->by_number);
	nupa_list_del(&id->by_number);
	cm_number_keep(remnant);
	nupa_list_add(&cm->ids, &remnant->link);
	nupa_list_add(&cm->left, &remnant->listener);
	cm->n_left++;
	cm->table[id->local & CM_INDEX_MASK] = remnant;
	if (passive)
		cm_remember(remnant);
	if (unfinished)
		cm_wait(remnant, CM_DREQ_SENT);
	else if (remnant->sent.message == CM_REJ && remnant->sent.delays)
		cm_wait(remnant, CM_REJ_SENT);
	else
		cm_linger(remnant);
}
