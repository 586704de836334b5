/* SPDX-License-Identifier: BSD-3-Clause
 * Tags that are devices of partitions, and the tenants of those. */
#include "segment/control/share.h"

#include "segment/control/control_internal.h"

#include <string.h>

/* Whether a partition has the tag as a device; *has*: one of that tenant. */
static bool is_device(struct nupa_fabric *fabric, const char *tag, uint32_t tenant, bool *has)
{
	struct nupa_partition partition;
	struct nupa_member member;
	struct nupa_control t;
	bool found = false;

	*has = false;
	if (!*tag || nupa_control(fabric, false, &t))
		return false;
	for (uint32_t i = 0; i < t.members_used && !*has; i++) {
		if (!nupa_member_row(fabric, &t, i, &member) || member.kind != NUPA_MEMBER_DEVICE ||
		    member.pkey == NUPA_PKEY_NEWCOMER || strcmp(member.name, tag) != 0 ||
		    nupa_partition_get(fabric, member.pkey, &partition))
			continue;
		found = true;
		*has = partition.tenant == tenant;
	}
	return found;
}

bool nupa_tenants_share(struct nupa_fabric *fabric, uint32_t host, uint32_t owner, const char *tag)
{
	const uint32_t tenant = nupa_host_tenant(fabric, host);
	bool has;

	if (host == owner)
		return true;
	if (is_device(fabric, tag, tenant, &has))
		return has;
	return tenant == nupa_host_tenant(fabric, owner);
}

bool nupa_tenant_may_own(struct nupa_fabric *fabric, uint32_t host, const char *tag)
{
	const uint32_t tenant = nupa_host_tenant(fabric, host);
	bool has;

	return !tenant || !is_device(fabric, tag, tenant, &has) || has;
}
