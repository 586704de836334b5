/* SPDX-License-Identifier: BSD-3-Clause
 * The pool: memory of the fabric that all hosts can load from and store to, given out in runs of
 * extents.  A word an extent, zero when free, claimed by compare-and-swap: no lock to be left held.
 * Extents of slot 0 belong to a process without an attachment and carry its pid (22 bits at most,
 * PID_MAX_LIMIT in proc(5)) in place of an epoch.  Or they belong to a region and carry its row. */
#include "region/region_internal.h"

#include <errno.h>
#include <unistd.h>

#define PIN_TRIES 100 /* regions end one by one */
#define WORDS_PER_LINE (NUPA_CACHE_LINE_BYTES / (uint32_t)sizeof(uint32_t))
#define OWNER(slot, low) ((uint32_t)(slot) << 24 | ((uint32_t)(low)&0xffffff))
#define OWNER_SLOT(word) ((word) >> 24)
#define OWNER_LOW(word) ((word)&0xffffff)

uint32_t nupa_pool_owner(const struct nupa_fabric *fabric, uint32_t slot)
{
	uint64_t claim;

	if (slot == 0)
		return OWNER(0, getpid());
	claim = nupa_load_relaxed(&fabric->slots[slot].claim);
	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE ||
	    NUPA_CLAIM_OWNER(claim) != nupa_fabric_owner(fabric))
		return 0;
	return OWNER(slot, NUPA_CLAIM_EPOCH(claim));
}

static void free_words(struct nupa_fabric *fabric, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		/* The hole was punched before: pairs with the acquire of the next owner. */
		nupa_store_release(&fabric->extents[i], 0);
}

/* The extents of our host, [first, end): all; SOFTWARE: whole lines of their words, which no other
 * kernel claims. */
static void extents_of_ours(const struct nupa_fabric *fabric, uint32_t *first, uint32_t *end)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint32_t each = sb->n_extents / sb->n_hosts / WORDS_PER_LINE * WORDS_PER_LINE;
	const bool apart = nupa_fabric_incoherent(fabric);

	*first = apart && fabric->kernel ? (fabric->kernel - 1) * each : 0;
	*end = !apart ? sb->n_extents : fabric->kernel ? *first + each : 0;
}

uint32_t nupa_pool_claim(struct nupa_fabric *fabric, uint32_t n, uint32_t owner)
{
	const uint32_t n_extents = fabric->geometry.n_extents;
	uint32_t first, end, held = 0;

	extents_of_ours(fabric, &first, &end);
	while (first + held < end && held < n) {
		uint32_t free_word = 0;

		if (nupa_cas_seq(&fabric->extents[first + held], &free_word, owner)) {
			held++;
			continue;
		}
		free_words(fabric, first, held);
		first += held + 1;
		held = 0;
	}
	if (held == n)
		return first;
	free_words(fabric, first, held);
	return n_extents;
}

/* Extents for the owner of the slot: the first of them. */
static int reserve(struct nupa_fabric *fabric, uint32_t slot, uint64_t size_bytes, uint32_t *first)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint32_t owner, n;

	if (slot >= sb->n_slots || size_bytes == 0)
		return -EINVAL;
	/* A pid alone does not say whose memory it is where there are several kernels. */
	if (slot == 0 && nupa_fabric_machines(fabric))
		return -EOPNOTSUPP;
	if (size_bytes > sb->pool_bytes)
		return -ENOMEM;
	owner = nupa_pool_owner(fabric, slot);
	if (!owner)
		return -EPERM;
	if (!nupa_fabric_pool(fabric))
		return -errno;
	n = nupa_pool_extents(sb, size_bytes);
	*first = nupa_pool_claim(fabric, n, owner);
	if (*first == sb->n_extents) {
		(void)nupa_fabric_reap(fabric);
		*first = nupa_pool_claim(fabric, n, owner);
	}
	return *first == sb->n_extents ? -ENOMEM : 0;
}

int nupa_pool_reserve(struct nupa_fabric *fabric, uint32_t slot, uint64_t size_bytes, void **out)
{
	uint32_t first = 0;
	const int rc = reserve(fabric, slot, size_bytes, &first);

	if (!rc)
		*out = nupa_fabric_pool(fabric) + (uint64_t)first * fabric->geometry.extent_bytes;
	return rc;
}

