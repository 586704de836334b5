/* SPDX-License-Identifier: BSD-3-Clause
 * P_Key tables: read by all, written by the control plane. */
#include "segment/control/pkey.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/slot/slot.h"

#include <errno.h>

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
