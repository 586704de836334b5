/* SPDX-License-Identifier: BSD-3-Clause
 * First contact: each side opens its own direction of the channel and tells the other, which opens
 * in return. */
#include "base/rlimit.h"
#include "engine/channel/apart.h"
#include "engine/channel/attention.h"
#include "segment/control/pkey.h"
#include "segment/layout/geometry.h"
#include "segment/ring/lines.h"
#include "segment/slot/machine.h"
#include "segment/wire.h"

#include <errno.h>
#include <stdlib.h>

static struct nupa_ring_header *ring_of(struct nupa_engine *engine, uint8_t *arena, uint32_t to)
{
	struct nupa_arena_map map = nupa_arena_map(&engine->fabric->geometry);

	return (struct nupa_ring_header *)(void *)(arena + map.rings_off + to * map.ring_stride);
}

static uint64_t ring_off(struct nupa_engine *engine, uint32_t to)
{
	struct nupa_arena_map map = nupa_arena_map(&engine->fabric->geometry);

	return nupa_arena_offset(engine->fabric, engine->slot_index) + map.rings_off +
	       to * map.ring_stride;
}

int nupa_channel_back_dma(struct nupa_engine *engine, struct nupa_channel *channel)
{
	int error = nupa_tx_back_dma(&channel->tx);

	if (error) {
		nupa_hint("no memory for the channel to slot %u (%s): free some of %s",
			  channel->peer, strerror(-error), engine->fabric->path);
		return error;
	}
	channel->dma_backed = true;
	channel->tx.header->dma_backed = 1;
	return 0;
}

uint32_t nupa_channel_contact(const struct nupa_engine *engine, uint32_t peer)
{
	return nupa_load_acquire(nupa_contact(engine->fabric, peer, engine->slot_index));
}

/* Our receiving direction is the peer's ring, if it has opened it to us. */
static void open_rx(struct nupa_engine *engine, struct nupa_channel *channel)
{
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	struct nupa_ring_header *header;

	if (channel->rx_open || nupa_channel_contact(engine, channel->peer) != engine->epoch)
		return;
	header =
	    ring_of(engine, nupa_fabric_arena(engine->fabric, channel->peer), engine->slot_index);
	nupa_channel_fetch_pair(channel, header);
	if (nupa_load_acquire(&header->pair) !=
	    ((uint64_t)channel->peer_epoch << 32 | engine->epoch))
		return;
	nupa_rx_init(&channel->rx, header, sb->ring_lines, sb->dma_bytes, channel->peer_epoch);
	if (nupa_load_relaxed(&header->lines))
		nupa_rx_begin_small(&channel->rx);
	channel->rx_header = header;
	channel->rx_open = true;
	if (!engine->net || !engine->ops->net_runs(engine, channel))
		nupa_attention_add(engine, channel);
}

/* Where all memory is there from the start nothing is won.  A port's frames, and packets that are
 * injected, may take a quarter of all DMA bytes at once. */
static bool begins_small(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	return !engine->fabric->whole && !channel->wired && !channel->trunked && !engine->net &&
	       !engine->injector;
}

static void tell_growth(struct nupa_tx *tx, const struct nupa_msg *line)
{
	const struct nupa_channel *channel = container_of(tx, struct nupa_channel, tx);

	channel->engine->ops->grows(channel->engine, channel, line);
}

/* Makes the ring to the channel's peer, empty and closed. */
static int make_ring(struct nupa_engine *engine, struct nupa_channel *channel)
{
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	const bool small = begins_small(engine, channel);
	struct nupa_ring_header *header = ring_of(engine, engine->arena, channel->peer);
	struct nupa_tx *tx = &channel->tx;
	uint64_t lines_bytes;
	int error;

	nupa_tx_init(tx, header, sb->ring_lines, sb->dma_bytes, engine->epoch);
	tx->apart = channel->apart;
	tx->fabric = engine->fabric;
	tx->offset = ring_off(engine, channel->peer);
	tx->grows = tell_growth;
	if (small)
		nupa_tx_begin_small(tx);
	lines_bytes = tx->n_lines * sizeof(struct nupa_msg);
	error = nupa_fabric_back(engine->fabric, tx->offset, sizeof(*header) + lines_bytes);
	if (error)
		return error;
	nupa_store_release(&header->pair, 0);
	(void)nupa_lines_add_ring(engine->fabric, engine->slot_index, channel->peer, engine->flows);
	nupa_store_relaxed(&header->consumer, channel->peer_host + 1);
	nupa_store_relaxed(&header->lines, small ? tx->n_lines : 0);
	nupa_store_relaxed(&header->grown_lap, 0);
	nupa_store_relaxed(&header->grown_after, 0);
	memset(header + 1, 0, lines_bytes); /* ring.h I2: this ring may have had another consumer */
	nupa_store_relaxed(&header->head, NUPA_HEAD(engine->epoch, 0));
	nupa_store_relaxed(&header->dma_head, NUPA_HEAD(engine->epoch, 0));
	nupa_channel_flush_empty(channel, header, lines_bytes);
	return 0;
}

