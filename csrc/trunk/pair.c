/* SPDX-License-Identifier: BSD-3-Clause
 * Rings between a slot of this machine and one of another.  Both machines have the ring, each in
 * its copy.  What its producer publishes is read here, sent, and published there; how far its
 * consumer is goes the other way.  So a ring has its own credits, and no trunk holds messages. */
#include "trunk/internal.h"

#include "segment/segment_internal.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <stdlib.h>
#include <string.h>

#define LINES_AT_ONCE 64u
#define BULK_AT_ONCE (256u << 10) /* before the lines that name it */
#define BULK_LEAST 512u           /* a smaller rest of a packet stays free */
#define HEADS_NS 200000u          /* a head that nothing waits for may be that old */
#define LOOK_MIN_NS 200000u
#define LOOK_MAX_NS 10000000u

static uint64_t ring_offset(const struct nupa_trunk *trunk, uint32_t from, uint32_t to)
{
	return nupa_arena_offset(trunk->fabric, from) + trunk->map.rings_off +
	       (uint64_t)to * trunk->map.ring_stride;
}

/* --- from here ----------------------------------------------------------------------------- */

struct nupa_pair_out *nupa_pair_find_out(const struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	struct nupa_pair_out *pair = peer->outs;

	while (pair && (pair->closed || pair->from != from || pair->to != to))
		pair = pair->next;
	return pair;
}

static struct nupa_pair_out *out_new(struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	struct nupa_pair_out *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return NULL;
	pair->from = from;
	pair->to = to;
	pair->next = peer->outs;
	peer->outs = pair;
	return pair;
}

void nupa_pair_open_out(struct nupa_trunk *trunk, uint32_t from, uint32_t to)
{
	const struct nupa_superblock *sb = &trunk->fabric->geometry;
	struct nupa_ring_header *header = nupa_trunk_ring_of(trunk, from, to);
	struct nupa_peer *peer = nupa_peer_of_slot(trunk, to);
	const uint64_t epochs = header ? nupa_load_acquire(&header->pair) : 0;
	struct nupa_pair_out *pair = nupa_pair_find_out(peer, from, to);
	struct nupa_told_open *record;

	if (!epochs ||
	    (pair && pair->rx.epoch == epochs >> 32 && pair->to_epoch == (uint32_t)epochs))
		return;
	record = nupa_out_room(trunk, peer, NUPA_TOLD_OPEN, sizeof(*record), false);
	if (!pair && record)
		pair = out_new(peer, from, to);
	if (!record || !pair) {
		peer->stale = true;
		if (record) /* of no slot: ignored */
			record->from = record->to = record->from_epoch = record->to_epoch = 0;
		return;
	}
	nupa_put_close_out(trunk, peer, pair);
	record->from = from;
	record->to = to;
	record->from_epoch = (uint32_t)(epochs >> 32);
	record->to_epoch = (uint32_t)epochs;
	nupa_rx_init(&pair->rx, header, sb->ring_lines, sb->dma_bytes, (uint32_t)(epochs >> 32));
	pair->to_epoch = (uint32_t)epochs;
	pair->bulk_sent = 0;
	pair->deaf = false;
}

/* Sends what is left of the payload of a message; false: there is no room for the rest now. */
static bool send_bulk(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_out *pair,
		      const uint8_t *payload, uint32_t bytes)
{
	const uint32_t offset = (uint32_t)(payload - pair->rx.dma);

	if (pair->window && bytes >= NUPA_PUT_LEAST && !pair->bulk_sent) {
		if (!nupa_put(trunk, peer, pair, payload, bytes))
			return false;
		pair->bulk_sent = bytes;
	}
	while (pair->bulk_sent < bytes) {
		const uint32_t rest = bytes - pair->bulk_sent;
		struct nupa_told_bulk *record;
		size_t room = nupa_out_left(peer);

		if (room < sizeof(*record) + (rest < BULK_LEAST ? (rest + 7) & ~7u : BULK_LEAST))
			room = NUPA_PACKET_BYTES; /* of the next */
		room -= sizeof(*record);
		if (room > rest)
			room = rest;
		record = nupa_out_room(trunk, peer, NUPA_TOLD_BULK, sizeof(*record) + room, true);
		if (!record)
			return false;
		record->from = pair->from;
		record->to = pair->to;
		record->offset = offset + pair->bulk_sent;
		record->bytes = (uint32_t)room;
		memcpy(record + 1, payload + pair->bulk_sent, room);
		pair->bulk_sent += (uint32_t)room;
	}
	return true;
}

