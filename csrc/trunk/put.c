/* SPDX-License-Identifier: BSD-3-Clause
 * Large payloads without packets: the carrier copies them from the ring here to the same ring
 * there.  Their lines are behind them, in a packet that goes once they have arrived.
 *
 * Until then they are read from the ring, whose sender may end meanwhile.  The arena is another's
 * then, or cleared.  So the lines go only if the sender has its slot when the payloads are there;
 * else they and all that it sent behind them are lost with it. */
#include "trunk/internal.h"

#include <string.h>

#define PUT_MOST (4u << 20) /* bytes on their way to a machine, before others wait */

/* --- from here ----------------------------------------------------------------------------- */

bool nupa_put_is_full(const struct nupa_peer *peer)
{
	return peer->put_on_way >= PUT_MOST;
}

/* Payloads begin at lines. */
static uint32_t whole_lines(uint32_t bytes)
{
	return (bytes + 63) & ~UINT32_C(63);
}

bool nupa_put(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_out *pair,
	      const uint8_t *payload, uint32_t bytes)
{
	if (!peer->met || nupa_put_is_full(peer))
		return false;
	pair->has_put = true;
	if (pair->put_bytes && payload == pair->put_from + whole_lines(pair->put_bytes)) {
		pair->put_bytes = whole_lines(pair->put_bytes) + bytes;
		return true;
	}
	nupa_put_end(trunk, peer, pair);
	pair->put_from = payload;
	pair->put_bytes = bytes;
	return true;
}

void nupa_put_end(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_out *pair)
{
	const uint32_t bytes = pair->put_bytes;

	if (!bytes)
		return;
	trunk->carrier->ops->put(trunk->carrier, pair->window, pair->put_from,
				 pair->window_at + (uint64_t)(pair->put_from - pair->rx.dma),
				 bytes);
	pair->put_bytes = 0;
	peer->put_bytes += bytes;
	peer->put_on_way += bytes;
	nupa_count(&nupa_peer_seen(trunk, peer)->sent_bytes, bytes);
}

bool nupa_put_window(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_window *record)
{
	struct nupa_pair_out *pair;

	if (!nupa_slot_theirs(trunk, peer, record->to) || !nupa_slot_ours(trunk, record->from) ||
	    record->key_bytes > sizeof(record->key))
		return false;
	pair = nupa_pair_find_out(peer, record->from, record->to);
	/* Of a former life of the ring. */
	if (!pair || record->from_epoch != pair->rx.epoch || record->to_epoch != pair->to_epoch)
		return true;
	if (pair->window)
		return false;
	pair->window =
	    trunk->carrier->ops->unlock(trunk->carrier, peer->link, record->key, record->key_bytes);
	pair->window_at = record->address;
	return true;
}

/* Lines without such payloads are whole, whatever became of their sender.  But they have to follow
 * those before them: else the receiver takes their payloads from the place of lost ones. */
static bool are_lost(struct nupa_trunk *trunk, const struct nupa_told_lines *record)
{
	uint32_t *lost_epoch = &trunk->own[record->from].lost_epoch;

	if (record->has_put && !nupa_slot_lives(trunk, record->from, record->epoch))
		*lost_epoch = record->epoch;
	return *lost_epoch == record->epoch;
}

void nupa_put_check(struct nupa_trunk *trunk, struct nupa_packet *packet)
{
	for (uint32_t at = 0; at < packet->bytes;) {
		void *here = packet->data + at;
		const struct nupa_told *head = here;
		struct nupa_told_open *nothing = here;

		at += head->bytes;
		if (head->kind != NUPA_TOLD_LINES || !are_lost(trunk, here))
			continue;
		/* The opening of no ring, which is ignored. */
		*nothing = (struct nupa_told_open){ .head = { .bytes = head->bytes,
							      .kind = NUPA_TOLD_OPEN } };
	}
}

void nupa_put_close_out(struct nupa_trunk *trunk, const struct nupa_peer *peer,
			struct nupa_pair_out *pair)
{
	if (pair->window && peer->link) /* else it has ended with the connection */
		trunk->carrier->ops->lock(trunk->carrier, pair->window);
	pair->window = NULL;
	pair->put_bytes = 0;
}

/* --- to here ------------------------------------------------------------------------------- */

void nupa_put_offer(struct nupa_trunk *trunk, struct nupa_peer *peer, struct nupa_pair_in *pair)
{
	struct nupa_told_window *record =
	    nupa_out_room(trunk, peer, NUPA_TOLD_WINDOW, sizeof(*record), false);
	const struct nupa_told head = record ? record->head : (struct nupa_told){ 0 };

	if (!record) /* with the next payload */
		return;
	*record = (struct nupa_told_window){ .head = head, .from = pair->from, .to = pair->to };
	pair->offered = true;
	pair->window = trunk->carrier->ops->window(trunk->carrier, pair->tx.dma, pair->tx.dma_bytes,
						   record->key, &record->key_bytes);
	if (!pair->window) /* there are none: of no life, so that it is ignored */
		return;
	record->from_epoch = pair->tx.epoch;
	record->to_epoch = pair->to_epoch;
	record->address = (uint64_t)(uintptr_t)pair->tx.dma;
}

void nupa_put_close_in(struct nupa_trunk *trunk, struct nupa_pair_in *pair)
{
	if (pair->window)
		trunk->carrier->ops->unwindow(trunk->carrier, pair->window);
	pair->window = NULL;
	pair->offered = false;
}
