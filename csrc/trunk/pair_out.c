/* SPDX-License-Identifier: BSD-3-Clause
 * Rings from a slot of this machine to one of another.  Both machines have the ring, each in its
 * copy.  What its producer publishes is read here, sent, and published there (pair_in.c); how far
 * its consumer is comes back.  So a ring has its own credits, and no trunk holds messages. */
#include "trunk/internal.h"

#include "segment/slot/machine.h"

#include <stdlib.h>
#include <string.h>

#define LINES_AT_ONCE 64u
#define BULK_AT_ONCE (256u << 10) /* before the lines that name it */
#define BULK_LEAST 512u           /* a smaller rest of a packet stays free */

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

	/* Room first: what was put cannot be taken back. */
	if (!nupa_rx_ready(&pair->rx) || !nupa_out_is_open(peer))
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
			       false);
	if (!record) { /* all of it again */
		pair->rx = before;
		pair->bulk_sent = 0;
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
	if (!nupa_out_is_open(peer) || nupa_put_is_full(peer))
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

void nupa_pairs_sweep_out(struct nupa_peer *peer)
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
}
