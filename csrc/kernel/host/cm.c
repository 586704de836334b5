// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Connection management in a kernel is the kernel's own (ib_cm): it has no ids here.  Its datagrams
 * go to processes as messages of their channels, and come from them so (engine/cm/kernel).
 */
#include "kernel/host/host.h"
#include "engine/attachment/attachment.h"
#include "engine/cm/hooks.h"
#include "engine/cm/kernel/kernel.h"
#include "engine/cm/kernel/notes.h"
#include "engine/cm/wire/message.h"
#include "engine/cm/wire/steer.h"
#include "engine/transport/responder.h"
#include "engine/trace/publish.h"
#include "segment/control/pkey.h"

static struct nupa_cm_notes *notes; /* with the engine's lock; NULL: none yet */

static struct nupa_cm_notes *notes_of(void)
{
	if (!notes)
		notes = nupa_cm_notes_new();
	return notes;
}

/* --- to our QP 1 ------------------------------------------------------------------------- */

/* As if it had come from QP 1 of the host *from*. */
static void deliver_mad(struct nupa_engine *engine, uint32_t from, uint32_t gid_index,
			const uint8_t *mad)
{
	const struct nupa_msg msg = { .op = NUPA_OP_SEND,
				      .flags = NUPA_F_FIRST | NUPA_F_LAST,
				      .src_qpn = NUPA_CM_GSI_QPN,
				      .length_bytes = NUPA_CM_MAD_BYTES,
				      .deth = { .is_global = 1 } };
	struct nupa_qp *qp = nupa_qp_find(engine, engine->slot->gsi_qpn);
	uint8_t grh[NUPA_GRH_BYTES];
	union ibv_gid sgid, dgid;

	/* I5: the number stands in the slot. */
	if (!qp || qp->type != IBV_QPT_UD || qp->state < IBV_QPS_RTR || qp->state > IBV_QPS_SQE)
		return;
	nupa_host_gid(engine->fabric, from, gid_index, &sgid);
	nupa_host_gid(engine->fabric, engine->host, gid_index, &dgid);
	nupa_grh_fill(grh, 0, NUPA_CM_MAD_BYTES, CM_HOP_LIMIT, sgid.raw, dgid.raw);
	nupa_receive_deliver(qp, &msg, mad, grh, NULL);
}

bool nupa_cm_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		     const struct nupa_msg *msg, const uint8_t *payload)
{
	uint8_t mad[NUPA_CM_MAD_BYTES];
	struct nupa_cm_mad read;

	if (msg->syndrome != CM_MAD)
		return true; /* of one that takes us for a process */
	if (!payload || msg->length_bytes != sizeof(mad) || msg->timer >= NUPA_GIDS)
		return false;
	memcpy(mad, payload, sizeof(mad)); /* the sender may still write to it */
	if (!nupa_cm_mad_read(mad, sizeof(mad), &read)) {
		nupa_count(&engine->hw->rx_invalid, 1);
		return true;
	}
	if (notes_of())
		nupa_cm_notes_heard(notes, channel->peer, &read);
	deliver_mad(engine, channel->peer_host, msg->timer, mad);
	return true;
}

/* --- from our QP 1 ----------------------------------------------------------------------- */

/* One for which the ring has no room is lost: the kernel's CM repeats it. */
static void send_to(struct nupa_engine *engine, uint32_t slot, uint32_t gid_index,
		    const uint8_t *mad, const struct nupa_cm_mad *read)
{
	struct nupa_channel *channel = nupa_channel_get(engine, slot);
	uint8_t *payload = NULL;
	struct nupa_msg *line;

	if (!channel || channel->broken || !nupa_channel_path_up(engine, channel) ||
	    (!channel->dma_backed && nupa_channel_back_dma(engine, channel)))
		return;
	line = nupa_tx_reserve(&channel->tx, NUPA_CM_MAD_BYTES, &payload);
	if (!line)
		return;
	line->op = NUPA_OP_CM;
	line->flags = NUPA_F_DMA;
	line->syndrome = CM_MAD;
	line->timer = gid_index;
	line->dest_qpn = line->src_qpn = 0;
	line->psn = line->ack_psn = line->imm = 0;
	line->length_bytes = NUPA_CM_MAD_BYTES;
	memcpy(payload, mad, NUPA_CM_MAD_BYTES);
	nupa_channel_publish(channel, line, NUPA_CM_MAD_BYTES);
	if (notes_of())
		nupa_cm_notes_said(notes, slot, read);
}

