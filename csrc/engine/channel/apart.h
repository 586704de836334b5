/* SPDX-License-Identifier: BSD-3-Clause
 * The points of coherence (segment/coherence.h) of a channel whose ends are in kernels that are not
 * coherent.  In other channels these do nothing.  Messages: segment/ring/ring_apart.c. */
#ifndef NUPA_CHANNEL_APART_H
#define NUPA_CHANNEL_APART_H

#include "engine/channel/channel.h"

/* Our ring has been emptied; whether the peer may use it has changed. */
void nupa_channel_flush_empty(const struct nupa_channel *channel,
			      const struct nupa_ring_header *header, uint64_t lines_bytes);
void nupa_channel_flush_pair(const struct nupa_channel *channel,
			     const struct nupa_ring_header *header);
/* Before we look whether we may use the peer's. */
void nupa_channel_fetch_pair(const struct nupa_channel *channel,
			     const struct nupa_ring_header *header);
/* Our word to the peer, and the peer's to us. */
void nupa_channel_flush_contact(const struct nupa_channel *channel, const uint32_t *contact);
void nupa_channel_fetch_contact(const struct nupa_channel *channel, const uint32_t *contact);
/* The peer's slot, and a QP's entry of it. */
void nupa_channel_fetch_slot(const struct nupa_channel *channel);
void nupa_channel_fetch_qp(const struct nupa_channel *channel, const struct nupa_qp_entry *entry);

#endif