int nupa_pool_alloc(struct nupa_fabric *fabric, uint32_t slot, uint64_t size_bytes, void **out)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint32_t n = nupa_pool_extents(sb, size_bytes);
	uint32_t first = 0;
	uint64_t offset;
	int rc;

	rc = reserve(fabric, slot, size_bytes, &first);
	if (rc)
		return rc;
	offset = (uint64_t)first * sb->extent_bytes;
	rc = nupa_fabric_back(fabric, sb->pool_off + offset, (uint64_t)n * sb->extent_bytes);
	if (rc) {
		free_words(fabric, first, n);
		return rc;
	}
	*out = nupa_fabric_pool(fabric) + offset;
	return 0;
}

uint64_t nupa_pool_offset(struct nupa_fabric *fabric, const void *addr)
{
	const uintptr_t pool = (uintptr_t)nupa_load_acquire(&fabric->pool);
	const uintptr_t at = (uintptr_t)addr;

	return pool && at >= pool && at - pool < fabric->geometry.pool_bytes ? at - pool
									     : UINT64_MAX;
}

int nupa_pool_free(struct nupa_fabric *fabric, uint32_t slot, void *addr, uint64_t size_bytes)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uintptr_t pool = (uintptr_t)nupa_load_acquire(&fabric->pool);
	const uintptr_t offset = (uintptr_t)addr - pool;
	uint32_t owner, first, n;

	if (slot >= sb->n_slots || !pool || size_bytes == 0 || (uintptr_t)addr < pool ||
	    offset % sb->extent_bytes || size_bytes > sb->pool_bytes ||
	    offset > sb->pool_bytes - size_bytes)
		return -EINVAL;
	owner = nupa_pool_owner(fabric, slot);
	if (!owner)
		return -EPERM;
	first = (uint32_t)(offset / sb->extent_bytes);
	n = nupa_pool_extents(sb, size_bytes);
	for (uint32_t i = first; i < first + n; i++)
		if (nupa_load_relaxed(&fabric->extents[i]) != owner)
			return -EPERM;
	for (uint32_t i = first; i < first + n; i++)
		if (nupa_region_pin(fabric, i))
			return -EBUSY;
	nupa_fabric_release(fabric, sb->pool_off + offset, (uint64_t)n * sb->extent_bytes);
	free_words(fabric, first, n);
	return 0;
}

/* Gives up an extent of our own, which no other process claims: to the region that is published
 * over it and outlives its owner, or else to the system. */
static void give_back(struct nupa_fabric *fabric, uint32_t extent)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint32_t pin, word;

	for (int i = 0; (pin = nupa_region_pin(fabric, extent)); i++) {
		/* Stored before the region is checked again.  A process that ends the region marks
		 * it before it looks for extents; if the region is still there, that process will
		 * find this one. */
		(void)nupa_exchange_seq(&fabric->extents[extent], pin);
		word = pin;
		if (i == PIN_TRIES || nupa_region_pin(fabric, extent) == pin ||
		    !nupa_cas_seq(&fabric->extents[extent], &word, OWNER(0, getpid())))
			return;
	}
	nupa_fabric_release(fabric, sb->pool_off + (uint64_t)extent * sb->extent_bytes,
			    sb->extent_bytes);
	free_words(fabric, extent, 1);
}

void nupa_pool_drop(struct nupa_fabric *fabric, uint32_t word, bool published)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint32_t first, end, n;

	extents_of_ours(fabric, &first, &end);
	for (; first < end; first += n ? n : 1) {
		n = 0;
		while (first + n < end && nupa_load_acquire(&fabric->extents[first + n]) == word)
			n++;
		if (n && !published) {
			nupa_fabric_release(fabric,
					    sb->pool_off + (uint64_t)first * sb->extent_bytes,
					    (uint64_t)n * sb->extent_bytes);
			free_words(fabric, first, n);
		}
		for (uint32_t i = first; published && i < first + n; i++)
			give_back(fabric, i);
	}
}

void nupa_pool_reclaim(struct nupa_fabric *fabric, uint32_t slot)
{
	const uint32_t mine = OWNER(0, getpid());
	uint32_t asked = 0, first, end;
	bool alive = false;

	if (slot == 0 && nupa_fabric_machines(fabric))
		return;
	extents_of_ours(fabric, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		uint32_t word = nupa_load_acquire(&fabric->extents[i]);

		if (word == 0 || OWNER_SLOT(word) != slot || nupa_pool_of_region(word))
			continue;
		if (slot == 0 && OWNER_LOW(word) != asked) {
			asked = OWNER_LOW(word);
			alive = nupa_process_alive(asked, 0);
		}
		/* Taken over first: of two who find it, one alone gives its memory back. */
		if (!alive && nupa_cas_seq(&fabric->extents[i], &word, mine))
			give_back(fabric, i);
	}
}
