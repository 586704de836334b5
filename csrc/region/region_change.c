/* SPDX-License-Identifier: BSD-3-Clause
 * Regions ended, shared with others, and given to another owner. */
#include "region/region_internal.h"
#include "segment/control/share.h"

#include <errno.h>
#include <string.h>

static int hold(struct nupa_fabric *fabric, struct nupa_regions *t, uint64_t id,
		struct nupa_region_body *body, uint64_t *claim)
{
	const int rc = nupa_regions(fabric, false, t);

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	return nupa_region_hold(fabric, t, id, body, claim);
}

int nupa_region_free(struct nupa_fabric *fabric, uint64_t id, bool force)
{
	const uint32_t index = (uint32_t)id & 0xffff;
	struct nupa_region_body body;
	struct nupa_regions t;
	bool held, mapped;
	uint64_t claim;
	int rc;

	rc = hold(fabric, &t, id, &body, &claim);
	if (rc)
		return rc;
	held = NUPA_CLAIM_STATE(claim) == NUPA_REGION_CHANGING;
	mapped = nupa_region_windows(fabric, &t, id) != 0;
	if (mapped && !force) {
		if (held)
			(void)nupa_region_step(fabric, &t.rows[index], &claim, NUPA_REGION_LIVE);
		return -EBUSY;
	}
	if (held) {
		(void)nupa_region_step(fabric, &t.rows[index], &claim, NUPA_REGION_REVOKED);
		if (mapped)
			nupa_region_announce(&t);
	}
	/* A window that was begun meanwhile finds it revoked (R4). */
	rc = nupa_region_await(fabric, &t, nupa_region_is_left, id);
	if (!rc && !nupa_region_finish(fabric, &t, index, claim))
		nupa_region_await_end(fabric, &t.rows[index]); /* the last window does it */
	return rc;
}

int nupa_region_share(struct nupa_fabric *fabric, uint64_t id, const uint64_t share[4])
{
	struct nupa_region_body body;
	struct nupa_regions t;
	uint64_t claim;
	int rc;

	rc = hold(fabric, &t, id, &body, &claim);
	if (rc)
		return rc;
	if (NUPA_CLAIM_STATE(claim) == NUPA_REGION_REVOKED)
		return -ESTALE;
	memcpy(body.share, share, sizeof(body.share));
	body.share[body.host / 64] &= ~(UINT64_C(1) << body.host % 64);
	if (!nupa_region_sound(fabric, &body))
		rc = -EINVAL;
	else if (nupa_region_mapped_beyond(fabric, &t, &body))
		rc = -EBUSY;
	else
		nupa_region_store(&t.rows[(uint32_t)id & 0xffff], &body);
	(void)nupa_region_step(fabric, &t.rows[(uint32_t)id & 0xffff], &claim, NUPA_REGION_LIVE);
	return rc;
}

int nupa_region_adopt(struct nupa_fabric *fabric, uint64_t id, const struct nupa_region_info *wish)
{
	const uint32_t index = (uint32_t)id & 0xffff;
	struct nupa_region_body body;
	struct nupa_regions t;
	uint32_t former;
	uint64_t claim;
	int rc;

	if (wish->host >= fabric->geometry.n_hosts)
		return -EINVAL;
	rc = hold(fabric, &t, id, &body, &claim);
	if (rc)
		return rc;
	if (NUPA_CLAIM_STATE(claim) == NUPA_REGION_REVOKED)
		return -ESTALE;
	former = body.host;
	if (!body.orphan)
		rc = -EALREADY;
	else if (!nupa_region_shares(&body, wish->host) ||
		 !nupa_tenants_share(fabric, wish->host, body.host, body.tag))
		rc = -EACCES;
	if (!rc) {
		body.host = wish->host;
		rc = nupa_region_own(fabric, wish->slot, wish->pid, &body);
	}
	if (!rc)
		rc = nupa_region_charge(fabric, &t, index, body.host,
					nupa_pool_extents(&fabric->geometry, body.bytes));
	if (!rc) {
		body.share[former / 64] |= UINT64_C(1) << former % 64;
		body.share[body.host / 64] &= ~(UINT64_C(1) << body.host % 64);
		body.orphan = 0;
		nupa_region_store(&t.rows[index], &body);
	}
	(void)nupa_region_step(fabric, &t.rows[index], &claim, NUPA_REGION_LIVE);
	return rc;
}
