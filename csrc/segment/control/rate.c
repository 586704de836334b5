/* SPDX-License-Identifier: BSD-3-Clause
 * The table of rates, and the arithmetic of its buckets. */
#include "segment/control/rate.h"

#include "base/clock.h"
#include "base/explain.h"
#include "segment/slot/slot.h"

#include <errno.h>

#define PKEY_BITS 0x7fffu

/* --- buckets ------------------------------------------------------------------------- */

/* What is booked now may have gone from then on. */
static uint64_t oldest_start(uint64_t now_ns)
{
	return nupa_rate_units(now_ns > NUPA_RATE_BURST_NS ? now_ns - NUPA_RATE_BURST_NS : 0);
}

/* Time before that, which a bucket that was free since then does not make up for. */
static uint64_t lost_ns(uint64_t free_at, uint64_t now_ns)
{
	const uint64_t oldest = oldest_start(now_ns);

	return free_at < oldest ? (oldest - free_at) / NUPA_RATE_UNITS_PER_NS : 0;
}

uint64_t nupa_rate_book(struct nupa_rate_entry *entry, double price, uint64_t bytes,
			uint64_t now_ns)
{
	uint64_t oldest = oldest_start(now_ns);
	uint64_t cost = nupa_rate_cost(price, bytes);
	uint64_t free_at = nupa_load_relaxed(&entry->free_at), start;

	do {
		start = free_at > oldest ? free_at : oldest;
	} while (!nupa_cas_seq(&entry->free_at, &free_at, nupa_rate_sum(start, cost)));
	if (free_at < oldest) /* R3 */
		nupa_fetch_add_seq(&entry->idle_ns, lost_ns(free_at, now_ns));
	nupa_fetch_add_seq(&entry->bytes, bytes);
	return start;
}

uint32_t nupa_rate_piece_bytes(uint64_t bytes_per_s)
{
	const double bytes = (double)bytes_per_s * NUPA_RATE_PIECE_NS * 1e-9;

	if (bytes >= NUPA_RATE_PIECE_MAX_BYTES)
		return NUPA_RATE_PIECE_MAX_BYTES;
	return bytes < NUPA_MTU_BYTES ? NUPA_MTU_BYTES : (uint32_t)bytes & ~(NUPA_MTU_BYTES - 1);
}

/* --- the table ----------------------------------------------------------------------- */

static int check(const struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant, uint32_t host,
		 uint32_t pkey, char *why, size_t why_bytes)
{
	const int refused = nupa_fabric_may_command(fabric, "rates", why, why_bytes);

	if (refused)
		return refused;
	if (nupa_fabric_machines(fabric))
		return nupa_explain(-EOPNOTSUPP, why, why_bytes,
				    "fabric %s is shared by several kernels, whose clocks differ: "
				    "rates are possible in a fabric of one machine",
				    nupa_fabric_name(fabric));
	if (scope == 0 || scope >= NUPA_RATE_SCOPES)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no rate of scope %u: scopes are 1 to %u", scope,
				    NUPA_RATE_SCOPES - 1u);
	if (scope == NUPA_RATE_TENANT && !tenant)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "tenant 0 is the fabric itself and has no rate: name a tenant");
	if (scope != NUPA_RATE_TENANT && !pkey)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "P_Key 0 is no partition: choose 0x0001 to 0x7fff");
	if (scope == NUPA_RATE_MEMBER && host >= fabric->geometry.n_hosts)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no host %u: fabric %s has %u", host,
				    nupa_fabric_name(fabric), fabric->geometry.n_hosts);
	return 0;
}

static struct nupa_rate_entry *find(struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant,
				    uint32_t host, uint32_t pkey)
{
	for (uint32_t i = 0; i < NUPA_RATES_MAX; i++) {
		struct nupa_rate_entry *entry = &fabric->rates[i];

		if (nupa_load_acquire(&entry->scope) == scope && entry->tenant == tenant &&
		    entry->host == host && entry->pkey == pkey)
			return entry;
	}
	return NULL;
}

