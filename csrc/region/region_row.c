/* SPDX-License-Identifier: BSD-3-Clause
 * Rows of the table of regions: claimed, read whole, checked, and found. */
#include "segment/layout/geometry.h"
#include "region/region_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A change takes microseconds; who makes it may be without a core for long. */
#define SETTLE_TRIES 20000
#define LOAD_TRIES 1000
#define GRANULARITY_BYTES_MIN 64u

static uint32_t at_most(uint32_t value, uint32_t most)
{
	return value < most ? value : most;
}

int nupa_regions(struct nupa_fabric *fabric, bool make, struct nupa_regions *t)
{
	uint8_t *base;

	if (nupa_fabric_incoherent(fabric))
		return -EOPNOTSUPP;
	base = nupa_fabric_regions(fabric, make);
	if (!base)
		return -errno;
	t->n_rows = nupa_region_rows(&fabric->geometry);
	t->n_mappings = nupa_region_mappings(&fabric->geometry);
	t->header = (struct nupa_region_header *)(void *)base;
	t->rows = (struct nupa_region_row *)(void *)(base + sizeof(*t->header));
	t->mappings = (struct nupa_region_mapping *)(void *)(t->rows + t->n_rows);
	t->rows_limit = at_most(nupa_load_seq(&t->header->rows_limit), t->n_rows);
	t->mappings_limit = at_most(nupa_load_seq(&t->header->mappings_limit), t->n_mappings);
	return 0;
}

void nupa_region_raise(uint32_t *limit, uint32_t n)
{
	uint32_t seen = nupa_load_seq(limit);

	while (seen < n && !nupa_cas_seq(limit, &seen, n))
		continue;
}

/* --- claims ---------------------------------------------------------------------------- */

bool nupa_region_step(struct nupa_fabric *fabric, struct nupa_region_row *row, uint64_t *seen,
		      uint32_t state)
{
	const bool held = state == NUPA_REGION_MAKING || state == NUPA_REGION_CHANGING ||
			  state == NUPA_REGION_FREEING;
	const uint64_t next =
	    NUPA_CLAIM(held ? nupa_region_claimant(fabric) : 0, NUPA_CLAIM_EPOCH(*seen) + 1, state);

	if (!nupa_cas_seq(&row->claim, seen, next))
		return false;
	*seen = next;
	return true;
}

/* Waits until the row leaves *state*; false: it does not, or its claimant has died.  claim: as it
 * is then. */
static bool has_left(const struct nupa_fabric *fabric, const struct nupa_region_row *row,
		     uint32_t state, uint64_t *claim)
{
	for (int i = 0; i < SETTLE_TRIES; i++) {
		*claim = nupa_load_seq(&row->claim);
		if (NUPA_CLAIM_STATE(*claim) != state)
			return true;
		if (i % 1000 == 999 && !nupa_region_claimant_alive(fabric, *claim))
			return false;
		sched_yield();
	}
	return false;
}

int nupa_region_settled(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
			uint64_t *claim)
{
	struct nupa_region_row *row = &t->rows[index];

	if (has_left(fabric, row, NUPA_REGION_CHANGING, claim))
		return 0;
	if (nupa_region_claimant_alive(fabric, *claim))
		return -EAGAIN;
	(void)nupa_region_step(fabric, row, claim, NUPA_REGION_LIVE); /* or another one does */
	return has_left(fabric, row, NUPA_REGION_CHANGING, claim) ? 0 : -EAGAIN;
}

int nupa_region_hold(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id,
		     struct nupa_region_body *body, uint64_t *claim)
{
	const uint32_t index = (uint32_t)id & 0xffff;
	int rc;

	if (index >= t->rows_limit || id == 0)
		return -ESTALE;
	for (int i = 0; i < SETTLE_TRIES; i++) {
		rc = nupa_region_settled(fabric, t, index, claim);
		if (rc)
			return rc;
		if (NUPA_CLAIM_STATE(*claim) != NUPA_REGION_LIVE &&
		    NUPA_CLAIM_STATE(*claim) != NUPA_REGION_REVOKED)
			return -ESTALE;
		rc = nupa_region_load(fabric, &t->rows[index], *claim, body);
		if (rc == -EAGAIN)
			continue;
		if (body->id != id)
			return -ESTALE;
		if (rc || NUPA_CLAIM_STATE(*claim) == NUPA_REGION_REVOKED ||
		    nupa_region_step(fabric, &t->rows[index], claim, NUPA_REGION_CHANGING))
			return rc;
	}
	return -EAGAIN;
}

/* --- bodies ---------------------------------------------------------------------------- */

#define BODY_WORDS (sizeof(struct nupa_region_body) / sizeof(uint64_t))

