/* SPDX-License-Identifier: BSD-3-Clause
 * Tenants: rows with an id, which hosts and partitions name. */
#include "base/atomics.h"
#include "base/explain.h"
#include "segment/control/control_internal.h"
#include "segment/control/event.h"
#include "segment/layout/geometry.h"
#include "segment/control/rate.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint32_t nupa_host_tenant(const struct nupa_fabric *fabric, uint32_t host)
{
	const uint32_t n_tenants = nupa_control_map(&fabric->geometry).tenants;
	uint32_t tenant;

	if (host >= fabric->geometry.n_hosts)
		return 0;
	tenant = nupa_load_acquire(&fabric->controls[host].tenant);
	return tenant <= n_tenants ? tenant : 0;
}

bool nupa_tenant_row(const struct nupa_control *t, uint32_t index, struct nupa_tenant *out)
{
	const struct nupa_tenant_row *row = &t->tenants[index];

	return nupa_row_load(&row->stamp, &row->body, out, sizeof(*out)) && out->id == index + 1 &&
	       nupa_control_name_ok(out->name);
}

static void store_tenant(const struct nupa_control *t, uint32_t index,
			 const struct nupa_tenant *body)
{
	nupa_row_store(&t->tenants[index].stamp, &t->tenants[index].body, body, sizeof(*body));
}

uint32_t nupa_tenant_ids(struct nupa_fabric *fabric)
{
	struct nupa_control t;

	return nupa_control(fabric, false, &t) ? 1 : t.n_tenants + 1;
}

int nupa_tenant_get(struct nupa_fabric *fabric, uint32_t id, struct nupa_tenant *out)
{
	struct nupa_control t;

	if (nupa_control(fabric, false, &t) || id == 0 || id > t.n_tenants)
		return -ENOENT;
	return nupa_tenant_row(&t, id - 1, out) ? 0 : -ENOENT;
}

/* Tells those who create objects which quotas there are at all. */
static void store_quotas(struct nupa_fabric *fabric, const struct nupa_control *t)
{
	struct nupa_tenant tenant;
	uint32_t kinds = 0;

	for (uint32_t i = 0; i < t->n_tenants; i++)
		if (nupa_tenant_row(t, i, &tenant))
			for (uint32_t kind = 0; kind < NUPA_QUOTA_KINDS; kind++)
				kinds |= (uint32_t)(tenant.quota[kind] != 0) << kind;
	nupa_store_release(&fabric->sb->quotas, kinds);
}

int64_t nupa_tenant_add(struct nupa_fabric *fabric, const struct nupa_tenant *wish, char *why,
			size_t why_bytes)
{
	struct nupa_tenant body = *wish, other;
	uint32_t index = UINT32_MAX;
	struct nupa_control t;
	int rc = nupa_control_change(fabric, "tenants", &t, why, why_bytes);

	if (!rc)
		rc = nupa_control_check_name("tenant", wish->name, why, why_bytes);
	if (rc)
		return rc;
	for (uint32_t i = t.n_tenants; i-- > 0;) {
		if (!nupa_tenant_row(&t, i, &other))
			index = i;
		else if (strcmp(other.name, wish->name) == 0)
			return nupa_explain(-EEXIST, why, why_bytes,
					    "fabric %s has a tenant %s already",
					    nupa_fabric_name(fabric), wish->name);
	}
	if (index == UINT32_MAX)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u tenants, as many as it can: remove one",
				    nupa_fabric_name(fabric), t.n_tenants);
	body.id = index + 1;
	body.reserved = 0;
	rc = nupa_rate_set(fabric, NUPA_RATE_TENANT, body.id, 0, 0, body.rate, why, why_bytes);
	if (rc)
		return rc;
	store_tenant(&t, index, &body);
	store_quotas(fabric, &t);
	nupa_event_post(fabric, NUPA_SEVERITY_OK, "tenant.added", body.name, "tenant %s is made",
			body.name);
	return body.id;
}

/* The row of that id; -ENOENT. */
static int find_tenant(struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t id,
		       struct nupa_tenant *out, char *why, size_t why_bytes)
{
	if (id && id <= t->n_tenants && nupa_tenant_row(t, id - 1, out))
		return 0;
	return nupa_explain(-ENOENT, why, why_bytes, "fabric %s has no tenant of id %u",
			    nupa_fabric_name(fabric), id);
}

