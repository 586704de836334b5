/* SPDX-License-Identifier: BSD-3-Clause
 * Wakes port threads, ours and peers', and fences all producers at once. */
#define _GNU_SOURCE
#include "engine/core/wake.h"

#include <limits.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

static void wake_hard(uint32_t *bell)
{
	(void)nupa_exchange_seq(bell, 0);
	syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void nupa_port_wake_hard(struct nupa_engine *engine)
{
	if (nupa_exchange_seq(engine->bell, 0) == NUPA_AT_DOORBELL)
		nupa_bell_wake(engine);
	else
		syscall(SYS_futex, engine->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void nupa_port_knock(struct nupa_engine *engine, struct nupa_slot *slot)
{
	if (engine->polls_bell)
		nupa_bell_ring_slot(engine->fabric, slot);
	else
		wake_hard(&slot->sleeping);
}

void nupa_port_wake(struct nupa_engine *engine)
{
	/* P3: what it shall see was stored before, by a full fence. */
	if (nupa_load_seq(engine->bell))
		nupa_port_wake_hard(engine);
}

void nupa_port_app_drives(struct nupa_engine *engine)
{
	nupa_store_relaxed(&engine->app_drives, true);
	nupa_port_wake(engine);
}

void nupa_port_takes_over(struct nupa_engine *engine)
{
	engine->polls_in_row = 0;
	if (!nupa_load_relaxed(&engine->app_drives))
		return;
	nupa_store_relaxed(&engine->app_drives, false);
	nupa_port_wake_hard(engine);
	if (unlikely(engine->wires))
		engine->ops->wires_wake(engine);
}

/* A full fence of every registered process of the fabric, at this instant.  The others (struct
 * nupa_channel.fence) fence by themselves; so do all where membarrier is not available. */
bool nupa_barrier(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool nupa_port_barrier(struct nupa_engine *engine)
{
	if (nupa_load_relaxed(&engine->slot->needs_fence) || nupa_barrier())
		return true;
	nupa_store_release(&engine->slot->needs_fence, 1);
	return false;
}