/* Takes lines, and sends their payloads: how many; what its QP has become is told before. */
static uint32_t take_lines(struct nupa_trunk *trunk, struct nupa_peer *peer,
			   struct nupa_pair_out *pair, struct nupa_msg *lines, bool *corrupt)
{
	uint32_t n = 0, bulk = 0;

	while (n < LINES_AT_ONCE && bulk < BULK_AT_ONCE) {
		const uint8_t *payload;
		const enum nupa_rx_result result = nupa_rx_take(&pair->rx, &lines[n], &payload);

		if (result != NUPA_RX_MESSAGE) {
			*corrupt = result == NUPA_RX_CORRUPT;
			break;
		}
		if (nupa_load_acquire(&trunk->area->news_tail) != trunk->news_head)
			nupa_tell_news(trunk);
		if (pair->closed)
			return 0;
		if (pair->rx.dma_pending &&
		    !send_bulk(trunk, peer, pair, payload, lines[n].length_bytes))
			break;
		bulk += pair->bulk_sent;
		pair->bulk_sent = 0;
		pair->rx.head++;
		pair->rx.dma_head += pair->rx.dma_pending;
		n++;
	}
	return n;
}

static bool send_lines(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_out *pair)
{
	const struct nupa_rx before = pair->rx;
	struct nupa_msg lines[LINES_AT_ONCE];
	struct nupa_told_lines *record;
	bool corrupt = false;
	uint32_t n;

	if (!nupa_rx_ready(&pair->rx))
		return false;
	pair->has_put = false;
	n = take_lines(trunk, peer, pair, lines, &corrupt);
	nupa_put_end(trunk, peer, pair);
	if (corrupt) { /* its process breaks the rules: it hears no more of this ring */
		pair->deaf = true;
		nupa_hint("slot %u sends nonsense to slot %u: its messages end here", pair->from,
			  pair->to);
	}
	if (!n)
		return false;
	/* Its ring may have been cleared while it was read. */
	if (!nupa_slot_lives(trunk, pair->from, pair->rx.epoch)) {
		pair->deaf = true;
		return false;
	}
	record = nupa_out_room(trunk, peer, NUPA_TOLD_LINES, sizeof(*record) + n * sizeof(lines[0]),
			       true);
	if (!record) { /* all of it again */
		pair->rx = before;
		pair->bulk_sent = 0;
		peer->put_on_way -= peer->put_bytes;
		peer->put_bytes = 0;
		return false;
	}
	record->from = pair->from;
	record->to = pair->to;
	record->n = (uint16_t)n;
	record->has_put = pair->has_put;
	record->epoch = pair->rx.epoch;
	memcpy(record + 1, lines, n * sizeof(lines[0]));
	return true;
}

static bool is_live(const struct nupa_pair_out *pair)
{
	return !pair->deaf && !pair->closed;
}

bool nupa_pairs_send(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	bool sent = false;

	for (struct nupa_pair_out *pair = peer->outs; pair; pair = pair->next)
		if (is_live(pair))
			sent |= send_lines(trunk, peer, pair);
	return sent;
}

