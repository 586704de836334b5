/* SPDX-License-Identifier: BSD-3-Clause
 * Slots: whether the process that has one lives, and how it is woken. */
#include "base/atomics.h"
#include "segment/bell.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void nupa_slot_ring(struct nupa_fabric *fabric, struct nupa_slot *slot)
{
	nupa_bell_ring_slot(fabric, slot);
	/* P3: the news (port_epoch, contact_epoch) was stored before, by a full fence. */
	if (nupa_load_seq(&slot->sleeping) && nupa_exchange_seq(&slot->sleeping, 0))
		syscall(SYS_futex, &slot->sleeping, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool nupa_slot_alive(const struct nupa_fabric *fabric, uint32_t index, uint64_t claim)
{
	const struct nupa_slot *slot = &fabric->slots[index];
	uint64_t start_time = 0;

	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE) {
		if (nupa_slot_trunked(fabric, index)) /* our trunk says so */
			return nupa_trunk_alive(fabric);
		if (nupa_life_is_over(slot))
			return false;
		start_time = nupa_load_relaxed(&slot->start_time);
	}
	if (nupa_slot_elsewhere(fabric, claim))
		return nupa_beat_heard(fabric, index, claim);
	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_REAPING && nupa_slot_foreign(fabric, index, claim))
		return true;
	return nupa_process_alive(NUPA_CLAIM_PID(claim), start_time);
}
