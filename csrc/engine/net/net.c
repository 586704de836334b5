/* SPDX-License-Identifier: BSD-3-Clause
 * Frames of the netdev between attachments (net.h).  A frame lies in the DMA channel.  The kernel
 * reads it there from one interface, and writes it from there to another.  We copy it only if it
 * goes elsewhere than the frame before it.
 *
 *   I1  Only the pump's thread sends on a net's channels, so a room stays ours until it is sent.
 *   I2  A room is as large as the largest frame, since a frame's length is known when it was read.
 *       Near the end of the ring, where no such room is, padding fills the rest: a message without
 *       F_LAST.
 *   I3  A receiver announces whose frame it reads (P4 of channel.h).  A process that frees a dead
 *       sender's slot waits for that: a frame never turns to zeros while it is read. */
#include "engine/net/net_internal.h"
#include "segment/control/pkey.h"

/* How long a receiver that takes nothing holds a sender back; what comes for it then is dropped
 * until it takes something. */
#define PATIENCE_NS UINT64_C(50000000)

#define WARM_BYTES (64u << 10) /* of a ring: what a core's caches have room for */
#define ANY_REGION UINT32_MAX  /* in a hazard, where the index of a region stands */

#define COUNT(net, counter, n) nupa_count(&(net)->counters->counter, n)

/* --- places -------------------------------------------------------------------------- */

bool nupa_net_serves(const struct nupa_fabric *fabric, uint32_t slot, uint32_t *host,
		     uint32_t *queue)
{
	const struct nupa_slot *entry = &fabric->slots[slot];

	*queue = nupa_load_acquire(&entry->net_queue) & ~NUPA_NET_COALESCED;
	*host = nupa_load_relaxed(&entry->host);
	return *queue && *host < fabric->geometry.n_hosts &&
	       NUPA_CLAIM_STATE(nupa_load_acquire(&entry->claim)) == NUPA_SLOT_LIVE;
}

static void look_around(struct nupa_net *net)
{
	const struct nupa_fabric *fabric = net->engine->fabric;

	net->epoch_seen = nupa_load_acquire(fabric->net_epoch);
	memset(net->slots, 0, sizeof(net->slots));
	memset(net->stalled, 0, sizeof(net->stalled));
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		uint32_t host, queue;

		if (!nupa_net_serves(fabric, slot, &host, &queue) || host == net->engine->host)
			continue;
		if (queue == net->queue + 1 || (queue == 1 && !net->slots[host]))
			net->slots[host] = slot;
	}
}

static uint32_t slot_of(struct nupa_net *net, uint32_t host)
{
	if (unlikely(nupa_load_relaxed(net->engine->fabric->net_epoch) != net->epoch_seen))
		look_around(net);
	return net->slots[host];
}

bool nupa_net_reaches(struct nupa_net *net, uint32_t host)
{
	return slot_of(net, host) != 0;
}

bool nupa_net_shares(struct nupa_net *net, uint32_t host)
{
	const struct nupa_engine *engine = net->engine;
	const uint32_t epoch = nupa_load_acquire(engine->fabric->port_epoch);

	if (unlikely(net->partitions_seen[host] != epoch)) {
		net->parted[host] = nupa_pkey_shared(engine->fabric, engine->host, host) < 0;
		net->partitions_seen[host] = epoch;
	}
	return !net->parted[host];
}

/* The channel to a host's interface; NULL: there is none, or no way to it. */
static struct nupa_channel *channel_to(struct nupa_net *net, uint32_t host)
{
	struct nupa_engine *engine = net->engine;
	uint32_t slot = slot_of(net, host);
	struct nupa_channel *channel = engine->channels[slot];

	if (unlikely(!slot))
		return NULL;
	if (unlikely(!channel || channel->broken))
		channel = nupa_channel_meet(engine, slot);
	if (unlikely(!channel) ||
	    unlikely(!channel->dma_backed && nupa_channel_back_dma(engine, channel)))
		return NULL;
	if (likely(nupa_channel_path_up(engine, channel)))
		return channel;
	if (!channel->parted)
		nupa_channel_count_closed(channel, false);
	return NULL;
}