bool nupa_pairs_ready(const struct nupa_trunk *trunk, const struct nupa_peer *peer)
{
	(void)trunk;
	/* One that comes back is an event. */
	if (peer->on_way >= NUPA_PACKETS_DATA || nupa_put_is_full(peer))
		return false;
	for (const struct nupa_pair_out *pair = peer->outs; pair; pair = pair->next)
		if (is_live(pair) && nupa_rx_ready(&pair->rx))
			return true;
	return false;
}

bool nupa_pair_heads(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_heads *record)
{
	struct nupa_ring_header *header;
	struct nupa_pair_out *pair;

	if (!nupa_slot_theirs(trunk, peer, record->to) || !nupa_slot_ours(trunk, record->from))
		return false;
	pair = nupa_pair_find_out(peer, record->from, record->to);
	header = pair ? nupa_trunk_ring_of(trunk, record->from, record->to) : NULL;
	/* Of a former life of the ring. */
	if (!header || record->lines >> 40 != (pair->rx.epoch & 0xffffff))
		return true;
	/* P2.  The producer checks that it has sent as much. */
	nupa_store_release(&header->dma_head, record->dma);
	nupa_store_release(&header->head, record->lines);
	return true;
}

/* --- to here ------------------------------------------------------------------------------- */

static struct nupa_pair_in *find_in(const struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	struct nupa_pair_in *pair = peer->ins;

	while (pair && (pair->closed || pair->from != from || pair->to != to))
		pair = pair->next;
	return pair;
}

static struct nupa_pair_in *in_new(struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	struct nupa_pair_in *pair = calloc(1, sizeof(*pair));

	if (!pair)
		return NULL;
	pair->from = from;
	pair->to = to;
	pair->next = peer->ins;
	peer->ins = pair;
	return pair;
}

bool nupa_pair_open_in(struct nupa_trunk *trunk, struct nupa_peer *peer,
		       const struct nupa_told_open *record)
{
	const struct nupa_superblock *sb = &trunk->fabric->geometry;
	const uint64_t lines_bytes = (uint64_t)sb->ring_lines * sizeof(struct nupa_msg);
	const uint32_t from = record->from, to = record->to;
	struct nupa_ring_header *header;
	struct nupa_pair_in *pair;
	uint64_t theirs, ours;

	if (!from)
		return true;
	if (!nupa_slot_theirs(trunk, peer, from) || !nupa_slot_ours(trunk, to))
		return false;
	theirs = nupa_slot_claim(&trunk->fabric->slots[from]);
	ours = nupa_slot_claim(&trunk->fabric->slots[to]);
	if (NUPA_CLAIM_STATE(theirs) != NUPA_SLOT_LIVE ||
	    NUPA_CLAIM_EPOCH(theirs) != record->from_epoch)
		return false;
	/* Ours may have ended meanwhile. */
	if (NUPA_CLAIM_STATE(ours) != NUPA_SLOT_LIVE || NUPA_CLAIM_EPOCH(ours) != record->to_epoch)
		return true;
	pair = find_in(peer, from, to);
	if (!pair)
		pair = in_new(peer, from, to);
	header = nupa_trunk_ring_of(trunk, from, to);
	if (!pair || !header ||
	    nupa_fabric_back(trunk->fabric, ring_offset(trunk, from, to),
			     sizeof(*header) + lines_bytes)) {
		nupa_hint("no memory for messages from slot %u to slot %u: free some of %s", from,
			  to, trunk->fabric->path);
		if (pair)
			pair->deaf = true;
		return true;
	}
	nupa_put_close_in(trunk, pair);
	nupa_store_release(&header->pair, 0);
	memset(header + 1, 0, lines_bytes);
	nupa_store_relaxed(&header->consumer,
			   nupa_load_relaxed(&trunk->fabric->slots[to].host) + 1);
	nupa_store_relaxed(&header->mover, NUPA_RELAY_IN_HEADER);
	nupa_store_relaxed(&header->pulls, 0);
	pair->lines_told = pair->dma_told = NUPA_HEAD(record->from_epoch, 0);
	nupa_store_relaxed(&header->head, pair->lines_told);
	nupa_store_relaxed(&header->dma_head, pair->dma_told);
	nupa_tx_init(&pair->tx, header, sb->ring_lines, sb->dma_bytes, record->from_epoch);
	pair->to_epoch = record->to_epoch;
	pair->bulk_bytes = 0;
	pair->due_ns = 0;
	pair->look_ns = LOOK_MIN_NS;
	pair->deaf = false;
	nupa_store_release(&header->pair, (uint64_t)record->from_epoch << 32 | record->to_epoch);
	return true;
}

