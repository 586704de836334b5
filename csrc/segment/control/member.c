/* SPDX-License-Identifier: BSD-3-Clause
 * Members of partitions.  P_Key tables follow from what joins and leaves. */
#include "base/atomics.h"
#include "base/explain.h"
#include "segment/control/control_internal.h"
#include "segment/control/event.h"
#include "segment/control/pkey.h"
#include "segment/control/rate.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT NUPA_PKEY_PARTITION(NUPA_PKEY_DEFAULT)

const char *nupa_member_name(const struct nupa_member *member, char *text, size_t bytes)
{
	if (member->kind == NUPA_MEMBER_ACCELERATOR)
		snprintf(text, bytes, "accelerator %u", member->index);
	else
		snprintf(text, bytes, "%s %.31s",
			 member->kind == NUPA_MEMBER_HOST ? "host" : "device", member->name);
	return text;
}

static bool is_same(const struct nupa_member *a, const struct nupa_member *b)
{
	return a->kind == b->kind && (a->kind == NUPA_MEMBER_DEVICE ? strcmp(a->name, b->name) == 0
								    : a->index == b->index);
}

/* --- rows -------------------------------------------------------------------------------- */

bool nupa_member_row(const struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t index,
		     struct nupa_member *out)
{
	const struct nupa_member_row *row = &t->members[index];

	if (!nupa_row_load(&row->stamp, &row->body, out, sizeof(*out)))
		return false;
	out->full = out->full != 0;
	return (out->pkey <= DEFAULT ||
		(out->pkey == NUPA_PKEY_NEWCOMER && out->kind != NUPA_MEMBER_HOST)) &&
	       out->service_level < NUPA_SERVICE_LEVELS && out->state < NUPA_HOST_STATES &&
	       memchr(out->name, 0, sizeof(out->name)) &&
	       ((out->kind == NUPA_MEMBER_HOST && out->index < fabric->geometry.n_hosts) ||
		(out->kind == NUPA_MEMBER_ACCELERATOR && out->index < NUPA_ACCELERATORS_MAX) ||
		(out->kind == NUPA_MEMBER_DEVICE && out->name[0]));
}

void nupa_member_row_store(const struct nupa_control *t, uint32_t index,
			   const struct nupa_member *body)
{
	if (index >= t->members_used)
		nupa_store_release(&t->header->members, index + 1);
	nupa_row_store(&t->members[index].stamp, &t->members[index].body, body, sizeof(*body));
}

/* With the rate of the member that it has. */
static void free_row(struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t index,
		     const struct nupa_member *member)
{
	static const struct nupa_member none;
	char why[128];

	if (member->kind == NUPA_MEMBER_HOST)
		(void)nupa_rate_set(fabric, NUPA_RATE_MEMBER, 0, member->index, member->pkey, 0,
				    why, sizeof(why));
	nupa_member_row_store(t, index, &none);
}

/* The row of a member; UINT32_MAX: it has none. */
static uint32_t row_in(const struct nupa_fabric *fabric, const struct nupa_control *t,
		       const struct nupa_member *member, struct nupa_member *out)
{
	for (uint32_t i = 0; i < t->members_used; i++)
		if (nupa_member_row(fabric, t, i, out) && out->pkey == member->pkey &&
		    is_same(out, member))
			return i;
	return UINT32_MAX;
}

uint32_t nupa_member_row_for(const struct nupa_fabric *fabric, const struct nupa_control *t,
			     const struct nupa_member *member)
{
	struct nupa_member found;
	const uint32_t own = row_in(fabric, t, member, &found);

	for (uint32_t i = 0; i < t->members_used && own == UINT32_MAX; i++)
		if (!nupa_member_row(fabric, t, i, &found))
			return i;
	return own == UINT32_MAX && t->members_used < t->n_members ? t->members_used : own;
}

void nupa_members_forget(struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t pkey)
{
	struct nupa_member member;

	for (uint32_t i = 0; i < t->members_used; i++)
		if (nupa_member_row(fabric, t, i, &member) && member.pkey == pkey)
			free_row(fabric, t, i, &member);
}

