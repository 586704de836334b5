/* SPDX-License-Identifier: BSD-3-Clause
 * Windows: peers' regions as we found them.  A region of the pool, of this process or of the peer's
 * memfd is plain memory here.  Any other region is an address for process_vm_readv and
 * process_vm_writev.  The peer's tables are not trusted (layout.h I5): the worst that they can do
 * is to fail a transfer. */
#define _GNU_SOURCE
#include "engine/channel/channel.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_MASK (NUPA_PAGE_BYTES - 1)

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

static void window_close(struct nupa_window *window)
{
	if (window->mapped) {
		uintptr_t at = (uintptr_t)window->base & ~(uintptr_t)PAGE_MASK;
		uintptr_t end = (uintptr_t)window->base + window->length;

		munmap((void *)at, end - at);
	}
	*window = (struct nupa_window){ 0 };
}

void nupa_window_forget(struct nupa_channel *channel)
{
	for (uint32_t i = 0; channel->windows && i < NUPA_WINDOWS; i++)
		window_close(&channel->windows[i]);
	free(channel->windows);
	channel->windows = NULL;
	if (channel->shared_fd >= 0)
		close(channel->shared_fd);
	channel->shared_fd = -1;
}

/* The peer's memfd, by the same right that a debugger would need to read its memory.  It can be
 * sealed against shrinking alone: what we map of it can never go away under us. */
static bool open_shared(struct nupa_channel *channel)
{
	uint32_t number = nupa_load_acquire(&channel->peer_slot->shared_fd);
	char path[64];
	struct stat status;
	int fd;

	if (channel->shared_fd_seen == number)
		return channel->shared_fd >= 0;
	channel->shared_fd_seen = number;
	if (channel->shared_fd >= 0)
		close(channel->shared_fd);
	channel->shared_fd = -1;
	if (number == 0 || channel->foreign)
		return false;
	snprintf(path, sizeof(path), "/proc/%u/fd/%u", channel->peer_pid, number - 1);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size <= 0 ||
	    !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) || !nupa_channel_process_alive(channel)) {
		close(fd);
		return false;
	}
	channel->shared_fd = fd;
	channel->shared_bytes = (uint64_t)status.st_size;
	return true;
}

bool nupa_window_may_share(const struct nupa_engine *engine, struct nupa_channel *channel)
{
	return channel->mover != NUPA_MOVER_LOCAL &&
	       (engine->forced_mover == NUPA_MOVER_NONE ||
		engine->forced_mover == NUPA_MOVER_SHARED) &&
	       open_shared(channel);
}

static uint8_t *map_shared(struct nupa_channel *channel, uint64_t offset, uint64_t length)
{
	uint64_t skip = offset & PAGE_MASK;
	uint8_t *at;

	if (length == 0 || offset > channel->shared_bytes ||
	    length > channel->shared_bytes - offset)
		return NULL;
	/* Its pages come as they are touched: others are holes of the peer, which stay holes. */
	at = mmap(NULL, skip + length, PROT_READ | PROT_WRITE, MAP_SHARED, channel->shared_fd,
		  (off_t)(offset - skip));
	if (at == MAP_FAILED)
		return NULL;
	madvise(at, skip + length, MADV_DONTFORK);
	return at + skip;
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
	if (entry->shared_off != UINT64_MAX && nupa_window_may_share(engine, channel)) {
		window->base = map_shared(channel, entry->shared_off, window->length);
		window->mapped = window->base != NULL;
		if (window->mapped) {
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
	if (!channel->windows) {
		channel->windows = calloc(NUPA_WINDOWS, sizeof(*channel->windows));
		if (!channel->windows)
			return NULL;
	}
	entry = &channel->peer_mrs[index];
	window = &channel->windows[index & (NUPA_WINDOWS - 1)];
	if (window->word && window->entry == entry && (uint32_t)window->word == rkey &&
	    nupa_window_enter(engine, channel, window, rkey))
		return window;
	window_close(window);
	found = (struct nupa_window){
		.entry = entry,
		.word = nupa_load_acquire((const uint64_t *)(const void *)entry), /* C5 */
	};
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
	if (!nupa_window_enter(engine, channel, &found, rkey) ||
	    found.iova + found.length < found.iova || !find_memory(engine, channel, &copy, &found))
		goto none;
	*window = found;
	return window;
none:
	nupa_window_leave(engine);
	return NULL;
}
