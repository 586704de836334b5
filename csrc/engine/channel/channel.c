/* SPDX-License-Identifier: BSD-3-Clause
 * Channels: a pair of rings between two attachments.  Its peer, its path and its doorbell. */
#include "engine/channel/apart.h"
#include "engine/channel/attention.h"
#include "engine/promote/reach.h"
#include "segment/control/pkey.h"
#include "segment/slot/machine.h"
#include "segment/wire.h"

bool nupa_channel_peer_alive(const struct nupa_channel *channel)
{
	return nupa_load_acquire(&channel->peer_slot->claim) == channel->peer_claim;
}

bool nupa_channel_process_alive(const struct nupa_channel *channel)
{
	return nupa_channel_peer_alive(channel) &&
	       nupa_slot_alive(channel->engine->fabric, channel->peer,
			       nupa_slot_claim(channel->peer_slot));
}

bool nupa_channel_process_proven(const struct nupa_channel *channel)
{
	/* The word is the owner's if the claim is the same afterwards. */
	if (nupa_life_is_proven(channel->peer_slot))
		return nupa_channel_peer_alive(channel);
	return nupa_channel_process_alive(channel);
}

uint32_t nupa_channel_slot(const struct nupa_engine *engine, uint32_t host, uint32_t qpn)
{
	const struct nupa_wire_entry *entry = NULL;
	int index;

	if (likely(!engine->has_wires))
		return nupa_qpn_slot(&engine->fabric->geometry, qpn);
	index = nupa_wire_of_host(engine->fabric, host);
	if (index >= 0)
		entry = nupa_wire_at(engine->fabric, (uint32_t)index);
	if (entry)
		return nupa_load_relaxed(&entry->slot);
	return nupa_wire_is_lost(engine->fabric, host)
		   ? 0 /* the number is another fabric's */
		   : nupa_qpn_slot(&engine->fabric->geometry, qpn);
}

bool nupa_path_up(const struct nupa_engine *engine, uint32_t host)
{
	const struct nupa_fabric *fabric = engine->fabric;
	const struct nupa_route *route =
	    &fabric->routes[engine->host * fabric->geometry.n_hosts + host];

	for (uint32_t i = 0; i < route->hops && i < NUPA_HOPS_MAX; i++) {
		uint32_t port = route->port[i];

		if (port >= fabric->geometry.n_ports ||
		    nupa_load_relaxed(&fabric->ports[port].state) != NUPA_PORT_ACTIVE)
			return false;
	}
	return true;
}

/* Direct accesses look at the QPs there again (mover.c). */
static void forget_peers(const struct nupa_channel *channel)
{
	const struct nupa_engine *engine = channel->engine;

	for (uint32_t i = 0; i < engine->qp_limit; i++)
		if (engine->qps[i] && engine->qps[i]->channel == channel)
			engine->qps[i]->peer = NULL;
}

void nupa_channel_look(const struct nupa_engine *engine, struct nupa_channel *channel,
		       uint32_t epoch)
{
	channel->parted = nupa_pkey_shared(engine->fabric, engine->host, channel->peer_host) < 0;
	channel->path_up = !channel->parted && nupa_path_up(engine, channel->peer_host);
	channel->path_epoch = epoch;
	if (nupa_pkey_sum(engine->fabric, channel->peer_host) != channel->pkeys_seen)
		forget_peers(channel);
}

void nupa_channel_count_closed(struct nupa_channel *channel, bool waits)
{
	struct nupa_flow *flow = channel->flow;

	if (channel->parted)
		nupa_pkey_violation(channel->engine->fabric, channel->peer_host);
	else if (waits)
		nupa_store_relaxed(&flow->xmit_wait, flow->xmit_wait + 1);
	else
		nupa_store_relaxed(&flow->xmit_discards, flow->xmit_discards + 1);
}

bool nupa_channel_may_direct(const struct nupa_engine *engine, const struct nupa_channel *channel,
			     uint8_t opcode)
{
	enum nupa_mover forced = engine->forced_mover;

	if (forced == NUPA_MOVER_RELAY || opcode == IBV_WR_FLUSH || unlikely(channel->faulty) ||
	    unlikely(channel->distant))
		return false;
	if (channel->mover == NUPA_MOVER_LOCAL ||
	    nupa_load_relaxed(&channel->peer_slot->pool_regions) ||
	    (nupa_load_relaxed(&channel->peer_slot->shared_fd) && !channel->foreign &&
	     (forced == NUPA_MOVER_NONE || forced == NUPA_MOVER_SHARED)))
		return true;
	return channel->mover == NUPA_MOVER_CMA && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
	       opcode != IBV_WR_ATOMIC_FETCH_AND_ADD && opcode != IBV_WR_ATOMIC_WRITE;
}

uint32_t nupa_channel_pulls(const struct nupa_channel *channel)
{
	if (!channel->rx_open || channel->faulty || channel->distant || !nupa_reach_from_outside())
		return NUPA_PULLS_NOTHING;
	return nupa_load_relaxed(&channel->rx_header->pulls);
}

void nupa_channel_bell(struct nupa_channel *channel)
{
	struct nupa_slot *slot = channel->peer_slot;
	uint32_t sleeping;

	/* P3: our message, then `sleeping`.  The sleeper's membarrier stands in for the fence here.
	 */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (unlikely(channel->fence) && channel->wired) {
		channel->engine->wire_dirty = true;
		return;
	}
	if (unlikely(channel->fence) && channel->trunked) {
		nupa_trunk_ring(channel->engine->fabric);
		return;
	}
	if (unlikely(channel->fence) && channel->engine->polls_bell) {
		nupa_bell_call(channel->engine, slot, &channel->rung);
		return;
	}
	if (unlikely(channel->fence) || unlikely(nupa_load_relaxed(&slot->needs_fence)))
		sleeping = nupa_fetch_add_seq(&slot->sleeping, 0);
	else
		sleeping = nupa_load_relaxed(&slot->sleeping);
	if (unlikely(nupa_load_relaxed(&slot->leaves_some))) /* P8 */
		nupa_attention_announce(channel);
	if (unlikely(sleeping))
		nupa_slot_ring(channel->engine->fabric, slot);
}

bool nupa_channel_left(const struct nupa_channel *channel)
{
	nupa_channel_fetch_slot(channel);
	return nupa_load_acquire(&channel->peer_slot->left_epoch) == channel->peer_epoch;
}