/* --- P_Key tables -------------------------------------------------------------------------- */

/* Where the table has the partition; a full entry before a limited one; -1: nowhere. */
static int entry_of(const struct nupa_fabric *fabric, uint32_t host, uint32_t pkey)
{
	int found = -1;

	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++) {
		const uint16_t entry = nupa_pkey_at(fabric, host, i);

		if (NUPA_PKEY_PARTITION(entry) != pkey)
			continue;
		if (entry & NUPA_PKEY_FULL)
			return (int)i;
		found = found < 0 ? (int)i : found;
	}
	return found;
}

static uint32_t entries(const struct nupa_fabric *fabric, uint32_t host)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
		n += nupa_pkey_at(fabric, host, i) != 0;
	return n;
}

static int set_entry(struct nupa_fabric *fabric, uint32_t host, uint32_t index, uint32_t pkey,
		     char *why, size_t why_bytes)
{
	const uint16_t entry = (uint16_t)pkey;

	return nupa_pkey_table_set(fabric, host, index, &entry, 1, why, why_bytes);
}

/* Puts the P_Key at its place, at the lowest free one, or at that of the default partition. */
static int enter(struct nupa_fabric *fabric, const struct nupa_member *member, bool keep_default,
		 char *why, size_t why_bytes)
{
	const uint32_t host = member->index;
	const uint32_t entry = member->pkey | (member->full ? NUPA_PKEY_FULL : 0);
	int at = entry_of(fabric, host, member->pkey);

	if (at < 0 && !keep_default && entries(fabric, host) == 1 &&
	    nupa_pkey_at(fabric, host, 0) == NUPA_PKEY_DEFAULT)
		at = 0;
	for (int i = 0; i < (int)NUPA_PKEYS_MAX && at < 0; i++)
		if (!nupa_pkey_at(fabric, host, (uint32_t)i))
			at = i;
	if (at < 0)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "host %s is in %u partitions, as many as a port can: let it "
				    "leave one",
				    fabric->hosts[host].name, NUPA_PKEYS_MAX);
	return set_entry(fabric, host, (uint32_t)at, entry, why, why_bytes);
}

/* A host of no tenant that is in no partition is in the default one. */
static int restore_default(struct nupa_fabric *fabric, uint32_t host, char *why, size_t why_bytes)
{
	if (entries(fabric, host) || nupa_host_tenant(fabric, host))
		return 0;
	return set_entry(fabric, host, 0, NUPA_PKEY_DEFAULT, why, why_bytes);
}

int nupa_host_clear_pkeys(struct nupa_fabric *fabric, uint32_t host, char *why, size_t why_bytes)
{
	uint16_t empty[NUPA_PKEYS_MAX] = { 0 };
	struct nupa_control t;
	struct nupa_member member;

	if (!nupa_host_tenant(fabric, host))
		empty[0] = NUPA_PKEY_DEFAULT;
	if (!nupa_control(fabric, false, &t))
		for (uint32_t i = 0; i < t.members_used; i++)
			if (nupa_member_row(fabric, &t, i, &member) &&
			    member.kind == NUPA_MEMBER_HOST && member.index == host)
				free_row(fabric, &t, i, &member);
	return nupa_pkey_table_set(fabric, host, 0, empty, NUPA_PKEYS_MAX, why, why_bytes);
}

/* --- join, leave --------------------------------------------------------------------------- */

/* An accelerator belongs to one vPod at most. */
static int check_accelerator(const struct nupa_fabric *fabric, const struct nupa_control *t,
			     const struct nupa_member *wish, char *why, size_t why_bytes)
{
	struct nupa_member other;

	if (wish->index >= NUPA_ACCELERATORS_MAX)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no accelerator %u: a pod has 0 to %u", wish->index,
				    NUPA_ACCELERATORS_MAX - 1);
	for (uint32_t i = 0; i < t->members_used; i++)
		if (nupa_member_row(fabric, t, i, &other) && is_same(&other, wish) &&
		    other.pkey != wish->pkey && other.pkey != NUPA_PKEY_NEWCOMER)
			return nupa_explain(-EBUSY, why, why_bytes,
					    "accelerator %u is in the partition of P_Key %#06x: it "
					    "can be in one only",
					    wish->index, other.pkey);
	return 0;
}

