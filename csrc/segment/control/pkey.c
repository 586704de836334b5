/* SPDX-License-Identifier: BSD-3-Clause
 * P_Key tables: read by all, written by the control plane. */
#include "segment/control/pkey.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <stdio.h>

uint16_t nupa_pkey_at(const struct nupa_fabric *fabric, uint32_t host, uint32_t index)
{
	if (host >= fabric->geometry.n_hosts || index >= NUPA_PKEYS_MAX)
		return 0;
	return nupa_load_relaxed(&fabric->controls[host].pkeys[index]);
}

int nupa_pkey_find(const struct nupa_fabric *fabric, uint32_t host, uint16_t pkey)
{
	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
		if (nupa_pkeys_match(nupa_pkey_at(fabric, host, i), pkey))
			return (int)i;
	return -1;
}

int nupa_pkey_shared(const struct nupa_fabric *fabric, uint32_t host, uint32_t peer)
{
	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++) {
		const uint16_t pkey = nupa_pkey_at(fabric, host, i);

		if (pkey && nupa_pkey_find(fabric, peer, pkey) >= 0)
			return (int)i;
	}
	return -1;
}

bool nupa_pkey_held(const struct nupa_fabric *fabric, uint32_t host, uint16_t pkey)
{
	for (uint32_t i = 0; pkey && i < NUPA_PKEYS_MAX; i++)
		if (nupa_pkey_at(fabric, host, i) == pkey)
			return true;
	return false;
}

int nupa_pkey_first(const struct nupa_fabric *fabric, uint32_t host)
{
	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
		if (NUPA_PKEY_PARTITION(nupa_pkey_at(fabric, host, i)))
			return (int)i;
	return -1;
}

/* FNV-1a, by entries. */
uint64_t nupa_pkey_sum(const struct nupa_fabric *fabric, uint32_t host)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++)
		sum = (sum ^ nupa_pkey_at(fabric, host, i)) * UINT64_C(0x100000001b3);
	return sum;
}

const char *nupa_pkeys_named(const struct nupa_fabric *fabric, uint32_t host, char *text)
{
	size_t at = 0;

	for (uint32_t i = 0; i < NUPA_PKEYS_MAX; i++) {
		const uint16_t pkey = nupa_pkey_at(fabric, host, i);

		if (!pkey)
			continue;
		if (at + sizeof("0xffff, ...") > NUPA_PKEYS_TEXT_BYTES) {
			snprintf(text + at, NUPA_PKEYS_TEXT_BYTES - at, "...");
			return text;
		}
		at += (size_t)snprintf(text + at, NUPA_PKEYS_TEXT_BYTES - at, "%s0x%04x",
				       at ? ", " : "", pkey);
	}
	if (!at)
		snprintf(text, NUPA_PKEYS_TEXT_BYTES, "none");
	return text;
}

void nupa_pkey_violation(struct nupa_fabric *fabric, uint32_t host)
{
	if (host < fabric->geometry.n_hosts)
		nupa_fetch_add_seq(&nupa_past_hw(fabric, host)->pkey_violations, 1);
}

int nupa_pkey_table_set(struct nupa_fabric *fabric, uint32_t host, uint32_t first,
			const uint16_t *pkeys, uint32_t n, char *why, size_t why_bytes)
{
	const int refused = nupa_fabric_may_command(fabric, "P_Keys", why, why_bytes);

	if (refused)
		return refused;
	if (host >= fabric->geometry.n_hosts)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no host %u: fabric %s has %u", host,
				    fabric->geometry.name, fabric->geometry.n_hosts);
	if (first > NUPA_PKEYS_MAX || n > NUPA_PKEYS_MAX - first)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "entries %u to %u are outside the P_Key table, which has %u",
				    first, first + n - 1, NUPA_PKEYS_MAX);
	for (uint32_t i = 0; i < n; i++)
		nupa_store_relaxed(&fabric->controls[host].pkeys[first + i], pkeys[i]);
	nupa_fabric_announce(fabric);
	return 0;
}
