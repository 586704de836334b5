/* SPDX-License-Identifier: BSD-3-Clause
 * The kernel of a host. */
#include "engine/cm/kernel/kernel.h"

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
