/* SPDX-License-Identifier: BSD-3-Clause
 * Partitions: rows, the default one, and those that P_Key tables name without a row. */
#include "base/explain.h"
#include "segment/control/control_internal.h"
#include "segment/control/event.h"
#include "segment/control/pkey.h"
#include "segment/control/rate.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT NUPA_PKEY_PARTITION(NUPA_PKEY_DEFAULT)
#define MANAGED_PREFIX "pkey-0x"

bool nupa_partition_row(const struct nupa_control *t, uint32_t index, struct nupa_partition *out)
{
	const struct nupa_partition_row *row = &t->partitions[index];

	return nupa_row_load(&row->stamp, &row->body, out, sizeof(*out)) && out->pkey < DEFAULT &&
	       out->tenant <= t->n_tenants && out->kind <= NUPA_PARTITION_VPOD &&
	       out->service_level < NUPA_SERVICE_LEVELS && nupa_control_name_ok(out->name);
}

static void store_row(const struct nupa_control *t, uint32_t index,
		      const struct nupa_partition *body)
{
	nupa_row_store(&t->partitions[index].stamp, &t->partitions[index].body, body,
		       sizeof(*body));
}

/* The row of that P_Key; UINT32_MAX: it has none. */
static uint32_t row_of(const struct nupa_control *t, uint32_t pkey, struct nupa_partition *out)
{
	for (uint32_t i = 0; i < t->n_partitions; i++)
		if (nupa_partition_row(t, i, out) && out->pkey == pkey)
			return i;
	return UINT32_MAX;
}

/* Whether a P_Key table names it; *host*: the first one. */
static bool is_in_tables(const struct nupa_fabric *fabric, uint32_t pkey, uint32_t *host)
{
	for (*host = 0; *host < fabric->geometry.n_hosts; ++*host)
		for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
			if (NUPA_PKEY_PARTITION(nupa_pkey_at(fabric, *host, i)) == pkey)
				return true;
	return false;
}

/* One without a row. */
static void describe(uint32_t pkey, struct nupa_partition *out)
{
	*out = (struct nupa_partition){ .pkey = pkey, .managed = pkey != DEFAULT };
	if (pkey == DEFAULT)
		snprintf(out->name, sizeof(out->name), "default");
	else
		snprintf(out->name, sizeof(out->name), MANAGED_PREFIX "%04x", pkey & 0x7fffu);
}

int nupa_partition_get(struct nupa_fabric *fabric, uint32_t pkey, struct nupa_partition *out)
{
	const uint32_t base = NUPA_PKEY_PARTITION(pkey);
	struct nupa_control t;
	uint32_t host;

	if (base && base != DEFAULT && !nupa_control(fabric, false, &t) &&
	    row_of(&t, base, out) != UINT32_MAX)
		return 0;
	if (!base || (base != DEFAULT && !is_in_tables(fabric, base, &host)))
		return -ENOENT;
	describe(base, out);
	return 0;
}

static int by_pkey(const void *a, const void *b)
{
	const uint32_t x = ((const struct nupa_partition *)a)->pkey;
	const uint32_t y = ((const struct nupa_partition *)b)->pkey;

	return (x > y) - (x < y);
}

/* Marks all P_Keys that tables name. */
static void mark_tables(const struct nupa_fabric *fabric, bool named[DEFAULT + 1])
{
	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++)
		for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
			named[NUPA_PKEY_PARTITION(nupa_pkey_at(fabric, host, i))] = true;
}

uint32_t nupa_partition_list(struct nupa_fabric *fabric, struct nupa_partition *out, uint32_t max)
{
	bool named[DEFAULT + 1] = { [DEFAULT] = true };
	struct nupa_partition partition;
	struct nupa_control t;
	uint32_t n = 0;

	mark_tables(fabric, named);
	if (!nupa_control(fabric, false, &t))
		for (uint32_t i = 0; i < t.n_partitions; i++)
			if (nupa_partition_row(&t, i, &partition)) {
				named[partition.pkey] = false;
				if (n < max)
					out[n] = partition;
				n++;
			}
	for (uint32_t pkey = 1; pkey <= DEFAULT; pkey++)
		if (named[pkey]) {
			describe(pkey, &partition);
			if (n < max)
				out[n] = partition;
			n++;
		}
	qsort(out, n < max ? n : max, sizeof(*out), by_pkey);
	return n;
}

