/* SPDX-License-Identifier: BSD-3-Clause
 * Extents of the pool.  A word an extent, zero when free, claimed by compare-and-swap: no lock to
 * be left held.  An extent of slot 0 belongs to a process without an attachment, or to a region.
 * In place of an epoch it carries the pid (22 bits at most, PID_MAX_LIMIT in proc(5)), or the
 * region's row. */
#include "region/region_internal.h"

#include <errno.h>
#include <unistd.h>

#define LOAD_TRIES 1000
#define PIN_TRIES 100 /* regions end one by one */
#define WORDS_PER_LINE (NUPA_CACHE_LINE_BYTES / (uint32_t)sizeof(uint32_t))

void nupa_extents_free(struct nupa_fabric *fabric, uint32_t first, uint32_t n)
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
		nupa_extents_free(fabric, first, held);
		first += held + 1;
		held = 0;
	}
	if (held == n)
		return first;
	nupa_extents_free(fabric, first, held);
	return n_extents;
}

int nupa_region_back(struct nupa_fabric *fabric, uint64_t offset, uint64_t bytes)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	if (bytes == 0 || bytes > sb->pool_bytes || offset > sb->pool_bytes - bytes)
		return -EINVAL;
	for (uint64_t at = offset / sb->extent_bytes; at <= (offset + bytes - 1) / sb->extent_bytes;
	     at++)
		if (!nupa_load_relaxed(&fabric->extents[at]))
			return -EINVAL;
	return nupa_fabric_back(fabric, sb->pool_off + offset, bytes);
}

/* --- published memory -------------------------------------------------------------------- */

static bool covers(const struct nupa_superblock *sb, const struct nupa_region_body *body,
		   uint32_t extent)
{
	const uint64_t from = (uint64_t)extent * sb->extent_bytes;
	const uint64_t each = body->bytes / body->ways;

	for (uint32_t i = 0; i < body->ways; i++)
		if (body->pieces[i] < from + sb->extent_bytes && from < body->pieces[i] + each)
			return true;
	return false;
}

/* One that changes all the time is taken for one that does: memory is kept rather than given away.
 */
static bool pins(struct nupa_fabric *fabric, struct nupa_region_row *row, uint32_t extent)
{
	struct nupa_region_body body;
	int rc = -EAGAIN;

	for (int i = 0; i < LOAD_TRIES && rc == -EAGAIN; i++) {
		const uint64_t claim = nupa_load_seq(&row->claim);

		if (NUPA_CLAIM_STATE(claim) == NUPA_REGION_FREE ||
		    NUPA_CLAIM_STATE(claim) == NUPA_REGION_FREEING ||
		    !nupa_load_relaxed(&row->body.published))
			return false;
		rc = nupa_region_load(fabric, row, claim, &body);
	}
	return rc ? rc == -EAGAIN : body.published && covers(&fabric->geometry, &body, extent);
}

uint32_t nupa_region_pin(struct nupa_fabric *fabric, uint32_t extent)
{
	struct nupa_regions t;

	if (nupa_regions(fabric, false, &t))
		return 0;
	for (uint32_t i = 0; i < t.rows_limit; i++)
		if (pins(fabric, &t.rows[i], extent))
			return nupa_pool_region_word(i);
	return 0;
}

/* --- given back ---------------------------------------------------------------------- */

/* Gives up an extent of our own, which no other process claims.  It goes to the region that is
 * published over it and outlives its owner, or else to the system. */
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
		    !nupa_cas_seq(&fabric->extents[extent], &word, NUPA_EXTENT(0, getpid())))
			return;
	}
	nupa_fabric_release(fabric, sb->pool_off + (uint64_t)extent * sb->extent_bytes,
			    sb->extent_bytes);
	nupa_extents_free(fabric, extent, 1);
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
			nupa_extents_free(fabric, first, n);
		}
		for (uint32_t i = first; published && i < first + n; i++)
			give_back(fabric, i);
	}
}

void nupa_pool_reclaim(struct nupa_fabric *fabric, uint32_t slot)
{
	const uint32_t mine = NUPA_EXTENT(0, getpid());
	uint32_t asked = 0, first, end;
	bool alive = false;

	if (slot == 0 && nupa_fabric_machines(fabric))
		return;
	extents_of_ours(fabric, &first, &end);
	for (uint32_t i = first; i < end; i++) {
		uint32_t word = nupa_load_acquire(&fabric->extents[i]);

		if (word == 0 || NUPA_EXTENT_SLOT(word) != slot || nupa_pool_of_region(word))
			continue;
		if (slot == 0 && NUPA_EXTENT_LOW(word) != asked) {
			asked = NUPA_EXTENT_LOW(word);
			alive = nupa_process_alive(asked, 0);
		}
		/* Taken over first: of two who find it, one alone gives its memory back. */
		if (!alive && nupa_cas_seq(&fabric->extents[i], &word, mine))
			give_back(fabric, i);
	}
}

bool nupa_region_finish(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
			uint64_t seen)
{
	static const struct nupa_region_body none;
	struct nupa_region_row *row = &t->rows[index];
	/* The body of a region that was being made has no `published` yet. */
	const bool making = NUPA_CLAIM_STATE(seen) == NUPA_REGION_MAKING;

	if (!nupa_region_step(fabric, row, &seen, NUPA_REGION_FREEING))
		return false;
	nupa_pool_drop(fabric, nupa_pool_region_word(index),
		       making || nupa_load_relaxed(&row->body.published));
	nupa_region_store(row, &none);
	nupa_store_release(&row->charge, 0);
	/* Cannot fail: it is ours. */
	return nupa_region_step(fabric, row, &seen, NUPA_REGION_FREE);
}
