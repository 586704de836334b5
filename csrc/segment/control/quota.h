/* SPDX-License-Identifier: BSD-3-Clause
 * Quotas of tenants.  Each attachment says in its slot what it uses; a tenant's use is the sum over
 * the attachments of its hosts, for the pool over the extents that they and their regions have.
 * An attachment that wants more reserves it first, then adds up, and takes it back if that is too
 * much.  So two at once never pass a quota, and a death leaves nothing to be corrected. */
#ifndef NUPA_CONTROL_QUOTA_H
#define NUPA_CONTROL_QUOTA_H

#include "base/atomics.h"
#include "segment/layout/control_layout.h"
#include "segment/segment.h"

/* cffi: begin */
/* The use of a tenant, by enum nupa_quota_kind, of living attachments.  -ENOENT: no tenant has that
 * id. */
int nupa_tenant_used(struct nupa_fabric *fabric, uint32_t id, uint64_t *used);
/* cffi: end */

/* Whether any tenant has such a quota: the one word that is looked at where there is none. */
static inline bool nupa_quota_watched(const struct nupa_fabric *fabric, enum nupa_quota_kind kind)
{
	return nupa_load_relaxed(&fabric->sb->quotas) >> kind & 1;
}

/* The same as nupa_quota_take, where a tenant has such a quota. */
int nupa_quota_reserve(struct nupa_fabric *fabric, uint32_t slot, enum nupa_quota_kind kind,
		       uint64_t amount);

/* The attachment, of this process, uses so much more: 0, or -EDQUOT, which has been explained.
 * Callers of one attachment hold its lock. */
static inline int nupa_quota_take(struct nupa_fabric *fabric, uint32_t slot,
				  enum nupa_quota_kind kind, uint64_t amount)
{
	if (__builtin_expect(nupa_quota_watched(fabric, kind), 0))
		return nupa_quota_reserve(fabric, slot, kind, amount);
	nupa_count(&fabric->slots[slot].used[kind], amount);
	return 0;
}

static inline void nupa_quota_give(struct nupa_fabric *fabric, uint32_t slot,
				   enum nupa_quota_kind kind, uint64_t amount)
{
	nupa_count(&fabric->slots[slot].used[kind], -amount);
}

/* Whether the tenant of a host may have *more* bytes of the pool beside what is reserved. */
bool nupa_quota_pool_fits(struct nupa_fabric *fabric, uint32_t host, uint64_t more);
/* A refusal: an event, once a second, and a hint, once in a process. */
void nupa_quota_refused(struct nupa_fabric *fabric, uint32_t host, enum nupa_quota_kind kind);

#endif
