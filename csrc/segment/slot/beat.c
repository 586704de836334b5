/* SPDX-License-Identifier: BSD-3-Clause
 * Heartbeats: signs of life of processes under other kernels.  Each attachment counts in its slot,
 * ten times a second.  A process that sees no change in NUPA_BEATS_MISSED looks of its own declares
 * the owner dead.  Looks are counted, not time: a paused machine declares no process dead. */
#include "base/atomics.h"
#include "segment/coherence.h"
#include "segment/slot/slot.h"

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

/* Several attachments of a process look at one fabric: once is enough, and all learn of it. */
bool nupa_beat_look(struct nupa_fabric *fabric, uint64_t now_ns, uint32_t *known)
{
	uint64_t last_ns = nupa_load_acquire(&fabric->beats_at_ns);
	const uint32_t before = *known;

	if (now_ns - last_ns >= NUPA_BEAT_MS * UINT64_C(1000000) * 9 / 10 &&
	    nupa_cas_seq(&fabric->beats_at_ns, &last_ns, now_ns)) {
		for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++)
			if (listen(fabric, slot))
				nupa_fetch_add_seq(&fabric->silences, 1);
	}
	*known = nupa_load_acquire(&fabric->silences);
	return *known != before;
}
