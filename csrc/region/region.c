/* SPDX-License-Identifier: BSD-3-Clause
 * Regions found, made and published. */
#include "region/region.h"

#include "region/region_internal.h"
#include "segment/control/share.h"
#include "segment/control/quota.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- found ----------------------------------------------------------------------------- */

uint32_t nupa_region_limit(struct nupa_fabric *fabric)
{
	struct nupa_regions t;

	return nupa_regions(fabric, false, &t) ? 0 : t.rows_limit;
}

int nupa_region_get(struct nupa_fabric *fabric, uint32_t index, struct nupa_region_info *out)
{
	struct nupa_regions t;
	int rc;

	rc = nupa_regions(fabric, false, &t);
	if (rc)
		return rc;
	rc = index < t.rows_limit ? nupa_region_get_in(fabric, &t, index, out) : -ENOENT;
	if (!rc)
		out->mapped = nupa_region_windows(fabric, &t, out->id);
	return rc;
}

int nupa_region_find(struct nupa_fabric *fabric, uint64_t id, struct nupa_region_info *out)
{
	struct nupa_regions t;
	int rc;

	rc = nupa_regions(fabric, false, &t);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = nupa_region_find_in(fabric, &t, id, out);
	if (!rc)
		out->mapped = nupa_region_windows(fabric, &t, id);
	return rc;
}

const uint32_t *nupa_region_epoch(struct nupa_fabric *fabric)
{
	struct nupa_regions t;
	const int rc = nupa_regions(fabric, true, &t);

	if (!rc)
		return &t.header->epoch;
	errno = -rc;
	return NULL;
}

/* --- made ------------------------------------------------------------------------------ */

/* Checks the wish, except the place of the memory. */
static int wish_for(struct nupa_fabric *fabric, const struct nupa_region_info *wish,
		    struct nupa_region_body *body)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	*body = (struct nupa_region_body){
		.bytes = wish->bytes,
		.host = wish->host,
		.home = wish->host,
		.coherence = wish->coherence,
		.ways = wish->ways ? wish->ways : 1,
		.granularity = wish->granularity,
	};
	memcpy(body->tag, wish->tag, sizeof(body->tag));
	memcpy(body->share, wish->share, sizeof(body->share));
	if (wish->host >= sb->n_hosts || wish->bytes == 0)
		return -EINVAL;
	body->share[wish->host / 64] &= ~(UINT64_C(1) << wish->host % 64);
	return wish->bytes > sb->pool_bytes ? -ENOMEM : 0;
}

/* A free row, MAKING; -ENFILE: there is none. */
static int take_row(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t *index,
		    uint64_t *claim)
{
	for (uint32_t i = 0; i < t->n_rows; i++) {
		struct nupa_region_row *row = &t->rows[i];

		*claim = nupa_load_seq(&row->claim);
		if (NUPA_CLAIM_STATE(*claim) != NUPA_REGION_FREE)
			continue;
		nupa_region_raise(&t->header->rows_limit, i + 1);
		if (nupa_region_step(fabric, row, claim, NUPA_REGION_MAKING)) {
			*index = i;
			return 0;
		}
	}
	return -ENFILE;
}

static int begin(struct nupa_fabric *fabric, struct nupa_regions *t, struct nupa_region_body *body,
		 uint32_t *index, uint64_t *claim)
{
	int rc;

	rc = nupa_regions(fabric, true, t);
	if (rc)
		return rc;
	rc = take_row(fabric, t, index, claim);
	if (rc) {
		nupa_region_reap(fabric);
		rc = take_row(fabric, t, index, claim);
	}
	if (rc)
		return rc;
	body->id = (nupa_fetch_add_seq(&t->header->serial, 1) + 1) << 16 | *index;
	return 0;
}

static int end(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
	       uint64_t claim, const struct nupa_region_body *body, int rc,
	       struct nupa_region_info *out)
{
	if (rc) {
		(void)nupa_region_finish(fabric, t, index, claim);
		return rc;
	}
	(void)nupa_region_step(fabric, &t->rows[index], &claim, NUPA_REGION_LIVE);
	nupa_region_tell(body, out);
	out->state = NUPA_REGION_LIVE;
	return 0;
}

