/* SPDX-License-Identifier: BSD-3-Clause
 * Messages on their way out.  A message without room in its ring, or without a path, is owed and
 * sent later, in order. */
#include "engine/cm/kernel/kernel.h"
#include "engine/cm/wire/wire.h"

#include <stdlib.h>

/* An id owes a few messages at most.  Messages of no id, which are refusals, have a limit: a peer
 * may cause any number of them and never read. */
#define REFUSALS_MAX 4096u

/* False: later. */
static bool try_send(struct nupa_engine *engine, struct nupa_channel *channel,
		     const struct nupa_msg *msg, const void *from)
{
	const uint32_t bytes = msg->length_bytes;
	uint8_t *payload = NULL;
	struct nupa_msg *line;

	if (!nupa_channel_path_up(engine, channel) ||
	    (bytes && !channel->dma_backed && nupa_channel_back_dma(engine, channel)))
		return false;
	line = nupa_tx_reserve(&channel->tx, bytes, &payload);
	if (!line)
		return false;
	line->op = NUPA_OP_CM;
	line->flags = msg->flags;
	line->syndrome = msg->syndrome;
	line->timer = msg->timer;
	line->dest_qpn = msg->dest_qpn;
	line->src_qpn = msg->src_qpn;
	line->psn = line->ack_psn = line->imm = 0;
	line->length_bytes = bytes;
	if (bytes)
		memcpy(payload, from, bytes);
	nupa_channel_publish(channel, line, bytes);
	return true;
}

static bool owes(const struct nupa_cm *cm, const struct nupa_channel *channel)
{
	return cm->owing[channel->peer / 64] & UINT64_C(1) << channel->peer % 64;
}

/* Each turn of the engine looks for room; a path comes back with an event. */
static void owe(struct nupa_engine *engine, struct cm_owed *owed)
{
	const uint32_t peer = owed->channel->peer;

	nupa_list_add(&engine->cm->owed, &owed->link);
	engine->cm->owing[peer / 64] |= UINT64_C(1) << peer % 64;
	if (engine->cm_owes || !nupa_channel_path_up(engine, owed->channel))
		return;
	engine->cm_owes = true;
	nupa_port_wake(engine); /* the port thread sleeps until it is woken */
}

/* Behind those that are owed. */
static void post(struct nupa_engine *engine, struct nupa_channel *channel, struct nupa_cm_id *id,
		 const struct nupa_msg *msg, const void *payload)
{
	struct nupa_cm *cm = engine->cm;
	struct cm_owed *owed;

	if (!owes(cm, channel) && try_send(engine, channel, msg, payload)) {
		if (id)
			id->sent.tail = channel->tx.tail;
		return;
	}
	owed = msg->src_qpn || cm->n_refusals < REFUSALS_MAX ? calloc(1, sizeof(*owed)) : NULL;
	if (!owed)
		return; /* the other end's timer tells it */
	owed->channel = channel;
	owed->msg = *msg;
	if (msg->length_bytes)
		memcpy(owed->payload, payload, msg->length_bytes);
	owe(engine, owed);
	cm->n_refusals += !msg->src_qpn;
	if (id)
		id->sent.owed++;
}

/* timer: the GID of the datagram's ends. */
static struct nupa_msg datagram(uint8_t gid_index, uint32_t from)
{
	return (struct nupa_msg){
		.flags = NUPA_F_DMA,
		.syndrome = CM_MAD,
		.timer = gid_index,
		.src_qpn = from,
		.length_bytes = NUPA_CM_MAD_BYTES,
	};
}

void cm_send_mad(struct nupa_engine *engine, struct nupa_channel *channel, const uint8_t *mad)
{
	const struct nupa_msg msg = datagram(NUPA_GID_IPV4, 0);

	post(engine, channel, NULL, &msg, mad);
}

