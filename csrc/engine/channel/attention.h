/* SPDX-License-Identifier: BSD-3-Clause
 * Attention: at which rings a program that spins looks.  The cost of a turn of the engine is that
 * of the channels with traffic, not of all.
 *
 *   engine->open[0 .. n_hot)               something came from them last
 *               [n_hot .. n_attended)      looked at, some in each turn if they are many
 *               [n_attended .. n_channels) not looked at: their producers announce
 *
 *   A1  A channel from which nothing came between two reviews is left unattended: its bit in
 *       slot->unattended is set.  A few channels stay.
 *   A2  A producer whose bit is set announces what it has published: its bit in slot->announced,
 *       then slot->announcements.  It does not while its bit there is set.
 *   A3  The consumer takes announcements and attends to those channels before it looks at rings.
 *   A4  Where kernels share the segment, and to a peer on another machine, all channels are
 *       attended.
 *
 * P8/C8 (Dekker): the producer publishes a line, then loads slot->unattended; the consumer stores
 * that, then looks at the ring once more.  The consumer's membarrier is the fence of both, or its
 * read-modify-write of slot->sleeping, where producers have one by P3.  So a line that is not seen
 * by that look is announced.  A bit of `announced` that a producer sees set was set by itself.  If
 * the consumer has taken it meanwhile, it attends to the channel, and has to leave it by another
 * fence before it overlooks the line. */
#ifndef NUPA_ATTENTION_H
#define NUPA_ATTENTION_H

#include "engine/channel/channel.h"

/* Of a process that attaches: all are attended. */
void nupa_attention_begin(struct nupa_slot *slot);
/* A channel that was opened; one that ends, which need not be open. */
void nupa_attention_add(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_attention_drop(struct nupa_engine *engine, struct nupa_channel *channel);
/* Something came from open[i], which is not hot. */
void nupa_attention_heat(struct nupa_engine *engine, uint32_t i);
/* An open channel is looked at again. */
void nupa_attention_give(struct nupa_engine *engine, struct nupa_channel *channel);
/* A3. */
void nupa_attention_hear(struct nupa_engine *engine);
/* A1, by a program that spins, now and then. */
void nupa_attention_review(struct nupa_engine *engine);
/* A2: the peer has left our ring unattended. */
void nupa_attention_announce(const struct nupa_channel *channel);

#define NUPA_HOT_MAX 8u
/* How many stay attended.  Tests set it. */
extern uint32_t nupa_attention_kept;

/* Whether something has come, or the peer is to be told how far we are.  Most looks find neither.
 */
static inline bool nupa_channel_has_news(const struct nupa_channel *channel)
{
	return nupa_rx_ready(&channel->rx) || channel->rx.head_published != channel->rx.head ||
	       unlikely(!nupa_list_empty(&channel->refusals)) ||
	       unlikely(channel->apart || channel->trunked);
}

/* contact_epoch and announcements, as one word. */
static inline uint64_t nupa_engine_calls(const struct nupa_engine *engine)
{
	return nupa_load_acquire((const uint64_t *)(const void *)&engine->slot->contact_epoch);
}

#endif
