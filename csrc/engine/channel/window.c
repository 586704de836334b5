/* SPDX-License-Identifier: BSD-3-Clause
 * Windows: peers' regions as we found them.  A region of the pool, of this process or of the peer's
 * memfd is plain memory here.  Any other region is an address for process_vm_readv and
 * process_vm_writev.  The peer's tables are not trusted (layout.h I5): the worst that they can do
 * is to fail a transfer.
 *
 * A peer's windows are a table by the index of the key, as large as the keys that were used need.
 */
#define _GNU_SOURCE
#include "engine/channel/mapping.h"

#include <stdlib.h>
#include <sys/mman.h>

#define WINDOWS_MIN 16u  /* a power of two */
#define WINDOWS_PAGE 64u /* a page of them: such tables are mapped, smaller ones are not */
#define SWEPT_AT_ONCE 8u

/* A sum of products with odd numbers: each change of one word shows. */
uint32_t nupa_mr_entry_check(const struct nupa_mr_entry *entry)
{
	struct nupa_mr_entry whole = *entry;
	uint64_t words[sizeof(whole) / 8], sum = 0, factor = UINT64_C(0x9e3779b97f4a7c15);

	whole.check = 0;
	memcpy(words, &whole, sizeof(words));
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		sum += words[i] * factor;
		factor += UINT64_C(0xbf58476d1ce4e5ba);
	}
	return (uint32_t)(sum >> 32);
}

static const struct nupa_mr_entry *entry_of(const struct nupa_channel *channel, uint32_t rkey)
{
	return &channel->peer_mrs[rkey >> NUPA_KEY_VARIANT_BITS];
}

static void window_close(struct nupa_channel *channel, struct nupa_window *window)
{
	if (window->mapping)
		nupa_mapping_put(channel, window->mapping);
	*window = (struct nupa_window){ 0 };
}

/* NULL: no memory. */
static struct nupa_window *table_new(uint32_t n)
{
	const size_t bytes = n * sizeof(struct nupa_window);
	void *at;

	if (n < WINDOWS_PAGE) {
		at = aligned_alloc(sizeof(struct nupa_window), bytes);
		return at ? memset(at, 0, bytes) : NULL;
	}
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		  -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void table_free(struct nupa_window *table, uint32_t n)
{
	if (n < WINDOWS_PAGE)
		free(table);
	else
		munmap(table, n * sizeof(*table));
}

static struct nupa_window *table_grown(struct nupa_window *table, uint32_t from, uint32_t to)
{
	void *at;