static int check_member(struct nupa_fabric *fabric, const struct nupa_control *t,
			const struct nupa_partition *partition, const struct nupa_member *wish,
			char *why, size_t why_bytes)
{
	if (wish->service_level >= NUPA_SERVICE_LEVELS)
		return nupa_explain(-EINVAL, why, why_bytes, "service level %u: choose 0 to %u",
				    wish->service_level, NUPA_SERVICE_LEVELS - 1);
	if (wish->kind == NUPA_MEMBER_ACCELERATOR)
		return check_accelerator(fabric, t, wish, why, why_bytes);
	if (wish->kind == NUPA_MEMBER_DEVICE)
		return memchr(wish->name, 0, sizeof(wish->name)) && wish->name[0]
			   ? 0
			   : nupa_explain(-EINVAL, why, why_bytes,
					  "a device is named by 1 to %u bytes",
					  NUPA_NAME_BYTES - 1);
	if (wish->kind != NUPA_MEMBER_HOST || wish->index >= fabric->geometry.n_hosts)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no host %u: fabric %s has %u", wish->index,
				    nupa_fabric_name(fabric), fabric->geometry.n_hosts);
	if (partition->tenant && nupa_host_tenant(fabric, wish->index) != partition->tenant)
		return nupa_explain(-EPERM, why, why_bytes,
				    "host %s is not of the tenant of partition %s: assign it first",
				    fabric->hosts[wish->index].name, partition->name);
	return 0;
}

int nupa_member_join(struct nupa_fabric *fabric, const struct nupa_member *wish,
		     uint32_t keep_default, char *why, size_t why_bytes)
{
	struct nupa_member body = *wish, before;
	char name[NUPA_MEMBER_NAME_BYTES];
	struct nupa_partition partition;
	struct nupa_control t;
	char undone[128];
	uint64_t rate_before;
	uint32_t row;
	bool was;
	int rc = nupa_control_change(fabric, "partitions", &t, why, why_bytes);

	if (!rc && nupa_partition_get(fabric, wish->pkey, &partition))
		rc = nupa_explain(-ENOENT, why, why_bytes,
				  "no partition of fabric %s has P_Key %#06x",
				  nupa_fabric_name(fabric), wish->pkey);
	if (!rc)
		rc = check_member(fabric, &t, &partition, wish, why, why_bytes);
	if (rc)
		return rc;
	body.pkey = partition.pkey;
	body.full = wish->full != 0;
	body.state = 0;
	body.reserved1 = 0;
	row = nupa_member_row_for(fabric, &t, &body);
	if (row == UINT32_MAX)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u members of partitions, as many as it can",
				    nupa_fabric_name(fabric), t.n_members);
	was = nupa_member_row(fabric, &t, row, &before);
	rate_before = was ? before.rate : 0;
	if (body.kind == NUPA_MEMBER_HOST) {
		memcpy(body.name, fabric->hosts[body.index].name, sizeof(body.name));
		was = entry_of(fabric, body.index, body.pkey) >= 0;
		rc = nupa_rate_set(fabric, NUPA_RATE_MEMBER, 0, body.index, body.pkey, body.rate,
				   why, why_bytes);
		if (!rc)
			rc = enter(fabric, &body, keep_default, why, why_bytes);
		if (rc)
			(void)nupa_rate_set(fabric, NUPA_RATE_MEMBER, 0, body.index, body.pkey,
					    rate_before, undone, sizeof(undone));
	}
	if (rc)
		return rc;
	nupa_member_row_store(&t, row, &body);
	nupa_event_post(fabric, NUPA_SEVERITY_OK, was ? "member.changed" : "member.added",
			partition.name, "%s is a %s member of partition %s",
			nupa_member_name(&body, name, sizeof(name)),
			nupa_membership_name(body.full), partition.name);
	return 0;
}

