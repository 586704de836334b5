/* SPDX-License-Identifier: BSD-3-Clause
 * Loopback and the machine's own addresses.
 *
 * Each `nupa run` has a host of its own, and on a real machine its programs would share one.  So
 * where the environment says NUPA_LOOPBACK=machine, an address that means this machine leads to a
 * listener of the own host first.  Otherwise it leads to the lowest host that has one in a process
 * of this kernel: guests are machines of their own.  Without it, such an address is the host's. */
#include "engine/cm/internal.h"
#include "segment/control/pkey.h"
#include "segment/segment_internal.h"

#include <stdlib.h>

bool cm_machine_asked(void)
{
	const char *loopback = getenv("NUPA_LOOPBACK");

	return loopback && !strcmp(loopback, "machine");
}

static bool listens(struct nupa_engine *engine, const struct nupa_cm_id *id, uint32_t host)
{
	const int slot =
	    cm_port_find(engine->fabric, host, id->ps, cm_addr_port(&id->dst), id->dst_kind);

	return slot >= 0 && nupa_pkey_shared(engine->fabric, engine->host, host) >= 0 &&
	       !nupa_slot_elsewhere(engine->fabric, nupa_slot_claim(&engine->fabric->slots[slot]));
}

void cm_machine_choose(struct nupa_cm_id *id)
{
	struct nupa_engine *engine = id->engine;

	if (!engine->cm->machine || !cm_addr_is_machine(id->dst_kind))
		return;
	id->dst_host = engine->host;
	/* Memory that is not coherent: each host has a kernel of its own. */
	if (nupa_fabric_incoherent(engine->fabric) || listens(engine, id, engine->host))
		return;
	for (uint32_t host = 0; host < engine->fabric->geometry.n_hosts; host++) {
		if (host != engine->host && listens(engine, id, host)) {
			id->dst_host = host;
			return;
		}
	}
}