/* --- changed ----------------------------------------------------------------------------- */

static int check(struct nupa_fabric *fabric, const struct nupa_control *t,
		 const struct nupa_partition *wish, char *why, size_t why_bytes)
{
	struct nupa_tenant tenant;
	const int rc = nupa_control_check_name("partition", wish->name, why, why_bytes);

	if (rc)
		return rc;
	if (wish->pkey >= DEFAULT)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "P_Key %#x: a partition has one of 0x0001 to 0x7ffe, without "
				    "the membership bit",
				    wish->pkey);
	if (wish->service_level >= NUPA_SERVICE_LEVELS)
		return nupa_explain(-EINVAL, why, why_bytes, "service level %u: choose 0 to %u",
				    wish->service_level, NUPA_SERVICE_LEVELS - 1);
	if (wish->kind > NUPA_PARTITION_VPOD)
		return nupa_explain(-EINVAL, why, why_bytes, "no kind of partition is %u",
				    wish->kind);
	if (wish->tenant &&
	    (wish->tenant > t->n_tenants || !nupa_tenant_row(t, wish->tenant - 1, &tenant)))
		return nupa_explain(-ENOENT, why, why_bytes, "fabric %s has no tenant of id %u",
				    nupa_fabric_name(fabric), wish->tenant);
	if (strcmp(wish->name, "default") == 0 ||
	    strncmp(wish->name, MANAGED_PREFIX, strlen(MANAGED_PREFIX)) == 0)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "the name %s is kept for partitions that are always there, or "
				    "that a subnet manager makes: choose another",
				    wish->name);
	return 0;
}

/* A free row, the name and the P_Key being free, too. */
static int take_row(struct nupa_fabric *fabric, const struct nupa_control *t,
		    const struct nupa_partition *wish, uint32_t *index, bool taken[DEFAULT + 1],
		    char *why, size_t why_bytes)
{
	struct nupa_partition other;

	*index = UINT32_MAX;
	for (uint32_t i = t->n_partitions; i-- > 0;) {
		if (!nupa_partition_row(t, i, &other)) {
			*index = i;
			continue;
		}
		taken[other.pkey] = true;
		if (strcmp(other.name, wish->name) == 0 || other.pkey == wish->pkey)
			return nupa_explain(-EEXIST, why, why_bytes,
					    "partition %s of fabric %s has that name or P_Key: "
					    "%#06x",
					    other.name, nupa_fabric_name(fabric), other.pkey);
	}
	if (*index == UINT32_MAX)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u partitions, as many as it can: remove one",
				    nupa_fabric_name(fabric), t->n_partitions);
	return 0;
}

/* Hosts whose tables have the P_Key become members: they must be the tenant's. */
static int check_adopted(struct nupa_fabric *fabric, const struct nupa_partition *wish, char *why,
			 size_t why_bytes)
{
	for (uint32_t host = 0; host < fabric->geometry.n_hosts && wish->tenant; host++)
		for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
			if (NUPA_PKEY_PARTITION(nupa_pkey_at(fabric, host, i)) == wish->pkey &&
			    nupa_host_tenant(fabric, host) != wish->tenant)
				return nupa_explain(-EBUSY, why, why_bytes,
						    "P_Key %#06x is in the table of host %s, which "
						    "is not of that tenant: choose another P_Key",
						    wish->pkey, fabric->hosts[host].name);
	return 0;
}

int64_t nupa_partition_add(struct nupa_fabric *fabric, const struct nupa_partition *wish, char *why,
			   size_t why_bytes)
{
	struct nupa_partition body = *wish;
	bool taken[DEFAULT + 1] = { false };
	struct nupa_control t;
	uint32_t index;
	int rc = nupa_control_change(fabric, "partitions", &t, why, why_bytes);

	if (!rc)
		rc = check(fabric, &t, wish, why, why_bytes);
	if (!rc)
		rc = take_row(fabric, &t, wish, &index, taken, why, why_bytes);
	if (!rc && wish->pkey)
		rc = check_adopted(fabric, wish, why, why_bytes);
	if (rc)
		return rc;
	if (!body.pkey) {
		mark_tables(fabric, taken);
		/* There are more P_Keys than rows and entries of tables. */
		for (body.pkey = 1; body.pkey < DEFAULT - 1 && taken[body.pkey];)
			body.pkey++;
	}
	body.managed = 0;
	memset(body.reserved, 0, sizeof(body.reserved));
	rc = nupa_rate_set(fabric, NUPA_RATE_PARTITION, 0, 0, body.pkey, body.rate, why, why_bytes);
	if (rc)
		return rc;
	nupa_members_forget(fabric, &t, body.pkey);
	store_row(&t, index, &body);
	nupa_event_post(fabric, NUPA_SEVERITY_OK, "partition.added", body.name,
			"partition %s has P_Key %#06x", body.name, body.pkey);
	return body.pkey;
}