/* Takes all entries of the partition out; false: there was none. */
static int take_out(struct nupa_fabric *fabric, uint32_t host, uint32_t pkey, char *why,
		    size_t why_bytes)
{
	int rc = -ENOENT;

	for (int at = entry_of(fabric, host, pkey); at >= 0; at = entry_of(fabric, host, pkey)) {
		rc = set_entry(fabric, host, (uint32_t)at, 0, why, why_bytes);
		if (rc)
			return rc;
	}
	return rc ? rc : restore_default(fabric, host, why, why_bytes);
}

int nupa_member_leave(struct nupa_fabric *fabric, const struct nupa_member *member, char *why,
		      size_t why_bytes)
{
	struct nupa_partition partition;
	char name[NUPA_MEMBER_NAME_BYTES];
	struct nupa_member body = *member, found;
	struct nupa_control t;
	uint32_t row;
	int rc = nupa_control_change(fabric, "partitions", &t, why, why_bytes);

	if (rc)
		return rc;
	body.pkey = NUPA_PKEY_PARTITION(member->pkey);
	if (nupa_partition_get(fabric, body.pkey, &partition))
		snprintf(partition.name, sizeof(partition.name), "pkey-%#06x", body.pkey);
	row = row_in(fabric, &t, &body, &found);
	rc = row == UINT32_MAX ? -ENOENT : 0;
	if (body.kind == NUPA_MEMBER_HOST && body.index < fabric->geometry.n_hosts) {
		memcpy(body.name, fabric->hosts[body.index].name, sizeof(body.name));
		rc = take_out(fabric, body.index, body.pkey, why, why_bytes);
	}
	nupa_member_name(&body, name, sizeof(name));
	if (rc == -ENOENT)
		return nupa_explain(rc, why, why_bytes, "%s is no member of partition %s", name,
				    partition.name);
	if (rc)
		return rc;
	if (row != UINT32_MAX)
		free_row(fabric, &t, row, &found);
	nupa_event_post(fabric, NUPA_SEVERITY_OK, "member.removed", partition.name,
			"%s has left partition %s", name, partition.name);
	return 0;
}

/* --- listed -------------------------------------------------------------------------------- */

/* What rows add to the hosts of a partition. */
static void collect(const struct nupa_fabric *fabric, const struct nupa_control *t, uint32_t pkey,
		    struct nupa_member hosts[NUPA_HOSTS_MAX])
{
	struct nupa_member member;

	for (uint32_t i = 0; i < t->members_used; i++)
		if (nupa_member_row(fabric, t, i, &member) && member.pkey == pkey &&
		    member.kind == NUPA_MEMBER_HOST)
			hosts[member.index] = member;
}

uint32_t nupa_member_list(struct nupa_fabric *fabric, uint32_t pkey, struct nupa_member *out,
			  uint32_t max)
{
	const uint32_t base = NUPA_PKEY_PARTITION(pkey);
	struct nupa_member hosts[NUPA_HOSTS_MAX] = { { .pkey = 0 } };
	struct nupa_member member;
	struct nupa_control t;
	const bool backed = !nupa_control(fabric, false, &t);
	uint32_t n = 0;

	if (backed)
		collect(fabric, &t, base, hosts);
	for (uint32_t host = 0; base && host < fabric->geometry.n_hosts; host++) {
		const int at = entry_of(fabric, host, base);
		struct nupa_member own = { .pkey = base, .kind = NUPA_MEMBER_HOST, .index = host };

		if (at < 0)
			continue;
		memcpy(own.name, fabric->hosts[host].name, sizeof(own.name));
		own.rate = hosts[host].rate;
		own.service_level = hosts[host].service_level;
		own.full = (nupa_pkey_at(fabric, host, (uint32_t)at) & NUPA_PKEY_FULL) != 0;
		if (n < max)
			out[n] = own;
		n++;
	}
	for (uint32_t i = 0; backed && i < t.members_used; i++)
		if (nupa_member_row(fabric, &t, i, &member) && member.pkey == base &&
		    member.kind != NUPA_MEMBER_HOST) {
			if (n < max)
				out[n] = member;
			n++;
		}
	return n;
}