static int open_tx(struct nupa_engine *engine, struct nupa_channel *channel)
{
	struct nupa_ring_header *header = ring_of(engine, engine->arena, channel->peer);
	int error = make_ring(engine, channel);

	if (error)
		return error;
	error = channel->wired ? 0 : nupa_mover_probe(engine, channel);
	nupa_store_relaxed(&header->mover, !channel->wired && nupa_window_may_share(engine, channel)
					       ? NUPA_MOVER_SHARED
					       : channel->mover);
	nupa_store_relaxed(&header->pulls, nupa_mover_pulls(engine, channel));
	if (error) {
		nupa_hint("the mover that NUPA_MOVER forces does not reach process %u (%s): "
			  "unset it, or see `nupa doctor`",
			  channel->peer_pid, strerror(channel->cma_errno));
		return error;
	}
	nupa_store_release(&header->pair, (uint64_t)engine->epoch << 32 | channel->peer_epoch);
	nupa_channel_flush_pair(channel, header);
	return 0;
}

static struct nupa_channel *channel_new(struct nupa_engine *engine, uint32_t peer)
{
	struct nupa_slot *slot = &engine->fabric->slots[peer];
	uint64_t claim = nupa_slot_fetch(engine->fabric, peer);
	uint32_t host = nupa_load_relaxed(&slot->host);
	const bool wired = nupa_wire_of_host(engine->fabric, host) >= 0;
	struct nupa_arena_map map = nupa_arena_map(&engine->fabric->geometry);
	struct nupa_channel *channel;
	uint8_t *arena;

	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE || host >= engine->fabric->geometry.n_hosts ||
	    nupa_wire_is_lost(engine->fabric, host) || (wired && !engine->ops->carries_wires()))
		return NULL;
	arena = nupa_fabric_arena(engine->fabric, peer);
	if (!arena) {
		nupa_limit_address_space(engine->fabric->geometry.arena_bytes);
		return NULL;
	}
	channel = aligned_alloc(NUPA_CACHE_LINE_BYTES, (sizeof(*channel) + 63) & ~(size_t)63);
	if (!channel)
		return NULL;
	memset(channel, 0, sizeof(*channel));
	channel->engine = engine;
	channel->peer = peer;
	channel->pidfd = channel->life_fd = -1;
	channel->foreign = nupa_slot_foreign(engine->fabric, peer, claim);
	channel->apart = nupa_slot_apart(engine->fabric, peer);
	channel->trunked = nupa_slot_trunked(engine->fabric, peer);
	channel->distant = channel->apart || channel->trunked;
	channel->peer_claim = claim;
	channel->peer_epoch = NUPA_CLAIM_EPOCH(claim);
	channel->peer_pid = NUPA_CLAIM_PID(claim);
	channel->peer_host = host;
	channel->peer_slot = slot;
	channel->peer_qps = (struct nupa_qp_entry *)(void *)(arena + map.qps_off);
	channel->peer_mrs = (struct nupa_mr_entry *)(void *)(arena + map.mrs_off);
	channel->flow = &engine->flows[host];
	channel->wired = wired;
	channel->fence =
	    engine->polls_bell || !engine->membarrier || channel->wired || channel->trunked;
	channel->path_epoch = nupa_load_acquire(engine->fabric->port_epoch) - 1;
	channel->pkeys_seen = nupa_pkey_sum(engine->fabric, host);
	nupa_list_init(&channel->refusals);
	nupa_list_init(&channel->held);
	return channel;
}

