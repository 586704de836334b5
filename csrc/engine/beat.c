/* SPDX-License-Identifier: BSD-3-Clause
 * Heartbeats: how a process is known to live whose kernel is not ours.  Each attachment counts in
 * its slot, ten times a second; who does not see it change for NUPA_BEATS_MISSED looks of his own
 * takes its owner for dead.  Looks are counted, not time: where everything stands still nobody
 * dies. */
#include "atomics.h"
#include "segment_internal.h"

#include <errno.h>
#include <unistd.h>

int nupa_fabric_join(struct nupa_fabric *fabric)
{
	uint64_t id;

	fabric->kernel = 0;
	if (!nupa_fabric_machines(fabric))
		return 0;
	id = nupa_kernel_id();
	if (!id)
		return -ENXIO;
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

bool nupa_slot_elsewhere(const struct nupa_fabric *fabric, uint64_t claim)
{
	return NUPA_CLAIM_KERNEL(claim) != fabric->kernel;
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
	const uint64_t claim = nupa_slot_claim(slot);
	const uint32_t now = nupa_load_relaxed(&slot->heartbeat);

	if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_FREE || !nupa_slot_elsewhere(fabric, claim) ||
	    beat->claim != claim || beat->seen != now) {
		nupa_store_relaxed(&beat->silent, 0);
		nupa_store_relaxed(&beat->seen, now);
		nupa_store_relaxed(&beat->claim, claim);
		return false;
	}
	if (beat->silent >= NUPA_BEATS_MISSED)
		return false;
	nupa_store_relaxed(&beat->silent, beat->silent + 1);
	return beat->silent == NUPA_BEATS_MISSED;
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