	if (from >= WINDOWS_PAGE) {
		at = mremap(table, from * sizeof(*table), to * sizeof(*table), MREMAP_MAYMOVE);
		return at == MAP_FAILED ? NULL : at;
	}
	at = table_new(to);
	if (!at)
		return NULL;
	memcpy(at, table, from * sizeof(*table));
	free(table);
	return at;
}

void nupa_window_forget(struct nupa_channel *channel)
{
	for (uint32_t i = 0; i < channel->n_windows; i++)
		if (channel->windows[i].mapping)
			window_close(channel, &channel->windows[i]);
	table_free(channel->windows, channel->n_windows);
	channel->windows = NULL;
	channel->n_windows = 0;
	nupa_mapping_close(channel);
}

/* Makes room for the window of this index.  Pages without windows take no memory. */
static bool grow(struct nupa_channel *channel, uint32_t index)
{
	uint32_t n = channel->n_windows ? channel->n_windows : WINDOWS_MIN;
	struct nupa_window *at;

	if (index < channel->n_windows)
		return true;
	while (n <= index)
		n *= 2;
	at = channel->n_windows ? table_grown(channel->windows, channel->n_windows, n)
				: table_new(n);
	if (!at)
		return false;
	at[index].word = 0; /* a page that is read first costs two page faults */
	channel->windows = at;
	channel->n_windows = n;
	return true;
}

/* Closes windows on regions that are gone: some at each opening, so that few are left. */
static void sweep(struct nupa_channel *channel)
{
	for (uint32_t i = 0; i < SWEPT_AT_ONCE; i++) {
		struct nupa_window *window =
		    &channel->windows[channel->windows_swept++ & (channel->n_windows - 1)];

		if (window->word &&
		    nupa_mr_entry_word(entry_of(channel, (uint32_t)window->word)) != window->word)
			window_close(channel, window);
	}
}

static bool may_map(const struct nupa_engine *engine, const struct nupa_channel *channel)
{
	return channel->mover != NUPA_MOVER_LOCAL && (engine->forced_mover == NUPA_MOVER_NONE ||
						      engine->forced_mover == NUPA_MOVER_SHARED);
}

bool nupa_window_may_share(const struct nupa_engine *engine, struct nupa_channel *channel)
{
	return may_map(engine, channel) && nupa_mapping_find(channel);
}

/* How the region is reached from here; false: not at all. */
static bool find_memory(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_mr_entry *entry, struct nupa_window *window)
{
	enum nupa_mover forced = engine->forced_mover;
	bool on_demand = (window->access & IBV_ACCESS_ON_DEMAND) != 0;

	if (forced == NUPA_MOVER_RELAY)
		return false;
	if (entry->pool_off != UINT64_MAX && forced != NUPA_MOVER_CMA) {
		uint64_t pool_bytes = engine->fabric->geometry.pool_bytes;
		uint8_t *pool = nupa_fabric_pool(engine->fabric);

		if (!pool || entry->pool_off > pool_bytes ||
		    window->length > pool_bytes - entry->pool_off)
			return false;
		window->base = pool + entry->pool_off;
		return true;
	}
	if (channel->mover == NUPA_MOVER_LOCAL && !on_demand) {
		window->base = (uint8_t *)(uintptr_t)window->va;
		return true;
	}
	if (window->access & NUPA_MR_ENTRY_RELAYED)
		return false;
	if (entry->shared_off != UINT64_MAX && may_map(engine, channel)) {
		window->mapping =
		    nupa_mapping_get(channel, entry->shared_off, window->length, &window->base);
		if (window->mapping) {
			nupa_store_relaxed(&channel->tx.header->mover, NUPA_MOVER_SHARED);
			return true;
		}
	}
	/* LOCAL memory here may be unmapped: the kernel copies, or fails with EFAULT. */
	return channel->mover == NUPA_MOVER_CMA || channel->mover == NUPA_MOVER_LOCAL;
}

struct nupa_window *nupa_window_open(struct nupa_engine *engine, struct nupa_channel *channel,
				     uint32_t rkey)
{
	uint32_t index = rkey >> NUPA_KEY_VARIANT_BITS;
	const struct nupa_mr_entry *entry;
	struct nupa_mr_entry copy;
	struct nupa_window *window, found;

	if (index >= engine->fabric->geometry.mr_entries ||
	    index >= nupa_load_acquire(&channel->peer_slot->mr_limit))
		return NULL;
	window = nupa_window_find(channel, rkey);
	if (window && window->word &&
	    nupa_window_enter(&engine->slot->hazard, channel, window, rkey))
		return window;
	entry = entry_of(channel, rkey);
	found = (struct nupa_window){ .word = nupa_mr_entry_word(entry) }; /* C5 */
	if ((uint32_t)found.word != rkey || rkey == 0)
		goto none;
	nupa_mr_entry_copy(&copy, entry);
	copy.key = rkey;
	copy.changes = (uint32_t)(found.word >> 32);
	if (copy.check != nupa_mr_entry_check(&copy))
		goto none;
	found.iova = copy.iova;
	found.length = copy.length;
	found.va = copy.va;
	found.access = copy.access;
	found.pd = copy.pd;
	found.qpn = copy.qpn;
	/* The entry that we look at is not freed: it is announced first. */
	if (!nupa_window_enter(&engine->slot->hazard, channel, &found, rkey) ||
	    found.iova + found.length < found.iova || !grow(channel, index))
		goto none;
	sweep(channel);
	window = &channel->windows[index];
	window_close(channel, window);
	if (!find_memory(engine, channel, &copy, &found))
		goto none;
	*window = found;
	return window;
none:
	nupa_window_leave(&engine->slot->hazard);
	return NULL;
}
