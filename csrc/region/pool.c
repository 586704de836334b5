/* SPDX-License-Identifier: BSD-3-Clause
 * The pool: memory of the fabric that all hosts can load from and store to, given out in runs of
 * extents. */
#include "region/region_internal.h"
#include "segment/control/quota.h"

#include <errno.h>
#include <sched.h>

/* Two that ask at once and fit only alone: each steps back for a moment. */
#define QUOTA_TRIES 100

/* Neighbours that the quota of the slot's tenant lets it have: 0, -ENOMEM or -EDQUOT. */
static int claim(struct nupa_fabric *fabric, uint32_t slot, uint32_t n, uint32_t owner,
		 uint32_t *first)
{
	const uint32_t host = nupa_load_relaxed(&fabric->slots[slot].host);
	const uint64_t bytes = (uint64_t)n * fabric->geometry.extent_bytes;

	for (int i = 0; i < QUOTA_TRIES; i++) {
		/* Claimed before the others are added up, by all: two at once see each other. */
		*first = nupa_pool_claim(fabric, n, owner);
		if (*first == fabric->geometry.n_extents)
			return -ENOMEM;
		if (slot == 0 || nupa_quota_pool_fits(fabric, host, 0))
			return 0;
		nupa_extents_free(fabric, *first, n);
		if (!nupa_quota_pool_fits(fabric, host, bytes))
			return -EDQUOT;
		sched_yield();
	}
	return -EDQUOT;
}

/* Extents for the owner of the slot: the first of them. */
static int reserve(struct nupa_fabric *fabric, uint32_t slot, uint64_t size_bytes, uint32_t *first)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint32_t owner, n;
	int rc;

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
	rc = claim(fabric, slot, n, owner, first);
	if (rc) {
		(void)nupa_fabric_reap(fabric);
		rc = claim(fabric, slot, n, owner, first);
	}
	if (rc == -EDQUOT)
		nupa_quota_refused(fabric, nupa_load_relaxed(&fabric->slots[slot].host),
				   NUPA_QUOTA_POOL_BYTES);
	return rc;
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
		nupa_extents_free(fabric, first, n);
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
	nupa_extents_free(fabric, first, n);
	return 0;
}