static struct nupa_rate_entry *find_free(struct nupa_fabric *fabric)
{
	for (uint32_t i = 0; i < NUPA_RATES_MAX; i++)
		if (!nupa_load_acquire(&fabric->rates[i].scope))
			return &fabric->rates[i];
	return NULL;
}

static bool goes_by_the_table(const struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
	return (int32_t)(nupa_load_acquire(&slot->rate_seen) -
			 nupa_load_acquire(&fabric->sb->rate_epoch)) >= 0;
}

static void announce_and_wait(struct nupa_fabric *fabric)
{
	nupa_fetch_add_seq(&fabric->sb->rate_epoch, 1);
	nupa_fabric_announce(fabric);
	nupa_fabric_await_notice(fabric, goes_by_the_table);
}

/* What was booked at another rate does not count: at a low one it may reach far ahead. */
static void forget_bookings(struct nupa_rate_entry *entry)
{
	const uint64_t now = nupa_rate_units(nupa_clock_ns());
	uint64_t free_at = nupa_load_relaxed(&entry->free_at);

	while (free_at > now && !nupa_cas_seq(&entry->free_at, &free_at, now))
		;
}

int nupa_rate_set(struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant, uint32_t host,
		  uint32_t pkey, uint64_t bytes_per_s, char *why, size_t why_bytes)
{
	struct nupa_rate_entry *entry;
	int error;

	pkey &= PKEY_BITS;
	tenant = scope == NUPA_RATE_TENANT ? tenant : 0;
	host = scope == NUPA_RATE_MEMBER ? host : 0;
	pkey = scope == NUPA_RATE_TENANT ? 0 : pkey;
	entry = find(fabric, scope, tenant, host, pkey);
	if (!entry && !bytes_per_s)
		return 0; /* there is none */
	error = check(fabric, scope, tenant, host, pkey, why, why_bytes);
	if (error)
		return error;
	if (entry) {
		nupa_store_relaxed(&entry->bytes_per_s, bytes_per_s);
		if (!bytes_per_s)
			nupa_store_release(&entry->scope, 0);
		forget_bookings(entry);
		announce_and_wait(fabric);
		forget_bookings(entry); /* of those who had not seen it yet */
		return 0;
	}
	entry = find_free(fabric);
	if (!entry)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u rates, as many as it can: set some to 0",
				    nupa_fabric_name(fabric), NUPA_RATES_MAX);
	nupa_store_relaxed(&entry->tenant, tenant);
	nupa_store_relaxed(&entry->host, host);
	nupa_store_relaxed(&entry->pkey, pkey);
	nupa_store_relaxed(&entry->bytes_per_s, bytes_per_s);
	nupa_store_relaxed(&entry->free_at, nupa_rate_units(nupa_clock_ns()));
	nupa_store_relaxed(&entry->bytes, 0);
	nupa_store_relaxed(&entry->idle_ns, 0);
	nupa_store_release(&entry->scope, scope);
	announce_and_wait(fabric);
	return 0;
}

uint32_t nupa_rate_list(struct nupa_fabric *fabric, struct nupa_rate_info *out, uint32_t max)
{
	const uint64_t now_ns = nupa_clock_ns();
	uint32_t n = 0;

	for (uint32_t i = 0; i < NUPA_RATES_MAX; i++) {
		const struct nupa_rate_entry *entry = &fabric->rates[i];
		const struct nupa_rate_info info = {
			.scope = nupa_load_acquire(&entry->scope),
			.tenant = nupa_load_relaxed(&entry->tenant),
			.host = nupa_load_relaxed(&entry->host),
			.pkey = nupa_load_relaxed(&entry->pkey),
			.bytes_per_s = nupa_load_relaxed(&entry->bytes_per_s),
			.bytes = nupa_load_relaxed(&entry->bytes),
			.idle_ns = nupa_load_relaxed(&entry->idle_ns) +
				   lost_ns(nupa_load_relaxed(&entry->free_at), now_ns),
		};

		if (!info.scope)
			continue;
		if (n < max)
			out[n] = info;
		n++;
	}
	return n;
}