static int find(struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t pkey,
		uint32_t *index, struct nupa_partition *out, char *why, size_t why_bytes)
{
	*index = row_of(t, pkey, out);
	if (*index != UINT32_MAX)
		return 0;
	if (pkey == DEFAULT)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "the default partition of fabric %s stays as it is",
				    nupa_fabric_name(fabric));
	return nupa_explain(-ENOENT, why, why_bytes, "no partition of fabric %s has P_Key %#06x",
			    nupa_fabric_name(fabric), pkey);
}

int nupa_partition_set(struct nupa_fabric *fabric, const struct nupa_partition *wish, char *why,
		       size_t why_bytes)
{
	struct nupa_partition body;
	struct nupa_control t;
	uint32_t index;
	bool rate_changed;
	int rc = nupa_control_change(fabric, "partitions", &t, why, why_bytes);

	if (!rc)
		rc = find(fabric, &t, wish->pkey, &index, &body, why, why_bytes);
	if (!rc && wish->service_level >= NUPA_SERVICE_LEVELS)
		rc = nupa_explain(-EINVAL, why, why_bytes, "service level %u: choose 0 to %u",
				  wish->service_level, NUPA_SERVICE_LEVELS - 1);
	if (rc)
		return rc;
	rate_changed = body.rate != wish->rate;
	if (!rate_changed && body.service_level == wish->service_level)
		return 0;
	rc =
	    nupa_rate_set(fabric, NUPA_RATE_PARTITION, 0, 0, body.pkey, wish->rate, why, why_bytes);
	if (rc)
		return rc;
	body.rate = wish->rate;
	body.service_level = wish->service_level;
	store_row(&t, index, &body);
	nupa_event_post(fabric, NUPA_SEVERITY_OK,
			rate_changed ? "rate.changed" : "partition.changed", body.name,
			"partition %s: service level %u, at most %" PRIu64
			" bytes a second (0: no limit)",
			body.name, body.service_level, body.rate);
	return 0;
}

/* All hosts leave; the last error counts. */
static int empty(struct nupa_fabric *fabric, uint32_t pkey, char *why, size_t why_bytes)
{
	struct nupa_member member = { .pkey = pkey, .kind = NUPA_MEMBER_HOST };
	int rc = 0;

	for (member.index = 0; member.index < fabric->geometry.n_hosts; member.index++) {
		const int error = nupa_member_leave(fabric, &member, why, why_bytes);

		if (error && error != -ENOENT)
			rc = error;
	}
	return rc;
}

int nupa_partition_remove(struct nupa_fabric *fabric, uint32_t pkey, char *why, size_t why_bytes)
{
	static const struct nupa_partition none;
	struct nupa_partition body = { .pkey = pkey };
	struct nupa_control t;
	uint32_t index = UINT32_MAX, host;
	int rc = nupa_control_change(fabric, "partitions", &t, why, why_bytes);

	if (!rc && pkey && pkey < DEFAULT && is_in_tables(fabric, pkey, &host) &&
	    row_of(&t, pkey, &body) == UINT32_MAX)
		describe(pkey, &body);
	else if (!rc)
		rc = find(fabric, &t, pkey, &index, &body, why, why_bytes);
	if (!rc)
		rc = empty(fabric, pkey, why, why_bytes);
	if (!rc)
		rc = nupa_rate_set(fabric, NUPA_RATE_PARTITION, 0, 0, pkey, 0, why, why_bytes);
	if (rc)
		return rc;
	nupa_members_forget(fabric, &t, pkey);
	if (index != UINT32_MAX)
		store_row(&t, index, &none);
	nupa_event_post(fabric, NUPA_SEVERITY_OK, "partition.removed", body.name,
			"partition %s, P_Key %#06x, is removed", body.name, body.pkey);
	return 0;
}