void cm_send(struct nupa_engine *engine, struct nupa_channel *channel, enum cm_message message,
	     uint8_t reason, uint32_t to, uint32_t from, const struct cm_wire *wire)
{
	struct nupa_msg msg = {
		.flags = wire ? NUPA_F_DMA : 0,
		.syndrome = (uint8_t)message,
		.timer = reason,
		.dest_qpn = to,
		.src_qpn = from,
		.length_bytes = wire ? (uint32_t)sizeof(*wire) : 0,
	};
	struct nupa_cm_id *id = cm_id_find(engine, from);
	uint8_t mad[NUPA_CM_MAD_BYTES], gid_index;

	if (!channel || channel->broken ||
	    cm_wire_send(engine, channel, id, message, reason, to, wire))
		return;
	if (!cm_is_kernel(channel)) {
		post(engine, channel, id, &msg, wire);
		return;
	}
	if (!cm_kernel_mad(engine, channel, id, &msg, wire, mad, &gid_index))
		return; /* lost */
	msg = datagram(gid_index, from);
	post(engine, channel, id, &msg, mad);
}

void cm_send_id(struct nupa_cm_id *id, enum cm_message message, uint8_t reason,
		const struct cm_wire *wire)
{
	id->sent.message = message;
	id->sent.reason = reason;
	id->sent.has_wire = wire != NULL;
	if (wire)
		id->sent.wire = *wire;
	cm_send(id->engine, id->peer, message, reason, id->remote, id->local, wire);
}

void cm_send_again(struct nupa_cm_id *id)
{
	const struct cm_sent *sent = &id->sent;

	if (sent->message && !sent->owed)
		cm_send(id->engine, id->peer, sent->message, sent->reason, id->remote, id->local,
			sent->has_wire ? &sent->wire : NULL);
}

void cm_wire_of(const struct nupa_cm_id *id, struct cm_wire *wire)
{
	memset(wire, 0, sizeof(*wire));
	wire->ps = (uint16_t)id->ps;
	wire->family = id->src.ss_family;
	wire->src_port = cm_addr_port(&id->src);
	wire->dst_port = cm_addr_port(&id->dst);
	cm_addr_to_wire(&id->src, wire->src);
	cm_addr_to_wire(&id->dst, wire->dst);
	wire->psn = id->psn;
	wire->dst_kind = (uint8_t)id->dst_kind;
	wire->qp_type = (uint8_t)id->qp_type;
	wire->tos = id->tos;
	wire->pkey = cm_pkey(id);
	wire->param = id->param;
}

static void free_owed(struct nupa_engine *engine, struct cm_owed *owed)
{
	struct nupa_cm_id *id = cm_id_find(engine, owed->msg.src_qpn);

	if (id && id->sent.owed) {
		id->sent.owed--;
		id->sent.tail = owed->channel->tx.tail;
	}
	engine->cm->n_refusals -= !owed->msg.src_qpn;
	free(owed);
}

void cm_forget_owed(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	struct nupa_cm *cm = engine->cm;
	struct nupa_list *at = cm->owed.next;

	while (at != &cm->owed) {
		struct cm_owed *owed = container_of(at, struct cm_owed, link);

		at = at->next;
		if (owed->channel != channel)
			continue;
		nupa_list_del(&owed->link);
		free_owed(engine, owed);
	}
	cm->owing[channel->peer / 64] &= ~(UINT64_C(1) << channel->peer % 64);
}

void cm_flush_owed(struct nupa_engine *engine)
{
	struct nupa_cm *cm = engine->cm;
	struct nupa_list *last = cm->owed.prev, *at = cm->owed.next;
	bool more = at != &cm->owed;

	memset(cm->owing, 0, sizeof(cm->owing));
	engine->cm_owes = false;
	/* Ids that keep waiting follow `last`, in order. */
	while (more) {
		struct cm_owed *owed = container_of(at, struct cm_owed, link);

		more = at != last;
		at = at->next;
		nupa_list_del(&owed->link);
		if (owes(cm, owed->channel) ||
		    !try_send(engine, owed->channel, &owed->msg, owed->payload))
			owe(engine, owed);
		else
			free_owed(engine, owed);
	}
}