int nupa_tenant_set(struct nupa_fabric *fabric, const struct nupa_tenant *wish, char *why,
		    size_t why_bytes)
{
	struct nupa_tenant body = { .id = 0 };
	struct nupa_control t;
	bool rate_changed;
	int rc = nupa_control_change(fabric, "tenants", &t, why, why_bytes);

	if (!rc)
		rc = find_tenant(fabric, &t, wish->id, &body, why, why_bytes);
	if (rc)
		return rc;
	rate_changed = body.rate != wish->rate;
	if (!rate_changed && memcmp(body.quota, wish->quota, sizeof(body.quota)) == 0)
		return 0;
	rc = nupa_rate_set(fabric, NUPA_RATE_TENANT, body.id, 0, 0, wish->rate, why, why_bytes);
	if (rc)
		return rc;
	body.rate = wish->rate;
	memcpy(body.quota, wish->quota, sizeof(body.quota));
	store_tenant(&t, body.id - 1, &body);
	store_quotas(fabric, &t);
	if (rate_changed)
		nupa_event_post(fabric, NUPA_SEVERITY_OK, "rate.changed", body.name,
				"tenant %s: at most %" PRIu64 " bytes a second (0: no limit)",
				body.name, body.rate);
	else
		nupa_event_post(fabric, NUPA_SEVERITY_OK, "tenant.changed", body.name,
				"tenant %s has other quotas", body.name);
	return 0;
}

int nupa_tenant_assign(struct nupa_fabric *fabric, uint32_t host, uint32_t id, char *why,
		       size_t why_bytes)
{
	struct nupa_tenant tenant = { .name = "" }, now = { .name = "" };
	struct nupa_control t;
	uint32_t before;
	int rc = nupa_control_change(fabric, "tenants", &t, why, why_bytes);

	if (!rc && host >= fabric->geometry.n_hosts)
		rc = nupa_explain(-EINVAL, why, why_bytes, "there is no host %u: fabric %s has %u",
				  host, nupa_fabric_name(fabric), fabric->geometry.n_hosts);
	if (!rc && id)
		rc = find_tenant(fabric, &t, id, &tenant, why, why_bytes);
	if (rc)
		return rc;
	before = nupa_host_tenant(fabric, host);
	if (before == id)
		return 0;
	if (before && !nupa_tenant_row(&t, before - 1, &now))
		before = 0; /* a tenant that is gone */
	if (before && id)
		return nupa_explain(-EBUSY, why, why_bytes,
				    "host %s is of tenant %s: release it there first",
				    fabric->hosts[host].name, now.name);
	/* Without a partition first, so that it never has one of each. */
	nupa_store_release(&fabric->controls[host].tenant, id);
	rc = nupa_host_clear_pkeys(fabric, host, why, why_bytes);
	if (id)
		nupa_event_post(fabric, NUPA_SEVERITY_OK, "tenant.assigned",
				fabric->hosts[host].name, "host %s is given to tenant %s",
				fabric->hosts[host].name, tenant.name);
	else
		nupa_event_post(fabric, NUPA_SEVERITY_OK, "tenant.released",
				fabric->hosts[host].name, "host %s is released from tenant %s",
				fabric->hosts[host].name, now.name);
	return rc;
}

/* How many hosts and partitions the tenant has; take: they are released and removed. */
static int belongings(struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t id,
		      bool take, char *why, size_t why_bytes)
{
	struct nupa_partition partition;
	int n = 0, rc = 0;

	for (uint32_t i = 0; i < t->n_partitions && !rc; i++)
		if (nupa_partition_row(t, i, &partition) && partition.tenant == id) {
			n++;
			rc = take ? nupa_partition_remove(fabric, partition.pkey, why, why_bytes)
				  : 0;
		}
	for (uint32_t host = 0; host < fabric->geometry.n_hosts && !rc; host++)
		if (nupa_host_tenant(fabric, host) == id) {
			n++;
			rc = take ? nupa_tenant_assign(fabric, host, 0, why, why_bytes) : 0;
		}
	return rc ? rc : n;
}

int nupa_tenant_remove(struct nupa_fabric *fabric, uint32_t id, uint32_t force, char *why,
		       size_t why_bytes)
{
	static const struct nupa_tenant none;
	struct nupa_tenant tenant;
	struct nupa_control t;
	int n, rc = nupa_control_change(fabric, "tenants", &t, why, why_bytes);

	if (!rc)
		rc = find_tenant(fabric, &t, id, &tenant, why, why_bytes);
	if (rc)
		return rc;
	n = belongings(fabric, &t, id, force, why, why_bytes);
	if (n < 0)
		return n;
	if (n && !force)
		return nupa_explain(-EBUSY, why, why_bytes,
				    "tenant %s has %d hosts and partitions: release and remove "
				    "them first, or remove the tenant by force",
				    tenant.name, n);
	rc = nupa_rate_set(fabric, NUPA_RATE_TENANT, id, 0, 0, 0, why, why_bytes);
	if (rc)
		return rc;
	store_tenant(&t, id - 1, &none);
	store_quotas(fabric, &t);
	nupa_event_post(fabric, NUPA_SEVERITY_OK, "tenant.removed", tenant.name,
			"tenant %s is removed", tenant.name);
	return 0;
}
