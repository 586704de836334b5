/* SPDX-License-Identifier: BSD-3-Clause
 * Packets to a machine: filled record by record, sent when full or when nothing more is to be said.
 * A machine that takes nothing has a bounded number of them: messages wait in their rings then, and
 * changes are sent later, all at once. */
#include "trunk/internal.h"

#include <stdlib.h>
#include <string.h>

#define SPARES_MAX 64u

static struct nupa_packet *take_packet(struct nupa_trunk *trunk)
{
	struct nupa_packet *packet = trunk->spare;

	if (packet) {
		trunk->spare = packet->next;
		trunk->spares--;
	} else {
		packet = aligned_alloc(_Alignof(struct nupa_packet), sizeof(*packet));
	}
	if (packet) {
		packet->next = NULL;
		packet->link = NULL;
		packet->bytes = 0;
	}
	return packet;
}

static void give_packet(struct nupa_trunk *trunk, struct nupa_packet *packet)
{
	if (trunk->spares >= SPARES_MAX) {
		free(packet);
		return;
	}
	packet->next = trunk->spare;
	trunk->spare = packet;
	trunk->spares++;
}

void nupa_out_flush(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	struct nupa_machine *seen = nupa_peer_seen(trunk, peer);
	struct nupa_packet *packet = peer->filling;

	if (!packet)
		return;
	peer->filling = NULL;
	if (!packet->bytes || !peer->met) {
		give_packet(trunk, packet);
		return;
	}
	nupa_count(&seen->sent_bytes, packet->bytes);
	nupa_count(&seen->sent_messages, 1);
	peer->on_way++;
	packet->put_bytes = peer->put_bytes;
	peer->put_bytes = 0;
	packet->link = NULL;
	trunk->carrier->ops->send(trunk->carrier, peer->link, packet);
}

void nupa_out_sent(struct nupa_trunk *trunk, struct nupa_packet *packet)
{
	give_packet(trunk, packet);
}

bool nupa_out_is_open(const struct nupa_peer *peer)
{
	return peer->on_way < NUPA_PACKETS_DATA;
}

size_t nupa_out_left(const struct nupa_peer *peer)
{
	return NUPA_PACKET_BYTES - (peer->filling ? peer->filling->bytes : 0);
}

void *nupa_out_room(struct nupa_trunk *trunk, struct nupa_peer *peer, enum nupa_told_kind kind,
		    size_t bytes, bool data)
{
	const size_t padded = (bytes + 7) & ~(size_t)7;
	struct nupa_told *record;

	if (!peer->met || padded > NUPA_PACKET_BYTES)
		return NULL;
	if (padded > nupa_out_left(peer))
		nupa_out_flush(trunk, peer);
	if (!peer->filling) {
		if (peer->on_way >= (data ? NUPA_PACKETS_DATA : NUPA_PACKETS_CONTROL))
			return NULL;
		peer->filling = take_packet(trunk);
		if (!peer->filling)
			return NULL;
	}
	record = (struct nupa_told *)(void *)(peer->filling->data + peer->filling->bytes);
	peer->filling->bytes += (uint32_t)padded;
	if (padded != bytes)
		memset((uint8_t *)record + padded - 8, 0, 8);
	*record = (struct nupa_told){ .bytes = (uint32_t)padded, .kind = (uint16_t)kind };
	return record;
}

void nupa_out_free(struct nupa_trunk *trunk)
{
	while (trunk->spare) {
		struct nupa_packet *packet = trunk->spare;

		trunk->spare = packet->next;
		free(packet);
	}
	trunk->spares = 0;
}