/* --- sending ------------------------------------------------------------------------- */

static void wake(struct nupa_net *net)
{
	for (uint32_t i = 0; i < net->n_asleep; i++)
		nupa_channel_bell(net->asleep[i]);
	net->n_asleep = 0;
}

/* Once for all frames of a turn. */
static void touch(struct nupa_net *net, struct nupa_channel *channel)
{
	struct nupa_net *sibling = nupa_net_sibling(net, channel->peer);

	if (likely(sibling)) {
		if (net->n_idle && likely(net->idle[net->n_idle - 1] == sibling))
			return;
		for (uint32_t i = 0; i < net->n_idle; i++)
			if (net->idle[i] == sibling)
				return;
		net->idle[net->n_idle++] = sibling;
		return;
	}
	for (uint32_t i = 0; i < net->n_asleep; i++)
		if (net->asleep[i] == channel)
			return;
	if (unlikely(net->n_asleep == NUPA_SLOTS_MAX))
		wake(net);
	net->asleep[net->n_asleep++] = channel;
}

static void publish(struct nupa_net *net, struct nupa_channel *channel, struct nupa_msg *line,
		    uint32_t bytes, uint8_t flags)
{
	/* The line is reserved: what of it is not said is 0. */
	memset(&line->op, 0, sizeof(*line) - offsetof(struct nupa_msg, op));
	line->op = NUPA_OP_NET;
	line->flags = NUPA_F_DMA | flags;
	line->length_bytes = bytes;
	if (flags)
		nupa_flow_xmit(channel, bytes);
	if (unlikely(net->engine->trace & NUPA_TRACE_NET) && flags) {
		uint64_t start;

		nupa_dma_span(channel->tx.dma_tail, channel->tx.dma_bytes, bytes, &start);
		nupa_trace_frame(net->engine, channel->peer_host, channel->tx.dma + start, bytes);
	}
	nupa_channel_commit(channel, line, bytes);
	touch(net, channel);
}

static uint32_t offset_of(const struct nupa_tx *tx)
{
	return (uint32_t)(tx->dma_tail & (tx->dma_bytes - 1));
}

/* I2: fills the rest of the ring; false: there is no room. */
static bool pad_to_start(struct nupa_net *net, struct nupa_channel *channel)
{
	struct nupa_tx *tx = &channel->tx;

	while (offset_of(tx)) {
		uint32_t left = tx->dma_bytes - offset_of(tx),
			 most = nupa_dma_payload_max(tx->dma_bytes);
		uint32_t part = left < most ? left : most;
		uint8_t *unused;
		struct nupa_msg *line = nupa_tx_reserve(tx, part, &unused);

		if (!line)
			return false;
		publish(net, channel, line, part, 0);
	}
	return true;
}

/* Whether the ring goes on contiguous for the largest frame. */
static bool has_room(struct nupa_net *net, struct nupa_channel *channel)
{
	return likely(channel->tx.dma_bytes - offset_of(&channel->tx) >= NUPA_NET_ROOM_BYTES) ||
	       pad_to_start(net, channel);
}

/* Siblings empty their rings after each turn.  So the next frame may begin at the start again:
 * reused memory stays in the caches, where a megabyte does not. */
static void go_back(struct nupa_net *net)
{
	for (uint32_t i = 0; i < net->n_idle; i++) {
		uint32_t slot = net->idle[i]->engine->slot_index;
		struct nupa_channel *channel = net->engine->channels[slot];

		if (channel && !channel->broken && offset_of(&channel->tx) >= WARM_BYTES)
			pad_to_start(net, channel); /* or goes on where it is */
	}
}

bool nupa_net_takes_coalesced(struct nupa_net *net, uint32_t host)
{
	const struct nupa_slot *slot = &net->engine->fabric->slots[slot_of(net, host)];

	return nupa_load_relaxed(&slot->net_queue) & NUPA_NET_COALESCED;
}

bool nupa_net_may_coalesce(struct nupa_net *net, uint32_t host)
{
	/* A frame that is open cannot wait for a rate. */
	return net->room_channel && net->room_channel->peer == slot_of(net, host) &&
	       !nupa_net_is_rated(net, host) && nupa_net_takes_coalesced(net, host);
}

