// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Connection management in a kernel is the kernel's own (ib_cm): it has no ids here.
 */
#include "kernel/host/host.h"
#include "engine/cm/hooks.h"

bool nupa_cm_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		     const struct nupa_msg *msg, const uint8_t *payload)
{
	return true;
}

void nupa_cm_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel)
{
}

void nupa_cm_flush(struct nupa_engine *engine)
{
}

uint64_t nupa_cm_next_timer_ns(const struct nupa_engine *engine)
{
	return UINT64_MAX;
}

void nupa_cm_run_timers(struct nupa_engine *engine)
{
}

void nupa_cm_free(struct nupa_engine *engine)
{
}
