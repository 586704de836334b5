/* SPDX-License-Identifier: BSD-3-Clause
 * Quotas: how much of the pool the regions of a host may take.  The use is the sum over the table,
 * never a counter, so no death makes it wrong. */
#include "region/region_internal.h"
#include "segment/control/quota.h"

#include <errno.h>
#include <sched.h>

/* Two that are made at once and fit only alone: each steps back for a moment. */
#define CHARGE_TRIES 100

struct usage {
	uint64_t bytes;
	bool settled; /* none of it is of a region that may still be refused */
};

/* Of all rows but one. */
static struct usage usage_of(const struct nupa_fabric *fabric, const struct nupa_regions *t,
			     uint32_t host, uint32_t except)
{
	const uint32_t limit = nupa_load_seq(&t->header->rows_limit);
	struct usage usage = { .settled = true };

	for (uint32_t i = 0; i < limit && i < t->n_rows; i++) {
		const uint64_t charge = nupa_load_seq(&t->rows[i].charge);
		const uint64_t claim = nupa_load_relaxed(&t->rows[i].claim);

		if (i == except || !charge || NUPA_CHARGE_HOST(charge) != host)
			continue;
		usage.bytes +=
		    (uint64_t)NUPA_CHARGE_EXTENTS(charge) * fabric->geometry.extent_bytes;
		if (NUPA_CLAIM_STATE(claim) == NUPA_REGION_MAKING)
			usage.settled = false;
	}
	return usage;
}

/* The quota of the host, then that of its tenant. */
int nupa_region_charge(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		       uint32_t host, uint32_t extents)
{
	const uint64_t own_bytes = (uint64_t)extents * fabric->geometry.extent_bytes;
	uint64_t *charge = &t->rows[index].charge;
	const uint64_t before = nupa_load_relaxed(charge);

	for (int i = 0; i < CHARGE_TRIES; i++) {
		struct usage others;
		bool fits;

		/* Stored before the others are added up, by all: two at once see each other. */
		(void)nupa_exchange_seq(charge, NUPA_CHARGE(host, extents));
		others = usage_of(fabric, t, host, index);
		fits = nupa_quota_pool_fits(fabric, host, 0);
		if (fits && others.bytes + own_bytes <= ~nupa_load_relaxed(&t->header->quota[host]))
			return 0;
		(void)nupa_exchange_seq(charge, before);
		if (fits ? others.settled : !nupa_quota_pool_fits(fabric, host, own_bytes))
			break;
		sched_yield();
	}
	return -EDQUOT;
}

int nupa_region_set_quota(struct nupa_fabric *fabric, uint32_t host, uint64_t bytes)
{
	struct nupa_regions t;
	int rc;

	if (host >= fabric->geometry.n_hosts)
		return -EINVAL;
	rc = nupa_regions(fabric, true, &t);
	if (!rc)
		nupa_store_relaxed(&t.header->quota[host], ~bytes);
	return rc;
}

int nupa_region_quota(struct nupa_fabric *fabric, uint32_t host, struct nupa_quota *out)
{
	struct nupa_regions t;
	int rc;

	if (host >= fabric->geometry.n_hosts)
		return -EINVAL;
	*out = (struct nupa_quota){ .limit_bytes = UINT64_MAX };
	rc = nupa_regions(fabric, false, &t);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	out->limit_bytes = ~nupa_load_relaxed(&t.header->quota[host]);
	out->used_bytes = usage_of(fabric, &t, host, UINT32_MAX).bytes;
	return 0;
}