uint8_t *nupa_net_room(struct nupa_net *net)
{
	struct nupa_channel *channel = net->engine->channels[net->ahead];

	net->room_channel = NULL;
	net->room = net->scratch;
	if (likely(channel) && likely(!channel->broken) && likely(channel->dma_backed) &&
	    likely(has_room(net, channel))) {
		uint8_t *room;

		if (likely(nupa_tx_reserve(&channel->tx, NUPA_NET_ROOM_BYTES, &room))) {
			net->room_channel = channel;
			net->room = room;
		}
	}
	return net->room;
}

/* Has a sibling take what is in our ring to it. */
static void run_sibling(const struct nupa_net *net, struct nupa_net *sibling)
{
	struct nupa_engine *engine = sibling->engine;
	struct nupa_channel *channel;

	nupa_engine_lock(engine);
	channel = engine->channels[net->engine->slot_index];
	if (unlikely(!channel || !channel->rx_open)) { /* it has not heard of us yet */
		nupa_channel_scan_contacts(engine);
		channel = engine->channels[net->engine->slot_index];
	}
	if (likely(channel && channel->rx_open && !channel->broken))
		engine->ops->drain(engine, channel, channel->rx.most_lines);
	nupa_engine_unlock(engine);
}

bool nupa_net_runs(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	return engine->net && nupa_net_sibling(engine->net, channel->peer);
}

/* Copies the frame into the channel; false: no room. */
static bool copy_to(struct nupa_net *net, struct nupa_channel *channel, const uint8_t *frame,
		    uint32_t bytes)
{
	struct nupa_net *sibling = nupa_net_sibling(net, channel->peer);
	uint8_t *payload = NULL;
	struct nupa_msg *line = nupa_tx_reserve(&channel->tx, bytes, &payload);

	if (unlikely(!line) && sibling) {
		run_sibling(net, sibling);
		line = nupa_tx_reserve(&channel->tx, bytes, &payload);
	}
	if (!line || !payload)
		return false;
	memcpy(payload, frame, bytes);
	publish(net, channel, line, bytes, NUPA_F_LAST);
	COUNT(net, tx_copied, 1);
	return true;
}

static void sent(struct nupa_net *net, uint32_t bytes)
{
	COUNT(net, tx_packets, 1);
	COUNT(net, tx_bytes, bytes);
}

/* Whether the receiver is still one to be waited for. */
static bool is_stalled(struct nupa_net *net, uint32_t host, const struct nupa_channel *channel)
{
	if (likely(!net->stalled[host]))
		return false;
	if (net->stalled[host] == channel->tx.head_seen + 1)
		return true;
	net->stalled[host] = 0;
	return false;
}

/* Keeps the frame for nupa_net_retry. */
static void keep(struct nupa_net *net, uint32_t host, uint32_t frame_bytes)
{
	if (net->room != net->scratch)
		memcpy(net->scratch, net->room, frame_bytes);
	net->kept_bytes = frame_bytes;
	net->kept_host = host;
	net->kept_since_ns = net->engine->now_ns();
}

bool nupa_net_send(struct nupa_net *net, uint32_t host, uint32_t frame_bytes)
{
	struct nupa_channel *channel;

	if (unlikely(!nupa_net_shares(net, host))) {
		COUNT(net, tx_partition, 1);
		return true;
	}
	channel = channel_to(net, host);
	if (unlikely(!channel)) {
		COUNT(net, tx_down, 1);
		return true;
	}
	if (unlikely(net->engine->rates) && !nupa_net_may_go(net, host, frame_bytes)) {
		keep(net, host, frame_bytes);
		return false;
	}
	if (likely(net->room_channel == channel)) {
		publish(net, channel, nupa_tx_next(&channel->tx), frame_bytes, NUPA_F_LAST);
		sent(net, frame_bytes);
		return true;
	}
	net->ahead = channel->peer;
	if (likely(copy_to(net, channel, net->room, frame_bytes))) {
		sent(net, frame_bytes);
		return true;
	}
	if (is_stalled(net, host, channel)) {
		COUNT(net, tx_full, 1);
		return true;
	}
	keep(net, host, frame_bytes);
	return false;
}