int nupa_region_load(const struct nupa_fabric *fabric, struct nupa_region_row *row, uint64_t claim,
		     struct nupa_region_body *body)
{
	const uint64_t *from = (const uint64_t *)(const void *)&row->body;
	uint64_t words[BODY_WORDS];

	/* Each pairs with the release of nupa_region_store: who sees a word of another body sees
	 * that the claim has changed before it (R2). */
	for (size_t i = 0; i < BODY_WORDS; i++)
		words[i] = nupa_load_acquire(&from[i]);
	if (nupa_load_acquire(&row->claim) != claim)
		return -EAGAIN;
	memcpy(body, words, sizeof(*body));
	return nupa_region_sound(fabric, body) ? 0 : -EUCLEAN;
}

void nupa_region_store(struct nupa_region_row *row, const struct nupa_region_body *body)
{
	uint64_t *to = (uint64_t *)(void *)&row->body;
	uint64_t words[BODY_WORDS];

	memcpy(words, body, sizeof(words));
	for (size_t i = 0; i < BODY_WORDS; i++)
		nupa_store_release(&to[i], words[i]);
}

static bool sound_pieces(const struct nupa_superblock *sb, const struct nupa_region_body *body)
{
	const uint32_t ways = body->ways, granularity = body->granularity;
	uint64_t each;

	if (ways == 0 || ways > NUPA_REGION_WAYS_MAX || body->bytes == 0 ||
	    body->bytes > sb->pool_bytes)
		return false;
	if (ways == 1 ? granularity != 0
		      : granularity < GRANULARITY_BYTES_MIN || granularity & (granularity - 1) ||
			    body->bytes % ((uint64_t)ways * granularity))
		return false;
	each = body->bytes / ways;
	for (uint32_t i = 0; i < ways; i++)
		if (body->pieces[i] > sb->pool_bytes - each)
			return false;
	return true;
}

bool nupa_region_sound(const struct nupa_fabric *fabric, const struct nupa_region_body *body)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	for (uint32_t host = sb->n_hosts; host < 256; host++)
		if (body->share[host / 64] >> host % 64 & 1)
			return false;
	return body->host < sb->n_hosts && body->home < sb->n_hosts && body->slot < sb->n_slots &&
	       body->coherence <= NUPA_COHERENT_SOFTWARE && body->published <= 1 &&
	       body->orphan <= 1 && memchr(body->tag, 0, sizeof(body->tag)) &&
	       sound_pieces(sb, body);
}

/* --- found --------------------------------------------------------------------------- */

void nupa_region_tell(const struct nupa_region_body *body, struct nupa_region_info *out)
{
	*out = (struct nupa_region_info){
		.id = body->id,
		.bytes = body->bytes,
		.host = body->host,
		.pid = body->owner & 0x3fffff,
		.slot = body->slot,
		.coherence = body->coherence,
		.ways = body->ways,
		.granularity = body->granularity,
		.published = body->published,
		.orphan = body->orphan,
		.home = body->home,
	};
	memcpy(out->tag, body->tag, sizeof(out->tag));
	memcpy(out->share, body->share, sizeof(out->share));
	memcpy(out->pieces, body->pieces, sizeof(out->pieces));
}

int nupa_region_get_in(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		       struct nupa_region_info *out)
{
	struct nupa_region_body body;
	uint64_t claim;
	int rc = -EAGAIN;

	for (int i = 0; i < LOAD_TRIES && rc == -EAGAIN; i++) {
		rc = nupa_region_settled(fabric, t, index, &claim);
		if (rc)
			return rc;
		if (NUPA_CLAIM_STATE(claim) != NUPA_REGION_LIVE &&
		    NUPA_CLAIM_STATE(claim) != NUPA_REGION_REVOKED)
			return -ENOENT;
		rc = nupa_region_load(fabric, &t->rows[index], claim, &body);
	}
	if (rc)
		return rc;
	nupa_region_tell(&body, out);
	out->state = NUPA_CLAIM_STATE(claim);
	return 0;
}

int nupa_region_find_in(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id,
			struct nupa_region_info *out)
{
	const uint32_t index = (uint32_t)id & 0xffff;
	/* It may have been made since t was read. */
	const uint32_t limit = nupa_load_seq(&t->header->rows_limit);
	int rc;

	if (!id || index >= limit || index >= t->n_rows)
		return -ESTALE;
	rc = nupa_region_get_in(fabric, t, index, out);
	return rc == -ENOENT || (!rc && out->id != id) ? -ESTALE : rc;
}

void nupa_region_await_end(const struct nupa_fabric *fabric, const struct nupa_region_row *row)
{
	uint64_t claim;

	(void)has_left(fabric, row, NUPA_REGION_FREEING, &claim);
}

void nupa_region_announce(const struct nupa_regions *t)
{
	nupa_fetch_add_seq(&t->header->epoch, 1);
	syscall(SYS_futex, &t->header->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
