/* SPDX-License-Identifier: BSD-3-Clause
 * Channels between kernels that are not coherent. */
#include "engine/channel/apart.h"

#include "segment/coherence.h"
#include "segment/segment_internal.h"

void nupa_channel_flush_empty(const struct nupa_channel *channel,
			      const struct nupa_ring_header *header, uint64_t lines_bytes)
{
	nupa_flush(channel->apart, NUPA_POINT_EMPTY, &header->head, 2 * NUPA_CACHE_LINE_BYTES);
	nupa_flush(channel->apart, NUPA_POINT_EMPTY, header + 1, lines_bytes);
}

void nupa_channel_flush_pair(const struct nupa_channel *channel,
			     const struct nupa_ring_header *header)
{
	nupa_flush(channel->apart, NUPA_POINT_PAIR, header, NUPA_CACHE_LINE_BYTES);
}

void nupa_channel_fetch_pair(const struct nupa_channel *channel,
			     const struct nupa_ring_header *header)
{
	nupa_fetch(channel->apart, NUPA_POINT_PAIR, header, NUPA_CACHE_LINE_BYTES);
}

void nupa_channel_flush_contact(const struct nupa_channel *channel, const uint32_t *contact)
{
	nupa_flush(channel->apart, NUPA_POINT_CONTACT, contact, sizeof(*contact));
}

void nupa_channel_fetch_contact(const struct nupa_channel *channel, const uint32_t *contact)
{
	nupa_fetch(channel->apart, NUPA_POINT_CONTACT, contact, sizeof(*contact));
}

void nupa_channel_fetch_slot(const struct nupa_channel *channel)
{
	if (channel->apart)
		nupa_slot_fetch(channel->engine->fabric, channel->peer);
}

void nupa_channel_fetch_qp(const struct nupa_channel *channel, const struct nupa_qp_entry *entry)
{
	nupa_fetch(channel->apart, NUPA_POINT_QP, entry, sizeof(*entry));
}