static bool is_process_of(const struct nupa_engine *engine, uint32_t slot, uint32_t host)
{
	const struct nupa_slot *at = &engine->fabric->slots[slot];

	return slot && slot < engine->fabric->geometry.n_slots &&
	       !nupa_load_acquire(&at->gsi_qpn) && nupa_load_relaxed(&at->host) == host &&
	       NUPA_CLAIM_STATE(nupa_slot_claim(at)) == NUPA_SLOT_LIVE;
}

/* The process of the host that a datagram is for; 0: none. */
static uint32_t process_for(const struct nupa_engine *engine, uint32_t host, uint32_t kernel,
			    const struct nupa_cm_mad *mad)
{
	uint32_t slot;

	if (mad->attribute == NUPA_CM_REQ || mad->attribute == NUPA_CM_SIDR_REQ) {
		const struct cm_wire wire = { .family = mad->ip_version == 6 ? AF_INET6 : AF_INET,
					      .dst = { mad->destination[0] } };
		const int found = mad->ip_version
				      ? cm_port_find(engine->fabric, host,
						     (enum rdma_port_space)(mad->service >> 16),
						     (uint16_t)mad->service, cm_kernel_kind(&wire))
				      : -ENOENT;

		slot = found < 0 ? 0 : (uint32_t)found;
	} else {
		/* Numbers of another kernel look alike. */
		slot = kernel && notes ? nupa_cm_notes_slot(notes, mad->remote_id)
		       : kernel        ? 0
				       : NUPA_CM_NUMBER_SLOT(mad->remote_id);
	}
	return is_process_of(engine, slot, host) ? slot : 0;
}

uint32_t nupa_kernel_gsi_send(struct ibv_context *context, uint32_t host, uint32_t gid_index,
			      const uint8_t *mad, uint32_t bytes)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	uint8_t answer[NUPA_CM_MAD_BYTES];
	struct nupa_cm_mad read;
	uint32_t kernel, slot = 0;
	bool understood;

	nupa_engine_lock(engine);
	kernel = cm_kernel_slot(engine->fabric, host);
	understood = mad && nupa_cm_mad_read(mad, bytes, &read);
	if (understood)
		slot = process_for(engine, host, kernel, &read);
	if (slot)
		send_to(engine, slot, gid_index, mad, &read);
	else if (understood && !kernel && nupa_path_up(engine, host) &&
		 nupa_pkey_shared(engine->fabric, engine->host, host) >= 0 &&
		 nupa_cm_refuse(mad, bytes, answer))
		deliver_mad(engine, host, gid_index, answer);
	nupa_engine_unlock(engine);
	return slot || !kernel ? 0 : nupa_load_acquire(&engine->fabric->slots[kernel].gsi_qpn);
}

/* --- the engine's calls ------------------------------------------------------------------ */

/* As the kernel of a process that dies tells the other end. */
void nupa_cm_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	uint8_t mad[NUPA_CM_MAD_BYTES];

	while (notes && nupa_cm_notes_orphan(notes, channel->peer, mad))
		deliver_mad(engine, channel->peer_host, NUPA_GID_IPV4, mad);
}

void nupa_cm_flush(struct nupa_engine *engine)
{
}

uint64_t nupa_cm_next_timer_ns(const struct nupa_engine *engine)
{
	return UINT64_MAX;
}

void nupa_cm_run_timers(struct nupa_engine *engine)
{
}

void nupa_cm_free(struct nupa_engine *engine)
{
	nupa_cm_notes_free(notes);
	notes = NULL;
}
