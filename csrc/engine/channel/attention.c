/* SPDX-License-Identifier: BSD-3-Clause
 * Which rings are looked at, and announcements of the producers of others. */
#include "engine/channel/attention.h"

uint32_t nupa_attention_kept = 3; /* as many lines as an empty poll looks at anyway */

#define WORD_OF(slot) ((slot) / 64)
#define BIT_OF(slot) (UINT64_C(1) << (slot) % 64)

static void put(struct nupa_engine *engine, uint32_t i, struct nupa_channel *channel)
{
	engine->open[i] = channel;
	channel->place = i;
}

static void trade(struct nupa_engine *engine, uint32_t i, uint32_t k)
{
	struct nupa_channel *channel = engine->open[i];

	put(engine, i, engine->open[k]);
	put(engine, k, channel);
}

static void mark(struct nupa_engine *engine, const struct nupa_channel *channel, bool unattended)
{
	uint64_t *word = &engine->slot->unattended[WORD_OF(channel->peer)];
	const uint64_t others = *word & ~BIT_OF(channel->peer);

	nupa_store_relaxed(word, unattended ? others | BIT_OF(channel->peer) : others);
}

/* After marks have changed. */
static void show(struct nupa_engine *engine)
{
	nupa_store_relaxed(&engine->slot->leaves_some, engine->n_attended < engine->n_channels);
}

/* open[i] goes behind those that are looked at. */
static void leave(struct nupa_engine *engine, uint32_t i)
{
	if (i < engine->n_hot) {
		trade(engine, i, --engine->n_hot);
		i = engine->n_hot;
	}
	trade(engine, i, --engine->n_attended);
}

static void attend(struct nupa_engine *engine, uint32_t i)
{
	mark(engine, engine->open[i], false);
	trade(engine, i, engine->n_attended++);
}

static bool is_open(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	return channel->place < engine->n_channels && engine->open[channel->place] == channel;
}

void nupa_attention_begin(struct nupa_slot *slot)
{
	nupa_store_relaxed(&slot->leaves_some, 0);
	for (uint32_t i = 0; i < NUPA_SLOT_WORDS; i++) {
		nupa_store_relaxed(&slot->unattended[i], 0);
		nupa_store_relaxed(&slot->announced[i], 0); /* a previous owner's peers may */
	}
}

void nupa_attention_add(struct nupa_engine *engine, struct nupa_channel *channel)
{
	put(engine, engine->n_channels, channel);
	trade(engine, engine->n_channels++, engine->n_attended++);
}

void nupa_attention_drop(struct nupa_engine *engine, struct nupa_channel *channel)
{
	if (!is_open(engine, channel))
		return;
	if (channel->place < engine->n_attended)
		leave(engine, channel->place);
	else
		mark(engine, channel, false);
	trade(engine, channel->place, --engine->n_channels);
	show(engine);
}

void nupa_attention_give(struct nupa_engine *engine, struct nupa_channel *channel)
{
	if (!is_open(engine, channel) || channel->place < engine->n_attended)
		return;
	attend(engine, channel->place);
	show(engine);
}

void nupa_attention_heat(struct nupa_engine *engine, uint32_t i)
{
	struct nupa_channel *channel = engine->open[i];

	nupa_attention_give(engine, channel);
	i = channel->place;
	if (engine->n_hot < NUPA_HOT_MAX)
		trade(engine, i, engine->n_hot++);
	else
		trade(engine, i, engine->next_cooled++ % NUPA_HOT_MAX);
}

void nupa_attention_hear(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < NUPA_SLOT_WORDS; i++) {
		uint64_t *word = &engine->slot->announced[i];
		uint64_t bits = nupa_load_relaxed(word) ? nupa_exchange_seq(word, 0) : 0;

		for (; bits; bits &= bits - 1) {
			const uint32_t peer = i * 64 + (uint32_t)__builtin_ctzll(bits);

			if (peer < NUPA_SLOTS_MAX && engine->channels[peer])
				nupa_attention_give(engine, engine->channels[peer]);
		}
	}
}

/* Nothing came since the last review, and whatever comes is announced. */
static bool is_quiet(struct nupa_channel *channel)
{
	const bool quiet = channel->rx.head == channel->head_reviewed;

	channel->head_reviewed = channel->rx.head;
	return quiet && !nupa_channel_has_news(channel);
}

void nupa_attention_review(struct nupa_engine *engine)
{
	const uint32_t attended = engine->n_attended;
	bool fenced;

	if (engine->polls_bell || engine->looks || engine->forked)
		return; /* A4 */
	for (uint32_t i = attended; i-- > 0;) {
		struct nupa_channel *channel = engine->open[i];

		if (is_quiet(channel) && engine->n_attended > nupa_attention_kept) {
			mark(engine, channel, true);
			leave(engine, i);
		}
	}
	if (engine->n_attended == attended)
		return;
	show(engine);
	/* C8.  The two fences are for producers with and without fences of their own. */
	(void)nupa_fetch_add_seq(&engine->slot->sleeping, 0);
	fenced = nupa_port_barrier(engine);
	for (uint32_t i = engine->n_attended; i < attended; i++)
		if (!fenced || nupa_channel_has_news(engine->open[i]))
			attend(engine, i);
	show(engine);
}

void nupa_attention_announce(const struct nupa_channel *channel)
{
	struct nupa_slot *slot = channel->peer_slot;
	const uint32_t own = channel->engine->slot_index;
	uint64_t *word = &slot->announced[WORD_OF(own)];

	if (!(nupa_load_relaxed(&slot->unattended[WORD_OF(own)]) & BIT_OF(own)) ||
	    nupa_load_relaxed(word) & BIT_OF(own)) /* A2 */
		return;
	(void)nupa_fetch_or_seq(word, BIT_OF(own));
	(void)nupa_fetch_add_seq(&slot->announcements, 1);
}
