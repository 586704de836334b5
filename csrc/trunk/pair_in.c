/* SPDX-License-Identifier: BSD-3-Clause
 * Rings from a slot of another machine to one of this: see pair_out.c. */
#include "trunk/internal.h"

#include "segment/slot/machine.h"

#include <stdlib.h>
#include <string.h>

#define HEADS_NS 200000u /* a head that nothing waits for may be that old */
#define LOOK_MIN_NS 200000u
#define LOOK_MAX_NS 10000000u

static uint64_t ring_offset(const struct nupa_trunk *trunk, uint32_t from, uint32_t to)
{
	return nupa_arena_offset(trunk->fabric, from) + trunk->map.rings_off +
	       (uint64_t)to * trunk->map.ring_stride;
}

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

void nupa_pair_close_in(struct nupa_peer *peer, uint32_t from, uint32_t to)
{
	for (struct nupa_pair_in *pair = peer->ins; pair; pair = pair->next)
		pair->closed |= (!from || pair->from == from) && (!to || pair->to == to);
}

void nupa_pairs_sweep_in(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
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