/* Extents for the row, with memory behind them. */
static int fill(struct nupa_fabric *fabric, uint32_t index, struct nupa_region_body *body)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint32_t n = nupa_pool_extents(sb, body->bytes);
	uint32_t first;

	first = nupa_pool_claim(fabric, n, nupa_pool_region_word(index));
	if (first == sb->n_extents) {
		(void)nupa_fabric_reap(fabric);
		first = nupa_pool_claim(fabric, n, nupa_pool_region_word(index));
	}
	if (first == sb->n_extents)
		return -ENOMEM;
	body->pieces[0] = (uint64_t)first * sb->extent_bytes;
	return nupa_fabric_back(fabric, sb->pool_off + body->pieces[0],
				(uint64_t)n * sb->extent_bytes);
}

static int charge(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		  uint32_t host, uint64_t bytes)
{
	const uint32_t n = nupa_pool_extents(&fabric->geometry, bytes);
	int rc;

	if (!nupa_region_charge(fabric, t, index, host, n))
		return 0;
	/* Frees extents of the dead. */
	(void)nupa_fabric_reap(fabric);
	rc = nupa_region_charge(fabric, t, index, host, n);
	if (rc && !nupa_quota_pool_fits(fabric, host, (uint64_t)n * fabric->geometry.extent_bytes))
		nupa_quota_refused(fabric, host, NUPA_QUOTA_POOL_BYTES);
	return rc;
}

int nupa_region_alloc(struct nupa_fabric *fabric, uint32_t slot,
		      const struct nupa_region_info *wish, struct nupa_region_info *out)
{
	struct nupa_region_body body;
	struct nupa_regions t;
	uint32_t index;
	uint64_t claim;
	int rc;

	rc = wish_for(fabric, wish, &body);
	if (!rc)
		rc = nupa_region_own(fabric, slot, wish->pid, &body);
	if (!rc && !nupa_tenant_may_own(fabric, body.host, body.tag))
		rc = -EACCES;
	if (!rc && !nupa_region_sound(fabric, &body))
		rc = -EINVAL;
	if (!rc && body.ways != 1)
		rc = -EINVAL;
	if (!rc)
		rc = begin(fabric, &t, &body, &index, &claim);
	if (rc)
		return rc;
	rc = charge(fabric, &t, index, body.host, body.bytes);
	if (!rc)
		rc = fill(fabric, index, &body);
	if (!rc)
		nupa_region_store(&t.rows[index], &body);
	return end(fabric, &t, index, claim, &body, rc, out);
}

static bool all_own(const struct nupa_fabric *fabric, const struct nupa_region_body *body)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint32_t owner = nupa_pool_owner(fabric, body->slot);
	const uint64_t each = body->bytes / body->ways;

	for (uint32_t i = 0; i < body->ways; i++) {
		const uint64_t last = body->pieces[i] + each - 1;

		for (uint64_t at = body->pieces[i] / sb->extent_bytes;
		     at <= last / sb->extent_bytes; at++)
			if (nupa_load_relaxed(&fabric->extents[at]) != owner)
				return false;
	}
	return true;
}

int nupa_region_publish(struct nupa_fabric *fabric, const struct nupa_region_info *wish,
			struct nupa_region_info *out)
{
	struct nupa_region_body body;
	struct nupa_regions t;
	uint32_t index;
	uint64_t claim;
	int rc;

	rc = wish_for(fabric, wish, &body);
	if (rc)
		return rc == -ENOMEM ? -EINVAL : rc;
	rc = nupa_region_own(fabric, wish->slot, (uint32_t)getpid(), &body);
	if (!rc && !nupa_tenant_may_own(fabric, body.host, body.tag))
		rc = -EACCES;
	if (rc)
		return rc;
	memcpy(body.pieces, wish->pieces, sizeof(body.pieces));
	body.published = 1;
	if (!nupa_region_sound(fabric, &body))
		return -EINVAL;
	rc = begin(fabric, &t, &body, &index, &claim);
	if (rc)
		return rc;
	/* Stored before it is asked whose they are: who frees them asks for it afterwards. */
	nupa_region_store(&t.rows[index], &body);
	return end(fabric, &t, index, claim, &body, all_own(fabric, &body) ? 0 : -EPERM, out);
}