/* Tells the peer of our direction, so that it opens its own; again, if it could not then. */
void nupa_channel_knock(struct nupa_engine *engine, struct nupa_channel *channel)
{
	nupa_channel_say(engine, channel, 0);
}

void nupa_channel_say(struct nupa_engine *engine, struct nupa_channel *channel, uint32_t closed)
{
	uint32_t *contact = nupa_contact(engine->fabric, engine->slot_index, channel->peer);

	nupa_store_release(contact, channel->peer_epoch | closed);
	if (channel->apart) { /* it looks by itself */
		nupa_channel_flush_contact(channel, contact);
		return;
	}
	if (channel->trunked) {
		nupa_trunk_tell(engine->fabric, NUPA_NEWS_CONTACT, engine->slot_index,
				channel->peer);
		return;
	}
	nupa_fetch_add_seq(&channel->peer_slot->contact_epoch, 1);
	nupa_port_knock(engine, channel->peer_slot);
}

struct nupa_channel *nupa_channel_get(struct nupa_engine *engine, uint32_t peer)
{
	struct nupa_channel *channel;
	int error;

	if (peer == 0 || peer >= engine->fabric->geometry.n_slots)
		return NULL;
	channel = engine->channels[peer];
	if (likely(channel && !channel->broken))
		return channel;
	if (channel && nupa_channel_peer_alive(channel))
		return NULL; /* closed for good: neither side knows any more where the other is */
	channel = channel_new(engine, peer);
	if (!channel)
		return NULL;
	error = open_tx(engine, channel);
	if (error) {
		/* Without the mover that is forced we never will, so a peer that knocked must not
		 * wait.  Memory may be there when it knocks again. */
		if (error == -ENOTSUP)
			nupa_channel_say(engine, channel, NUPA_CONTACT_CLOSED);
		free(channel);
		return NULL;
	}
	/* QPs may still point to a broken one: see nupa_channel_sweep. */
	channel->older = engine->channels[peer];
	engine->channels[peer] = channel;
	if (channel->wired)
		channel->rx_open = channel->faulty = channel->suspect = channel->timed = true;
	else
		open_rx(engine, channel);
	engine->ops->opened(engine, channel);
	if (!channel->wired) /* a keeper takes no messages */
		nupa_channel_knock(engine, channel);
	return channel;
}

void nupa_channel_bury(struct nupa_engine *engine, uint32_t peer)
{
	struct nupa_channel *channel =
	    peer < engine->fabric->geometry.n_slots ? engine->channels[peer] : NULL;

	if (channel && channel->apart)
		nupa_slot_fetch(engine->fabric, peer);
	if (channel && !channel->broken && !nupa_channel_peer_alive(channel))
		engine->ops->fail(engine, channel);
}

struct nupa_channel *nupa_channel_current(struct nupa_engine *engine, uint32_t peer)
{
	struct nupa_channel *channel = nupa_channel_get(engine, peer);

	return channel && nupa_channel_peer_alive(channel) ? channel : NULL;
}

struct nupa_channel *nupa_channel_meet(struct nupa_engine *engine, uint32_t peer)
{
	nupa_channel_bury(engine, peer);
	return nupa_channel_get(engine, peer);
}

/* A process opened, left or died: look at all. */
void nupa_channel_scan_contacts(struct nupa_engine *engine)
{
	const uint32_t closed = engine->epoch | NUPA_CONTACT_CLOSED;

	if (unlikely(engine->keeps_wire))
		return;
	for (uint32_t peer = 1; peer < engine->fabric->geometry.n_slots; peer++) {
		struct nupa_channel *channel = engine->channels[peer];
		uint64_t claim = nupa_load_acquire(&engine->fabric->slots[peer].claim);
		uint32_t contact = nupa_channel_contact(engine, peer);

		/* The word is the owner's if the claim is the same before and after. */
		if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE ||
		    nupa_load_acquire(&engine->fabric->slots[peer].claim) != claim)
			contact = 0;
		if (channel && channel->wired)
			contact = 0;
		if (channel && !channel->broken &&
		    (!nupa_channel_peer_alive(channel) || contact == closed))
			engine->ops->fail(engine, channel);
		if (contact != engine->epoch)
			continue;
		channel = nupa_channel_get(engine, peer);
		if (channel)
			open_rx(engine, channel);
	}
}