bool nupa_pair_bulk(struct nupa_trunk *trunk, struct nupa_peer *peer,
		    const struct nupa_told_bulk *record)
{
	const struct nupa_superblock *sb = &trunk->fabric->geometry;
	struct nupa_pair_in *pair = find_in(peer, record->from, record->to);

	if (record->bytes > record->head.bytes - sizeof(*record) || record->bytes > sb->dma_bytes ||
	    record->offset > sb->dma_bytes - record->bytes)
		return false;
	if (!pair || pair->deaf) /* closed here, and not yet there */
		return true;
	if (!pair->dma_backed) {
		if (nupa_fabric_back(trunk->fabric,
				     ring_offset(trunk, record->from, record->to) +
					 sizeof(struct nupa_ring_header) +
					 (uint64_t)sb->ring_lines * sizeof(struct nupa_msg),
				     sb->dma_bytes)) {
			nupa_hint("no memory for messages from slot %u to slot %u: free some of %s",
				  record->from, record->to, trunk->fabric->path);
			pair->deaf = true;
			return true;
		}
		pair->dma_backed = true;
	}
	memcpy(pair->tx.dma + record->offset, record + 1, record->bytes);
	pair->bulk_bytes += record->bytes;
	if (record->bytes >= NUPA_PUT_LEAST && !pair->offered)
		nupa_put_offer(trunk, peer, pair);
	return true;
}

/* Publishes one line; false: it is not the next one, or there is no room for it or its payload. */
static bool publish(struct nupa_pair_in *pair, const struct nupa_msg *line)
{
	const uint32_t tag = (uint32_t)(pair->tx.tail >> pair->tx.lap_shift) + 1;
	const uint32_t bytes = line->flags & NUPA_F_DMA ? line->length_bytes : 0;
	struct nupa_msg *place;
	uint8_t *payload;

	if (line->tag != tag || (line->flags & NUPA_F_DMA && !pair->dma_backed) ||
	    (line->flags & NUPA_F_DMA && !bytes) ||
	    bytes > nupa_dma_payload_max(pair->tx.dma_bytes) || line->flags & NUPA_F_PULL)
		return false;
	place = nupa_tx_reserve(&pair->tx, bytes, &payload);
	if (!place)
		return false;
	memcpy(&place->tag + 1, &line->tag + 1, sizeof(*line) - sizeof(line->tag));
	nupa_tx_publish(&pair->tx, place, bytes);
	return true;
}

bool nupa_pair_lines(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_lines *record)
{
	const struct nupa_msg *lines = (const struct nupa_msg *)(const void *)(record + 1);
	struct nupa_pair_in *pair = find_in(peer, record->from, record->to);
	uint64_t bytes = 0;

	if (record->n > (record->head.bytes - sizeof(*record)) / sizeof(lines[0]))
		return false;
	if (!pair || pair->deaf)
		return true;
	for (uint32_t i = 0; i < record->n; i++) {
		struct nupa_msg line;

		memcpy(&line, (const uint8_t *)lines + i * sizeof(line), sizeof(line));
		if (!publish(pair, &line))
			return false;
		bytes += line.flags & NUPA_F_DMA ? line.length_bytes : 0;
	}
	if (bytes > pair->bulk_bytes)
		nupa_count(&nupa_peer_seen(trunk, peer)->received_bytes, bytes - pair->bulk_bytes);
	pair->bulk_bytes = 0;
	pair->look_ns = LOOK_MIN_NS;
	/* P3: the lines, then `sleeping`. */
	(void)nupa_fetch_add_seq(&trunk->fence, 0);
	nupa_slot_ring(trunk->fabric, &trunk->fabric->slots[record->to]);
	return true;
}

