/* SPDX-License-Identifier: BSD-3-Clause
 * The kernel of a host, and the addresses that requests of kernels name. */
#include "engine/cm/kernel/kernel.h"

#define IPV6_LINK 0xfe /* the first byte of fe80::/10 */

uint32_t cm_kernel_slot(const struct nupa_fabric *fabric, uint32_t host)
{
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		const struct nupa_slot *slot = &fabric->slots[i];

		if (nupa_qpn_slot(&fabric->geometry, nupa_load_acquire(&slot->gsi_qpn)) == i &&
		    nupa_load_relaxed(&slot->host) == host &&
		    NUPA_CLAIM_STATE(nupa_slot_claim(slot)) == NUPA_SLOT_LIVE)
			return i;
	}
	return 0;
}

enum cm_addr_kind cm_kernel_kind(const struct cm_wire *wire)
{
	if (wire->family == AF_INET)
		return CM_ADDR_HOST4;
	return wire->dst[0] == IPV6_LINK ? CM_ADDR_LINK6 : CM_ADDR_HOST6;
}
