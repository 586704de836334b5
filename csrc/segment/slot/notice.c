/* SPDX-License-Identifier: BSD-3-Clause
 * Telling all attachments that something has changed which they go by: a port, the faults, who
 * watches. */
#include "base/atomics.h"
#include "base/clock.h"
#include "base/explain.h"
#include "segment/coherence.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <time.h>

/* A machine that is busy lets a thread wait for so long, now and then. */
#define PATIENCE_NS UINT64_C(2000000000)
#define LOOK_NS 50000

int nupa_fabric_may_command(const struct nupa_fabric *fabric, const char *what, char *why,
			    size_t why_bytes)
{
	if (nupa_fabric_incoherent(fabric))
		return nupa_explain(-EOPNOTSUPP, why, why_bytes,
				    "fabric %s is in memory that is not coherent, where %s are not "
				    "possible: use one with coherence = \"hardware\"",
				    nupa_fabric_name(fabric), what);
	if (!fabric->creator)
		return nupa_explain(
		    -EREMOTE, why, why_bytes,
		    "%s of fabric %s go by the clock of the machine on which it was "
		    "made: run this there",
		    what, nupa_fabric_name(fabric));
	return 0;
}

void nupa_fabric_announce(struct nupa_fabric *fabric)
{
	nupa_fetch_add_seq(&fabric->sb->port_epoch, 1);
	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_EPOCH, &fabric->sb->port_epoch,
		   NUPA_CACHE_LINE_BYTES);
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		if (NUPA_CLAIM_STATE(nupa_slot_claim(&fabric->slots[slot])) == NUPA_SLOT_LIVE)
			nupa_slot_ring(fabric, &fabric->slots[slot]);
	if (nupa_fabric_has_trunk(fabric))
		nupa_trunk_ring(fabric);
}

/* Whether no process lives there that could be waited for. */
static bool is_out_of_reach(const struct nupa_fabric *fabric, uint32_t slot)
{
	const uint64_t claim = nupa_slot_claim(&fabric->slots[slot]);

	return NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE || nupa_slot_trunked(fabric, slot) ||
	       !nupa_slot_alive(fabric, slot, claim) ||
	       (!nupa_slot_elsewhere(fabric, claim) && nupa_process_stopped(NUPA_CLAIM_PID(claim)));
}

void nupa_fabric_await_notice(struct nupa_fabric *fabric, nupa_heeds *heeds)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	const uint64_t until_ns = nupa_clock_ns() + PATIENCE_NS;

	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		struct nupa_slot *slot = &fabric->slots[i];

		while (!heeds(fabric, slot) && !is_out_of_reach(fabric, i) &&
		       nupa_clock_ns() < until_ns) {
			nupa_slot_ring(fabric, slot);
			nanosleep(&pause, NULL);
		}
	}
}