static bool tell_head(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_in *pair,
		      uint64_t lines, uint64_t dma)
{
	struct nupa_told_heads *record =
	    nupa_out_room(trunk, peer, NUPA_TOLD_HEADS, sizeof(*record), false);

	if (!record)
		return false;
	record->from = pair->from;
	record->to = pair->to;
	record->lines = pair->lines_told = lines;
	record->dma = pair->dma_told = dma;
	pair->due_ns = 0;
	return true;
}

/* When to look at a consumer again; UINT64_MAX: when it gets a message. */
static uint64_t look_at(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_in *pair)
{
	const uint64_t lines = nupa_load_acquire(&pair->tx.header->head);
	const uint64_t dma = nupa_load_acquire(&pair->tx.header->dma_head);
	const uint64_t now_ns = trunk->now_ns;
	uint64_t next_ns;

	if (lines != pair->lines_told || dma != pair->dma_told) {
		if (!pair->due_ns)
			pair->due_ns = now_ns + HEADS_NS;
		pair->look_ns = LOOK_MIN_NS;
		if (((lines - pair->lines_told) & NUPA_COUNT_MASK) < pair->tx.n_lines / 8 &&
		    ((dma - pair->dma_told) & NUPA_COUNT_MASK) < pair->tx.dma_bytes / 8 &&
		    !peer->filling && now_ns < pair->due_ns)
			return pair->due_ns;
		if (!tell_head(trunk, peer, pair, lines, dma))
			return now_ns + LOOK_MAX_NS;
	}
	if ((lines & NUPA_COUNT_MASK) == (pair->tx.tail & NUPA_COUNT_MASK))
		return UINT64_MAX;
	next_ns = now_ns + pair->look_ns;
	return next_ns;
}

uint64_t nupa_pairs_tell_heads(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	uint64_t next_ns = UINT64_MAX;

	for (struct nupa_pair_in *pair = peer->ins; pair; pair = pair->next) {
		const uint64_t at_ns =
		    pair->deaf || pair->closed ? UINT64_MAX : look_at(trunk, peer, pair);

		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return next_ns;
}

void nupa_pairs_slept(struct nupa_peer *peer)
{
	for (struct nupa_pair_in *pair = peer->ins; pair; pair = pair->next)
		if (pair->look_ns < LOOK_MAX_NS)
			pair->look_ns *= 2;
}

/* --- ends ---------------------------------------------------------------------------------- */

void nupa_pair_close_out(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t from,
			 uint32_t to)
{
	for (struct nupa_pair_out *pair = peer->outs; pair; pair = pair->next) {
		if ((from && pair->from != from) || (to && pair->to != to))
			continue;
		pair->closed = true;
		nupa_put_close_out(trunk, peer, pair);
	}
}

void nupa_pair_close_in(struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	for (struct nupa_pair_in *pair = peer->ins; pair; pair = pair->next)
		pair->closed |= (!from || pair->from == from) && (!to || pair->to == to);
}

void nupa_pairs_sweep(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (struct nupa_pair_out **at = &peer->outs; *at;) {
		struct nupa_pair_out *pair = *at;

		if (!pair->closed) {
			at = &pair->next;
			continue;
		}
		*at = pair->next;
		free(pair);
	}
	for (struct nupa_pair_in **at = &peer->ins; *at;) {
		struct nupa_pair_in *pair = *at;

		if (!pair->closed) {
			at = &pair->next;
			continue;
		}
		*at = pair->next;
		nupa_put_close_in(trunk, pair);
		free(pair);
	}
}