bool nupa_net_retry(struct nupa_net *net)
{
	struct nupa_channel *channel = channel_to(net, net->kept_host);

	if (channel && unlikely(net->waits_until_ns)) {
		if (!nupa_net_may_go(net, net->kept_host, net->kept_bytes))
			return false;
		net->kept_since_ns = net->engine->now_ns();
	}
	if (!nupa_net_shares(net, net->kept_host)) { /* by now */
		COUNT(net, tx_partition, 1);
	} else if (!channel) {
		COUNT(net, tx_down, 1);
	} else if (copy_to(net, channel, net->scratch, net->kept_bytes)) {
		sent(net, net->kept_bytes);
	} else if (net->engine->now_ns() - net->kept_since_ns < PATIENCE_NS) {
		return false;
	} else {
		net->stalled[net->kept_host] = channel->tx.head_seen + 1;
		COUNT(net, tx_full, 1);
	}
	net->kept_bytes = 0;
	net->waits_until_ns = 0;
	return true;
}

void nupa_net_forget(struct nupa_net *net)
{
	if (net->kept_bytes)
		COUNT(net, tx_down, 1);
	net->kept_bytes = 0;
	net->waits_until_ns = 0;
}

void nupa_net_flood(struct nupa_net *net, uint32_t frame_bytes)
{
	const uint32_t n_hosts = net->engine->fabric->geometry.n_hosts;
	bool room_is_one = false;

	for (uint32_t host = 0; host < n_hosts; host++) {
		struct nupa_channel *channel;

		if (!nupa_net_reaches(net, host) || !nupa_net_shares(net, host))
			continue;
		channel = channel_to(net, host);
		if (unlikely(net->engine->rates))
			nupa_net_charge(net, host, frame_bytes);
		if (channel && channel == net->room_channel)
			room_is_one = true;
		else if (!channel)
			COUNT(net, tx_down, 1);
		else if (!copy_to(net, channel, net->room, frame_bytes))
			COUNT(net, tx_full, 1);
	}
	if (room_is_one) /* last: until then the others were copied from there */
		publish(net, net->room_channel, nupa_tx_next(&net->room_channel->tx), frame_bytes,
			NUPA_F_LAST);
	sent(net, frame_bytes);
}

void nupa_net_lock(struct nupa_net *net)
{
	nupa_engine_lock(net->engine);
}

void nupa_net_unlock(struct nupa_net *net)
{
	go_back(net);
	wake(net);
	nupa_engine_unlock(net->engine);
}

void nupa_net_flush(struct nupa_net *net)
{
	for (uint32_t i = 0; i < net->n_idle; i++)
		run_sibling(net, net->idle[i]);
	net->n_idle = 0;
}

/* --- receiving ----------------------------------------------------------------------- */

bool nupa_net_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		      const struct nupa_msg *msg, const uint8_t *payload)
{
	struct nupa_net *net = engine->net;

	if (unlikely(!payload) || unlikely(!engine->apart))
		return false;
	if (unlikely(!net) || unlikely(!(msg->flags & NUPA_F_LAST))) /* closing; padding */
		return true;
	if (unlikely(!nupa_net_shares(net, channel->peer_host))) { /* sent before a change */
		COUNT(net, rx_partition, 1);
		return true;
	}
	nupa_hazard_announce(&engine->slot->hazard, channel, ANY_REGION); /* I3, P4: then look */
	if (likely(nupa_channel_peer_alive(channel)) &&
	    net->ops->deliver(net->arg, payload, msg->length_bytes)) {
		COUNT(net, rx_packets, 1);
		COUNT(net, rx_bytes, msg->length_bytes);
	}
	nupa_window_leave(&engine->slot->hazard);
	return true;
}

void nupa_net_port_changed(struct nupa_engine *engine, bool up)
{
	if (!engine->net)
		return;
	COUNT(engine->net, carrier_changes, 1);
	engine->net->ops->carrier(engine->net->arg, up);
}

void nupa_net_fenced(struct nupa_engine *engine)
{
	if (engine->net)
		engine->net->ops->fenced(engine->net->arg);
}
