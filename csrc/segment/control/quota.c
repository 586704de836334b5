/* SPDX-License-Identifier: BSD-3-Clause
 * Quotas of tenants: use added up, reserved, refused. */
#include "segment/control/quota.h"

#include "base/hint.h"
#include "segment/control/control_internal.h"
#include "segment/control/event.h"
#include "segment/layout/geometry.h"
#include "segment/layout/region_layout.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* Creators that meet step back for a moment; the last of them to look again sees none. */
#define TRIES 1000
#define SECOND_NS UINT64_C(1000000000)

/* What a slot says may be anything (I5). */
static uint64_t plus(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* --- use ----------------------------------------------------------------------------------- */

static uint64_t sum_of(const struct nupa_fabric *fabric, uint32_t tenant, uint32_t kind,
		       bool living)
{
	uint64_t sum = 0;

	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		const struct nupa_slot *slot = &fabric->slots[i];
		const uint64_t used = nupa_load_seq(&slot->used[kind]);
		const uint64_t claim = nupa_slot_claim(slot);

		if (used && NUPA_CLAIM_STATE(claim) != NUPA_SLOT_FREE &&
		    nupa_host_tenant(fabric, nupa_load_relaxed(&slot->host)) == tenant &&
		    (!living || nupa_slot_alive(fabric, i, claim)))
			sum = plus(sum, used);
	}
	return sum;
}

/* Extents that regions of the tenant's hosts are charged for. */
static uint64_t region_extents(struct nupa_fabric *fabric, uint32_t tenant)
{
	const uint32_t n_rows = nupa_region_rows(&fabric->geometry);
	uint8_t *base = nupa_fabric_regions(fabric, false);
	const struct nupa_region_row *rows;
	uint32_t limit;
	uint64_t n = 0;

	if (!base)
		return 0;
	limit = nupa_load_seq(&((struct nupa_region_header *)(void *)base)->rows_limit);
	rows = (struct nupa_region_row *)(void *)(base + sizeof(struct nupa_region_header));
	for (uint32_t i = 0; i < limit && i < n_rows; i++) {
		const uint64_t charge = nupa_load_seq(&rows[i].charge);

		if (charge && nupa_host_tenant(fabric, NUPA_CHARGE_HOST(charge)) == tenant)
			n += NUPA_CHARGE_EXTENTS(charge);
	}
	return n;
}

static uint64_t pool_bytes_of(struct nupa_fabric *fabric, uint32_t tenant)
{
	uint64_t n = region_extents(fabric, tenant);
	bool is_its[1u << NUPA_SLOT_BITS] = { false };

	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		is_its[slot] = nupa_host_tenant(
				   fabric, nupa_load_relaxed(&fabric->slots[slot].host)) == tenant;
	for (uint32_t i = 0; i < fabric->geometry.n_extents; i++)
		n += is_its[NUPA_EXTENT_SLOT(nupa_load_seq(&fabric->extents[i]))];
	return n * fabric->geometry.extent_bytes;
}

int nupa_tenant_used(struct nupa_fabric *fabric, uint32_t id, uint64_t *used)
{
	struct nupa_tenant tenant;
	const int rc = nupa_tenant_get(fabric, id, &tenant);

	if (rc)
		return rc;
	for (uint32_t kind = 0; kind < NUPA_QUOTA_KINDS; kind++)
		used[kind] = kind == NUPA_QUOTA_POOL_BYTES ? pool_bytes_of(fabric, id)
							   : sum_of(fabric, id, kind, true);
	return 0;
}

/* --- reserved ------------------------------------------------------------------------------ */

/* The quota of a host's tenant; 0: it has none. */
static uint64_t quota_of(struct nupa_fabric *fabric, uint32_t host, uint32_t kind, uint32_t *tenant)
{
	struct nupa_tenant row;

	*tenant = nupa_host_tenant(fabric, host);
	return *tenant && !nupa_tenant_get(fabric, *tenant, &row) ? row.quota[kind] : 0;
}

int nupa_quota_reserve(struct nupa_fabric *fabric, uint32_t slot, enum nupa_quota_kind kind,
		       uint64_t amount)
{
	const uint32_t host = nupa_load_relaxed(&fabric->slots[slot].host);
	uint64_t *own = &fabric->slots[slot].used[kind];
	const uint64_t before = nupa_load_relaxed(own);
	bool living = false;
	uint32_t tenant;
	const uint64_t quota = quota_of(fabric, host, kind, &tenant);

	for (int i = 0; i < TRIES; i++) {
		/* Stored before the others are added up, by all: two at once see each other. */
		(void)nupa_exchange_seq(own, plus(before, amount));
		if (!quota || sum_of(fabric, tenant, kind, living) <= quota)
			return 0;
		(void)nupa_exchange_seq(own, before);
		/* Without the others' reservations it might fit, without the dead as well. */
		if (plus(sum_of(fabric, tenant, kind, living), amount) <= quota)
			sched_yield();
		else if (!living)
			living = true;
		else
			break;
	}
	nupa_quota_refused(fabric, host, kind);
	return -EDQUOT;
}

bool nupa_quota_pool_fits(struct nupa_fabric *fabric, uint32_t host, uint64_t more)
{
	uint32_t tenant;
	uint64_t quota;

	if (!nupa_quota_watched(fabric, NUPA_QUOTA_POOL_BYTES))
		return true;
	quota = quota_of(fabric, host, NUPA_QUOTA_POOL_BYTES, &tenant);
	return !quota || plus(pool_bytes_of(fabric, tenant), more) <= quota;
}

/* --- refused ------------------------------------------------------------------------------- */

/* Whether no refusal of that kind was an event within the last second. */
static bool is_news(struct nupa_fabric *fabric, uint32_t tenant, uint32_t kind)
{
	struct nupa_control t;
	struct timespec now;
	uint64_t now_ns, last_ns;

	if (nupa_control(fabric, false, &t) || tenant == 0 || tenant > t.n_tenants)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	now_ns = (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
	last_ns = nupa_load_relaxed(&t.tenants[tenant - 1].refused_ns[kind]);
	return (now_ns < last_ns || now_ns - last_ns >= SECOND_NS) &&
	       nupa_cas_seq(&t.tenants[tenant - 1].refused_ns[kind], &last_ns, now_ns);
}

void nupa_quota_refused(struct nupa_fabric *fabric, uint32_t host, enum nupa_quota_kind kind)
{
	static const char *const names[NUPA_QUOTA_KINDS] = { "QPs", "MRs", "registered bytes",
							     "bytes of the pool", "attachments" };
	const uint32_t id = nupa_host_tenant(fabric, host);
	struct nupa_tenant tenant;

	if (nupa_tenant_get(fabric, id, &tenant))
		return;
	nupa_hint_of(names[kind],
		     "tenant %s of fabric %s has a quota of %" PRIu64
		     " %s, which this would pass: give some up, or have the quota raised",
		     tenant.name, nupa_fabric_name(fabric), tenant.quota[kind], names[kind]);
	if (is_news(fabric, id, kind))
		nupa_event_post(fabric, NUPA_SEVERITY_WARNING, "quota.refused", tenant.name,
				"host %.31s: tenant %s has a quota of %" PRIu64 " %s",
				fabric->hosts[host].name, tenant.name, tenant.quota[kind],
				names[kind]);
}
