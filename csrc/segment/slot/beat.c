/* SPDX-License-Identifier: BSD-3-Clause
 * Heartbeats: signs of life of processes under other kernels.  Each attachment counts in its slot,
 * ten times a second.  A process that sees no change in NUPA_BEATS_MISSED looks of its own declares
 * the owner dead.  Looks are counted, not time: a paused machine declares no process dead. */
#include "base/atomics.h"
#include "segment/coherence.h"
#include "segment/segment_internal.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

/* SOFTWARE: who we are is known when we attach: a host is one kernel. */
static void look_by_ourselves(struct nupa_fabric *fabric)
{
	fabric->net_epoch = &fabric->own_net_epoch;
	if (fabric->creator)
		return;
	fabric->own_port_epoch = nupa_load_acquire(fabric->port_epoch);
	fabric->port_epoch = &fabric->own_port_epoch;
}

int nupa_fabric_join(struct nupa_fabric *fabric)
{
	uint64_t *creator = &fabric->sb->kernels[1];
	uint64_t id;

	fabric->kernel = 0;
	fabric->creator = true;
	fabric->port_epoch = &fabric->sb->port_epoch;
	fabric->net_epoch = &fabric->sb->net_epoch;
	if (!nupa_fabric_machines(fabric))
		return 0;
	fabric->boot = id = nupa_kernel_id();
	if (!id)
		return -ENXIO;
	if (!fabric->geometry.magic)
		nupa_store_release(creator, id);
	fabric->creator = nupa_load_acquire(creator) == id;
	if (nupa_fabric_incoherent(fabric)) {
		if (!nupa_coherence_possible())
			return -EOPNOTSUPP;
		look_by_ourselves(fabric);
		return 0;
	}
	for (uint32_t i = 1; i < NUPA_KERNELS_MAX; i++) {
		uint64_t *entry = &fabric->sb->kernels[i];
		uint64_t seen = nupa_load_acquire(entry);

		if (seen == id || (seen == 0 && (nupa_cas_seq(entry, &seen, id) || seen == id))) {
			fabric->kernel = i;
			return 0;
		}
	}
	return -EUSERS;
}

uint32_t nupa_fabric_owner(const struct nupa_fabric *fabric)
{
	return NUPA_OWNER(fabric->kernel, getpid());
}

bool nupa_beat_heard(const struct nupa_fabric *fabric, uint32_t slot, uint64_t claim)
{
	const struct nupa_beat *beat = &fabric->beats[slot];

	return nupa_load_relaxed(&beat->claim) != claim ||
	       nupa_load_relaxed(&beat->silent) < NUPA_BEATS_MISSED;
}

/* One slot; true: it has just been silent for long enough. */
static bool listen(struct nupa_fabric *fabric, uint32_t index)
{
	const struct nupa_slot *slot = &fabric->slots[index];
	struct nupa_beat *beat = &fabric->beats[index];
	const uint64_t claim = nupa_slot_fetch(fabric, index);
	uint32_t silent, now;

	nupa_fetch(nupa_slot_apart(fabric, index), NUPA_POINT_BEAT, &slot->heartbeat,
		   NUPA_CACHE_LINE_BYTES);
	now = nupa_load_relaxed(&slot->heartbeat);

	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE || !nupa_slot_elsewhere(fabric, claim) ||
	    nupa_load_relaxed(&beat->claim) != claim || nupa_load_relaxed(&beat->seen) != now) {
		nupa_store_relaxed(&beat->silent, 0);
		nupa_store_relaxed(&beat->seen, now);
		nupa_store_relaxed(&beat->claim, claim);
		return false;
	}
	/* A slow process looks while another one already looks again: one look less counts. */
	silent = nupa_load_relaxed(&beat->silent);
	if (silent >= NUPA_BEATS_MISSED)
		return false;
	nupa_store_relaxed(&beat->silent, silent + 1);
	return silent + 1 == NUPA_BEATS_MISSED;
}

bool nupa_beat_look(struct nupa_fabric *fabric, uint64_t now_ns)
{
	uint64_t last_ns = nupa_load_acquire(&fabric->beats_at_ns);
	bool fell_silent = false;

	/* Several attachments of a process look at one fabric: once is enough. */
	if (now_ns - last_ns < NUPA_BEAT_MS * UINT64_C(1000000) * 9 / 10 ||
	    !nupa_cas_seq(&fabric->beats_at_ns, &last_ns, now_ns))
		return false;
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
		fell_silent |= listen(fabric, slot);
	return fell_silent;
}
